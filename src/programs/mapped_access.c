/* SPDX-License-Identifier: MIT */
/* mapped_access: one access to the heap of a rank that is mapped, by all warps of the launch. */
#include "programs/mapped_access.h"

#include "programs/block.h"

WEFT_PROGRAM(mapped_access, warp, args)
{
    const struct weft_access *access = &args->access;
    weft_admit_next(warp); /* it waits for nobody */
    if (weft_access_has_bytes(access))
        weft_copy_mapped(warp, &args->mapped, access, weft_launch_warp_idx(warp),
                         weft_num_launch_warps(warp));
    if (!weft_access_has_add(access)) {
        weft_fence_launches(warp);
        return WEFT_STATUS_OK;
    }
    weft_block_sync(warp); /* the word changes after the bytes of all warps */
    if (weft_warp_idx(warp) == 0 && weft_lane_idx(warp) == 0)
        weft_add_mapped(warp, &args->mapped, access);
    return WEFT_STATUS_OK;
}
