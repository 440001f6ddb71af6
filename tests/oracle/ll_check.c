/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "harness/memory.h"
#include "oracle/ll_seat.h"
#include "workload/elements.h"
#include "workload/low_latency_check.h"

/* ---------------------------------------------------------------- dispatch */

struct dispatched {
    struct ll_seat *seat;
    int32_t step;
};

static weft_result read(void *of, void *dst, const void *src, size_t num_bytes)
{
    const struct dispatched *dispatched = of;
    return weft_memory_copy(dispatched->seat->comm, dst, src, num_bytes);
}

/* The first that is wrong counts. */
static void tell(void *of, int is_right, const char *text)
{
    const struct dispatched *dispatched = of;
    if (!is_right && ranks_self->failure[0] == '\0')
        snprintf(ranks_self->failure, sizeof ranks_self->failure, "step %d: %s", dispatched->step,
                 text);
}

static int find_received(struct ll_seat *seat, int32_t step, struct ll_received *received)
{
    const struct ll_step *at = &seat->steps[step % 2];
    *received = (struct ll_received){.rank_counts = at->rank_counts};
    if (ll_seat_is_by_expert(seat)) {
        received->expert_counts = at->expert_counts;
        received->src_tokens = at->src_tokens;
        received->ranges = at->ranges;
        received->rows = at->rows;
        received->scales = at->scales;
        received->column_bytes = seat->column_bytes;
        return 0;
    }
    received->slots = (weft_ll_slots)WEFT_INIT(weft_ll_slots);
    CHECK_OK(weft_ll_query_slots(seat->ll, &received->slots));
    CHECK_OK(
        weft_memory_copy(seat->comm, &received->half, received->slots.half, sizeof received->half));
    return 0;
}

/* Where the answer to a row goes; NULL: nowhere. */
static char *answer_place(const struct ll_checker *checker, const struct ll_row *row)
{
    const struct dispatched *dispatched = checker->of;
    const struct ll_seat *seat = dispatched->seat;
    const weft_ll_slots *slots = &checker->received.slots;
    const int64_t place = ll_oracle_place(checker->oracle, row);
    if (place < 0 || row->source == seat->half_there)
        return NULL;
    if (!seat->problem->answers_in_slots)
        return seat->steps[dispatched->step % 2].answers + (uint64_t)place * seat->answer_stride;
    return (char *)(uintptr_t)slots->x[checker->received.half] +
           (uint64_t)row->source * slots->source_stride_bytes +
           (uint64_t)row->position * slots->row_stride_bytes;
}

/* Each row is compared before its answer is where it was. */
static int check_rows(struct ll_seat *seat, const struct ll_checker *checker, char *answer)
{
    for (int64_t i = 0; i < checker->oracle->num_rows; i++) {
        const struct ll_row *row = &checker->oracle->rows[i];
        char *place = answer_place(checker, row);
        CHECK_OK(ll_check_row(checker, row));
        ll_oracle_fill_answer(checker->oracle, row, answer);
        if (place != NULL)
            CHECK_OK(weft_memory_copy(seat->comm, place, answer, seat->row_bytes));
    }
    return ranks_self->failure[0] != '\0';
}

enum call { DISPATCH, COMBINE };

/* Who is cut off must be told as missing, and nobody else. */
static int check_missing(struct ll_seat *seat, enum call call, int32_t step)
{
    const int32_t *told = seat->steps[step % 2].missing[call];
    int32_t missing[RANKS_MAX];
    if (seat->problem->on_missing == WEFT_LL_FAIL)
        return 0;
    CHECK_OK(weft_memory_copy(seat->comm, missing, told,
                              (uint64_t)seat->problem->num_ranks * sizeof *missing));
    for (int32_t rank = 0; rank < seat->problem->num_ranks; rank++) {
        const int is_masked =
            ll_are_cut(seat->problem, seat->context->rank, rank) || rank == seat->half_there;
        CHECK(missing[rank] == is_masked, "%s tells %d of rank %d",
              call == DISPATCH ? "dispatch" : "combine", missing[rank], rank);
    }
    return 0;
}

int ll_check_expert_signals(struct ll_seat *seat, int32_t step, uint64_t expected)
{
    const int32_t num_local = ll_num_local(seat->problem, seat->context->rank);
    for (int32_t expert = 0; seat->problem->has_expert_signals && expert < num_local; expert++) {
        uint64_t word;
        CHECK_OK(weft_memory_copy(seat->comm, &word, seat->steps[step % 2].expert_signals + expert,
                                  sizeof word));
        CHECK(word == expected, "step %d: the word of expert %d is %llu, not %llu", step, expert,
              (unsigned long long)word, (unsigned long long)expected);
    }
    return 0;
}

int ll_check_expert(struct ll_seat *seat, int32_t step, int32_t expert)
{
    struct dispatched dispatched = {seat, step};
    struct ll_step_oracle oracle;
    struct ll_checker checker = {
        .oracle = &oracle.oracle, .read = read, .tell = tell, .of = &dispatched};
    int32_t num_rows;
    if (find_received(seat, step, &checker.received))
        return 1;
    CHECK_OK(weft_memory_copy(seat->comm, &num_rows, &checker.received.expert_counts[expert],
                              sizeof num_rows));
    ll_open_oracle(&oracle, seat->problem, step, seat->context->rank);
    const int32_t expected = ll_oracle_selections(&oracle.oracle, expert);
    CHECK(num_rows == expected, "expert %d has %d rows, not %d", expert, num_rows, expected);
    for (int64_t i = 0; i < oracle.oracle.num_rows; i++)
        if (oracle.oracle.rows[i].expert == expert)
            CHECK_OK(ll_check_row(&checker, &oracle.oracle.rows[i]));
    ll_oracle_close(&oracle.oracle);
    return ranks_self->failure[0] != '\0';
}

int ll_check_dispatched(struct ll_seat *seat, int32_t step)
{
    struct dispatched dispatched = {seat, step};
    struct ll_step_oracle oracle;
    struct ll_checker checker = {
        .oracle = &oracle.oracle,
        .num_local = ll_num_local(seat->problem, seat->context->rank),
        .half_there = seat->half_there == LL_SEAT_NOBODY ? 0 : (uint64_t)1 << seat->half_there,
        .read = read,
        .tell = tell,
        .of = &dispatched};
    CHECK_OK(weft_stream_synchronize(seat->stream));
    if (find_received(seat, step, &checker.received) || check_missing(seat, DISPATCH, step) ||
        ll_check_expert_signals(seat, step, seat->steps[step % 2].num_signalled))
        return 1;
    ll_open_oracle(&oracle, seat->problem, step, seat->context->rank);
    char *answer = tests_alloc(seat->row_bytes);
    CHECK_OK(ll_check_counts(&checker));
    const int failed = check_rows(seat, &checker, answer);
    tests_free(answer);
    ll_oracle_close(&oracle.oracle);
    return failed;
}

/* ---------------------------------------------------------------- combine */

/* In packets a rank that was lost may have added to a part of a token: then each element counts for
 * itself. */
static size_t compared_bytes(const struct ll_seat *seat)
{
    return seat->problem->carrier >= WEFT_LL_PACKETS ? dtype_bytes(seat->problem->dtype)
                                                     : seat->row_bytes;
}

/* Notes what is as it is with these masks. */
static int find_sums(struct ll_seat *seat, int32_t step, const struct ll_case *problem,
                     unsigned char *are_right)
{
    const char *out = seat->steps[step % 2].out;
    const size_t num_bytes = compared_bytes(seat);
    char *expected = tests_alloc(seat->row_bytes), *found = tests_alloc(seat->row_bytes);
    struct ll_step_oracle oracle;
    ll_open_oracle(&oracle, problem, step, seat->context->rank);
    const int64_t *first = oracle.oracle.first_tokens + seat->context->rank;
    for (int64_t token = 0; token < first[1] - first[0]; token++) {
        CHECK_OK(weft_memory_copy(seat->comm, found, out + (size_t)token * seat->row_bytes,
                                  seat->row_bytes));
        ll_oracle_fill_combined(&oracle.oracle, first[0] + token, expected);
        for (size_t at = 0; at < seat->row_bytes; at += num_bytes)
            are_right[((size_t)token * seat->row_bytes + at) / num_bytes] |=
                memcmp(found + at, expected + at, num_bytes) == 0;
    }
    ll_oracle_close(&oracle.oracle);
    tests_free(expected);
    tests_free(found);
    return 0;
}

/* A token may have the sum without any of the ranks in doubt. */
static int check_sums(struct ll_seat *seat, int32_t step, unsigned char *are_right)
{
    const int32_t own = seat->context->rank;
    const size_t num_in_row = seat->row_bytes / compared_bytes(seat);
    const uint64_t in_doubt = seat->in_doubt == LL_SEAT_NOBODY ? 0 : (uint64_t)1 << seat->in_doubt;
    struct ll_case problem = *seat->problem;
    uint64_t cuts[RANKS_MAX] = {0};
    if (problem.cuts != NULL) {
        memcpy(cuts, problem.cuts, (size_t)problem.num_ranks * sizeof *cuts);
        problem.cuts = cuts;
    }
    for (uint64_t some = in_doubt;; some = (some - 1) & in_doubt) { /* all subsets */
        cuts[own] = (cuts[own] & ~in_doubt) | some;
        if (find_sums(seat, step, &problem, are_right))
            return 1;
        if (some == 0)
            break;
    }
    for (size_t i = 0; i < (size_t)ll_num_tokens(&problem, step, own) * num_in_row; i++)
        CHECK(are_right[i], "step %d: token %zu is not what its experts make of it", step,
              i / num_in_row);
    return 0;
}

int ll_check_combined(struct ll_seat *seat, int32_t step)
{
    CHECK_OK(weft_stream_synchronize(seat->stream));
    if (check_missing(seat, COMBINE, step))
        return 1;
    const size_t num_compared =
        (size_t)seat->problem->max_tokens * (seat->row_bytes / compared_bytes(seat));
    unsigned char *are_right = tests_alloc(num_compared);
    memset(are_right, 0, num_compared);
    const int failed = check_sums(seat, step, are_right);
    tests_free(are_right);
    return failed;
}

/* ---------------------------------------------------------------- totals */

int ll_check_totals(struct ll_seat *seat, int32_t num_steps)
{
    const int32_t num_local = ll_num_local(seat->problem, seat->context->rank);
    int32_t *expected = tests_alloc(2 * (size_t)num_local * sizeof *expected + 1);
    for (int32_t step = 0; step < num_steps && ll_seat_is_by_expert(seat); step++) {
        struct ll_step_oracle oracle;
        ll_open_oracle(&oracle, seat->problem, step, seat->context->rank);
        for (int32_t local = 0; local < num_local; local++)
            expected[2 * local + step % 2] += ll_oracle_selections(&oracle.oracle, local);
        ll_oracle_close(&oracle.oracle);
    }
    for (int32_t i = 0; i < 2 * num_local && ll_seat_is_by_expert(seat); i++) {
        int32_t found;
        CHECK_OK(
            weft_memory_copy(seat->comm, &found, &seat->steps[i % 2].totals[i / 2], sizeof found));
        CHECK(found == expected[i], "expert %d has had %d rows in all, not %d", i / 2, found,
              expected[i]);
    }
    tests_free(expected);
    return 0;
}
