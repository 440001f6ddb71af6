/* SPDX-License-Identifier: MIT */
/* Once weft_memory_unregister has returned memory may be freed: all ranks have unmapped it. */
#include <stdatomic.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/ranks.h"
#include "machine/host.h"

enum { NUM_RANKS = 3, LATE_ONE = 2, BYTES = 4096, LATE_US = 100000 };

/* The process has all ranks. */
static _Atomic int32_t num_closed;

/* The machine of a rank that takes its time. */
static void close_late(weft_comm *comm, const struct weft__block *block)
{
    (void)comm;
    (void)block;
    usleep(LATE_US);
    atomic_fetch_add(&num_closed, 1);
}

static void close_now(weft_comm *comm, const struct weft__block *block)
{
    (void)comm;
    (void)block;
    atomic_fetch_add(&num_closed, 1);
}

TEST_ON_RANKS(who_has_unregistered_is_mapped_by_nobody, RANKS_THREADS, NUM_RANKS)
{
    static char memory[NUM_RANKS][BYTES];
    int32_t is_direct;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .machine = WEFT_MACHINE_CPU));
    const struct weft__comm_hooks *hooks = comm->hooks;
    struct weft__machine machine = *weft__machine_of(comm);
    machine.close_block = context->rank == LATE_ONE ? close_late : close_now;
    comm->hooks = &machine.hooks;
    CHECK_OK(weft_memory_register(comm, memory[context->rank], BYTES, &is_direct));
    CHECK(is_direct == 1, "is_direct is %d", is_direct);
    CHECK_OK(weft_memory_unregister(comm, memory[context->rank]));
    const int32_t num_now = atomic_load(&num_closed), num_all = NUM_RANKS * (NUM_RANKS - 1);
    CHECK(num_now == num_all, "%d of %d blocks are unmapped", num_now, num_all);
    comm->hooks = hooks;
    return 0;
}
