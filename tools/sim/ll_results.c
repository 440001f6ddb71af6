/* SPDX-License-Identifier: MIT */
#include "ll_results.h"

#include <math.h>
#include <string.h>

#include "workload/elements.h"

/* ---------------------------------------------------------------- places */

int ll_is_by_expert(const struct party *party)
{
    return party->shape->ll_terms.layout == WEFT_LL_BY_EXPERT;
}

size_t ll_num_places(const struct party *party)
{
    const struct shape *shape = party->shape;
    return ll_is_by_expert(party)
               ? (size_t)ll_num_local(shape, party->rank) * (size_t)ll_capacity(shape)
               : (size_t)shape->num_ranks * (size_t)shape->max_tokens;
}

int64_t ll_place_of(const struct party *party, struct ll_token token, int32_t k)
{
    const struct shape *shape = party->shape;
    if (ll_rank_of(shape, token, k) != party->rank)
        return -1;
    if (!ll_is_by_expert(party))
        return (int64_t)token.source * shape->max_tokens + ll_row(shape, token, party->rank);
    const int32_t position = ll_position(shape, token, k);
    const int32_t capacity = ll_capacity(shape);
    return position < capacity ? (int64_t)ll_local_expert(shape, token, k) * capacity + position
                               : -1;
}

/* ---------------------------------------------------------------- scales by expert */

enum { SPARE_ROWS = 3, WORD_BYTES = sizeof(float) };

static int are_bytes(const struct party *party)
{
    return party->shape->ll_terms.scale == WEFT_SCALE_UE8M0;
}

size_t ll_column_bytes(const struct party *party)
{
    const struct ll_terms *terms = &party->shape->ll_terms;
    const int has_columns = terms->has_columns && ll_is_by_expert(party);
    return has_columns ? ((size_t)ll_capacity(party->shape) + SPARE_ROWS) * WORD_BYTES : 0;
}

static size_t num_columns(const struct party *party)
{
    const size_t num_groups = (size_t)ll_num_groups(party->shape);
    return are_bytes(party) ? (num_groups + WORD_BYTES - 1) / WORD_BYTES : num_groups;
}

size_t ll_scales_bytes(const struct party *party)
{
    const size_t num_local = (size_t)ll_num_local(party->shape, party->rank);
    const size_t row_bytes =
        (size_t)ll_num_groups(party->shape) * (are_bytes(party) ? 1 : (size_t)WORD_BYTES);
    return ll_column_bytes(party) > 0 ? num_local * num_columns(party) * ll_column_bytes(party)
                                      : ll_num_places(party) * row_bytes;
}

/* Of the row at a place, from its first scale: where the scale of a group is, side by side or by columns. */
static size_t scale_at(const struct party *party, int32_t group, size_t word_stride)
{
    if (!are_bytes(party))
        return (size_t)group * word_stride;
    return (size_t)(group / WORD_BYTES) * word_stride + (size_t)(group % WORD_BYTES);
}

static const char *scales_of_place(const struct party *party, const char *scales, int64_t place)
{
    const int64_t capacity = ll_capacity(party->shape);
    const size_t expert = (size_t)(place / capacity), position = (size_t)(place % capacity);
    if (ll_column_bytes(party) == 0)
        return scales + (size_t)place * (size_t)ll_num_groups(party->shape) *
                            (are_bytes(party) ? 1 : (size_t)WORD_BYTES);
    return scales + expert * num_columns(party) * ll_column_bytes(party) + position * WORD_BYTES;
}

/* ---------------------------------------------------------------- what has come */

static int32_t rows_from(const struct party *party, struct ll_token token)
{
    int32_t num_rows = 0;
    for (; token.index < ll_num_tokens(party->shape, token); token.index++)
        num_rows += ll_goes_to(party->shape, token, party->rank);
    return num_rows;
}

void ll_check_rank_counts(struct party *party, int32_t round, int32_t result)
{
    const int32_t *counts = party->ll_arrays[result].rank_counts;
    const struct ll_lost *lost = &party->ll_lost[result];
    const uint64_t not_told = lost->half_there | lost->ranks;
    weft__sim_host_reads(counts, (size_t)party->shape->num_ranks * sizeof *counts);
    for (int32_t rank = 0; rank < party->shape->num_ranks; rank++)
        party_expect(party, "num_rows_per_rank", rank, counts[rank],
                     rows_from(party, (struct ll_token){round, result, rank, 0, not_told}));
}

static float sent_load(const struct party *party, const void *row, int32_t i)
{
    const weft_dtype dtype = ll_sent_dtype(party->shape);
    return dtype == WEFT_INT8 ? (float)((const int8_t *)row)[i] : element_load(dtype, row, i);
}

static float scale_load(const struct party *party, const char *scale)
{
    float value;
    if (are_bytes(party))
        return ldexpf(1, (int)*(const uint8_t *)scale - 127);
    memcpy(&value, scale, sizeof value);
    return value;
}

static void check_row(struct party *party, const void *row, struct ll_token token)
{
    weft__sim_host_reads(row, ll_sent_bytes(party->shape));
    for (int32_t i = 0; i < party->shape->ll_terms.hidden; i++)
        party_expect(party, "row element", i, sent_load(party, row, i),
                     ll_sent_element(party->shape, token, i));
}

static void check_scales(struct party *party, const char *scales, size_t word_stride,
                         struct ll_token token)
{
    for (int32_t group = 0; group < ll_num_groups(party->shape); group++) {
        const char *scale = scales + scale_at(party, group, word_stride);
        weft__sim_host_reads(scale, are_bytes(party) ? 1 : WORD_BYTES);
        party_expect(party, "scale", group, scale_load(party, scale),
                     ll_scale(party->shape, token, group));
    }
}

static void check_slot(struct party *party, const weft_ll_slots *slots, int32_t half,
                       struct ll_token token)
{
    const struct shape *shape = party->shape;
    const size_t choices_bytes = (size_t)shape->num_topk * sizeof(int32_t);
    const uint64_t at = (uint64_t)token.source * slots->source_stride_bytes +
                        (uint64_t)ll_row(shape, token, party->rank) * slots->row_stride_bytes;
    const int32_t *experts = (const void *)((const char *)slots->experts[half] + at);
    const float *weights = (const void *)((const char *)slots->topk_weights[half] + at);
    const int32_t *index = (const void *)((const char *)slots->src_token[half] + at);
    weft__sim_host_reads(experts, choices_bytes);
    weft__sim_host_reads(weights, choices_bytes);
    weft__sim_host_reads(index, sizeof *index);
    check_row(party, (const char *)slots->x[half] + at, token);
    if (slots->scales[half] != NULL)
        check_scales(party, (const char *)slots->scales[half] + at, WORD_BYTES, token);
    party_expect(party, "scales", 0, slots->scales[half] != NULL, ll_num_groups(shape) > 0);
    party_expect(party, "src_token", token.index, *index, token.index);
    for (int32_t k = 0; k < shape->num_topk; k++) {
        const int is_here = ll_rank_of(shape, token, k) == party->rank;
        party_expect(party, "experts", k, experts[k],
                     is_here ? ll_local_expert(shape, token, k) : -1);
        party_expect(party, "topk_weights", k, weights[k],
                     is_here ? ll_weight(shape, token, k) : 0);
    }
}

/* The result that came last is in half *slots.half; the ones before it took turns. */
static int32_t half_of(const struct party *party, const weft_ll_slots *slots, int32_t num_later)
{
    weft__sim_host_reads(slots->half, sizeof *slots->half);
    return (*slots->half + num_later) % party->shape->ll_terms.num_results;
}

static weft_ll_slots slots_of(struct party *party)
{
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    if (weft_ll_query_slots(party->ll, &slots) != WEFT_OK)
        party_complain(party, "slots: %s", weft_last_error());
    return slots;
}

char *ll_first_slot(struct party *party, int32_t num_later)
{
    const weft_ll_slots slots = slots_of(party);
    return (char *)(uintptr_t)slots.x[half_of(party, &slots, num_later)];
}

size_t ll_slot_offset(struct party *party, struct ll_token token)
{
    const weft_ll_slots slots = slots_of(party);
    return (size_t)token.source * slots.source_stride_bytes +
           (size_t)ll_row(party->shape, token, party->rank) * slots.row_stride_bytes;
}

void ll_check_slots(struct party *party, int32_t round, int32_t result, int32_t num_later)
{
    const struct shape *shape = party->shape;
    const weft_ll_slots slots = slots_of(party);
    const int32_t half = half_of(party, &slots, num_later);
    struct ll_token token = {round, result, 0, 0, party->ll_lost[result].ranks};
    for (token.source = 0; token.source < shape->num_ranks; token.source++)
        for (token.index = 0; token.index < ll_num_tokens(shape, token); token.index++)
            if (ll_goes_to(shape, token, party->rank))
                check_slot(party, &slots, half, token);
}

static int32_t selections_from(const struct party *party, struct ll_token token, int32_t expert)
{
    const struct shape *shape = party->shape;
    int32_t num_selections = 0;
    for (; token.index < ll_num_tokens(shape, token); token.index++)
        for (int32_t k = 0; k < shape->num_topk; k++)
            num_selections += shape->experts[token.round][token.source][token.index][k] == expert &&
                              ll_rank_of(shape, token, k) == party->rank;
    return num_selections;
}

static void check_expert(struct party *party, int32_t round, int32_t result, int32_t local)
{
    const struct shape *shape = party->shape;
    const struct ll_arrays *arrays = &party->ll_arrays[result];
    const int32_t expert = shape_first_expert(shape, party->rank) + local;
    int32_t first = 0;
    for (int32_t source = 0; source < shape->num_ranks; source++) {
        const int32_t i = local * shape->num_ranks + source;
        const struct ll_token token = {round, result, source, 0, party->ll_lost[result].ranks};
        const int32_t num_rows = selections_from(party, token, expert);
        party_expect(party, "rows of row_ranges", i, (double)(arrays->ranges[i] & UINT32_MAX),
                     num_rows);
        party_expect(party, "first of row_ranges", i, (double)(arrays->ranges[i] >> 32), first);
        first += num_rows;
    }
    party_expect(party, "num_rows_per_expert", local, arrays->expert_counts[local], first);
}

static void check_packed(struct party *party, struct ll_token token)
{
    const struct ll_arrays *arrays = &party->ll_arrays[token.result];
    for (int32_t k = 0; k < party->shape->num_topk; k++) {
        const int64_t place = ll_place_of(party, token, k);
        if (place < 0)
            continue;
        weft__sim_host_reads(&arrays->src_tokens[place], sizeof(int32_t));
        party_expect(party, "src_tokens", (int32_t)place, arrays->src_tokens[place], token.index);
        check_row(party, arrays->rows + (size_t)place * ll_sent_bytes(party->shape), token);
        check_scales(party, scales_of_place(party, arrays->scales, place),
                     ll_column_bytes(party) > 0 ? ll_column_bytes(party) : (size_t)WORD_BYTES,
                     token);
    }
}

void ll_check_experts(struct party *party, int32_t round, int32_t result)
{
    const struct shape *shape = party->shape;
    const struct ll_arrays *arrays = &party->ll_arrays[result];
    const size_t num_local = (size_t)ll_num_local(shape, party->rank);
    weft__sim_host_reads(arrays->expert_counts, num_local * sizeof(int32_t));
    weft__sim_host_reads(arrays->ranges, num_local * (size_t)shape->num_ranks * sizeof(int64_t));
    for (int32_t local = 0; local < (int32_t)num_local; local++)
        check_expert(party, round, result, local);
    struct ll_token token = {round, result, 0, 0, party->ll_lost[result].ranks};
    for (token.source = 0; token.source < shape->num_ranks; token.source++)
        for (token.index = 0; token.index < ll_num_tokens(shape, token) &&
                              (party->ll_lost[result].half_there >> token.source & 1) == 0;
             token.index++)
            check_packed(party, token);
}

static int is_combined(const struct party *party, const void *out, struct ll_token token)
{
    const struct shape *shape = party->shape;
    const int32_t hidden = shape->ll_terms.hidden;
    int is_equal = 1;
    for (int32_t i = 0; i < hidden; i++)
        is_equal &= element_load(shape->combine_dtype, out, token.index * hidden + i) ==
                    ll_combined(shape, token, i);
    return is_equal;
}

/* A rank that was lost while combine waited for it may have added to some tokens. */
void ll_check_combined(struct party *party, int32_t round, const struct ll_move *move)
{
    const struct shape *shape = party->shape;
    const struct ll_lost *lost = &party->ll_lost[move->result];
    const void *out = party->ll_arrays[move->result].out[move->combine];
    const int32_t hidden = shape->ll_terms.hidden;
    struct ll_token token = {round, move->result, party->rank, 0, lost->sums[move->combine]};
    const int32_t num_tokens = ll_num_tokens(shape, token);
    weft__sim_host_reads(out, (size_t)num_tokens * ll_row_bytes(shape));
    for (token.index = 0; token.index < num_tokens; token.index++) {
        struct ll_token with_all = token;
        with_all.lost = lost->is_in_doubt[move->combine] ? 0 : token.lost;
        if (is_combined(party, out, with_all))
            continue;
        for (int32_t i = 0; i < hidden; i++)
            party_expect(party, "out", token.index * hidden + i,
                         element_load(shape->combine_dtype, out, token.index * hidden + i),
                         ll_combined(shape, token, i));
    }
}

/* Of all results until now, each of which adds. */
void ll_check_totals(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const int32_t num_local = ll_num_local(shape, party->rank);
    weft__sim_host_reads(party->ll_totals, (size_t)num_local * sizeof(int32_t));
    for (int32_t local = 0; local < num_local && ll_is_by_expert(party) && !party->ll_has_lost;
         local++) {
        const int32_t expert = shape_first_expert(shape, party->rank) + local;
        int32_t total = 0;
        for (int32_t i = 0; i <= round; i++)
            for (int32_t source = 0; source < shape->num_ranks; source++)
                for (int32_t result = 0; result < shape->num_repeats; result++)
                    total +=
                        selections_from(party, (struct ll_token){i, result, source, 0, 0}, expert);
        party_expect(party, "total_rows_per_expert", local, party->ll_totals[local], total);
    }
}
