/* SPDX-License-Identifier: MIT */
/* Rows that travel in a narrower format than they are combined in, and their sums. */
#pragma once

#include "machine/machine.h"

/* The bytes of elements of any type; WEFT_LOG_10BIT wants whole groups. */
WP_FN uint64_t wp_elements_bytes(weft_dtype dtype, int64_t num_elements)
{
    return dtype == WEFT_LOG_10BIT ? wp_log_row_bytes(num_elements)
                                   : (uint64_t)num_elements * wp_dtype_bytes(dtype);
}

/* A row, or as wp_row_log_encode takes it a part, rounded to bf16, fp16 or WEFT_LOG_10BIT. Those
 * before need not have ended, but the warp's pointers may be written. */
WP_FN void wp_narrow_row(struct wp_warp *warp, char *dst, weft_dtype dst_dtype, const char *src,
                         weft_dtype src_dtype, int64_t num_elements)
{
    const struct wp_mixed_sum alone = {1, src_dtype, src_dtype, dst_dtype, WP_READ_SOON};
    const void **pointers = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* those before have been used */
    if (wp_lane_idx(warp) == 0)
        pointers[0] = src;
    wp_warp_sync(warp);
    if (dst_dtype == WEFT_LOG_10BIT)
        wp_row_log_encode(warp, dst, pointers, NULL, 1, src_dtype, num_elements);
    else
        wp_row_sum_mixed(warp, dst, pointers, 1, alone, num_elements);
}

/* The sum of the warp's pointers, of rows in such a format behind first ones of another type. */
WP_FN void wp_sum_narrow_rows(struct wp_warp *warp, char *dst, int32_t num_srcs,
                              struct wp_mixed_sum sum, int64_t num_elements)
{
    const void **srcs = wp_warp_pointers(warp);
    if (sum.rest_dtype == WEFT_LOG_10BIT)
        wp_row_log_sum_mixed(warp, dst, srcs, num_srcs, sum, num_elements);
    else
        wp_row_sum_mixed(warp, dst, srcs, num_srcs, sum, num_elements);
}
