/* SPDX-License-Identifier: MIT */
/* Results do not depend on how many blocks and warps run an operation, on any rank. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static const int32_t grids[][2] = {{1, 1}, {1, 4}, {3, 2}, {2, 5}, {8, 1}, {1, 32}, {5, 7}};
enum { NUM_GRIDS = sizeof grids / sizeof grids[0] };

/* The oracle knows no grid: what equals it for all of them is the same for all of them. */
static void add_grids(struct ep_trials *trials, const struct ep_case *usual)
{
    const int32_t max_warps = tests_rounds(32, 16); /* in a block */
    for (int i = 0; i <= NUM_GRIDS; i++) {
        struct ep_case spec = *usual;
        if (i < NUM_GRIDS) {
            spec.num_blocks = grids[i][0];
            spec.num_warps = grids[i][1] < max_warps ? grids[i][1] : max_warps;
        } else {
            spec.grid = EP_GRID_DIFFERS_BY_RANK;
        }
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->dispatch = ep_dispatch_shape_of(96);
        trial->combine = ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % 3), 70);
    }
}

static void run_grids_on_nodes(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes,
                               int32_t max_tokens)
{
    struct ep_trials trials = ep_trials_create(num_ranks, num_nodes);
    struct ep_case spec = {.seed = 4,
                           .max_tokens = max_tokens,
                           .num_topk = 5,
                           .num_experts = 31,
                           .tokens = EP_TOKENS_RAGGED,
                           .routing = EP_ROUTING_HOLES};
    add_grids(&trials, &spec);
    spec.tokens = EP_TOKENS_EQUAL;
    spec.placement = EP_PLACEMENT_REPLICATED;
    add_grids(&trials, &spec);
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

static void run_grids(enum ranks_mode mode, int32_t num_ranks, int32_t max_tokens)
{
    run_grids_on_nodes(mode, num_ranks, 1, max_tokens);
}

/* Fewer tokens than warps, about as many, and many more. */
TEST(in_threads)
{
    for (int32_t num_ranks = 1; num_ranks <= 9; num_ranks += 4) {
        run_grids(RANKS_THREADS, num_ranks, 3);
        run_grids(RANKS_THREADS, num_ranks, 33);
    }
    run_grids(RANKS_THREADS, 3, tests_grid_size(1000, 200));
}

TEST_CALL(in_processes, run_grids(RANKS_PROCESSES, 4, 20))

/* Where rings need more warps than the grid has, there are more. */
TEST_OVER(over_nodes, "auto")
{
    run_grids_on_nodes(RANKS_THREADS, 4, 2, 3);
    run_grids_on_nodes(RANKS_THREADS, 5, 5, 33);
    run_grids_on_nodes(RANKS_PROCESSES, 6, 3, 33);
}
