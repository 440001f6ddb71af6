/* SPDX-License-Identifier: MIT */
/*
 * How the warps of a block share a few rows: programs/share.h for what a step of low latency has, where each instruction counts.
 * Rows have as many parts as a power of two, so that nothing is divided, which takes as long as a load; and bytes of a
 * row are 32 bits, since GPUs add no more at a time.
 */
#pragma once

#include "programs/share.h"

struct wp_ll_share {
    int32_t parts_log2; /* of each row */
    int32_t num_units;  /* parts of all rows, as far as it is known how many there are */
};

WP_FN struct wp_ll_share wp_ll_share_rows(int32_t num_warps, int32_t num_rows)
{
    enum { MAX_PARTS_LOG2 = 3 };
    int32_t parts_log2 = 0;
    while (parts_log2 < MAX_PARTS_LOG2 && num_rows << (parts_log2 + 1) <= num_warps)
        parts_log2++;
    const struct wp_ll_share share = {parts_log2, num_rows << parts_log2};
    return share;
}

WP_FN struct wp_part wp_ll_unit_part(const struct wp_ll_share *share, int32_t unit)
{
    const struct wp_part part = {unit >> share->parts_log2, unit & ((1 << share->parts_log2) - 1)};
    return part;
}

/* The last part has least bytes, or none. */
WP_FN int wp_ll_is_last_part(const struct wp_ll_share *share, int32_t part)
{
    return part + 1 == 1 << share->parts_log2;
}

/* Bytes of a row that a part has. */
struct wp_ll_span {
    uint32_t begin;
    uint32_t bytes;
};

WP_FN struct wp_ll_span wp_ll_part_span(const struct wp_ll_share *share, int32_t part,
                                        uint32_t row_bytes)
{
    const uint32_t num_steps = (row_bytes + WP_STEP_BYTES - 1) / WP_STEP_BYTES;
    const uint32_t part_steps = (num_steps + (1u << share->parts_log2) - 1) >> share->parts_log2;
    const uint32_t part_bytes = part_steps * WP_STEP_BYTES;
    const uint32_t begin = (uint32_t)part * part_bytes;
    const uint32_t rest = begin < row_bytes ? row_bytes - begin : 0;
    const struct wp_ll_span span = {begin, rest < part_bytes ? rest : part_bytes};
    return span;
}
