/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "harness/memory.h"
#include "oracle/ll_seat.h"
#include "oracle/quantised.h"
#include "workload/elements.h"

/* The row and its scales on the machine are what its experts must get. */
static int check_sent(struct ll_seat *seat, int32_t step, struct ll_row row, const char *elements,
                      const char *scales, int64_t word_stride)
{
    const struct ll_case *problem = seat->problem;
    const struct quantised_form form = {problem->dtype, problem->narrow_dtype, problem->scale,
                                        problem->group_elements, word_stride};
    const struct quantised_form close = {problem->dtype, problem->narrow_dtype, problem->scale,
                                         problem->group_elements, sizeof(float)};
    const uint64_t scale_bytes = problem->scale == WEFT_SCALE_UE8M0 ? 1 : sizeof(float);
    char *found = tests_alloc(seat->sent_bytes), *expected = tests_alloc(seat->sent_bytes);
    char *expected_scales = tests_alloc((size_t)(ll_num_groups(problem) + 4) * sizeof(float));
    ll_fill_sent(problem, step, row.source, row.token, expected, expected_scales, sizeof(float));
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, found, elements, seat->sent_bytes));
    RANK_CHECK(seat->context, memcmp(found, expected, seat->sent_bytes) == 0,
               "step %d: row %d of rank %d, token %d, has other elements", step, row.idx,
               row.source, row.token);
    for (int32_t group = 0; group < ll_num_groups(problem); group++) {
        char scale[sizeof(float)];
        RANK_CHECK_OK(seat->context,
                      weft_memory_copy(seat->comm, scale,
                                       scales + quantised_scale_offset(&form, group), scale_bytes));
        RANK_CHECK(seat->context,
                   memcmp(scale, expected_scales + quantised_scale_offset(&close, group),
                          scale_bytes) == 0,
                   "step %d: row %d of rank %d, token %d: group %d has another scale", step,
                   row.idx, row.source, row.token, group);
    }
    tests_free(expected_scales);
    tests_free(expected);
    tests_free(found);
    return 0;
}

/* ---------------------------------------------------------------- by rank */

/* The row in its slot is the token; returns what this rank's experts make of it. */
static int check_slot(struct ll_seat *seat, int32_t step, const weft_ll_slots *slots, int32_t half,
                      struct ll_row row, char *answer)
{
    const struct ll_case *problem = seat->problem;
    const size_t num_topk = (size_t)problem->num_topk;
    const uint64_t offset = (uint64_t)row.source * slots->source_stride_bytes +
                            (uint64_t)row.idx * slots->row_stride_bytes;
    int32_t experts[WEFT_MAX_TOPK], token;
    float weights[WEFT_MAX_TOPK];
    if (check_sent(seat, step, row, (const char *)slots->x[half] + offset,
                   slots->scales[half] == NULL ? NULL : (const char *)slots->scales[half] + offset,
                   sizeof(float)))
        return 1;
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, experts, (const char *)slots->experts[half] + offset,
                                   num_topk * sizeof *experts));
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, weights,
                                                  (const char *)slots->topk_weights[half] + offset,
                                                  num_topk * sizeof *weights));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, &token,
                                   (const char *)slots->src_token[half] + offset, sizeof token));
    RANK_CHECK(seat->context, token == row.token,
               "step %d: row %d of rank %d is token %d, expected %d", step, row.idx, row.source,
               token, row.token);
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
    return 0;
}

/* Where the answer to a row goes. */
static char *answer_place(const struct ll_seat *seat, int32_t step, const weft_ll_slots *slots,
                          int32_t half, struct ll_row row)
{
    const uint64_t place =
        (uint64_t)row.source * (uint64_t)seat->problem->max_tokens + (uint64_t)row.idx;
    if (!seat->problem->answers_in_slots)
        return seat->steps[step % 2].answers + place * seat->answer_stride;
    return (char *)(uintptr_t)slots->x[half] + (uint64_t)row.source * slots->source_stride_bytes +
           (uint64_t)row.idx * slots->row_stride_bytes;
}

static int run_by_rank(struct ll_seat *seat, int32_t step, int32_t num_rows)
{
    char *answer = tests_alloc(seat->row_bytes);
    int32_t half;
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    RANK_CHECK_OK(seat->context, weft_ll_query_slots(seat->ll, &slots));
    RANK_CHECK_OK(seat->context, weft_memory_copy(seat->comm, &half, slots.half, sizeof half));
    for (int32_t i = 0; i < num_rows; i++) {
        const struct ll_row row = seat->expected[i];
        if (check_slot(seat, step, &slots, half, row, answer))
            return 1;
        RANK_CHECK_OK(seat->context,
                      weft_memory_copy(seat->comm, answer_place(seat, step, &slots, half, row),
                                       answer, seat->row_bytes));
    }
    tests_free(answer);
    return 0;
}

/* ---------------------------------------------------------------- by expert */

struct packed { /* of an expert, on the host */
    int32_t num_rows;
    int32_t firsts[RANKS_MAX], counts[RANKS_MAX]; /* by source */
};

/* Where the first scale of a packed row is, and the distance of the next word. */
static const char *packed_scales(const struct ll_seat *seat, const struct ll_step *at,
                                 int64_t place, int64_t *word_stride)
{
    const int64_t capacity = ll_capacity(seat->problem);
    const int64_t num_groups = ll_num_groups(seat->problem);
    const int64_t num_columns =
        seat->problem->scale == WEFT_SCALE_UE8M0 ? (num_groups + 3) / 4 : num_groups;
    *word_stride = seat->column_bytes > 0 ? (int64_t)seat->column_bytes : (int64_t)sizeof(float);
    if (seat->column_bytes == 0)
        return at->scales + place * (int64_t)ll_seat_scale_bytes(seat);
    return at->scales + place / capacity * num_columns * (int64_t)seat->column_bytes +
           place % capacity * (int64_t)sizeof(float);
}

static int check_packed_row(struct ll_seat *seat, int32_t step, int64_t place, int32_t expert,
                            struct ll_row row, char *elements)
{
    const struct ll_step *at = &seat->steps[step % 2];
    int64_t word_stride;
    int32_t token;
    const char *scales = packed_scales(seat, at, place, &word_stride);
    if (row.source == seat->half_there)
        return 0;
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, &token, &at->src_tokens[place], sizeof token));
    RANK_CHECK(seat->context, token == row.token,
               "step %d: row %lld of expert %d is token %d, expected token %d of rank %d", step,
               (long long)place, expert, token, row.token, row.source);
    if (check_sent(seat, step, row, at->rows + (uint64_t)place * seat->sent_bytes, scales,
                   word_stride))
        return 1;
    ll_fill_input(seat->problem, step, row.source, row.token, elements);
    ll_run_expert(seat->problem, seat->context->rank, expert, elements);
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, at->answers + (uint64_t)place * seat->answer_stride,
                                   elements, seat->row_bytes));
    return 0;
}

static int check_packed(struct ll_seat *seat, int32_t step, int32_t expert,
                        const struct packed *packed)
{
    const struct ll_step *at = &seat->steps[step % 2];
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

static int run_by_expert(struct ll_seat *seat, int32_t step, int32_t num_rows)
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

/* Who is cut off must be told as missing, and nobody else. */
static int check_missing(struct ll_seat *seat, const char *call, const int32_t *told)
{
    int32_t missing[RANKS_MAX];
    if (seat->problem->on_missing == WEFT_LL_FAIL)
        return 0;
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, missing, told,
                                   (uint64_t)seat->problem->num_ranks * sizeof *missing));
    for (int32_t rank = 0; rank < seat->problem->num_ranks; rank++) {
        const int is_cut = ll_are_cut(seat->problem, seat->context->rank, rank);
        RANK_CHECK(seat->context, missing[rank] == (is_cut || rank == seat->half_there),
                   "%s tells %d of rank %d", call, missing[rank], rank);
    }
    return 0;
}

int ll_check_dispatched(struct ll_seat *seat, int32_t step)
{
    const struct ll_case *problem = seat->problem;
    const int32_t num_rows = ll_rows_of_rank(problem, step, seat->context->rank, seat->expected);
    int32_t counts[RANKS_MAX], expected[RANKS_MAX] = {0};
    RANK_CHECK_OK(seat->context, weft_stream_synchronize(seat->stream));
    RANK_CHECK_OK(seat->context,
                  weft_memory_copy(seat->comm, counts, seat->steps[step % 2].rank_counts,
                                   (uint64_t)problem->num_ranks * sizeof *counts));
    for (int32_t i = 0; i < num_rows; i++)
        expected[seat->expected[i].source] += seat->expected[i].source != seat->half_there;
    for (int32_t rank = 0; rank < problem->num_ranks; rank++)
        RANK_CHECK(seat->context, counts[rank] == expected[rank],
                   "step %d: %d rows of rank %d, not %d", step, counts[rank], rank, expected[rank]);
    if (check_missing(seat, "dispatch", seat->steps[step % 2].missing[0]))
        return 1;
    return ll_seat_is_by_expert(seat) ? run_by_expert(seat, step, num_rows)
                                      : run_by_rank(seat, step, num_rows);
}

/* ---------------------------------------------------------------- combine */

/* Whether the sum is the one with the rank in doubt, which is cut off as the case has it. */
static int is_combined_with_all(const struct ll_seat *seat, int32_t step, int32_t token,
                                const char *found, char *expected)
{
    const int32_t own = seat->context->rank;
    struct ll_case problem = *seat->problem;
    uint64_t cuts[RANKS_MAX] = {0};
    if (seat->in_doubt == LL_SEAT_NOBODY)
        return 0;
    memcpy(cuts, problem.cuts, (size_t)problem.num_ranks * sizeof *cuts);
    cuts[own] &= ~((uint64_t)1 << seat->in_doubt);
    problem.cuts = cuts;
    ll_expect_combined(&problem, step, own, token, expected);
    return memcmp(found, expected, seat->row_bytes) == 0;
}

int ll_check_combined(struct ll_seat *seat, int32_t step)
{
    const int32_t num_tokens = ll_num_tokens(seat->problem, step, seat->context->rank);
    RANK_CHECK_OK(seat->context, weft_stream_synchronize(seat->stream));
    if (check_missing(seat, "combine", seat->steps[step % 2].missing[1]))
        return 1;
    char *expected = tests_alloc(seat->row_bytes), *found = tests_alloc(seat->row_bytes);
    for (int32_t token = 0; token < num_tokens; token++) {
        RANK_CHECK_OK(seat->context,
                      weft_memory_copy(seat->comm, found,
                                       seat->steps[step % 2].out + (size_t)token * seat->row_bytes,
                                       seat->row_bytes));
        if (is_combined_with_all(seat, step, token, found, expected))
            continue;
        ll_expect_combined(seat->problem, step, seat->context->rank, token, expected);
        RANK_CHECK(seat->context, memcmp(found, expected, seat->row_bytes) == 0,
                   "step %d: token %d is not what its experts make of it: %g, not %g", step, token,
                   (double)element_load(seat->problem->dtype, found, 0),
                   (double)element_load(seat->problem->dtype, expected, 0));
    }
    tests_free(expected);
    tests_free(found);
    return 0;
}

/* ---------------------------------------------------------------- totals */

static int32_t selections_of(const struct ll_seat *seat, int32_t step, int32_t expert)
{
    const struct ll_case *problem = seat->problem;
    int32_t num_selections = 0;
    for (int32_t source = 0; source < problem->num_ranks; source++)
        for (int32_t i = 0; i < ll_num_tokens(problem, step, source) * problem->num_topk; i++) {
            const struct ll_place place =
                ll_place(problem, step, source, i / problem->num_topk, i % problem->num_topk);
            num_selections += place.rank == seat->context->rank && place.local_expert == expert;
        }
    return num_selections;
}

int ll_check_totals(struct ll_seat *seat, int32_t num_steps)
{
    const int32_t num_local = ll_num_local(seat->problem, seat->context->rank);
    for (int32_t i = 0; i < 2 * num_local && ll_seat_is_by_expert(seat); i++) {
        int32_t found, expected = 0;
        for (int32_t step = i % 2; step < num_steps; step += 2)
            expected += selections_of(seat, step, i / 2);
        RANK_CHECK_OK(
            seat->context,
            weft_memory_copy(seat->comm, &found, &seat->steps[i % 2].totals[i / 2], sizeof found));
        RANK_CHECK(seat->context, found == expected, "expert %d has had %d rows in all, not %d",
                   i / 2, found, expected);
    }
    return 0;
}
