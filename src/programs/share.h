/* SPDX-License-Identifier: MIT */
/*
 * How the warps of a launch share rows. A unit of work is a token's row, or a part of it where
 * there are fewer tokens than warps. The first units go to the warps in order, the others to
 * whoever is free: SMs that share a path to the links are slower than others, by a quarter on an
 * H200.
 */
#pragma once

#include "programs/block.h"
#include "programs/reciprocal.h"

/* Bytes of a row or an array: those that a warp or a part covers, none for the later ones of a
 * short row. */
struct wp_span {
    uint64_t begin;
    uint64_t bytes;
};

/* Bytes [begin, begin + bytes), as far as the row has them. */
WP_FN struct wp_span wp_span_of_row(uint64_t row_bytes, uint64_t begin, uint64_t bytes)
{
    const uint64_t rest = begin < row_bytes ? row_bytes - begin : 0;
    const struct wp_span span = {begin, rest < bytes ? rest : bytes};
    return span;
}

struct wp_share {
    int32_t num_warps; /* that begin with a unit each */
    int32_t num_parts; /* of each row */
    uint32_t parts_reciprocal;
    int32_t num_units;
    int32_t *num_taken; /* beyond the first of every warp; zero before the launch and after it */
};

WP_FN struct wp_share wp_share_parts(int32_t num_warps, int32_t num_parts, int32_t num_tokens,
                                     int32_t *num_taken)
{
    const struct wp_share share = {num_warps, num_parts, wp_reciprocal((uint32_t)num_parts),
                                   num_tokens * num_parts, num_taken};
    return share;
}

WP_FN struct wp_share wp_share_rows(int32_t num_warps, int32_t num_tokens, int32_t *num_taken)
{
    enum { MAX_PARTS = 8 };
    int32_t num_parts = num_tokens > 0 ? num_warps / num_tokens : 1;
    num_parts = num_parts < 1 ? 1 : num_parts > MAX_PARTS ? MAX_PARTS : num_parts;
    return wp_share_parts(num_warps, num_parts, num_tokens, num_taken);
}

WP_FN int32_t wp_first_unit(struct wp_warp *warp)
{
    return wp_launch_warp_idx(warp);
}

/* Lane 0 takes the unit after the one that the warp is about to do: the counter is as far away as
 * the rows are. */
WP_FN int32_t wp_take_unit(struct wp_warp *warp, const struct wp_share *share)
{
    return wp_lane_idx(warp) == 0 ? share->num_warps + wp_add_relaxed(share->num_taken, 1) : 0;
}

/* Tells all lanes what lane 0 has taken. */
WP_FN int32_t wp_taken_unit(struct wp_warp *warp, int32_t taken)
{
    return (int32_t)wp_max_u32(warp, (uint32_t)taken);
}

struct wp_part {
    int32_t token;
    int32_t part;
};

WP_FN struct wp_part wp_unit_part(const struct wp_share *share, int32_t unit)
{
    const int32_t token = (int32_t)wp_divide((uint32_t)unit, share->parts_reciprocal);
    const struct wp_part part = {token, unit - token * share->num_parts};
    return part;
}

/* The bytes that a warp of a GPU has under way when it reduces: fewer take as long. Parts consist
 * of such steps. */
enum { WP_STEP_BYTES = 2048 };

/* The bytes of a part of a row; the last part that has some may be shorter. */
WP_FN uint64_t wp_part_bytes(const struct wp_share *share, uint64_t row_bytes)
{
    const uint32_t num_steps = (uint32_t)((row_bytes + WP_STEP_BYTES - 1) / WP_STEP_BYTES);
    return (uint64_t)wp_divide(num_steps + (uint32_t)share->num_parts - 1,
                               share->parts_reciprocal) *
           WP_STEP_BYTES;
}

WP_FN struct wp_span wp_part_span(const struct wp_share *share, int32_t part, uint64_t row_bytes)
{
    const uint64_t part_bytes = wp_part_bytes(share, row_bytes);
    return wp_span_of_row(row_bytes, (uint64_t)part * part_bytes, part_bytes);
}

/* The same of a row of groups that are not cut: which ones a part has. */
WP_FN struct wp_span wp_part_groups(const struct wp_share *share, int32_t part, uint64_t num_groups)
{
    const uint64_t part_groups =
        wp_divide((uint32_t)num_groups + (uint32_t)share->num_parts - 1, share->parts_reciprocal);
    return wp_span_of_row(num_groups, (uint64_t)part * part_groups, part_groups);
}
