/* SPDX-License-Identifier: MIT */
/* Layout, notify, dispatch and combine over all shapes of routing: ranks, ragged token counts,
 * top-k, experts, placements, nodes. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static const struct ep_case usual = {
    .max_tokens = 11, .num_topk = 3, .num_experts = 16, .tokens = EP_TOKENS_RAGGED};

TEST_OF_TRIALS(every_token_shape, IN_THREADS(1, .last = 9, .step = tests_rounds(1, 4)))
{
    for (int tokens = 0; tokens < EP_NUM_TOKENS; tokens++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)tokens;
        spec.tokens = (enum ep_tokens)tokens;
        ep_trials_add(trials, &spec);
    }
}

TEST_OF_TRIALS(every_routing_and_placement,
               IN_THREADS(1, .last = 9, .step = tests_rounds(tests_grid_size(1, 3), 3)))
{
    for (int i = 0; i < EP_NUM_ROUTINGS * EP_NUM_PLACEMENTS; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.routing = (enum ep_routing)(i % EP_NUM_ROUTINGS);
        spec.placement = (enum ep_placement)(i / EP_NUM_ROUTINGS);
        spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        ep_trials_add(trials, &spec);
    }
}

TEST_OF_TRIALS(every_topk, IN_THREADS(4))
{
    for (int32_t num_topk = 1; num_topk <= 17; num_topk++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)num_topk;
        spec.num_topk = num_topk == 17 ? WEFT_MAX_TOPK : num_topk;
        spec.num_experts = 70;
        spec.index_type = num_topk % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        spec.placement = num_topk % 3 == 0 ? EP_PLACEMENT_REPLICATED : EP_PLACEMENT_DEFAULT;
        ep_trials_add(trials, &spec);
    }
}

TEST_OF_TRIALS(any_number_of_experts, IN_THREADS(2, .last = 8, .step = 3))
{
    const int32_t num_experts[] = {1, 2, 3, 5, 6, 7, 13, 60, 257};
    for (int i = 0; i < 9; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.num_experts = num_experts[i];
        ep_trials_add(trials, &spec);
    }
}

TEST_OF_TRIALS(expert_alignment, IN_THREADS(3))
{
    const int32_t alignments[] = {0, 1, 2, 3, 16, 128, 1000};
    for (int i = 0; i < 7; i++) {
        struct ep_case spec = usual;
        spec.expert_alignment = alignments[i];
        spec.routing = EP_ROUTING_SKEWED;
        spec.max_tokens = 40;
        ep_trials_add(trials, &spec);
    }
}

TEST_OVER(virtual_nodes, "auto")
{
    const int32_t num_ranks[] = {2, 4, 6, 8, 9};
    const int32_t num_nodes[] = {2, 2, 3, 4, 9};
    for (int i = 0; i < 5; i++) {
        struct ep_trials trials = ep_trials_create(num_ranks[i], num_nodes[i]);
        for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++) {
            struct ep_case spec = usual;
            spec.routing = (enum ep_routing)routing;
            ep_trials_add(&trials, &spec);
        }
        assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
    }
}

TEST(many_ranks)
{
    const int32_t num_ranks[] = {16, 33, 64};
    /* A GPU has 32 queues for the kernels of ranks that share it. */
    for (int i = 0; i < (tests_on_cuda() ? 1 : tests_grid_size(3, 1)); i++) {
        struct ep_trials trials = ep_trials_create(num_ranks[i], 0);
        for (int placement = 0; placement < EP_NUM_PLACEMENTS; placement++) {
            struct ep_case spec = usual;
            spec.num_topk = 9;
            spec.num_experts = 100;
            spec.placement = (enum ep_placement)placement;
            ep_trials_add(&trials, &spec);
        }
        assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
    }
}

static void random_trials(enum ranks_mode mode, int32_t num_ranks, int32_t num_trials)
{
    struct ep_trials trials = ep_trials_create(num_ranks, 0);
    for (int32_t i = 0; i < num_trials; i++) {
        const uint64_t seed = 1000000 * (uint64_t)num_ranks + (uint64_t)i;
        ep_trials_add_random(&trials, seed, 1 + i % 24);
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(everything_at_random_in_threads)
{
    for (int32_t num_ranks = tests_rounds(1, 2); num_ranks <= 9; num_ranks += tests_rounds(1, 3))
        random_trials(RANKS_THREADS, num_ranks, tests_grid_size(100, 8));
}

TEST(everything_at_random_in_processes)
{
    for (int32_t num_ranks = tests_rounds(1, 2); num_ranks <= 8; num_ranks *= tests_rounds(2, 4))
        random_trials(RANKS_PROCESSES, num_ranks, tests_grid_size(40, 4));
}
