/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT: one arithmetic for all machines. Part of machine.h. */
#pragma once

#include "machine/scales.h"

enum {
    WP_LOG_GROUP_ELEMENTS = 128,
    WP_LOG_GROUP_BYTES = 164,
    WP_LOG_BLOCK_ELEMENTS = 512, /* parts of rows are whole blocks */
    WEFT__LOG_BLOCK_GROUPS = WP_LOG_BLOCK_ELEMENTS / WP_LOG_GROUP_ELEMENTS,
    WEFT__LOG_BLOCK_BYTES = WEFT__LOG_BLOCK_GROUPS * WP_LOG_GROUP_BYTES,
    WEFT__LOG_STEPS = 510,
    WEFT__LOG_NAN = 0x200 /* that would be -0 */
};

/* For programs, too: of whole groups. */
WP_FN uint64_t wp_log_row_bytes(int64_t num_elements)
{
    return (uint64_t)(num_elements / WP_LOG_GROUP_ELEMENTS) * WP_LOG_GROUP_BYTES;
}

/* Where in a row the parts of a group are: a block has the low bytes of its groups, then their high
 * bits, then their headers, so that the wide parts are aligned. The last block may be short. */
struct weft__log_place {
    int64_t low;  /* a byte per element */
    int64_t high; /* 32 bytes: byte i has two bits each of elements i, i + 32, i + 64 and i + 96 */
    int64_t header; /* a word */
};

WP_FN struct weft__log_place weft__log_place_of(int64_t group, int64_t num_groups)
{
    const int64_t in_block = group % WEFT__LOG_BLOCK_GROUPS, first = group - in_block;
    const int64_t rest = num_groups - first;
    const int64_t groups = rest < WEFT__LOG_BLOCK_GROUPS ? rest : WEFT__LOG_BLOCK_GROUPS;
    const int64_t block = first * WP_LOG_GROUP_BYTES;
    const struct weft__log_place place = {block + in_block * 128,
                                          block + groups * 128 + in_block * 32,
                                          block + groups * 160 + in_block * 4};
    return place;
}

/* Packs the least and the greatest magnitude among the finite elements that are not 0. The high
 * half is of a number not less than the greatest, or the greatest that there is; the low half of
 * one not greater than the least, but 32 powers of two below at most. */
WP_FN uint32_t weft__log_header(uint32_t least, uint32_t greatest)
{
    const uint32_t powers = 32 << 7, most = 0x7f7f;
    const uint32_t up = (greatest + 0xffffu) >> 16, low = least >> 16;
    const uint32_t high = up < most ? up : most;
    const uint32_t lowest = high > powers ? high - powers : 0;
    return high << 16 | (low > lowest ? low : lowest);
}

struct weft__log_range {
    uint32_t base, step; /* code c has the magnitude with the bits base + (c - 1) * step */
    float inverse;       /* of the step */
};

WP_FN struct weft__log_range weft__log_range_of(uint32_t header)
{
    const uint32_t low = header & 0xffffu, high = header >> 16;
    struct weft__log_range range;
    range.base = low << 16;
    range.step = ((high - low) << 16) / WEFT__LOG_STEPS;
    range.inverse = range.step == 0 ? 0.0f : 1.0f / (float)range.step;
    return range;
}

/* No branches, which would keep loops from being vectorised. */
WP_FN uint32_t weft__log_code(uint32_t bits, struct weft__log_range range)
{
    const uint32_t sign = bits >> 31 << 9, magnitude = bits & 0x7fffffffu;
    const int32_t above = (int32_t)(magnitude - range.base);
    const float position = (float)(above > 0 ? above : 0) * range.inverse;
    const float nearest = (position < WEFT__LOG_STEPS ? position : WEFT__LOG_STEPS) + 0.5f;
    const uint32_t code = sign | (1u + (uint32_t)(int32_t)nearest);
    const int is_zero =
        (magnitude == 0) | (2.0f * wp_float_of(magnitude) < wp_float_of(range.base));
    const uint32_t number = is_zero ? 0 : code;
    return magnitude >= 0x7f800000u ? WEFT__LOG_NAN : number;
}

/* The bits of a float. */
WP_FN uint32_t weft__log_number(uint32_t code, struct weft__log_range range)
{
    const uint32_t steps = code & 0x1ffu;
    const uint32_t number = (code & 0x200u) << 22 | (range.base + (steps - 1u) * range.step);
    const uint32_t none = code == WEFT__LOG_NAN ? 0x7fffffffu : 0;
    return steps == 0 ? none : number;
}
