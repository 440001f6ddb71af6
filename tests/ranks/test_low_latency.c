/* SPDX-License-Identifier: MIT */
/* Low-latency dispatch and combine against an oracle without protocol: rows, counts, order and sums
 * to the bit, over shapes, layouts, phases, several steps and results that are outstanding together. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "oracle/ll_seat.h"

enum { NUM_STEPS = 5 };

enum way { /* how each step is called */
           WAY_ONE_LAUNCH,
           WAY_TWO_PHASES,
           WAY_TWO_RESULTS, /* the next step is dispatched before this one is combined */
           WAY_COMBINED_TWICE,
           NUM_WAYS
};

struct trial {
    struct ll_case problem;
    enum way way;
};

/* ---------------------------------------------------------------- steps */

static int one_launch(struct ll_seat *seat, int32_t step)
{
    return ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
           ll_check_dispatched(seat, step) || ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 0) ||
           ll_check_combined(seat, step);
}

static int two_phases(struct ll_seat *seat, int32_t step)
{
    return ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND) ||
           ll_dispatch(seat, step, WEFT_LL_RECEIVE) || ll_check_dispatched(seat, step) ||
           ll_combine(seat, step, WEFT_LL_SEND, 0) || ll_combine(seat, step, WEFT_LL_RECEIVE, 0) ||
           ll_check_combined(seat, step);
}

/* Step s is sent, then step s - 1 combined, of which the second phase comes last. */
static int two_results(struct ll_seat *seat, int32_t step)
{
    if (ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND) ||
        ll_dispatch(seat, step, WEFT_LL_RECEIVE) || ll_check_dispatched(seat, step))
        return 1;
    if (step > 0 && (ll_combine(seat, step - 1, WEFT_LL_SEND_AND_RECEIVE, 0) ||
                     ll_check_combined(seat, step - 1)))
        return 1;
    if (step < NUM_STEPS - 1)
        return 0;
    return ll_combine(seat, step, WEFT_LL_SEND, 0) || ll_combine(seat, step, WEFT_LL_RECEIVE, 0) ||
           ll_check_combined(seat, step);
}

/* The second combine overwrites what the first gave; every other result ends by a release. */
static int combined_twice(struct ll_seat *seat, int32_t step)
{
    if (ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
        ll_check_dispatched(seat, step) || ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 1) ||
        ll_check_combined(seat, step) ||
        ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, step % 2) || ll_check_combined(seat, step))
        return 1;
    if (step % 2 == 1)
        RANK_CHECK_OK(seat->context, weft_ll_release(seat->ll, seat->stream));
    return 0;
}

static int (*const ways[NUM_WAYS])(struct ll_seat *, int32_t) = {
    [WAY_ONE_LAUNCH] = one_launch,
    [WAY_TWO_PHASES] = two_phases,
    [WAY_TWO_RESULTS] = two_results,
    [WAY_COMBINED_TWICE] = combined_twice,
};

static int run_trial(struct ranks_context *context)
{
    const struct trial *trial = context->argument;
    struct ll_seat seat;
    if (ll_seat_open(&seat, context, &trial->problem, NULL))
        return 1;
    for (int32_t step = 0; step < NUM_STEPS; step++)
        if (ways[trial->way](&seat, step))
            return 1;
    return ll_check_totals(&seat, NUM_STEPS) || ll_seat_close(&seat);
}

static const struct ll_case cases[] = {
    {.name = "by rank",
     .num_ranks = 3,
     .max_tokens = 7,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 40,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .index_type = WEFT_INT32},
    {.name = "by expert",
     .num_ranks = 3,
     .max_tokens = 7,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 40,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .index_type = WEFT_INT64},
    {.name = "rows of experts",
     .num_ranks = 4,
     .max_tokens = 6,
     .num_topk = 4,
     .num_experts = 6,
     .hidden = 33,
     .dtype = WEFT_FP16,
     .answer_dtype = WEFT_FP16,
     .layout = WEFT_LL_BY_EXPERT,
     .answer = WEFT_LL_ANSWER_ROWS,
     .answer_gap = 3,
     .index_type = WEFT_INT32},
    {.name = "blocks and warps",
     .num_ranks = 4,
     .max_tokens = 17,
     .num_topk = 8,
     .num_experts = 64,
     .hidden = 2048,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_FP32,
     .layout = WEFT_LL_BY_EXPERT,
     .num_blocks = 3,
     .num_warps = 4,
     .index_type = WEFT_INT64},
    {.name = "few experts' rows fit",
     .num_ranks = 3,
     .max_tokens = 9,
     .num_topk = 4,
     .num_experts = 7,
     .hidden = 24,
     .dtype = WEFT_FP32,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .expert_capacity = 5,
     .num_blocks = 2,
     .index_type = WEFT_INT32},
    {.name = "replicas",
     .num_ranks = 4,
     .max_tokens = 8,
     .num_topk = 5,
     .num_experts = 9,
     .num_replicas = 2,
     .hidden = 16,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .index_type = WEFT_INT32,
     .without_weights = 1},
    {.name = "more ranks than experts",
     .answer_gap = 1,
     .num_ranks = 5,
     .max_tokens = 4,
     .num_topk = 2,
     .num_experts = 3,
     .hidden = 12,
     .dtype = WEFT_FP32,
     .answer_dtype = WEFT_FP32,
     .num_blocks = 6,
     .num_warps = 2,
     .index_type = WEFT_INT64},
    {.name = "FP8 by rank",
     .num_ranks = 3,
     .max_tokens = 5,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 384,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .index_type = WEFT_INT32,
     .narrow_dtype = WEFT_FP8_E4M3,
     .group_elements = 128},
    {.name = "FP8 by expert, scales by columns",
     .num_ranks = 3,
     .max_tokens = 5,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 2048,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .index_type = WEFT_INT64,
     .num_warps = 8,
     .narrow_dtype = WEFT_FP8_E4M3,
     .scale = WEFT_SCALE_FP32_POWER_OF_TWO,
     .group_elements = 128,
     .scale_columns = 3},
    {.name = "exponents by columns",
     .num_ranks = 2,
     .max_tokens = 6,
     .num_topk = 4,
     .num_experts = 5,
     .hidden = 4096,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_FP32,
     .layout = WEFT_LL_BY_EXPERT,
     .index_type = WEFT_INT32,
     .num_blocks = 2,
     .num_warps = 8,
     .narrow_dtype = WEFT_FP8_E4M3,
     .scale = WEFT_SCALE_UE8M0,
     .group_elements = 128,
     .scale_columns = 1},
    {.name = "INT8 with odd groups",
     .num_ranks = 3,
     .max_tokens = 5,
     .num_topk = 2,
     .num_experts = 6,
     .hidden = 90,
     .dtype = WEFT_FP32,
     .answer_dtype = WEFT_FP16,
     .layout = WEFT_LL_BY_EXPERT,
     .answer = WEFT_LL_ANSWER_ROWS,
     .index_type = WEFT_INT32,
     .num_warps = 4,
     .narrow_dtype = WEFT_INT8,
     .scale = WEFT_SCALE_UE8M0,
     .group_elements = 18},
    {.name = "logarithms of sums",
     .num_ranks = 3,
     .max_tokens = 5,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 2048 + 128,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_LOG_10BIT,
     .layout = WEFT_LL_BY_EXPERT,
     .num_warps = 4,
     .index_type = WEFT_INT32},
    {.name = "logarithms of rows",
     .num_ranks = 3,
     .max_tokens = 4,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 384,
     .dtype = WEFT_FP32,
     .answer_dtype = WEFT_LOG_10BIT,
     .layout = WEFT_LL_BY_EXPERT,
     .answer = WEFT_LL_ANSWER_ROWS,
     .expert_capacity = 4,
     .num_blocks = 2,
     .index_type = WEFT_INT32},
    {.name = "logarithms by rank",
     .num_ranks = 2,
     .max_tokens = 4,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 1024,
     .dtype = WEFT_FP16,
     .answer_dtype = WEFT_LOG_10BIT,
     .index_type = WEFT_INT32},
    {.name = "one rank",
     .num_ranks = 1,
     .max_tokens = 5,
     .num_topk = 2,
     .num_experts = 4,
     .hidden = 64,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .index_type = WEFT_INT32},
    {.name = "most choices, one element",
     .num_ranks = 3,
     .max_tokens = 3,
     .num_topk = WEFT_MAX_TOPK,
     .num_experts = 70,
     .hidden = 1,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .answer = WEFT_LL_ANSWER_ROWS,
     .num_warps = 3,
     .index_type = WEFT_INT32},
    {.name = "most choices, by rank",
     .num_ranks = 2,
     .max_tokens = 2,
     .num_topk = WEFT_MAX_TOPK,
     .num_experts = 9,
     .hidden = 1,
     .dtype = WEFT_FP32,
     .answer_dtype = WEFT_FP16,
     .num_blocks = 2,
     .index_type = WEFT_INT64},
    {.name = "no tokens",
     .num_ranks = 3,
     .max_tokens = 4,
     .num_topk = 2,
     .num_experts = 6,
     .hidden = 8,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .num_blocks = 2,
     .index_type = WEFT_INT32,
     .without_tokens = 1},
    {.name = "more experts than a block has counters for",
     .num_ranks = 2,
     .max_tokens = 4,
     .num_topk = 3,
     .num_experts = 2100,
     .hidden = 4,
     .dtype = WEFT_FP32,
     .answer_dtype = WEFT_FP32,
     .layout = WEFT_LL_BY_EXPERT,
     .expert_capacity = 8,
     .num_blocks = 3,
     .num_warps = 2,
     .index_type = WEFT_INT32},
};

static void run_way(enum way way, enum ranks_mode mode)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial trial = {cases[i], way};
        trial.problem.seed = 1000 * (uint64_t)way + i;
        trial.problem.num_results = way == WAY_TWO_RESULTS ? 2 : (int32_t)(i % 3);
        if (ranks_run(mode, trial.problem.num_ranks, run_trial, &trial) != 0)
            fail_msg("case \"%s\"", trial.problem.name);
    }
}

TEST(one_launch_each)
{
    run_way(WAY_ONE_LAUNCH, RANKS_PROCESSES);
}

TEST(two_phases_each)
{
    run_way(WAY_TWO_PHASES, RANKS_THREADS);
}

TEST(two_results_at_a_time)
{
    run_way(WAY_TWO_RESULTS, RANKS_PROCESSES);
}

TEST(results_are_combined_twice)
{
    run_way(WAY_COMBINED_TWICE, RANKS_THREADS);
}

/* More ranks than a warp of a GPU has lanes, and than one GPU has queues for. */
TEST(many_ranks)
{
    static const weft_ll_layout layouts[] = {WEFT_LL_BY_RANK, WEFT_LL_BY_EXPERT};
    if (tests_on_cuda())
        skip();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct trial trial = {{.name = "many ranks",
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
                              i == 0 ? WAY_ONE_LAUNCH : WAY_TWO_RESULTS};
        if (ranks_run(RANKS_THREADS, trial.problem.num_ranks, run_trial, &trial) != 0)
            fail_msg("layout %d", (int)layouts[i]);
    }
}
