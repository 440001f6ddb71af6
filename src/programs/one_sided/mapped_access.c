/* SPDX-License-Identifier: MIT */
/* mapped_access: one access to the heap of a rank that is mapped, by all warps of the launch. */
#include "programs/one_sided/mapped_access.h"

#include "programs/block.h"

WP_PROGRAM(mapped_access, warp, args)
{
    const struct wp_access *access = &args->access;
    wp_admit_next(warp); /* it waits for nobody */
    if (wp_access_has_bytes(access))
        wp_copy_mapped(warp, &args->mapped, access, wp_launch_warp_idx(warp),
                       wp_num_launch_warps(warp));
    if (!wp_access_has_add(access)) {
        wp_fence_launches(warp);
        return WP_STATUS_OK;
    }
    wp_block_sync(warp); /* the word changes after the bytes of all warps */
    if (wp_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0)
        wp_add_mapped(warp, &args->mapped, access);
    return WP_STATUS_OK;
}
