/* SPDX-License-Identifier: MIT */
/* What the warps of a block, and the blocks of a launch, decide together. */
#ifndef WEFT_PROGRAMS_BLOCK_H
#define WEFT_PROGRAMS_BLOCK_H

#include "machine/machine.h"

/* Gives the value of warp 0's lane 0 to the whole block, and orders the block after what that lane
 * has acquired. */
WEFT_FN uint32_t weft_block_broadcast(struct weft_warp *warp, uint32_t value)
{
    uint32_t *shared = (uint32_t *)weft_block_shared(warp);
    if (weft_warp_idx(warp) == 0 && weft_lane_idx(warp) == 0)
        *shared = value;
    weft_block_sync(warp);
    value = *shared;
    weft_block_sync(warp); /* all have read before the word is used again */
    return value;
}

/* True in every warp of the block that is the last of the launch to call this, ordered after what all
 * other blocks did before. num_blocks_done is zero before the launch and after it. */
WEFT_FN int weft_is_last_block(struct weft_warp *warp, uint32_t *num_blocks_done)
{
    uint32_t is_last = 0;
    weft_block_sync(warp);
    if (weft_num_blocks(warp) == 1)
        return 1;
    if (weft_warp_idx(warp) == 0 && weft_lane_idx(warp) == 0) {
        /* Pairs with the same operation of the other blocks. */
        const uint32_t num_before = weft_add_acq_rel(num_blocks_done, 1);
        is_last = num_before + 1 == (uint32_t)weft_num_blocks(warp);
        if (is_last)
            *num_blocks_done = 0;
    }
    return (int)weft_block_broadcast(warp, is_last);
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
