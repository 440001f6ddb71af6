/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT, group by group. Part of rows_variant.h, hence compiled once per
 * instruction set. */
#pragma once

#include "machine/cpu/cpu_quantise.h"

enum { LOG_GROUP = WP_LOG_GROUP_ELEMENTS, LOG_HIGH_BYTES = LOG_GROUP / 4 };

/* As it lies in memory, but for the distances between its parts. */
struct log_group {
    uint8_t low[LOG_GROUP];
    uint8_t high[LOG_HIGH_BYTES];
    uint32_t header;
};

/* The least finite number that is not 0; there is one. As a maximum, of how far they are
 * below infinity, it is vectorised. */
static uint32_t least_magnitude(const float *values, int64_t n)
{
    const int32_t infinity = 0x7f800000;
    int32_t farthest = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = (int32_t)(weft__bits_of_float(values[i]) & 0x7fffffffu);
        const int32_t distance = magnitude == 0 ? 0 : infinity - magnitude;
        farthest = distance > farthest ? distance : farthest;
    }
    return (uint32_t)(infinity - farthest);
}

static uint32_t log_header_of(const float *values)
{
    const uint32_t greatest = greatest_magnitude(values, LOG_GROUP);
    return greatest == 0 ? 0 : weft__log_header(least_magnitude(values, LOG_GROUP), greatest);
}

static void encode_group(struct log_group *group, const float *values)
{
    uint32_t codes[LOG_GROUP];
    group->header = log_header_of(values);
    const struct weft__log_range range = weft__log_range_of(group->header);
    for (int i = 0; i < LOG_GROUP; i++)
        codes[i] = weft__log_code(weft__bits_of_float(values[i]), range);
    for (int i = 0; i < LOG_GROUP; i++)
        group->low[i] = (uint8_t)codes[i];
    for (int i = 0; i < LOG_HIGH_BYTES; i++)
        group->high[i] = (uint8_t)(codes[i] >> 8 | codes[i + 32] >> 8 << 2 |
                                   codes[i + 64] >> 8 << 4 | codes[i + 96] >> 8 << 6);
}

/* To the bits of floats, as they are in rows of fp32. */
static void decode_group(uint32_t *restrict numbers, const struct log_group *group)
{
    const struct weft__log_range range = weft__log_range_of(group->header);
    for (int part = 0; part < 4; part++) {
        for (int i = 0; i < LOG_HIGH_BYTES; i++) {
            const uint32_t high = (uint32_t)group->high[i] >> (2 * part) & 3u;
            const uint32_t code = high << 8 | group->low[part * LOG_HIGH_BYTES + i];
            numbers[part * LOG_HIGH_BYTES + i] = weft__log_number(code, range);
        }
    }
}

static void store_log_group(char *row, struct weft__log_place place, const struct log_group *group)
{
    memcpy(row + place.low, group->low, sizeof group->low);
    memcpy(row + place.high, group->high, sizeof group->high);
    memcpy(row + place.header, &group->header, sizeof group->header);
}

static void load_log_group(struct log_group *group, const char *row, struct weft__log_place place)
{
    memcpy(group->low, row + place.low, sizeof group->low);
    memcpy(group->high, row + place.high, sizeof group->high);
    memcpy(&group->header, row + place.header, sizeof group->header);
}

/* Groups [first, first + num_groups) of a row of row_groups, of which src has the elements. */
static void encode_groups(char *row, int64_t row_groups, int64_t first, int64_t num_groups,
                          weft_dtype src_dtype, const void *src)
{
    for (int64_t i = 0; i < num_groups; i++) {
        float values[LOG_GROUP];
        struct log_group group;
        widen_elements(src_dtype, src, i * LOG_GROUP, LOG_GROUP, values);
        encode_group(&group, values);
        store_log_group(row, weft__log_place_of(first + i, row_groups), &group);
    }
}
