/* SPDX-License-Identifier: MIT */
/* One sum, reduction or copy, by one warp. */
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

WEFT_FN const void **put_pointers(struct weft_warp *warp,
                                  const struct weft_row_reduction_args *args)
{
    const void **srcs = weft_warp_pointers(warp), **dsts = srcs + args->num_srcs;
    for (int32_t i = weft_lane_idx(warp); i < args->num_srcs; i += WEFT_WARP_SIZE)
        srcs[i] = args->srcs[i];
    for (int32_t i = weft_lane_idx(warp); i < args->num_dsts; i += WEFT_WARP_SIZE)
        dsts[i] = args->dsts[i];
    weft_warp_sync(warp);
    return srcs;
}

WEFT_PROGRAM(row_reduction, warp, args)
{
    const void **srcs = put_pointers(warp, args);
    weft_row_reduce(warp, srcs + args->num_srcs, args->num_dsts, srcs, args->num_srcs,
                    args->reduction, args->num_elements);
    return WEFT_STATUS_OK;
}

#define weft_row_copying_args weft_row_reduction_args
WEFT_PROGRAM(row_copying, warp, args)
{
    const void **srcs = put_pointers(warp, args);
    weft_row_copy(warp, srcs + args->num_srcs, args->num_dsts, srcs[0],
                  (uint64_t)args->num_elements);
    return WEFT_STATUS_OK;
}
