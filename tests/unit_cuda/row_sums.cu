/* SPDX-License-Identifier: MIT */
/* One sum, by one warp. */
#include "row_sums.h"

WEFT_PROGRAM(row_sums, warp, args)
{
    const void **srcs = weft_warp_pointers(warp);
    for (int32_t i = weft_lane_idx(warp); i < args->num_srcs; i += WEFT_WARP_SIZE)
        srcs[i] = args->srcs[i];
    weft_warp_sync(warp);
    weft_row_sum_mixed(warp, args->dst, srcs, args->num_srcs, args->sum, args->num_elements);
    return WEFT_STATUS_OK;
}
