/* SPDX-License-Identifier: MIT */
/* Low-latency dispatch and combine against an oracle without protocol: rows, counts, order and sums
 * to the bit, over shapes, layouts, phases, several steps and results that are outstanding together. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "harness/ranks.h"
#include "oracle/ll_case.h"
#include "workload/elements.h"

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

struct seat { /* what a rank has */
    struct ranks_context *context;
    const struct ll_case *problem;
    enum way way;
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ll *ll;
    uint64_t row_bytes, rows_bytes; /* the latter of all rows of a result */
    struct ll_row *expected;        /* rows of this rank, by source and token */
    /* On the machine, of each of two steps: */
    struct step {
        char *tokens, *rows, *out;
        void *topk_idx;
        float *weights;
        int32_t *rank_counts, *expert_counts, *src_tokens, *totals;
        int64_t *ranges;
    } steps[2];
};

static int is_by_expert(const struct seat *seat)
{
    return seat->problem->layout == WEFT_LL_BY_EXPERT;
}

static int open_step(struct seat *seat, struct step *step)
{
    const struct ll_case *problem = seat->problem;
    const uint64_t num_tokens = (uint64_t)problem->max_tokens;
    const uint64_t choices = num_tokens * (uint64_t)problem->num_topk;
    const uint64_t num_local = (uint64_t)ll_num_local(problem, seat->context->rank);
    const uint64_t num_rows = num_local * (uint64_t)ll_capacity(problem);
    const struct {
        void *pointer;
        uint64_t bytes;
    } blocks[] = {
        {&step->tokens, num_tokens * seat->row_bytes},
        {&step->out, num_tokens * seat->row_bytes},
        {&step->topk_idx, choices * sizeof(int64_t)},
        {&step->weights, choices * sizeof(float)},
        {&step->rows, seat->rows_bytes},
        {&step->rank_counts, (uint64_t)problem->num_ranks * sizeof(int32_t)},
        {&step->expert_counts, num_local * sizeof(int32_t)},
        {&step->totals, num_local * sizeof(int32_t)},
        {&step->src_tokens, num_rows * sizeof(int32_t)},
        {&step->ranges, num_local * (uint64_t)problem->num_ranks * sizeof(int64_t)},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        RANK_CHECK_OK(seat->context,
                      weft_memory_alloc(seat->comm, blocks[i].bytes, blocks[i].pointer));
    return 0;
}

static int open_seat(struct seat *seat)
{
    const struct ll_case *problem = seat->problem;
    struct ranks_context *context = seat->context;
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    ep_config.num_experts = problem->num_experts;
    ep_config.expert_offsets = ll_expert_offsets(problem);
    ep_config.expert_ranks = ll_expert_ranks(problem);
    config.hidden = problem->hidden;
    config.max_tokens = problem->max_tokens;
    config.num_topk = problem->num_topk;
    config.dtype = problem->dtype;
    config.layout = problem->layout;
    config.expert_capacity = problem->expert_capacity;
    config.num_results = problem->num_results;
    config.answer = problem->answer;
    config.answer_dtype = problem->answer_dtype;
    config.num_blocks = problem->num_blocks;
    config.num_warps = problem->num_warps;
    RANK_CHECK_OK(context, ranks_comm_create(context, NULL, &seat->comm));
    RANK_CHECK_OK(context, weft_stream_create(seat->comm, &seat->stream));
    RANK_CHECK_OK(context, weft_ep_create(seat->comm, &ep_config, &seat->ep));
    RANK_CHECK_OK(context, weft_ll_create(seat->ep, &config, &seat->ll));
    tests_free(ep_config.expert_offsets);
    tests_free(ep_config.expert_ranks);
    seat->row_bytes = (uint64_t)problem->hidden * dtype_bytes(problem->dtype);
    seat->rows_bytes = seat->row_bytes * (uint64_t)ll_most_rows(problem);
    if (is_by_expert(seat))
        seat->rows_bytes = seat->row_bytes * (uint64_t)ll_capacity(problem) *
                           (uint64_t)ll_num_local(problem, context->rank);
    seat->expected = tests_alloc((size_t)ll_most_rows(problem) * sizeof *seat->expected);
    return open_step(seat, &seat->steps[0]) || open_step(seat, &seat->steps[1]);
}

static int close_seat(struct seat *seat)
{
    RANK_CHECK_OK(seat->context, weft_stream_synchronize(seat->stream));
    RANK_CHECK_OK(seat->context, weft_comm_destroy(seat->comm));
    RANK_CHECK_OK(seat->context, weft_stream_destroy(seat->stream));
    tests_free(seat->expected);
    return 0;
}

/* ---------------------------------------------------------------- dispatch */

static int fill_step(struct seat *seat, int32_t step)
{
    const struct ll_case *problem = seat->problem;
    const struct step *at = &seat->steps[step % 2];
    const int32_t rank = seat->context->rank, num_topk = problem->num_topk;
    const int32_t num_tokens = ll_num_tokens(problem, step, rank);
    const size_t choices = (size_t)num_tokens * (size_t)num_topk;
    char *tokens = tests_alloc((size_t)num_tokens * seat->row_bytes + 1);
    int64_t *ids = tests_alloc(choices * sizeof *ids + 1);
    float *weights = tests_alloc(choices * sizeof *weights + 1);
    for (int32_t token = 0; token < num_tokens; token++)
        ll_fill_token(problem, step, rank, token, tokens + (size_t)token * seat->row_bytes);
    for (int32_t i = 0; i < num_tokens * num_topk; i++) {
        const int64_t id = ll_expert(problem, step, rank, i / num_topk, i % num_topk);
        if (problem->index_type == WEFT_INT64)
            ids[i] = id;
        else
            ((int32_t *)ids)[i] = (int32_t)id;
        weights[i] = ll_weight(problem, step, rank, i / num_topk, i % num_topk);
    }
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, at->tokens, tokens,
                                                  (size_t)num_tokens * seat->row_bytes));
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, at->topk_idx, ids,
                                                  choices * dtype_bytes(problem->index_type)));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, at->weights, weights, choices * sizeof *weights));
    tests_free(tokens);
    tests_free(ids);
    tests_free(weights);
    return 0;
}

static int dispatch(struct seat *seat, int32_t step, weft_ll_phases phases)
{
    const struct step *at = &seat->steps[step % 2];
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        args.num_tokens = ll_num_tokens(seat->problem, step, seat->context->rank);
        args.x = at->tokens;
        args.topk_idx = at->topk_idx;
        args.index_type = seat->problem->index_type;
        args.topk_weights = seat->problem->without_weights ? NULL : at->weights;
    }
    if (phases != WEFT_LL_SEND) {
        args.num_rows_per_rank = at->rank_counts;
        args.rows = is_by_expert(seat) ? at->rows : NULL;
        args.num_rows_per_expert = is_by_expert(seat) ? at->expert_counts : NULL;
        args.src_tokens = is_by_expert(seat) ? at->src_tokens : NULL;
        args.row_ranges = is_by_expert(seat) ? at->ranges : NULL;
        args.total_rows_per_expert = is_by_expert(seat) ? at->totals : NULL;
    }
    RANK_CHECK_OK(seat->context, weft_ll_dispatch(seat->ll, &args, seat->stream));
    return 0;
}

/* ---------------------------------------------------------------- by rank */

/* The row in its slot is the token; returns what this rank's experts make of it. */
static int check_slot(struct seat *seat, int32_t step, const weft_ll_slots *slots, int32_t half,
                      struct ll_row row, char *answer)
{
    const struct ll_case *problem = seat->problem;
    const size_t num_topk = (size_t)problem->num_topk;
    const uint64_t offset = (uint64_t)row.source * slots->source_stride_bytes +
                            (uint64_t)row.idx * slots->row_stride_bytes;
    int32_t experts[WEFT_MAX_TOPK], token;
    float weights[WEFT_MAX_TOPK];
    char *found = tests_alloc(seat->row_bytes);
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, found, (const char *)slots->x[half] + offset,
                                   seat->row_bytes));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, experts, (const char *)slots->experts[half] + offset,
                                   num_topk * sizeof *experts));
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, weights,
                                                  (const char *)slots->topk_weights[half] + offset,
                                                  num_topk * sizeof *weights));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, &token,
                                   (const char *)slots->src_token[half] + offset, sizeof token));
    ll_fill_token(problem, step, row.source, row.token, answer);
    RANK_CHECK(seat->context, token == row.token && memcmp(found, answer, seat->row_bytes) == 0,
               "step %d: row %d of rank %d is token %d, or has other elements; expected %d", step,
               row.idx, row.source, token, row.token);
    for (int32_t k = 0; k < problem->num_topk; k++) {
        const struct ll_place place = ll_place(problem, step, row.source, row.token, k);
        const int is_here = place.rank == seat->context->rank;
        const float weight = is_here ? ll_weight(problem, step, row.source, row.token, k) : 0.0f;
        RANK_CHECK(seat->context,
                   experts[k] == (is_here ? place.local_expert : -1) && weights[k] == weight,
                   "step %d: row %d of rank %d, choice %d: expert %d, weight %g", step, row.idx,
                   row.source, k, experts[k], (double)weights[k]);
    }
    ll_run_experts(problem, step, seat->context->rank, row, answer);
    tests_free(found);
    return 0;
}

static int run_by_rank(struct seat *seat, int32_t step, int32_t num_rows)
{
    const struct step *at = &seat->steps[step % 2];
    char *answer = tests_alloc(seat->row_bytes);
    int32_t half;
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    RANK_CHECK_OK(seat->context, weft_ll_query_slots(seat->ll, &slots));
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, &half, slots.half, sizeof half));
    for (int32_t i = 0; i < num_rows; i++) {
        const struct ll_row row = seat->expected[i];
        const uint64_t place =
            (uint64_t)row.source * (uint64_t)seat->problem->max_tokens + (uint64_t)row.idx;
        if (check_slot(seat, step, &slots, half, row, answer))
            return 1;
        RANK_CHECK_OK(seat->context,
                      weft_memory_copy(seat->comm, at->rows + place * seat->row_bytes, answer,
                                       seat->row_bytes));
    }
    tests_free(answer);
    return 0;
}

/* ---------------------------------------------------------------- by expert */

struct packed { /* of an expert, on the host */
    int32_t num_rows;
    int32_t firsts[RANKS_MAX], counts[RANKS_MAX]; /* by source */
};

static int check_packed_row(struct seat *seat, int32_t step, int64_t place, int32_t expert,
                            struct ll_row row, char *elements)
{
    const struct step *at = &seat->steps[step % 2];
    int32_t token;
    char *found = tests_alloc(seat->row_bytes);
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, found, at->rows + (uint64_t)place * seat->row_bytes,
                                   seat->row_bytes));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, &token, &at->src_tokens[place], sizeof token));
    ll_fill_token(seat->problem, step, row.source, row.token, elements);
    RANK_CHECK(seat->context, token == row.token && memcmp(found, elements, seat->row_bytes) == 0,
               "step %d: row %lld of expert %d is token %d, or has other elements; expected token "
               "%d of rank %d",
               step, (long long)place, expert, token, row.token, row.source);
    ll_run_expert(seat->problem, seat->context->rank, expert, elements);
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, at->rows + (uint64_t)place * seat->row_bytes,
                                   elements, seat->row_bytes));
    tests_free(found);
    return 0;
}

static int check_packed(struct seat *seat, int32_t step, int32_t expert,
                        const struct packed *packed)
{
    const struct step *at = &seat->steps[step % 2];
    const int32_t num_ranks = seat->problem->num_ranks;
    int64_t ranges[RANKS_MAX];
    int32_t num_rows;
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, &num_rows, &at->expert_counts[expert],
                                                  sizeof num_rows));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, ranges, at->ranges + (int64_t)expert * num_ranks,
                                   (uint64_t)num_ranks * sizeof *ranges));
    RANK_CHECK(seat->context, num_rows == packed->num_rows, "step %d: %d rows of expert %d, not %d",
               step, num_rows, expert, packed->num_rows);
    for (int32_t source = 0; source < num_ranks; source++)
        RANK_CHECK(seat->context,
                   ranges[source] ==
                       ((int64_t)packed->firsts[source] << 32 | (int64_t)packed->counts[source]),
                   "step %d: rows of rank %d for expert %d: %llx", step, source, expert,
                   (unsigned long long)ranges[source]);
    return 0;
}

static int run_by_expert(struct seat *seat, int32_t step, int32_t num_rows)
{
    const struct ll_case *problem = seat->problem;
    const int32_t own = seat->context->rank, capacity = ll_capacity(problem);
    char *elements = tests_alloc(seat->row_bytes);
    for (int32_t expert = 0; expert < ll_num_local(problem, own); expert++) {
        struct packed packed = {.num_rows = 0};
        for (int32_t i = 0, source = -1; i < num_rows; i++) {
            const struct ll_row row = seat->expected[i];
            while (source < row.source)
                packed.firsts[++source] = packed.num_rows;
            for (int32_t k = 0; k < problem->num_topk; k++) {
                const struct ll_place place = ll_place(problem, step, row.source, row.token, k);
                if (place.rank != own || place.local_expert != expert)
                    continue;
                if (packed.num_rows < capacity &&
                    check_packed_row(seat, step, (int64_t)expert * capacity + packed.num_rows,
                                     expert, row, elements))
                    return 1;
                packed.counts[row.source]++;
                packed.num_rows++;
            }
        }
        for (int32_t source = problem->num_ranks - 1; source >= 0 && packed.counts[source] == 0;
             source--)
            packed.firsts[source] = packed.num_rows;
        if (check_packed(seat, step, expert, &packed))
            return 1;
    }
    tests_free(elements);
    return 0;
}

/* Checks what dispatch has delivered, and makes of it what combine is to send. */
static int run_experts(struct seat *seat, int32_t step)
{
    const struct ll_case *problem = seat->problem;
    const int32_t num_rows = ll_rows_of_rank(problem, step, seat->context->rank, seat->expected);
    int32_t counts[RANKS_MAX], expected[RANKS_MAX] = {0};
    RANK_CHECK_OK(seat->context, weft_stream_synchronize(seat->stream));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, counts, seat->steps[step % 2].rank_counts,
                                   (uint64_t)problem->num_ranks * sizeof *counts));
    for (int32_t i = 0; i < num_rows; i++)
        expected[seat->expected[i].source]++;
    for (int32_t rank = 0; rank < problem->num_ranks; rank++)
        RANK_CHECK(seat->context, counts[rank] == expected[rank],
                   "step %d: %d rows of rank %d, not %d", step, counts[rank], rank, expected[rank]);
    return is_by_expert(seat) ? run_by_expert(seat, step, num_rows)
                              : run_by_rank(seat, step, num_rows);
}

/* ---------------------------------------------------------------- combine */

static int combine(struct seat *seat, int32_t step, weft_ll_phases phases, int32_t keep)
{
    const struct step *at = &seat->steps[step % 2];
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = phases;
    args.keep = keep;
    if (phases != WEFT_LL_RECEIVE)
        args.x = at->rows;
    if (phases != WEFT_LL_SEND) {
        args.out = at->out;
        args.topk_weights = seat->problem->answer == WEFT_LL_ANSWER_ROWS ? at->weights : NULL;
    }
    RANK_CHECK_OK(seat->context, weft_ll_combine(seat->ll, &args, seat->stream));
    return 0;
}

static int check_combined(struct seat *seat, int32_t step)
{
    const int32_t num_tokens = ll_num_tokens(seat->problem, step, seat->context->rank);
    char *expected = tests_alloc(seat->row_bytes), *found = tests_alloc(seat->row_bytes);
    RANK_CHECK_OK(seat->context, weft_stream_synchronize(seat->stream));
    for (int32_t token = 0; token < num_tokens; token++) {
        ll_expect_combined(seat->problem, step, seat->context->rank, token, expected);
        RANK_CHECK_OK(seat->context,
                      weft_memory_copy(seat->comm, found,
                                       seat->steps[step % 2].out + (size_t)token * seat->row_bytes,
                                       seat->row_bytes));
        RANK_CHECK(seat->context, memcmp(found, expected, seat->row_bytes) == 0,
                   "step %d: token %d is not what its experts make of it: %g, not %g", step, token,
                   (double)element_load(seat->problem->dtype, found, 0),
                   (double)element_load(seat->problem->dtype, expected, 0));
    }
    tests_free(expected);
    tests_free(found);
    return 0;
}

/* ---------------------------------------------------------------- steps */

static int one_launch(struct seat *seat, int32_t step)
{
    return fill_step(seat, step) || dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
           run_experts(seat, step) || combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 0) ||
           check_combined(seat, step);
}

static int two_phases(struct seat *seat, int32_t step)
{
    return fill_step(seat, step) || dispatch(seat, step, WEFT_LL_SEND) ||
           dispatch(seat, step, WEFT_LL_RECEIVE) || run_experts(seat, step) ||
           combine(seat, step, WEFT_LL_SEND, 0) || combine(seat, step, WEFT_LL_RECEIVE, 0) ||
           check_combined(seat, step);
}

/* Step s is sent, then step s - 1 combined, of which the second phase comes last. */
static int two_results(struct seat *seat, int32_t step)
{
    if (fill_step(seat, step) || dispatch(seat, step, WEFT_LL_SEND) ||
        dispatch(seat, step, WEFT_LL_RECEIVE) || run_experts(seat, step))
        return 1;
    if (step > 0 &&
        (combine(seat, step - 1, WEFT_LL_SEND_AND_RECEIVE, 0) || check_combined(seat, step - 1)))
        return 1;
    if (step < NUM_STEPS - 1)
        return 0;
    return combine(seat, step, WEFT_LL_SEND, 0) || combine(seat, step, WEFT_LL_RECEIVE, 0) ||
           check_combined(seat, step);
}

/* The second combine overwrites what the first gave; every other result ends by a release. */
static int combined_twice(struct seat *seat, int32_t step)
{
    if (fill_step(seat, step) || dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
        run_experts(seat, step) || combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 1) ||
        check_combined(seat, step) || combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, step % 2) ||
        check_combined(seat, step))
        return 1;
    if (step % 2 == 1)
        RANK_CHECK_OK(seat->context, weft_ll_release(seat->ll, seat->stream));
    return 0;
}

static int (*const ways[NUM_WAYS])(struct seat *, int32_t) = {
    [WAY_ONE_LAUNCH] = one_launch,
    [WAY_TWO_PHASES] = two_phases,
    [WAY_TWO_RESULTS] = two_results,
    [WAY_COMBINED_TWICE] = combined_twice,
};

/* The totals of the experts have grown by each step's counts: all selections of all steps. */
static int run_trial(struct ranks_context *context)
{
    const struct trial *trial = context->argument;
    struct seat seat = {.context = context, .problem = &trial->problem, .way = trial->way};
    if (open_seat(&seat))
        return 1;
    for (int32_t step = 0; step < NUM_STEPS; step++)
        if (ways[trial->way](&seat, step))
            return 1;
    return close_seat(&seat);
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
