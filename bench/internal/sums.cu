/* SPDX-License-Identifier: MIT */
/* weft's own reduction of rows, by as many warps as one likes. */
#include "machine/machine.h"

#include "sums.h"

struct wp_sums_args {
    struct sums sums;
};

/* The spans of all rows are dealt out to the warps in turn. */
WP_PROGRAM(sums, warp, args)
{
    const struct sums *sums = &args->sums;
    const void **srcs = wp_warp_pointers(warp);
    const void **dst = srcs + sums->num_srcs;
    const int64_t num_spans = sums->num_rows * (sums->row_bytes / sums->span_bytes);
    const struct wp_reduction reduction = {WEFT_BF16,
                                           sums->kind == SUMS_OF_TOKENS ? WP_REDUCTION_SUM_FROM_ZERO
                                           : sums->kind == SUMS_DIRECT  ? WP_REDUCTION_SUM
                                                                        : WP_REDUCTION_AVG,
                                           0};
    for (int64_t i = wp_warp_idx(warp) * wp_num_blocks(warp) + wp_block_idx(warp); i < num_spans;
         i += wp_num_blocks(warp) * wp_num_warps(warp)) {
        const int64_t offset = i * sums->span_bytes;
        wp_warp_sync(warp); /* the pointers before have been used */
        for (int32_t s = wp_lane_idx(warp); s < sums->num_srcs; s += WP_WARP_SIZE)
            srcs[s] = sums->srcs[s] + offset;
        if (wp_lane_idx(warp) == 0)
            *dst = sums->dst + offset;
        wp_warp_sync(warp);
        wp_row_reduce(warp, dst, 1, srcs, sums->num_srcs, reduction,
                      sums->span_bytes / (int64_t)sizeof(weft__cuda_bf16));
    }
    return WP_STATUS_OK;
}

extern "C" cudaError_t sums_launch(const struct sums *sums, int num_blocks, int num_warps,
                                   cudaStream_t stream)
{
    const struct weft__cuda_launch launch = {}; /* of waits and bulk copies, which there are none */
    const struct wp_sums_args args = {*sums};
    weft__cuda_sums<<<num_blocks, num_warps * WP_WARP_SIZE,
                      (size_t)num_warps * WEFT__CUDA_WARP_BYTES, stream>>>(launch, args);
    return cudaGetLastError();
}
