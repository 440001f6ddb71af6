/* SPDX-License-Identifier: MIT */
#include "oracle/ll_trials.h"

#include "oracle/ll_seat.h"

enum { NUM_STEPS = 5 };

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

/* The second combine overwrites what the first gave; every other result ends by a release. Answers in slots
 * end their result. */
static int combined_twice(struct ll_seat *seat, int32_t step)
{
    if (seat->problem->answer == WEFT_LL_ANSWER_IN_SLOTS)
        return two_phases(seat, step);
    if (ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
        ll_check_dispatched(seat, step) || ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 1) ||
        ll_check_combined(seat, step) ||
        ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, step % 2) || ll_check_combined(seat, step))
        return 1;
    if (step % 2 == 1)
        RANK_CHECK_OK(seat->context, weft_ll_release(seat->ll, seat->stream));
    return 0;
}

static int (*const ways[LL_NUM_WAYS])(struct ll_seat *, int32_t) = {
    [LL_ONE_LAUNCH] = one_launch,
    [LL_TWO_PHASES] = two_phases,
    [LL_TWO_RESULTS] = two_results,
    [LL_COMBINED_TWICE] = combined_twice,
};

int ll_trial_run(struct ranks_context *context)
{
    const struct ll_trial *trial = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm;
    config.num_nodes = trial->num_nodes;
    RANK_CHECK_OK(context, ranks_comm_create(context, &config, &comm));
    return ll_trial_run_in(context, trial, comm);
}

int ll_trial_run_in(struct ranks_context *context, const struct ll_trial *trial, weft_comm *comm)
{
    struct ll_seat seat;
    if (ll_seat_open_in(&seat, context, &trial->problem, comm))
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
    {.name = "in slots by rank",
     .num_ranks = 4,
     .max_tokens = 9,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 40,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .answer = WEFT_LL_ANSWER_IN_SLOTS,
     .answers_in_slots = 1,
     .num_blocks = 3,
     .num_warps = 2,
     .index_type = WEFT_INT32},
    {.name = "in slots by rank, from FP8 to wider rows",
     .num_ranks = 3,
     .max_tokens = 5,
     .num_topk = 3,
     .num_experts = 8,
     .hidden = 256,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_FP32,
     .answer = WEFT_LL_ANSWER_IN_SLOTS,
     .answer_gap = 2,
     .index_type = WEFT_INT64,
     .narrow_dtype = WEFT_FP8_E4M3,
     .group_elements = 128},
    {.name = "in slots by expert",
     .num_ranks = 4,
     .max_tokens = 8,
     .num_topk = 4,
     .num_experts = 16,
     .hidden = 2048,
     .dtype = WEFT_BF16,
     .answer_dtype = WEFT_BF16,
     .layout = WEFT_LL_BY_EXPERT,
     .answer = WEFT_LL_ANSWER_IN_SLOTS,
     .num_blocks = 2,
     .num_warps = 4,
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

size_t ll_num_cases(void)
{
    return sizeof cases / sizeof *cases;
}

struct ll_trial ll_trial_of(enum ll_way way, size_t i)
{
    struct ll_trial trial = {.problem = cases[i], .way = way};
    trial.problem.seed = 1000 * (uint64_t)way + i;
    trial.problem.num_results = way == LL_TWO_RESULTS ? 2 : (int32_t)(i % 3);
    return trial;
}
