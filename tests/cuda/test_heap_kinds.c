/* SPDX-License-Identifier: MIT */
/* How heaps of GPUs are shared, by CUDA IPC where one rank wants it and else by file descriptors,
 * and ranks that are not on the same machine. */
#include <stdlib.h>

#include "cuda/driver.h"
#include "harness/cmocka.h"
#include "oracle/ep_trials.h"

enum { HEAP_BYTES = 4 << 20, HEAP_MAX_BYTES = 64 << 20, ARENA_BYTES = 16 << 20 };

enum sharing { BY_DESCRIPTOR, BY_IPC, BY_IPC_FOR_THE_LAST /* processes only */ };

struct plan {
    enum sharing sharing;
    struct ep_world *world;
};

/* What is shared by IPC is there from the start, and no more can come. */
static int check_growth(struct ep_rank *self, enum sharing sharing)
{
    weft_heap_info info = WEFT_INIT(weft_heap_info);
    CHECK_OK(weft_heap_query(self->comm, &info));
    CHECK(info.max_bytes == HEAP_MAX_BYTES, "%llu bytes at most",
          (unsigned long long)info.max_bytes);
    CHECK((info.committed_bytes == info.max_bytes) == (sharing != BY_DESCRIPTOR),
          "%llu of %llu bytes are committed", (unsigned long long)info.committed_bytes,
          (unsigned long long)info.max_bytes);
    CHECK_ERROR(weft_heap_grow(self->comm, HEAP_MAX_BYTES + 1), WEFT_ERROR_OUT_OF_MEMORY,
                "heap_max_bytes is 67108864");
    CHECK_OK(weft_heap_grow(self->comm, HEAP_MAX_BYTES));
    return 0;
}

/* The arena does not fit in what is committed at first: rows go to memory that came later, too. */
static int use_heap(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(4096);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 1000);
    struct ep_rank self;
    void *first, *last;
    if (plan->sharing == BY_IPC_FOR_THE_LAST && context->rank == context->num_ranks - 1)
        setenv("WEFT_CUDA_HEAP", "ipc", 1);
    if (ep_rank_open_with(
            &self, context,
            WEFT_ARGS(weft_comm_config, .heap_bytes = HEAP_BYTES, .heap_max_bytes = HEAP_MAX_BYTES),
            ARENA_BYTES) ||
        ep_check_world(&self, plan->world, &dispatch, &combine))
        return 1;
    CHECK_OK(weft_arena_alloc(self.arena, 12 << 20, &first));
    if (ep_check_world(&self, plan->world, &dispatch, &combine) ||
        check_growth(&self, plan->sharing))
        return 1;
    CHECK_OK(weft_arena_free(self.arena, first));
    CHECK_OK(weft_heap_alloc(self.comm, 32 << 20, &last));
    CHECK_OK(weft_heap_free(self.comm, last));
    return ep_rank_close(&self);
}

static void share(enum ranks_mode mode, enum sharing sharing, int32_t num_ranks)
{
    const struct ep_case spec = {.seed = 60,
                                 .num_ranks = num_ranks,
                                 .max_tokens = 24,
                                 .num_topk = 3,
                                 .num_experts = 8,
                                 .tokens = EP_TOKENS_RAGGED,
                                 .num_blocks = 2,
                                 .num_warps = 4};
    struct plan plan = {sharing, ep_world_create(&spec)};
    setenv("WEFT_CUDA_HEAP", sharing == BY_IPC ? "ipc" : "auto", 1);
    if (ranks_run(mode, num_ranks, use_heap, &plan) != 0)
        fail_msg("mode %d, sharing %d, %d ranks", (int)mode, (int)sharing, num_ranks);
    ep_world_destroy(plan.world);
}

TEST_CALL(by_descriptor, share(RANKS_PROCESSES, BY_DESCRIPTOR, 4))

TEST(by_ipc)
{
    share(RANKS_PROCESSES, BY_IPC, 4);
    share(RANKS_PROCESSES, BY_IPC_FOR_THE_LAST, 2);
}

/* Within a process nothing needs to be opened. */
TEST_CALL(by_ipc_between_threads, share(RANKS_THREADS, BY_IPC, 3))

/* ---------------------------------------------------------------- machines that differ */

static int be_on_another_machine(struct ranks_context *context)
{
    const int32_t odd_one = *(const int32_t *)context->argument;
    const int32_t named = odd_one == 0 ? 1 : odd_one; /* the first that is not as rank 0 */
    weft_comm *comm;
    char text[128];
    snprintf(text, sizeof text, "the machine is %s on rank 0 and %s on rank %d",
             odd_one == 0 ? "cpu" : "cuda", odd_one == 0 ? "cuda" : "cpu", named);
    CHECK_ERROR(ranks_comm_create(context,
                                  WEFT_ARGS(weft_comm_config, .machine = context->rank == odd_one
                                                                             ? WEFT_MACHINE_CPU
                                                                             : WEFT_MACHINE_CUDA),
                                  &comm),
                WEFT_ERROR_MISMATCH, text);
    return 0;
}

TEST(ranks_on_different_machines_are_named)
{
    for (int32_t odd_one = 0; odd_one < 3; odd_one += 2)
        assert_int_equal(ranks_run(RANKS_PROCESSES, 3, be_on_another_machine, &odd_one), 0);
}
