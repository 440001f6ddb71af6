/* SPDX-License-Identifier: MIT */
/* Rows of FP8 or INT8 with scales, tile by tile. Part of rows_variant.h, hence compiled once per
 * instruction set. */
#pragma once

#include "machine/cpu/reduce_ops.h"
#include "machine/cpu/tile.h"
#include "machine/machine.h"

/* ------------------------------------------------------------------ elements of a tile */

static uint32_t greatest_magnitude(const float *values, int64_t n)
{
    int32_t greatest = 0; /* signed, for which SSE2 has comparisons */
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = (int32_t)weft__finite_magnitude(weft__bits_of_float(values[i]));
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return (uint32_t)greatest;
}

static void quantise_all(weft_dtype narrow, uint8_t *restrict codes, const float *restrict values,
                         float multiplier, int64_t n)
{
    if (narrow == WEFT_INT8) {
        for (int64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)weft__int8_of_float(values[i] * multiplier);
    } else {
        for (int64_t i = 0; i < n; i++)
            codes[i] = weft__fp8_of_float(values[i] * multiplier);
    }
}

static void dequantise_all(weft_dtype narrow, float *restrict values, const uint8_t *restrict codes,
                           float scale, int64_t n)
{
    if (narrow == WEFT_INT8) {
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)(int8_t)codes[i] * scale;
    } else {
        for (int64_t i = 0; i < n; i++)
            values[i] = weft__float_of_fp8(codes[i]) * scale;
    }
}

/* ------------------------------------------------------------------ tiles of a row */

/* How many elements, from `begin` on, make the next tile: whole groups, or a part of one. */
static int64_t next_of_groups(struct wp_quantisation q, int64_t num_elements, int64_t begin)
{
    const int64_t group = q.group_elements, rest = num_elements - begin;
    if (group > WEFT__TILE_ELEMENTS) {
        const int64_t rest_of_group = group - begin % group;
        return rest_of_group < WEFT__TILE_ELEMENTS ? rest_of_group : WEFT__TILE_ELEMENTS;
    }
    const int64_t most = WEFT__TILE_ELEMENTS / group * group;
    return rest < most ? rest : most;
}

/* Elements of any address as fp32. */
static void widen_elements(weft_dtype dtype, const void *src, int64_t begin, int64_t n,
                           float *values)
{
    uint64_t aligned[WEFT__TILE_ELEMENTS / 2];
    const struct element_type *type = element_types[dtype];
    const char *elements = (const char *)src + (size_t)begin * type->element_bytes;
    if ((uintptr_t)elements % type->element_bytes != 0)
        elements = memcpy(aligned, elements, (size_t)n * type->element_bytes);
    type->accumulate_first(values, elements, n);
}

/* ------------------------------------------------------------------ quantise */

struct quantised_row {
    struct wp_quantised_rows to;
    const void *src;
    struct wp_quantisation how;
};

/* A group that is longer than a tile. */
static uint32_t greatest_of_long_group(const struct quantised_row *row, int64_t begin)
{
    uint32_t greatest = 0;
    for (int64_t i = 0; i < row->how.group_elements;) {
        float values[WEFT__TILE_ELEMENTS];
        const int64_t n = next_of_groups(row->how, row->how.group_elements, i);
        widen_elements(row->how.src_dtype, row->src, begin + i, n, values);
        const uint32_t magnitude = greatest_magnitude(values, n);
        greatest = magnitude > greatest ? magnitude : greatest;
        i += n;
    }
    return greatest;
}

/* The scale of the group that begins there, and whose elements these are as far as they are in the
 * tile. */
static struct weft__scale scale_of_group(const struct quantised_row *row, const float *values,
                                         int64_t begin)
{
    const int32_t group = row->how.group_elements;
    const uint32_t greatest = group > WEFT__TILE_ELEMENTS ? greatest_of_long_group(row, begin)
                                                          : greatest_magnitude(values, group);
    return weft__scale_of_group(greatest, row->how.dst_dtype, row->how.scale);
}

static void store_scale(const struct quantised_row *row, int64_t group_idx, uint32_t bits)
{
    const uint8_t exponent = (uint8_t)(bits >> 23);
    const int64_t offset = row->to.scales_offset + wp_scale_offset(row->how, group_idx);
    for (int32_t i = 0; i < row->to.num_dsts; i++) {
        if (row->to.dsts[i] == NULL)
            continue;
        char *scale = (char *)(uintptr_t)row->to.scales[i] + offset;
        if (row->how.scale == WP_SCALE_UE8M0)
            memcpy(scale, &exponent, sizeof exponent);
        else
            memcpy(scale, &bits, sizeof bits);
    }
}

static void row_quantise(struct wp_quantised_rows to, const void *src, struct wp_quantisation how,
                         int64_t num_elements)
{
    const struct quantised_row row = {to, src, how};
    const int64_t group = how.group_elements;
    struct weft__scale scale = {0, 0};
    for (int64_t begin = 0, n; begin < num_elements; begin += n) {
        float values[WEFT__TILE_ELEMENTS];
        uint8_t codes[WEFT__TILE_ELEMENTS];
        n = next_of_groups(how, num_elements, begin);
        widen_elements(how.src_dtype, src, begin, n, values);
        for (int64_t i = 0; i < n; i += group) {
            if ((begin + i) % group == 0) {
                scale = scale_of_group(&row, values + i, begin + i);
                store_scale(&row, (begin + i) / group, scale.bits);
            }
            quantise_all(how.dst_dtype, codes + i, values + i, scale.multiplier,
                         n - i < group ? n - i : group);
        }
        for (int32_t i = 0; i < to.num_dsts; i++) {
            if (to.dsts[i] != NULL)
                memcpy((char *)(uintptr_t)to.dsts[i] + begin, codes, (size_t)n);
        }
    }
}

/* ------------------------------------------------------------------ dequantise */

static float load_scale(const void *scales, struct wp_quantisation how, int64_t group_idx)
{
    const char *at = (const char *)scales + wp_scale_offset(how, group_idx);
    float scale;
    if (how.scale == WP_SCALE_UE8M0)
        return weft__float_of_bits((uint32_t) * (const uint8_t *)at << 23);
    memcpy(&scale, at, sizeof scale);
    return scale;
}

static void row_dequantise(void *dst, const void *src, const void *scales,
                           struct wp_quantisation how, int64_t num_elements)
{
    const struct element_type *type = element_types[how.dst_dtype];
    const int64_t group = how.group_elements;
    for (int64_t begin = 0, n; begin < num_elements; begin += n) {
        float values[WEFT__TILE_ELEMENTS];
        uint64_t elsewhere[WEFT__TILE_ELEMENTS / 2];
        char *at = (char *)dst + (size_t)begin * type->element_bytes;
        const int is_aligned = (uintptr_t)at % type->element_bytes == 0;
        n = next_of_groups(how, num_elements, begin);
        for (int64_t i = 0; i < n; i += group)
            dequantise_all(how.src_dtype, values + i, (const uint8_t *)src + begin + i,
                           load_scale(scales, how, (begin + i) / group),
                           n - i < group ? n - i : group);
        type->narrow(is_aligned ? (void *)at : (void *)elsewhere, values, n);
        if (!is_aligned)
            memcpy(at, elsewhere, (size_t)n * type->element_bytes);
    }
}
