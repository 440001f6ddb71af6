/* SPDX-License-Identifier: MIT */
/* Rows that are to be quantised, and what must come out. */
#pragma once

#include "row_values.h"
#include "workload/elements.h"
#include "workload/quantised.h"

enum {
    QUANTISED_MAX_ELEMENTS = 2100,
    QUANTISED_MAX_DSTS = 3,
    QUANTISED_MAX_STRIDE = 12, /* of scales */
    QUANTISED_ROW_BYTES = 27584,
    NUM_QUANTISATIONS = 3 * 2 * 3,
    QUANTISED_TRIALS = 60
};
_Static_assert(QUANTISED_ROW_BYTES % 64 == 0 &&
                   QUANTISED_ROW_BYTES >= 2 * ROW_GUARD_BYTES + 3 * 16 +
                                              (1 + QUANTISED_MAX_STRIDE) * QUANTISED_MAX_ELEMENTS,
               "rows are aligned, and have room for as many scales as elements");

struct quantised_rows {
    _Alignas(64) char src_memory[QUANTISED_ROW_BYTES];
    _Alignas(64) char dst_memory[QUANTISED_MAX_DSTS][QUANTISED_ROW_BYTES];
    char expected[QUANTISED_MAX_DSTS][QUANTISED_ROW_BYTES];
    char *src;
    const void *dsts[QUANTISED_MAX_DSTS];
    int64_t scales_offset; /* from each dst */
    int32_t num_dsts;
    struct wp_quantisation how;
    int64_t num_elements;
};

/* The types and kind of scale of number `idx`, below NUM_QUANTISATIONS. */
static inline struct wp_quantisation numbered_quantisation(int idx)
{
    static const weft_dtype wide[] = {WEFT_BF16, WEFT_FP16, WEFT_FP32};
    static const weft_dtype narrow[] = {WEFT_FP8_E4M3, WEFT_INT8};
    return (struct wp_quantisation){.src_dtype = wide[idx % 3],
                                    .dst_dtype = narrow[idx / 3 % 2],
                                    .scale = (enum wp_scale_kind)(idx / 6)};
}

/* ------------------------------------------------------------------ what must come out */

static inline struct quantised_form form_of(struct wp_quantisation how)
{
    return (struct quantised_form){.wide = how.src_dtype,
                                   .narrow = how.dst_dtype,
                                   .scale = (weft_scale_kind)how.scale,
                                   .group_elements = how.group_elements,
                                   .word_stride =
                                       how.scale_stride_bytes == 0 ? 4 : how.scale_stride_bytes};
}

static inline void expect_quantised(struct quantised_rows *rows)
{
    const struct quantised_form form = form_of(rows->how);
    for (int32_t d = 0; d < QUANTISED_MAX_DSTS; d++) {
        memset(rows->dst_memory[d], ROW_GUARD, QUANTISED_ROW_BYTES);
        memset(rows->expected[d], ROW_GUARD, QUANTISED_ROW_BYTES);
        if (d >= rows->num_dsts || rows->dsts[d] == NULL)
            continue;
        char *codes = rows->expected[d] + ((const char *)rows->dsts[d] - rows->dst_memory[d]);
        quantised_make_row(&form, rows->src, rows->num_elements, codes,
                           codes + rows->scales_offset);
    }
}

/* ------------------------------------------------------------------ what goes in */

enum group_content {
    CONTENT_ANY,
    CONTENT_NEAR_ONE,
    CONTENT_TINY,
    CONTENT_NOT_FINITE,
    NUM_CONTENTS
};

/* Groups of numbers alike, so that most codes are used; and of special ones. */
static inline void fill_group(struct quantised_rows *rows, int64_t first, uint64_t *state)
{
    const weft_dtype dtype = rows->how.src_dtype;
    const uint64_t num_bytes = wp_dtype_bytes(dtype);
    const enum group_content content = (enum group_content)(next_random(state) % NUM_CONTENTS);
    char *group = rows->src + (uint64_t)first * num_bytes;
    fill_row(dtype, group, rows->how.group_elements, state);
    for (int32_t i = 0; i < rows->how.group_elements && content != CONTENT_ANY; i++) {
        const uint64_t random = next_random(state);
        uint64_t bits = number_near_one(dtype, 0, random << 16 ^ next_random(state));
        if (content == CONTENT_TINY) /* zeros and a subnormal one, of both signs */
            bits = special_number(dtype, (int)(random % 4));
        if (content == CONTENT_NOT_FINITE && random % 4 == 0)
            bits = special_number(dtype, 4 + (int)(random / 4 % 6));
        memcpy(group + (uint64_t)i * num_bytes, &bits, num_bytes);
    }
}

/* Half of the time all rows are aligned, for which a machine may have another way. */
static inline void draw_quantised_rows(struct quantised_rows *rows, int idx, uint64_t *state)
{
    static const int32_t groups[] = {1,   2,   3,   8,   16,  24,  32,   64,
                                     100, 128, 256, 384, 512, 640, 1032, 2048};
    const int is_plain = next_random(state) % 2 == 0;
    rows->how = numbered_quantisation(idx);
    rows->how.group_elements = groups[next_random(state) % (sizeof groups / sizeof *groups)];
    rows->how.scale_stride_bytes =
        (int64_t)(next_random(state) % (QUANTISED_MAX_STRIDE / 4 + 1) * 4);
    const int64_t most = QUANTISED_MAX_ELEMENTS / rows->how.group_elements;
    rows->num_elements =
        rows->how.group_elements *
        (next_random(state) % 2 == 0 ? most : 1 + (int64_t)next_random(state) % most);
    rows->src = draw_place(rows->src_memory, is_plain, state);
    for (int64_t i = 0; i < rows->num_elements; i += rows->how.group_elements)
        fill_group(rows, i, state);
    rows->num_dsts = (int32_t)(next_random(state) % (QUANTISED_MAX_DSTS + 1));
    for (int32_t d = 0; d < rows->num_dsts; d++)
        rows->dsts[d] = !is_plain && next_random(state) % 4 == 0
                            ? NULL
                            : draw_place(rows->dst_memory[d], is_plain, state);
    rows->scales_offset = (rows->num_elements + 15) / 16 * 16;
    if (!is_plain)
        rows->scales_offset += (int64_t)(next_random(state) % 16);
    expect_quantised(rows);
}

/* What lies around the elements and the scales is as it was. */
static inline void check_quantised_rows(const struct quantised_rows *rows)
{
    for (int32_t d = 0; d < QUANTISED_MAX_DSTS; d++) {
        if (memcmp(rows->dst_memory[d], rows->expected[d], QUANTISED_ROW_BYTES) == 0)
            continue;
        for (int64_t i = 0; i < QUANTISED_ROW_BYTES; i++) {
            if (rows->dst_memory[d][i] != rows->expected[d][i])
                fail_msg("dtype %d to %d, scale %d of %d elements, %d of %d rows of %lld, byte "
                         "%lld, scales from %lld on: %x, not %x",
                         rows->how.src_dtype, rows->how.dst_dtype, rows->how.scale,
                         rows->how.group_elements, d, rows->num_dsts, (long long)rows->num_elements,
                         (long long)i, (long long)rows->scales_offset,
                         (uint8_t)rows->dst_memory[d][i], (uint8_t)rows->expected[d][i]);
        }
    }
}

/* ------------------------------------------------------------------ the way back */

/* `how` of the way back. */
static inline struct wp_quantisation reversed(struct wp_quantisation how)
{
    const weft_dtype narrow = how.dst_dtype;
    how.dst_dtype = how.src_dtype;
    how.src_dtype = narrow;
    return how;
}

/* Draws a row that dst 0 has quantised, of any codes, and where it goes: dst 1. Its scales are
 * numbers, large and small. */
static inline void draw_dequantised_rows(struct quantised_rows *rows, int idx, uint64_t *state)
{
    draw_quantised_rows(rows, idx, state);
    const struct quantised_form form = form_of(rows->how);
    const int is_plain = (uintptr_t)rows->src % 16 == 0;
    char *codes = draw_place(rows->dst_memory[0], is_plain, state);
    char *dst = draw_place(rows->dst_memory[1], is_plain, state);
    rows->num_dsts = 2;
    rows->dsts[0] = codes;
    rows->dsts[1] = dst;
    for (int64_t i = 0; i < rows->num_elements; i++)
        codes[i] = (char)next_random(state);
    for (int64_t i = 0; i < rows->num_elements / form.group_elements; i++) {
        const uint32_t bits =
            (uint32_t)(1 + next_random(state) % 254) << 23 | (uint32_t)next_random(state) >> 9;
        const uint8_t exponent = (uint8_t)(bits >> 23);
        char *at = codes + rows->scales_offset + quantised_scale_offset(&form, i);
        if (form.scale == WEFT_SCALE_UE8M0)
            memcpy(at, &exponent, 1);
        else
            memcpy(at, &bits, sizeof bits);
    }
    memcpy(rows->expected, rows->dst_memory, sizeof rows->expected);
    char *expected = rows->expected[1] + (dst - rows->dst_memory[1]);
    for (int64_t i = 0; i < rows->num_elements; i++)
        element_store(form.wide, expected, i,
                      quantised_number(&form, codes, codes + rows->scales_offset, i));
}
