/* SPDX-License-Identifier: MIT */
/* Layout by a table of ranks and counts of selections: all that follows is as by the experts that
 * they were made of. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static void run_placements(struct ep_trials *trials)
{
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
            ep_trials_add(trials, &spec);
        }
    }
}

TEST_CALL(on_one_node, RUN_TRIALS(run_placements, IN_THREADS(1), IN_THREADS(4), IN_PROCESSES(3)))

TEST_OVER(over_nodes, "auto")
{
    RUN_TRIALS(run_placements, IN_THREADS(4, .num_nodes = 2), IN_PROCESSES(6, .num_nodes = 3));
}

/* Ranks without tokens have no table, but count. */
TEST_OF_TRIALS(without_tokens, IN_THREADS(3, .num_nodes = 1))
{
    struct ep_case spec = {.seed = 91,
                           .max_tokens = 5,
                           .num_topk = 2,
                           .num_experts = 7,
                           .routed_by = EP_ROUTED_BY_TABLE};
    for (int tokens = 0; tokens < EP_NUM_TOKENS; tokens++) {
        spec.tokens = (enum ep_tokens)tokens;
        ep_trials_add(trials, &spec);
    }
}
