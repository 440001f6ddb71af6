/* SPDX-License-Identifier: MIT */
/* The number of cores that ranks share, also if a machine has more processors than a cpu_set_t. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/host/cores.h"
#include "comm/rendezvous/identity.h"
#include "harness/cmocka.h"

enum { NUM_PROCESSORS = 4096, NUM_RANKS = 4 };

static int first_core, num_cores;

/* As the system call: refuses a set without room for all processors, and clears the rest of a
 * larger one. */
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (num_cores == 0 || bytes * 8 < NUM_PROCESSORS) {
        errno = num_cores == 0 ? EPERM : EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (int i = 0; i < num_cores; i++)
        CPU_SET_S(first_core + i, bytes, set);
    return 0;
}

/* All ranks are of this process. Rank 0 has one core, the others have the given ones. */
static double ranks_per_core(int first, int num)
{
    struct weft__identity identities[NUM_RANKS];
    const weft_comm comm = {.rank = 1, .num_ranks = NUM_RANKS, .identities = identities};
    first_core = NUM_PROCESSORS - 1;
    num_cores = 1;
    assert_ok(weft__identity_of_process(&identities[0]));
    first_core = first;
    num_cores = num;
    for (int rank = 1; rank < NUM_RANKS; rank++)
        assert_ok(weft__identity_of_process(&identities[rank]));
    return weft__ranks_per_core(&comm);
}

TEST(cores_of_large_machines_are_counted)
{
    assert_true(ranks_per_core(0, NUM_PROCESSORS) == 3.0 / NUM_PROCESSORS);
    assert_true(ranks_per_core(2000, 6) == 0.5);
    assert_true(ranks_per_core(1000, 48) == 3.0 / 48);
}

/* A process that may not ask for its cores counts one, which it shares with all ranks. */
TEST_CALL(cores_that_are_not_told_are_one, assert_true(ranks_per_core(0, 0) == 3))
