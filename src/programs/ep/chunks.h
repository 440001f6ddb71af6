/* SPDX-License-Identifier: MIT */
/* Each warp of a launch counts in a chunk of its own. Here the counts become the places where
 * chunks begin. */
#pragma once

#include "programs/block.h"

/* Warp-wide: turns counts[chunk][column] into `first` and the sum of the lower chunks; returns the
 * total. */
WP_FN int32_t wp_prefix_chunks(struct wp_warp *warp, int32_t *counts, int32_t num_chunks,
                               int32_t num_columns, int32_t column, int32_t first)
{
    int32_t total = 0;
    for (int32_t i = 0; i < num_chunks; i += WP_WARP_SIZE) {
        const int32_t chunk = i + wp_lane_idx(warp);
        int32_t *count = counts + (int64_t)chunk * num_columns + column;
        int32_t sum_of_lanes;
        const int32_t num_before =
            wp_prefix_sum(warp, chunk < num_chunks ? *count : 0, &sum_of_lanes);
        if (chunk < num_chunks)
            *count = first + total + num_before;
        total += sum_of_lanes;
    }
    return total;
}
