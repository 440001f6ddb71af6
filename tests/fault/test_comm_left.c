/* SPDX-License-Identifier: MIT */
/* The process of a rank ends without weft_comm_destroy, or the system denies what ranks need to
 * share memory. The other ranks learn at once which rank it was, where, and how it ended. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 3, THE_ONE = 1, STATUS = 7, FAR_MS = 60000 };

/* ---------------------------------------------------------------- processes that end */

struct plan {
    int32_t rank;
    int status;
};

/* The rank is a child, so that its process may end: the parent belongs to the harness. */
static int end_without_goodbye(struct ranks_context *context, const struct plan *plan)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        weft_comm *comm;
        if (ranks_comm_create(context, NULL, &comm) != WEFT_OK)
            _exit(100);
        exit(plan->status);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "it did not exit");
    CHECK(WEXITSTATUS(status) == plan->status, "its status is %d", WEXITSTATUS(status));
    return 0;
}

static int see_one_end(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    char text[96];
    weft_comm *comm;
    int32_t failed_rank;
    if (context->rank == plan->rank)
        return end_without_goodbye(context, plan);
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    weft_result result = WEFT_OK;
    while (result == WEFT_OK)
        result = weft_host_barrier(comm);
    snprintf(text, sizeof text, "left without weft_comm_destroy: its process ended with status %d",
             plan->status);
    CHECK_ERROR(result, WEFT_ERROR_RANK_FAILED, text);
    CHECK(weft_comm_status(comm, &failed_rank) != WEFT_OK && failed_rank == plan->rank,
          "failed_rank is %d", failed_rank);
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

/* The rank is a fork. A fork cannot go on with CUDA, and the address sanitizer takes the allocations
 * of its parent for leaks. */
TEST(a_process_that_ends_is_no_death)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    if (tests_on_cuda())
        skip();
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        for (int status = 0; status <= STATUS; status += STATUS) {
            struct plan plan = {rank, status};
            assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, see_one_end, &plan), 0);
        }
}

/* ---------------------------------------------------------------- what the system denies */

/* Denies a system call to the calling thread and its children. Returns 0 if it cannot. */
static int deny(int call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {4, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static int create_in_vain(struct ranks_context *context)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm;
    config.timeout_ms = FAR_MS;
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_SYSTEM,
                "rank 1 cannot share its memory with rank 2: sending it a file descriptor over an "
                "abstract Unix socket failed: Permission denied");
    return 0;
}

static int create_with_a_denied_one(struct ranks_context *context)
{
    int status = 0;
    if (context->rank != THE_ONE)
        return create_in_vain(context);
    const pid_t child = fork();
    if (child == 0)
        _exit(deny(SYS_sendmsg) ? create_in_vain(context) : 77);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "it did not exit");
    CHECK(WEXITSTATUS(status) == 0, "its status is %d", WEXITSTATUS(status));
    return 0;
}

TEST(unix_sockets_denied)
{
#ifdef __SANITIZE_THREAD__ /* forks start no threads */
    skip();
#endif
    const pid_t child = fork();
    int status = 0;
    if (child == 0)
        _exit(deny(SYS_sendmsg) ? 0 : 77);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) != 0)
        skip();
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, create_with_a_denied_one, NULL), 0);
}
