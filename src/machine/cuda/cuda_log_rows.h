/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT on the cuda machine; part of primitives.h. Primitives of their own, so
 * that programs without such rows do not hold their code. */
#pragma once

#include "machine/cuda/log_blocks.h"

/* Whole blocks of bf16 in place. */
WP_FN void wp_row_log_encode(struct wp_warp *warp, void *dst, const void *const *srcs,
                             const float *weights, int32_t num_srcs, weft_dtype src_dtype,
                             int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const struct wp_weighted_sum sum = {src_dtype, src_dtype, WP_READ_SOON};
    struct weft__cuda_log_encoded row = {(char *)dst,
                                         {NULL, srcs, weights, num_srcs, sum},
                                         (uint32_t)(num_elements / WEFT__CUDA_OCTET),
                                         0};
    uint32_t num_blocks = 0;
    /* The dst has parts of 8 bytes. */
    row.is_aligned = weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, srcs, num_srcs) |
                                           (uint32_t)(uint64_t)dst * 2) == 16;
    if (row.is_aligned && src_dtype == WEFT_BF16)
        num_blocks = (uint32_t)(num_elements / WP_LOG_BLOCK_ELEMENTS);
    weft__cuda_encode_blocks(lane_idx, &row, num_blocks);
    if (num_blocks * WEFT__CUDA_BLOCK_OCTETS < row.num_octets)
        weft__cuda_log_encode(lane_idx, row, num_blocks * WEFT__CUDA_BLOCK_OCTETS, row.num_octets);
}

/* Whole blocks to bf16 in place. */
WP_FN void wp_row_log_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                          const float *weights, int32_t num_srcs, weft_dtype dst_dtype,
                          int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    struct weft__cuda_log_sum sum = {dst,     NULL,     0,         dst_dtype, srcs,
                                     weights, num_srcs, dst_dtype, 0};
    uint32_t num_blocks = 0;
    sum.is_aligned = weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, srcs, num_srcs) * 2 |
                                           (uint32_t)(uint64_t)dst) == 16;
    if (sum.is_aligned && dst_dtype == WEFT_BF16)
        num_blocks = (uint32_t)(num_elements / WP_LOG_BLOCK_ELEMENTS);
#pragma unroll 1
    for (uint32_t block = 0; block < num_blocks; block++)
        weft__cuda_sum_block(lane_idx, &sum, block);
    if (num_blocks * WP_LOG_BLOCK_ELEMENTS < num_elements)
        weft__cuda_sum_log<WEFT__CUDA_LOGS_ALONE>(
            lane_idx, sum, num_blocks * WEFT__CUDA_BLOCK_OCTETS, num_elements);
}

WP_FN void wp_row_log_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                                int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const void *const *logs = srcs + sum.num_first;
    const int32_t num_logs = num_srcs - sum.num_first;
    struct weft__cuda_log_sum rows = {
        dst, srcs, sum.num_first, sum.first_dtype, logs, NULL, num_logs, sum.dst_dtype, 0};
    rows.is_aligned = weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, logs, num_logs) * 2 |
                                            weft__cuda_low_bits(lane_idx, srcs, sum.num_first) |
                                            (uint32_t)(uint64_t)dst) == 16;
    weft__cuda_sum_log<WEFT__CUDA_LOGS_AFTER_FIRST>(lane_idx, rows, 0, num_elements);
}
