/* SPDX-License-Identifier: MIT */
/* Low-latency dispatch and combine against an oracle without protocol: rows, counts, order and sums
 * to the bit, over shapes, layouts, phases, several steps and results that are outstanding together. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ll_trials.h"

static void run_way(enum ll_way way, enum ranks_mode mode)
{
    for (size_t i = 0; i < ll_num_cases(); i++) {
        const struct ll_trial trial = ll_trial_of(way, i);
        if (ranks_run(mode, trial.problem.num_ranks, ll_trial_run, &trial) != 0)
            fail_msg("case \"%s\"", trial.problem.name);
    }
}

TEST(one_launch_each)
{
    run_way(LL_ONE_LAUNCH, RANKS_PROCESSES);
}

TEST(two_phases_each)
{
    run_way(LL_TWO_PHASES, RANKS_THREADS);
}

TEST(two_results_at_a_time)
{
    run_way(LL_TWO_RESULTS, RANKS_PROCESSES);
}

TEST(results_are_combined_twice)
{
    run_way(LL_COMBINED_TWICE, RANKS_THREADS);
}

/* More ranks than a warp of a GPU has lanes, and than one GPU has queues for. */
TEST(many_ranks)
{
    static const weft_ll_layout layouts[] = {WEFT_LL_BY_RANK, WEFT_LL_BY_EXPERT};
    if (tests_on_cuda())
        skip();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct ll_trial trial = {{.name = "many ranks",
                                  .seed = i,
                                  .num_ranks = 35,
                                  .max_tokens = 3,
                                  .num_topk = 4,
                                  .num_experts = 50,
                                  .hidden = 5,
                                  .dtype = WEFT_FP32,
                                  .answer_dtype = WEFT_FP32,
                                  .layout = layouts[i],
                                  .num_blocks = 2,
                                  .num_warps = 2,
                                  .index_type = WEFT_INT32},
                                 i == 0 ? LL_ONE_LAUNCH : LL_TWO_RESULTS,
                                 0};
        if (ranks_run(RANKS_THREADS, trial.problem.num_ranks, ll_trial_run, &trial) != 0)
            fail_msg("layout %d", (int)layouts[i]);
    }
}
