/* SPDX-License-Identifier: MIT */
/* What the warps of a block, and the blocks of a launch, decide together. */
#ifndef WEFT_PROGRAMS_BLOCK_H
#define WEFT_PROGRAMS_BLOCK_H

#include "machine/machine.h"

/* The largest value of the block's warps, each of which gives one for all its lanes; orders the warps after each
 * other. If they have not met since they called it last, weft_block_max_again. */
WEFT_FN uint32_t weft_block_max(struct weft_warp *warp, uint32_t value)
{
    uint32_t *values = (uint32_t *)weft_block_shared(warp);
    uint32_t largest = 0;
    if (weft_lane_idx(warp) == 0)
        values[weft_warp_idx(warp)] = value;
    weft_block_sync(warp);
    for (int32_t i = weft_lane_idx(warp); i < weft_num_warps(warp); i += WEFT_WARP_SIZE)
        largest = values[i] > largest ? values[i] : largest;
    return weft_max_u32(warp, largest);
}

WEFT_FN uint32_t weft_block_max_again(struct weft_warp *warp, uint32_t value)
{
    weft_block_sync(warp); /* the values before have been read */
    return weft_block_max(warp, value);
}

/* True in every warp of the block that is the last of the launch to call this, once, ordered after what all
 * other blocks did before. num_blocks_done is zero before the launch and after it. */
WEFT_FN int weft_is_last_block(struct weft_warp *warp, uint32_t *num_blocks_done)
{
    uint32_t *is_last = (uint32_t *)weft_block_shared(warp);
    weft_block_sync(warp);
    if (weft_num_blocks(warp) == 1)
        return 1;
    if (weft_warp_idx(warp) == 0 && weft_lane_idx(warp) == 0) {
        /* Pairs with the same operation of the other blocks. */
        const uint32_t num_before = weft_add_acq_rel(num_blocks_done, 1);
        *is_last = num_before + 1 == (uint32_t)weft_num_blocks(warp);
        if (*is_last)
            *num_blocks_done = 0;
    }
    weft_block_sync(warp);
    return (int)*is_last;
}

/* Numbers the warps of a launch: one of each block before a second of any. */
WEFT_FN int32_t weft_launch_warp_idx(struct weft_warp *warp)
{
    return weft_warp_idx(warp) * weft_num_blocks(warp) + weft_block_idx(warp);
}

WEFT_FN int32_t weft_num_launch_warps(struct weft_warp *warp)
{
    return weft_num_blocks(warp) * weft_num_warps(warp);
}

#endif
