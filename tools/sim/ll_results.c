/* SPDX-License-Identifier: MIT */
#include "ll_results.h"

#include <stdlib.h>
#include <string.h>

#include "ll_masks.h"
#include "workload/elements.h"
#include "workload/low_latency_check.h"

/* ---------------------------------------------------------------- places */

int ll_is_by_expert(const struct party *party)
{
    return party->shape->ll_terms.layout == WEFT_LL_BY_EXPERT;
}

static size_t expert_capacity(const struct party *party)
{
    const struct shape *shape = party->shape;
    const int32_t capacity = shape->ll_terms.expert_capacity;
    return (size_t)(capacity > 0 ? capacity : shape->num_ranks * shape->max_tokens);
}

size_t ll_num_places(const struct party *party)
{
    const struct shape *shape = party->shape;
    return ll_is_by_expert(party)
               ? (size_t)ll_num_local(shape, party->rank) * expert_capacity(party)
               : (size_t)shape->num_ranks * (size_t)shape->max_tokens;
}

enum { SPARE_ROWS = 3, WORD_BYTES = sizeof(float) };

size_t ll_column_bytes(const struct party *party)
{
    const int has_columns = party->shape->ll_terms.has_columns && ll_is_by_expert(party);
    return has_columns ? (expert_capacity(party) + SPARE_ROWS) * WORD_BYTES : 0;
}

size_t ll_scales_bytes(const struct party *party)
{
    const weft_ll_config config = ll_config(party->shape, party->rank);
    const size_t num_columns = (ll_scale_bytes(&config) + WORD_BYTES - 1) / WORD_BYTES;
    const size_t num_local = (size_t)ll_num_local(party->shape, party->rank);
    return ll_column_bytes(party) > 0 ? num_local * num_columns * ll_column_bytes(party)
                                      : ll_num_places(party) * ll_scale_bytes(&config);
}

/* ---------------------------------------------------------------- what has come */

static weft_result read(void *of, void *dst, const void *src, size_t num_bytes)
{
    (void)of;
    weft__sim_host_reads(src, num_bytes);
    memcpy(dst, src, num_bytes);
    return WEFT_OK;
}

/* The result that came last is in half *slots.half; the ones before it took turns. */
static void find_slots(struct party *party, int32_t num_later, struct ll_received *received)
{
    received->slots = (weft_ll_slots)WEFT_INIT(weft_ll_slots);
    if (weft_ll_query_slots(party->ll, &received->slots) != WEFT_OK)
        party_complain(party, "slots: %s", weft_last_error());
    weft__sim_host_reads(received->slots.half, sizeof *received->slots.half);
    received->half = (*received->slots.half + num_later) % party->shape->ll_terms.num_results;
}

static void find_arrays(const struct party *party, int32_t result, struct ll_received *received)
{
    const struct ll_arrays *arrays = &party->ll_arrays[result];
    received->rank_counts = arrays->rank_counts;
    if (!ll_is_by_expert(party))
        return;
    received->expert_counts = arrays->expert_counts;
    received->src_tokens = arrays->src_tokens;
    received->ranges = arrays->ranges;
    received->rows = arrays->rows;
    received->scales = arrays->scales;
    received->column_bytes = ll_column_bytes(party);
}

static void expect(struct party *party, struct ll_expected *expected, int32_t round, int32_t result,
                   uint64_t lost)
{
    if (ll_open_expected(expected, party, round, result, lost) != WEFT_OK)
        party_complain(party, "no memory for what is expected");
}

void ll_check_received(struct party *party, int32_t round, int32_t result, int32_t num_later)
{
    const struct ll_lost *lost = &party->ll_lost[result];
    struct ll_expected expected;
    struct ll_checker checker = {.oracle = &expected.oracle,
                                 .num_local = ll_num_local(party->shape, party->rank),
                                 .half_there = lost->half_there,
                                 .read = read,
                                 .tell = party_tell,
                                 .of = party};
    expect(party, &expected, round, result, lost->ranks);
    find_arrays(party, result, &checker.received);
    if (!ll_is_by_expert(party) && num_later != LL_ENDED)
        find_slots(party, num_later, &checker.received);
    (void)ll_check_counts(&checker);
    for (int64_t i = 0; i < expected.oracle.num_rows; i++)
        if (ll_is_by_expert(party) || num_later != LL_ENDED)
            (void)ll_check_row(&checker, &expected.oracle.rows[i]);
    ll_oracle_close(&expected.oracle);
}

/* ---------------------------------------------------------------- experts that begin early */

/* Where a rank may go missing, what has come depends on that, which the host does not know yet. */
static int knows_rows(const struct party *party)
{
    return !ll_has_masks(party) || party->scenario->fault == WEFT__SIM_NO_FAULT;
}

static void check_expert(struct party *party, int32_t round, int32_t result, int32_t expert)
{
    struct ll_expected expected;
    struct ll_checker checker = {
        .oracle = &expected.oracle, .read = read, .tell = party_tell, .of = party};
    expect(party, &expected, round, result, 0);
    find_arrays(party, result, &checker.received);
    const int32_t *count = &party->ll_arrays[result].expert_counts[expert];
    weft__sim_host_reads(count, sizeof *count);
    if (knows_rows(party))
        party_expect(party, "early num_rows_per_expert", expert, *count,
                     ll_oracle_selections(&expected.oracle, expert));
    for (int64_t i = 0; i < expected.oracle.num_rows && knows_rows(party); i++)
        if (expected.oracle.rows[i].expert == expert)
            (void)ll_check_row(&checker, &expected.oracle.rows[i]);
    ll_oracle_close(&expected.oracle);
}

void ll_take_experts(struct party *party, int32_t round, int32_t result)
{
    const struct ll_arrays *arrays = &party->ll_arrays[result];
    const int32_t num_local = ll_num_local(party->shape, party->rank);
    const int32_t first =
        num_local > 0 ? (int32_t)rng_below(&party->ll_rng, (uint64_t)num_local) : 0;
    for (int32_t i = 0; i < num_local; i++) {
        const int32_t expert = (first + i) % num_local;
        const uint64_t word =
            weft__sim_host_awaits(&arrays->expert_signals[expert], arrays->num_signalled);
        if (word == arrays->num_signalled)
            check_expert(party, round, result, expert);
        else if (word != UINT64_MAX)
            party_complain(party, "expert %d is told of %llu times, not %llu", expert,
                           (unsigned long long)word, (unsigned long long)arrays->num_signalled);
    }
}

/* ---------------------------------------------------------------- answers */

void ll_fill_answers(struct party *party, int32_t round, int32_t result, int32_t num_later,
                     char *answers)
{
    const size_t row_bytes = ll_row_bytes(party->shape);
    struct ll_received received = {.half = 0};
    struct ll_expected expected;
    expect(party, &expected, round, result, party->ll_lost[result].ranks);
    if (answers == NULL)
        find_slots(party, num_later, &received);
    for (int64_t i = 0; i < expected.oracle.num_rows; i++) {
        const struct ll_row *row = &expected.oracle.rows[i];
        const int64_t place = ll_oracle_place(&expected.oracle, row);
        if (place < 0)
            continue;
        char *at =
            answers == NULL ? ll_slot_of(&received, row) : answers + (size_t)place * row_bytes;
        weft__sim_host_writes(at, row_bytes);
        ll_oracle_fill_answer(&expected.oracle, row, at);
    }
    ll_oracle_close(&expected.oracle);
}

/* ---------------------------------------------------------------- answers that come late */

static size_t rows_per_word(const struct party *party)
{
    const int32_t rows_per_signal = party->shape->ll_terms.rows_per_signal;
    return rows_per_signal > 0 ? (size_t)rows_per_signal : expert_capacity(party);
}

static size_t words_per_expert(const struct party *party)
{
    return (expert_capacity(party) - 1) / rows_per_word(party) + 1;
}

size_t ll_num_words(const struct party *party)
{
    return party->shape->ll_terms.has_signals
               ? (size_t)ll_num_local(party->shape, party->rank) * words_per_expert(party)
               : 0;
}

void ll_withhold_answers(struct party *party, const struct ll_move *move)
{
    for (size_t word = 0; word < ll_num_words(party); word++)
        weft__sim_host_signals(party->ll_arrays[move->result].signals[move->combine] + word, 0);
}

static size_t word_of(const struct party *party, size_t place)
{
    return place / expert_capacity(party) * words_per_expert(party) +
           place % expert_capacity(party) / rows_per_word(party);
}

/* Returns whether the word tells of any row. */
static int finish_word(struct party *party, struct ll_oracle *oracle, char *answers, size_t word)
{
    const size_t row_bytes = ll_row_bytes(party->shape);
    int has_rows = 0;
    for (int64_t i = 0; i < oracle->num_rows; i++) {
        const int64_t place = ll_oracle_place(oracle, &oracle->rows[i]);
        if (place < 0 || word_of(party, (size_t)place) != word)
            continue;
        weft__sim_host_writes(answers + (size_t)place * row_bytes, row_bytes);
        ll_oracle_fill_answer(oracle, &oracle->rows[i], answers + (size_t)place * row_bytes);
        has_rows = 1;
    }
    return has_rows;
}

/* Words of no rows are not raised: combine must not wait for them. With masks it may have rows of a
 * rank that is lost. */
void ll_finish_answers(struct party *party, int32_t round, const struct ll_move *move)
{
    const struct ll_arrays *arrays = &party->ll_arrays[move->result];
    const size_t num_words = ll_num_words(party);
    const size_t first = num_words > 0 ? rng_below(&party->ll_rng, num_words) : 0;
    struct ll_expected expected;
    expect(party, &expected, round, move->result, party->ll_lost[move->result].ranks);
    for (size_t i = 0; i < num_words; i++) {
        const size_t word = (first + i) % num_words;
        uint32_t *at = arrays->signals[move->combine] + word;
        weft__sim_host_signals(at, LL_SIGNAL_VALUE - 1);
        if (finish_word(party, &expected.oracle, arrays->answers[move->combine], word) ||
            ll_has_masks(party))
            weft__sim_host_signals(at, LL_SIGNAL_VALUE);
    }
    ll_oracle_close(&expected.oracle);
}

/* ---------------------------------------------------------------- what combine gives */

/* In packets a rank that was lost may have added to a part of a token: then each element counts for
 * itself. */
static size_t compared_bytes(const struct shape *shape)
{
    return shape->ll_terms.carrier >= WEFT_LL_PACKETS ? dtype_bytes(shape->combine_dtype)
                                                      : ll_row_bytes(shape);
}

/* Compares tokens with what they are without the lost ranks, and notes what is so. */
static void find_combined(struct party *party, int32_t round, const struct ll_move *move,
                          uint64_t lost, unsigned char *are_right)
{
    const struct shape *shape = party->shape;
    const size_t row_bytes = ll_row_bytes(shape), num_bytes = compared_bytes(shape);
    const char *found = party->ll_arrays[move->result].out[move->combine];
    const int32_t num_tokens = ll_num_tokens(shape, round, move->result, party->rank);
    struct ll_expected expected;
    char row[SHAPE_MAX_HIDDEN * sizeof(float)];
    expect(party, &expected, round, move->result, lost);
    for (int32_t i = 0; i < num_tokens; i++) {
        ll_oracle_fill_combined(&expected.oracle, expected.oracle.first_tokens[party->rank] + i,
                                row);
        for (size_t at = 0; at < row_bytes; at += num_bytes)
            are_right[((size_t)i * row_bytes + at) / num_bytes] |=
                memcmp(found + (size_t)i * row_bytes + at, row + at, num_bytes) == 0;
    }
    ll_oracle_close(&expected.oracle);
}

/* A rank that was lost while combine waited for it may have added to some tokens, or one that
 * lacked rows: any of several to any. */
void ll_check_combined(struct party *party, int32_t round, const struct ll_move *move)
{
    const struct shape *shape = party->shape;
    const uint64_t lost = party->ll_lost[move->result].sums[move->combine];
    const uint64_t in_doubt = party->ll_lost[move->result].in_doubt[move->combine];
    const char *found = party->ll_arrays[move->result].out[move->combine];
    const size_t num_bytes = compared_bytes(shape), row_bytes = ll_row_bytes(shape);
    const size_t num_compared =
        (size_t)ll_num_tokens(shape, round, move->result, party->rank) * row_bytes / num_bytes;
    unsigned char *are_right = calloc(num_compared + 1, 1);
    if (are_right == NULL) {
        party_complain(party, "no memory for what is expected");
        return;
    }
    weft__sim_host_reads(found, num_compared * num_bytes);
    for (uint64_t some = in_doubt;; some = (some - 1) & in_doubt) { /* all subsets */
        find_combined(party, round, move, lost | some, are_right);
        if (some == 0)
            break;
    }
    for (size_t i = 0; i < num_compared; i++)
        if (!are_right[i])
            party_complain(party, "out: token %zu has %g, or begins with it",
                           i * num_bytes / row_bytes,
                           (double)element_load(shape->combine_dtype, found + i * num_bytes, 0));
    free(are_right);
}

void ll_check_totals(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const int32_t num_local = ll_num_local(shape, party->rank);
    int32_t totals[SHAPE_MAX_LOCAL_EXPERTS] = {0};
    if (!ll_is_by_expert(party) || party->ll_has_lost)
        return;
    weft__sim_host_reads(party->ll_totals, (size_t)num_local * sizeof(int32_t));
    for (int32_t i = 0; i < (round + 1) * shape->num_repeats; i++) {
        struct ll_expected expected;
        expect(party, &expected, i / shape->num_repeats, i % shape->num_repeats, 0);
        for (int32_t local = 0; local < num_local; local++)
            totals[local] += ll_oracle_selections(&expected.oracle, local);
        ll_oracle_close(&expected.oracle);
    }
    for (int32_t local = 0; local < num_local; local++)
        party_expect(party, "total_rows_per_expert", local, party->ll_totals[local], totals[local]);
}
