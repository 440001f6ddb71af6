/* SPDX-License-Identifier: MIT */
/* Decisions that the warps of a block, or the blocks of a launch, make together. */
#pragma once

#include "machine/machine.h"

/* In memory of the block: a word for each warp, of each turn. Who writes those of a turn again has
 * met since with all that have read them. */
enum { WP_BLOCK_MOST_WARPS = 32, WP_BLOCK_WORDS_BYTES = 2 * WP_BLOCK_MOST_WARPS * 4 };
WP_FN uint32_t *wp_block_words(struct wp_warp *warp)
{
    const uint32_t first = wp_block_turn(warp) * WP_BLOCK_MOST_WARPS;
    return (uint32_t *)wp_block_shared(warp) + first;
}

/* The largest value of the block's warps, each of which gives one for all its lanes; orders the
 * warps after each other. */
WP_FN uint32_t wp_block_max(struct wp_warp *warp, uint32_t value)
{
    uint32_t *values = wp_block_words(warp);
    uint32_t largest = 0;
    if (wp_lane_idx(warp) == 0)
        values[wp_warp_idx(warp)] = value;
    wp_block_sync(warp);
    for (int32_t i = wp_lane_idx(warp); i < wp_num_warps(warp); i += WP_WARP_SIZE)
        largest = values[i] > largest ? values[i] : largest;
    return wp_max_u32(warp, largest);
}

/* The worst status of the block's warps. Orders the warps after each other. */
WP_FN enum wp_status wp_block_status(struct wp_warp *warp, enum wp_status status)
{
#ifdef WP_HAS_BLOCK_ANY
    return wp_block_any(warp, status != WP_STATUS_OK) ? WP_STATUS_FAILED : WP_STATUS_OK;
#else
    return wp_block_max(warp, status != WP_STATUS_OK) ? WP_STATUS_FAILED : WP_STATUS_OK;
#endif
}

/* By a lane of each block of a launch, once: whether the others have been here before. If so, it
 * has what they did. The counter is zero between launches. */
WP_FN int wp_is_done_last(struct wp_warp *warp, uint32_t *num_blocks_done)
{
    /* Pairs with the same operation of the other blocks. */
    const uint32_t num_before = wp_add_acq_rel(num_blocks_done, 1);
    const int is_last = num_before + 1 == (uint32_t)wp_num_blocks(warp);
    if (is_last)
        *num_blocks_done = 0;
    return is_last;
}

/* True in every warp of the block that is the last of the launch to call this, once, ordered after
 * what all other blocks did before. num_blocks_done is zero before the launch and after it. */
WP_FN int wp_is_last_block(struct wp_warp *warp, uint32_t *num_blocks_done)
{
    wp_block_sync(warp);
    if (wp_num_blocks(warp) == 1)
        return 1;
    uint32_t *is_last = wp_block_words(warp);
    if (wp_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0)
        *is_last = (uint32_t)wp_is_done_last(warp, num_blocks_done);
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
