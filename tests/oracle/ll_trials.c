/* SPDX-License-Identifier: MIT */
#include "oracle/ll_trials.h"

#include "harness/cmocka.h"
#include "harness/machine.h"
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

/* The second combine overwrites what the first gave; every other result ends by a release. Answers
 * in slots end their result. */
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
        CHECK_OK(weft_ll_release(seat->ll, seat->stream));
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
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .num_nodes = trial->num_nodes),
                               &comm));
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
    {"by rank", LL_SIZES(3, 7, 3, 8, 40), LL_TYPES(BF16, BF16, INT32)},
    {"by expert", LL_SIZES(3, 7, 3, 8, 40), LL_TYPES(BF16, BF16, INT64), LL_EXPERTS},
    {"rows anywhere, by rank", LL_SIZES(3, 5, 3, 8, 64), LL_TYPES(BF16, BF16, INT32),
     .odd_bytes = 2},
    {"rows anywhere, by expert", LL_SIZES(3, 5, 3, 8, 384), LL_TYPES(BF16, BF16, INT64), LL_EXPERTS,
     LL_NARROW(FP8_E4M3, FP32, 128), .odd_bytes = 8},
    {"rows of experts", LL_SIZES(4, 6, 4, 6, 33), LL_TYPES(FP16, FP16, INT32), LL_EXPERTS,
     LL_ANSWERS(ROWS), .answer_gap = 3},
    {"blocks and warps", LL_SIZES(4, 17, 8, 64, 2048), LL_TYPES(BF16, FP32, INT64), LL_EXPERTS,
     LL_GRID(3, 4)},
    {"few experts' rows fit", LL_SIZES(3, 9, 4, 7, 24), LL_TYPES(FP32, BF16, INT32), LL_EXPERTS,
     LL_GRID(2, 0), .expert_capacity = 5},
    {"replicas", LL_SIZES(4, 8, 5, 9, 16), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS,
     .num_replicas = 2, .without_weights = 1},
    {"more ranks than experts", LL_SIZES(5, 4, 2, 3, 12), LL_TYPES(FP32, FP32, INT64),
     LL_GRID(6, 2), .answer_gap = 1},
    {"FP8 by rank", LL_SIZES(3, 5, 3, 8, 384), LL_TYPES(BF16, BF16, INT32),
     LL_NARROW(FP8_E4M3, FP32, 128)},
    {"FP8 by expert, scales by columns", LL_SIZES(3, 5, 3, 8, 2048), LL_TYPES(BF16, BF16, INT64),
     LL_EXPERTS, LL_NARROW(FP8_E4M3, FP32_POWER_OF_TWO, 128), LL_GRID(0, 8), .scale_columns = 3},
    {"exponents by columns", LL_SIZES(2, 6, 4, 5, 4096), LL_TYPES(BF16, FP32, INT32), LL_EXPERTS,
     LL_NARROW(FP8_E4M3, UE8M0, 128), LL_GRID(2, 8), .scale_columns = 1},
    {"INT8 with odd groups", LL_SIZES(3, 5, 2, 6, 90), LL_TYPES(FP32, FP16, INT32), LL_EXPERTS,
     LL_NARROW(INT8, UE8M0, 18), LL_ANSWERS(ROWS), LL_GRID(0, 4)},
    {"in slots by rank", LL_SIZES(4, 9, 3, 8, 40), LL_TYPES(BF16, BF16, INT32),
     LL_ANSWERS(IN_SLOTS), LL_GRID(3, 2), .answers_in_slots = 1},
    {"in slots by rank, from FP8 to wider rows", LL_SIZES(3, 5, 3, 8, 256),
     LL_TYPES(BF16, FP32, INT64), LL_NARROW(FP8_E4M3, FP32, 128), LL_ANSWERS(IN_SLOTS),
     .answer_gap = 2},
    {"in slots by expert", LL_SIZES(4, 8, 4, 16, 2048), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS,
     LL_ANSWERS(IN_SLOTS), LL_GRID(2, 4)},
    {"weighed late", LL_SIZES(4, 9, 4, 16, 2048), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS,
     LL_ANSWERS(SUMS_WEIGHED_LATE), LL_GRID(2, 4)},
    {"FP8 weighed late", LL_SIZES(3, 5, 3, 8, 2048), LL_TYPES(BF16, BF16, INT64), LL_EXPERTS,
     LL_NARROW(FP8_E4M3, FP32, 128), LL_ANSWERS(SUMS_WEIGHED_LATE), LL_GRID(0, 3),
     .scale_columns = 2},
    {"weighed late, where few rows fit", LL_SIZES(3, 9, 4, 7, 24), LL_TYPES(FP32, BF16, INT32),
     LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE), .expert_capacity = 5, .answer_gap = 2},
    {"weighed late, where few rows fit, in their type", LL_SIZES(3, 9, 4, 7, 24),
     LL_TYPES(FP32, FP32, INT32), LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE), .expert_capacity = 5,
     .answer_gap = 2},
    {"many choices, weighed late", LL_SIZES(2, 3, 40, 70, 8), LL_TYPES(BF16, BF16, INT32),
     LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE), LL_GRID(2, 3)},
    {"late weights of 1", LL_SIZES(3, 6, 3, 8, 40), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS,
     LL_ANSWERS(SUMS_WEIGHED_LATE), .without_weights = 1},
    {"most choices, weighed late", LL_SIZES(2, 3, WEFT_MAX_TOPK, 70, 8),
     LL_TYPES(BF16, FP32, INT32), LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE), LL_GRID(2, 3)},
    {"one rank", LL_SIZES(1, 5, 2, 4, 64), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS},
    {"most choices, one element", LL_SIZES(3, 3, WEFT_MAX_TOPK, 70, 1), LL_TYPES(BF16, BF16, INT32),
     LL_EXPERTS, LL_ANSWERS(ROWS), LL_GRID(0, 3)},
    {"most choices, by rank", LL_SIZES(2, 2, WEFT_MAX_TOPK, 9, 1), LL_TYPES(FP32, FP16, INT64),
     LL_GRID(2, 0)},
    {"no tokens", LL_SIZES(3, 4, 2, 6, 8), LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, LL_GRID(2, 0),
     .without_tokens = 1},
    {"more experts than a block has counters for", LL_SIZES(2, 4, 3, 2100, 4),
     LL_TYPES(FP32, FP32, INT32), LL_EXPERTS, LL_GRID(3, 2), .expert_capacity = 8},
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

struct ll_trial ll_trial_between_nodes(enum ll_way way, size_t i)
{
    struct ll_trial trial = ll_trial_of(way, i);
    if (trial.problem.answer == WEFT_LL_ANSWER_SUMS_WEIGHED_LATE)
        trial.problem.answer = WEFT_LL_ANSWER_ROWS;
    return trial;
}

/* ---------------------------------------------------------------- runs */

void ll_trial_run_as(struct ll_trial *trial, weft_ll_carrier carrier, enum ranks_mode mode)
{
    const struct ll_case *problem = &trial->problem;
    trial->problem.carrier = carrier;
    if (ranks_run(mode, problem->num_ranks, ll_trial_run, trial) != 0)
        fail_msg("case \"%s\", way %d, carrier %d, route %d, %d rows of a word", problem->name,
                 (int)trial->way, (int)carrier, (int)problem->route, problem->late_rows);
}

void ll_trial_run_carried(struct ll_trial *trial, enum ranks_mode mode)
{
    ll_trial_run_as(trial, WEFT_LL_SIGNALS, mode);
    for (int carrier = WEFT_LL_PACKETS; carrier <= WEFT_LL_TOLD_PACKETS; carrier++)
        if (ll_suits(&trial->problem, (weft_ll_carrier)carrier))
            ll_trial_run_as(trial, (weft_ll_carrier)carrier, mode);
}

void ll_trials_by_expert(enum ranks_mode mode, enum ll_way first_way,
                         void (*prepare)(struct ll_trial *trial, size_t i))
{
    const size_t step = (size_t)tests_grid_size(1, 4);
    for (size_t i = 0, num_done = 0; i < ll_num_cases(); i++) {
        struct ll_trial trial = ll_trial_of((enum ll_way)((first_way + i) % LL_NUM_WAYS), i);
        if (trial.problem.layout != WEFT_LL_BY_EXPERT || num_done++ % step != 0)
            continue;
        prepare(&trial, i);
        ll_trial_run_carried(&trial, mode);
    }
}

void ll_trials_by_expert_over_nodes(void (*prepare)(struct ll_trial *trial, size_t i))
{
    enum { NUM_NODES = 2, NUM_LOCAL = 2 };
    for (size_t i = 0; i < ll_num_cases(); i += (size_t)tests_grid_size(3, 9)) {
        struct ll_trial trial = ll_trial_between_nodes((enum ll_way)(i % LL_NUM_WAYS), i);
        if (trial.problem.layout != WEFT_LL_BY_EXPERT)
            continue;
        trial.num_nodes = NUM_NODES;
        trial.problem.num_ranks = NUM_NODES * NUM_LOCAL;
        trial.problem.node_ranks = NUM_LOCAL;
        prepare(&trial, i);
        for (int route = WEFT_LL_STRAIGHT; route <= WEFT_LL_RELAYED; route++) {
            trial.problem.route = (weft_ll_route)route;
            ll_trial_run_as(&trial, WEFT_LL_AUTO, RANKS_THREADS);
        }
    }
}
