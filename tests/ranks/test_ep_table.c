/* SPDX-License-Identifier: MIT */
/* Layout by a table of ranks and counts of selections: all that follows is as by the experts that
 * they were made of. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static void run_placements(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes)
{
    struct ep_trials trials = ep_trials_create(num_ranks, num_nodes);
    for (int placement = 0; placement < EP_NUM_PLACEMENTS; placement++) {
        for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++) {
            const struct ep_case spec = {.index_type = WEFT_INT64,
                                         .seed = 90 + (uint64_t)routing,
                                         .max_tokens = 21,
                                         .num_topk = 3,
                                         .num_experts = 13,
                                         .expert_alignment = 4,
                                         .tokens = EP_TOKENS_RAGGED,
                                         .routing = (enum ep_routing)routing,
                                         .routed_by = EP_ROUTED_BY_TABLE,
                                         .placement = (enum ep_placement)placement};
            ep_trials_add(&trials, &spec);
        }
    }
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(on_one_node)
{
    run_placements(RANKS_THREADS, 1, 1);
    run_placements(RANKS_THREADS, 4, 1);
    run_placements(RANKS_PROCESSES, 3, 1);
}

TEST_OVER(over_nodes, "auto")
{
    run_placements(RANKS_THREADS, 4, 2);
    run_placements(RANKS_PROCESSES, 6, 3);
}

/* Ranks without tokens have no table, but count. */
TEST(without_tokens)
{
    struct ep_trials trials = ep_trials_create(3, 1);
    struct ep_case spec = {.seed = 91,
                           .max_tokens = 5,
                           .num_topk = 2,
                           .num_experts = 7,
                           .routed_by = EP_ROUTED_BY_TABLE};
    for (int tokens = 0; tokens < EP_NUM_TOKENS; tokens++) {
        spec.tokens = (enum ep_tokens)tokens;
        ep_trials_add(&trials, &spec);
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}
