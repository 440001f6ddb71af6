/* SPDX-License-Identifier: MIT */
/* One sum, reduction or copy, by one warp. */
#include "row_sums.h"

WP_PROGRAM(row_sums, warp, args)
{
    const void **srcs = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < args->num_srcs; i += WP_WARP_SIZE)
        srcs[i] = args->srcs[i];
    wp_warp_sync(warp);
    wp_row_sum_mixed(warp, args->dst, srcs, args->num_srcs, args->sum, args->num_elements);
    return WP_STATUS_OK;
}

/* Programs have weights in memory of any kind. */
WP_FN const float *put_weights(struct wp_warp *warp, const struct wp_row_weighted_args *args)
{
    float *shared = (float *)wp_warp_shared(warp);
    if (args->weights_place == WEIGHTS_NONE)
        return NULL;
    if (args->weights_place == WEIGHTS_GLOBAL)
        return args->weights;
    for (int32_t i = wp_lane_idx(warp); i < args->num_srcs; i += WP_WARP_SIZE)
        shared[i] = args->weights[i];
    return shared;
}

WP_PROGRAM(row_weighted, warp, args)
{
    const void **srcs = wp_warp_pointers(warp);
    const float *weights = put_weights(warp, args);
    for (int32_t i = wp_lane_idx(warp); i < args->num_srcs; i += WP_WARP_SIZE)
        srcs[i] = args->srcs[i];
    wp_warp_sync(warp);
    wp_row_weighted_sum(warp, args->dst, srcs, weights, args->num_srcs, args->sum,
                        args->num_elements);
    return WP_STATUS_OK;
}

WP_FN const void **put_pointers(struct wp_warp *warp, const struct wp_row_reduction_args *args)
{
    const void **srcs = wp_warp_pointers(warp), **dsts = srcs + args->num_srcs;
    for (int32_t i = wp_lane_idx(warp); i < args->num_srcs; i += WP_WARP_SIZE)
        srcs[i] = args->srcs[i];
    for (int32_t i = wp_lane_idx(warp); i < args->num_dsts; i += WP_WARP_SIZE)
        dsts[i] = args->dsts[i];
    wp_warp_sync(warp);
    return srcs;
}

WP_PROGRAM(row_reduction, warp, args)
{
    const void **srcs = put_pointers(warp, args);
    wp_row_reduce(warp, srcs + args->num_srcs, args->num_dsts, srcs, args->num_srcs,
                  args->reduction, args->num_elements);
    return WP_STATUS_OK;
}

#define wp_row_copying_args wp_row_reduction_args
WP_PROGRAM(row_copying, warp, args)
{
    const void **srcs = put_pointers(warp, args);
    wp_row_copy(warp, srcs + args->num_srcs, args->num_dsts, srcs[0], (uint64_t)args->num_elements);
    return WP_STATUS_OK;
}

WP_PROGRAM(row_quantising, warp, args)
{
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < args->num_dsts; i += WP_WARP_SIZE)
        dsts[i] = args->dsts[i];
    wp_warp_sync(warp);
    const struct wp_quantised_rows to = {dsts, dsts, args->scales_offset, args->num_dsts};
    wp_row_quantise(warp, to, args->src, args->how, args->num_elements);
    return WP_STATUS_OK;
}

#define wp_row_dequantising_args wp_row_quantising_args
WP_PROGRAM(row_dequantising, warp, args)
{
    const char *codes = (const char *)args->dsts[0];
    wp_row_dequantise(warp, (void *)args->dsts[1], codes, codes + args->scales_offset, args->how,
                      args->num_elements);
    return WP_STATUS_OK;
}
