/* SPDX-License-Identifier: MIT */
/* The blocks of the expanded layout. */
#pragma once

#include "programs/ep/routing.h"

WP_FN int32_t wp_align(int32_t num_rows, int32_t alignment)
{
    return (num_rows + alignment - 1) / alignment * alignment;
}

/* Warp-wide: where the blocks, of so many rows each, begin. Sums that are too large for it wrap
 * around: then no call takes them. */
WP_FN void wp_place_blocks(struct wp_warp *warp, const struct wp_expansion *expansion,
                           const int32_t *expert_rows)
{
    uint32_t num_rows = 0;
    for (int32_t i = 0; i < expansion->num_experts; i += WP_WARP_SIZE) {
        const int32_t expert = i + wp_lane_idx(warp);
        const int is_there = expert < expansion->num_experts;
        int32_t sum_of_lanes;
        const int32_t num_before =
            wp_prefix_sum(warp, is_there ? expert_rows[expert] : 0, &sum_of_lanes);
        if (is_there)
            expansion->firsts[expert] = (int32_t)(num_rows + (uint32_t)num_before);
        num_rows += (uint32_t)sum_of_lanes;
    }
    if (wp_lane_idx(warp) == 0)
        *expansion->num_rows = (int32_t)num_rows;
}
