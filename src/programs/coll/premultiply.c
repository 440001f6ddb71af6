/* SPDX-License-Identifier: MIT */
/* premultiply: rows inside this rank's memory times a factor, as inputs of a sum. */
#include "programs/coll/premultiply.h"

#include "programs/block.h"

/* Where row operations take it from. The lanes meet before the first of them. */
WP_FN const float *factor_of(struct wp_warp *warp, const struct wp_premultiply_args *args)
{
    float *factor = (float *)wp_warp_shared(warp);
    if (args->factor_at != NULL)
        return args->factor_at;
    if (wp_lane_idx(warp) == 0)
        *factor = args->factor;
    return factor;
}

WP_FN void multiply_chunk(struct wp_warp *warp, const struct wp_premultiply_args *args,
                          const float *factor, int64_t row, int64_t first)
{
    const struct wp_weighted_sum sum = {args->dtype, args->dtype, WP_READ_SOON};
    const int64_t element_bytes = (int64_t)wp_dtype_bytes(args->dtype);
    const int64_t rest = args->num_elements - first;
    const void **srcs = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* the previous pointer has been used */
    if (wp_lane_idx(warp) == 0)
        srcs[0] = args->src + row * (int64_t)args->src_stride_bytes + first * element_bytes;
    wp_warp_sync(warp);
    wp_row_weighted_sum(warp, args->dst + (row * args->num_elements + first) * element_bytes, srcs,
                        factor, 1, sum, rest < args->chunk_elements ? rest : args->chunk_elements);
}

WP_PROGRAM(premultiply, warp, args)
{
    const float *factor = factor_of(warp, args);
    const int64_t num_chunks =
        (args->num_elements + args->chunk_elements - 1) / args->chunk_elements;
    const int32_t num_warps = wp_num_launch_warps(warp);
    wp_admit_next(warp); /* it waits for nobody */
    for (int64_t unit = wp_launch_warp_idx(warp); unit < args->num_rows * num_chunks;
         unit += num_warps)
        multiply_chunk(warp, args, factor, unit / num_chunks,
                       unit % num_chunks * args->chunk_elements);
    return WP_STATUS_OK;
}
