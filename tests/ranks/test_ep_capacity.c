/* SPDX-License-Identifier: MIT */
/* Capacity mode: nobody waits for counts, and outputs may be too small. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static const struct ep_case usual = {.seed = 21,
                                     .max_tokens = 14,
                                     .num_topk = 3,
                                     .num_experts = 10,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .routing = EP_ROUTING_SKEWED,
                                     .num_blocks = 2,
                                     .num_warps = 2};

TEST_OF_TRIALS(every_capacity, IN_THREADS(1, .last = 9, .step = 2), IN_PROCESSES(4))
{
    const uint64_t row_sizes[] = {1, 16, 100, 4096};
    for (int i = 0; i < EP_NUM_CAPACITIES * 4; i++) {
        struct ep_case spec = usual;
        spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->dispatch = ep_dispatch_shape_of(row_sizes[i % 4]);
        trial->dispatch.capacity = (enum ep_capacity)(i / 4);
        trial->combine.capacity = (enum ep_capacity)(i / 4);
    }
}

enum { NUM_ROUNDS = 8 };

/* The whole layer is enqueued before the host looks at anything. */
static int layers_without_waiting(struct ranks_context *context)
{
    const struct ep_trial *trial = context->argument;
    struct ep_pass passes[NUM_ROUNDS];
    struct ep_rank self;
    if (ep_rank_open(&self, context, trial->world->spec.num_nodes, 4 << 20) ||
        ep_rank_enter(&self, trial->world))
        return 1;
    for (int round = 0; round < NUM_ROUNDS; round++)
        if (ep_route(&self) ||
            ep_pass_issue(&self, trial->dispatch, trial->combine, (uint64_t)round, &passes[round]))
            return 1;
    if (ep_passes_verify(&self, passes, NUM_ROUNDS))
        return 1;
    return ep_check_dropped(&self, &trial->dispatch.capacity, 1) || ep_rank_leave(&self) ||
           ep_rank_close(&self);
}

TEST(without_waiting)
{
    const enum ep_capacity capacities[] = {EP_CAPACITY_MORE, EP_CAPACITY_LESS, EP_CAPACITY_BY_RANK};
    const int32_t max_nodes = tests_max_nodes(2);
    for (int i = 0; i < 3 * max_nodes; i++) {
        struct ep_case spec = usual;
        spec.num_ranks = 4;
        spec.num_nodes = 1 + i / 3;
        struct ep_trial trial = {ep_world_create(&spec), ep_dispatch_shape_of(100),
                                 ep_combine_shape_of(WEFT_BF16, 50)};
        trial.dispatch.capacity = capacities[i % 3];
        trial.combine.capacity = capacities[i % 3];
        assert_int_equal(ranks_run(RANKS_THREADS, 4, layers_without_waiting, &trial), 0);
        assert_int_equal(ranks_run(RANKS_PROCESSES, 4, layers_without_waiting, &trial), 0);
        ep_world_destroy(trial.world);
    }
}

/* weft_ep_check tells the most that one dispatch dropped, and forgets at the next notify. */
static int most_of_several(struct ranks_context *context)
{
    const enum ep_capacity capacities[] = {EP_CAPACITY_MORE, EP_CAPACITY_ZERO, EP_CAPACITY_LESS};
    struct ep_dispatch_shape shape = ep_dispatch_shape_of(32);
    struct ep_rank self;
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, context->argument) ||
        ep_route(&self))
        return 1;
    for (int i = 0; i < 3; i++) {
        shape.capacity = capacities[i];
        if (ep_check_dispatch(&self, &shape) || ep_check_dropped(&self, capacities, i + 1))
            return 1;
    }
    if (ep_check_notify(&self) || ep_check_dropped(&self, capacities, 1))
        return 1;
    shape.capacity = EP_CAPACITY_LESS;
    return ep_check_dispatch(&self, &shape) || ep_check_dropped(&self, &shape.capacity, 1) ||
           ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(check_tells_the_most)
{
    struct ep_case spec = usual;
    spec.num_ranks = 3;
    assert_int_equal(ep_case_run(&spec, RANKS_THREADS, most_of_several), 0);
}
