/* SPDX-License-Identifier: MIT */
/* What the warps of a block, and the blocks of a launch, decide together. */
#pragma once

#include "machine/machine.h"

/* The largest value of the block's warps, each of which gives one for all its lanes; orders the warps after each
 * other. If they have not met since they called it last, wp_block_max_again. */
WP_FN uint32_t wp_block_max(struct wp_warp *warp, uint32_t value)
{
    uint32_t *values = (uint32_t *)wp_block_shared(warp);
    uint32_t largest = 0;
    if (wp_lane_idx(warp) == 0)
        values[wp_warp_idx(warp)] = value;
    wp_block_sync(warp);
    for (int32_t i = wp_lane_idx(warp); i < wp_num_warps(warp); i += WP_WARP_SIZE)
        largest = values[i] > largest ? values[i] : largest;
    return wp_max_u32(warp, largest);
}

WP_FN uint32_t wp_block_max_again(struct wp_warp *warp, uint32_t value)
{
    wp_block_sync(warp); /* the values before have been read */
    return wp_block_max(warp, value);
}

/* True in every warp of the block that is the last of the launch to call this, once, ordered after what all
 * other blocks did before. num_blocks_done is zero before the launch and after it. */
WP_FN int wp_is_last_block(struct wp_warp *warp, uint32_t *num_blocks_done)
{
    uint32_t *is_last = (uint32_t *)wp_block_shared(warp);
    wp_block_sync(warp);
    if (wp_num_blocks(warp) == 1)
        return 1;
    if (wp_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0) {
        /* Pairs with the same operation of the other blocks. */
        const uint32_t num_before = wp_add_acq_rel(num_blocks_done, 1);
        *is_last = num_before + 1 == (uint32_t)wp_num_blocks(warp);
        if (*is_last)
            *num_blocks_done = 0;
    }
    wp_block_sync(warp);
    return (int)*is_last;
}

/* Numbers the warps of a launch: one of each block before a second of any. */
WP_FN int32_t wp_launch_warp_idx(struct wp_warp *warp)
{
    return wp_warp_idx(warp) * wp_num_blocks(warp) + wp_block_idx(warp);
}

WP_FN int32_t wp_num_launch_warps(struct wp_warp *warp)
{
    return wp_num_blocks(warp) * wp_num_warps(warp);
}
