/* SPDX-License-Identifier: MIT */
#include "workload/low_latency_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "workload/quantised.h"
#include "workload/try.h"

enum { TEXT_BYTES = 160, SCALE_BYTES = sizeof(float) };

static void __attribute__((format(printf, 3, 4)))
tell(const struct ll_checker *checker, int is_right, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    checker->tell(checker->of, is_right, text);
}

static int is_by_expert(const struct ll_checker *checker)
{
    return checker->oracle->config.layout == WEFT_LL_BY_EXPERT;
}

static int is_in(uint64_t ranks, int32_t rank)
{
    return rank < 64 && (ranks >> rank & 1) != 0;
}

/* ---------------------------------------------------------------- counts */

/* A rank that is half there may have either of both counts, in packets. */
static weft_result check_rank_counts(const struct ll_checker *checker)
{
    const int in_packets = checker->oracle->config.carrier >= WEFT_LL_PACKETS;
    for (int32_t rank = 0; rank < checker->oracle->num_ranks; rank++) {
        const int32_t sent = ll_oracle_tokens_from(checker->oracle, rank);
        const int is_half_there = is_in(checker->half_there, rank);
        int32_t found;
        TRY(checker->read(checker->of, &found, &checker->received.rank_counts[rank], sizeof found));
        tell(checker, is_half_there ? found == 0 || (in_packets && found == sent) : found == sent,
             "rows of rank %d: %d, not %d", rank, found, sent);
    }
    return WEFT_OK;
}

static weft_result check_ranges(const struct ll_checker *checker, int32_t expert)
{
    const int32_t num_ranks = checker->oracle->num_ranks;
    int64_t first = 0;
    for (int32_t source = 0; source < num_ranks; source++) {
        const int64_t count = ll_oracle_selections_from(checker->oracle, source, expert);
        int64_t found;
        TRY(checker->read(checker->of, &found,
                          &checker->received.ranges[(int64_t)expert * num_ranks + source],
                          sizeof found));
        tell(checker, found == (first << 32 | count),
             "rows of rank %d for expert %d: %lld from %lld on, not %lld from %lld", source, expert,
             (long long)(found & UINT32_MAX), (long long)(found >> 32), (long long)count,
             (long long)first);
        first += count;
    }
    return WEFT_OK;
}

static weft_result check_expert_counts(const struct ll_checker *checker)
{
    for (int32_t expert = 0; expert < checker->num_local; expert++) {
        const int32_t expected = ll_oracle_selections(checker->oracle, expert);
        int32_t found;
        TRY(checker->read(checker->of, &found, &checker->received.expert_counts[expert],
                          sizeof found));
        tell(checker, found == expected, "rows of expert %d: %d, not %d", expert, found, expected);
        if (checker->received.ranges != NULL)
            TRY(check_ranges(checker, expert));
    }
    return WEFT_OK;
}

weft_result ll_check_counts(const struct ll_checker *checker)
{
    if (checker->received.rank_counts != NULL)
        TRY(check_rank_counts(checker));
    return checker->received.expert_counts != NULL ? check_expert_counts(checker) : WEFT_OK;
}

/* ---------------------------------------------------------------- rows */

/* Where the parts of a row are. */
struct ll_parts {
    const char *elements, *scales;
    int64_t word_stride; /* of scales, as in struct quantised_form */
    const int32_t *token;
    const int32_t *experts; /* by rank, as the next; else NULL */
    const float *weights;
};

static uint64_t slot_offset(const weft_ll_slots *slots, const struct ll_row *row)
{
    return (uint64_t)row->source * slots->source_stride_bytes +
           (uint64_t)row->position * slots->row_stride_bytes;
}

char *ll_slot_of(const struct ll_received *received, const struct ll_row *row)
{
    return (char *)(uintptr_t)received->slots.x[received->half] +
           slot_offset(&received->slots, row);
}

static struct ll_parts parts_in_slot(const struct ll_checker *checker, const struct ll_row *row)
{
    const weft_ll_slots *slots = &checker->received.slots;
    const int32_t half = checker->received.half;
    const uint64_t at = slot_offset(slots, row);
    const char *scales = slots->scales[half];
    return (struct ll_parts){
        .elements = (const char *)slots->x[half] + at,
        .scales = scales == NULL ? NULL : scales + at,
        .word_stride = SCALE_BYTES,
        .token = (const void *)((const char *)slots->src_token[half] + at),
        .experts = (const void *)((const char *)slots->experts[half] + at),
        .weights = (const void *)((const char *)slots->topk_weights[half] + at),
    };
}

static struct ll_parts parts_of_place(const struct ll_checker *checker, int64_t place)
{
    const struct ll_received *received = &checker->received;
    const weft_ll_config *config = &checker->oracle->config;
    const int64_t scale_bytes = (int64_t)ll_scale_bytes(config);
    const int64_t num_columns = (scale_bytes + SCALE_BYTES - 1) / SCALE_BYTES;
    const int64_t column_bytes = (int64_t)received->column_bytes;
    const int64_t in_columns = place / config->expert_capacity * num_columns * column_bytes +
                               place % config->expert_capacity * SCALE_BYTES;
    const int64_t in_rows = place * scale_bytes;
    return (struct ll_parts){
        .elements = (const char *)received->rows + place * (int64_t)ll_sent_bytes(config),
        .scales = scale_bytes == 0
                      ? NULL
                      : (const char *)received->scales + (column_bytes > 0 ? in_columns : in_rows),
        .word_stride = column_bytes > 0 ? column_bytes : SCALE_BYTES,
        .token = &received->src_tokens[place],
    };
}

/* The difference, or NULL; the same of all that follow. */
static weft_result compare_choices(const struct ll_checker *checker, const struct ll_row *row,
                                   const struct ll_parts *parts, const char **difference)
{
    const struct ll_choice *choices = ll_oracle_choices(checker->oracle, row->token);
    const int32_t num_topk = checker->oracle->config.num_topk;
    int32_t experts[WEFT_MAX_TOPK];
    float weights[WEFT_MAX_TOPK];
    TRY(checker->read(checker->of, experts, parts->experts, (size_t)num_topk * sizeof *experts));
    TRY(checker->read(checker->of, weights, parts->weights, (size_t)num_topk * sizeof *weights));
    for (int32_t k = 0; k < num_topk; k++) {
        const int is_here = choices[k].rank == checker->oracle->rank;
        const float weight = is_here ? choices[k].weight : 0;
        if (experts[k] != (is_here ? choices[k].local_expert : -1))
            *difference = "experts";
        else if (memcmp(&weights[k], &weight, sizeof weight) != 0)
            *difference = "weights";
    }
    return WEFT_OK;
}

/* Side by side they are read at once, in columns one by one. */
static weft_result read_scales(const struct ll_checker *checker, const struct ll_parts *parts,
                               char *found)
{
    const weft_ll_config *config = &checker->oracle->config;
    const struct quantised_form there = {.scale = config->quantisation.scale,
                                         .word_stride = parts->word_stride};
    const struct quantised_form here = {.scale = config->quantisation.scale,
                                        .word_stride = SCALE_BYTES};
    const size_t scale_bytes = config->quantisation.scale == WEFT_SCALE_UE8M0 ? 1 : SCALE_BYTES;
    if (parts->word_stride == SCALE_BYTES)
        return checker->read(checker->of, found, parts->scales, ll_scale_bytes(config));
    for (int64_t group = 0; group < ll_num_groups(config); group++)
        TRY(checker->read(checker->of, found + quantised_scale_offset(&here, group),
                          parts->scales + quantised_scale_offset(&there, group), scale_bytes));
    return WEFT_OK;
}

static weft_result compare_sent(const struct ll_checker *checker, const struct ll_row *row,
                                const struct ll_parts *parts, const char **difference)
{
    struct ll_oracle *oracle = checker->oracle;
    const size_t sent_bytes = ll_sent_bytes(&oracle->config);
    const size_t scale_bytes = ll_scale_bytes(&oracle->config);
    unsigned char *found = oracle->wide; /* which the oracle is done with then */
    ll_oracle_fill_sent(oracle, row->token, oracle->codes, oracle->scales);
    TRY(checker->read(checker->of, found, parts->elements, sent_bytes));
    if (memcmp(found, oracle->codes, sent_bytes) != 0)
        *difference = "elements";
    if ((parts->scales != NULL) != (scale_bytes > 0))
        *difference = "whether there are scales";
    else if (parts->scales != NULL) {
        TRY(read_scales(checker, parts, (char *)found));
        if (memcmp(found, oracle->scales, scale_bytes) != 0)
            *difference = "scales";
    }
    return WEFT_OK;
}

weft_result ll_check_row(const struct ll_checker *checker, const struct ll_row *row)
{
    const int64_t place = ll_oracle_place(checker->oracle, row);
    const char *difference = NULL;
    int32_t token;
    if (place < 0 || is_in(checker->half_there, row->source))
        return WEFT_OK;
    const struct ll_parts parts =
        is_by_expert(checker) ? parts_of_place(checker, place) : parts_in_slot(checker, row);
    TRY(compare_sent(checker, row, &parts, &difference));
    if (parts.experts != NULL)
        TRY(compare_choices(checker, row, &parts, &difference));
    TRY(checker->read(checker->of, &token, parts.token, sizeof token));
    if (token != row->index)
        difference = "src_token";
    tell(checker, difference == NULL, "%s of row %d of expert %d, token %d of rank %d",
         difference == NULL ? "nothing" : difference, row->position, row->expert, row->index,
         row->source);
    return WEFT_OK;
}
