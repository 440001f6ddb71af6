/* SPDX-License-Identifier: MIT */
/* low_latency_mask: masks ranks, and tells which are masked, by one block. No rank masks itself. */
#include "programs/low_latency/ll_launch.h"
#include "programs/low_latency/ll_protocol.h"

WP_PROGRAM(low_latency_mask, warp, args)
{
    const struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    const struct wp_ll_masks *masks = &args->ll.masks;
    const int32_t own = args->ll.exchange.rank;
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    for (int32_t rank = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
         rank < args->ll.exchange.num_ranks; rank += wp_num_warps(warp) * WP_WARP_SIZE) {
        if (args->more != NULL && args->more[rank] != 0 && rank != own)
            wp_ll_mask_out(masks, rank);
        if (args->mask != NULL)
            args->mask[rank] = wp_ll_is_masked(masks, rank);
    }
    return wp_ll_end(&run, wp_block_status(warp, WP_STATUS_OK));
}
