/* SPDX-License-Identifier: MIT */
/* add_copies: adds rows to a row of this rank, in their order, in fp32, rounded once. */
#include "programs/ep/add_copies.h"

#include "programs/block.h"

WP_FN void add_chunk(struct wp_warp *warp, const struct wp_add_copies_args *args, int64_t first,
                     int64_t num_elements)
{
    const int64_t element_bytes = (int64_t)wp_dtype_bytes(args->dtype);
    const int64_t row_bytes = args->num_elements * element_bytes;
    const int32_t num_rows = 1 + args->num_copies;
    const struct wp_mixed_sum sum = {num_rows, args->dtype, args->dtype, args->dtype, WP_READ_SOON};
    const void **rows = wp_warp_pointers(warp);
    char *row = args->row + first * element_bytes;
    wp_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_rows; i += WP_WARP_SIZE)
        rows[i] = i == 0 ? row : args->copies + (i - 1) * row_bytes + first * element_bytes;
    wp_warp_sync(warp);
    wp_row_sum_mixed(warp, row, rows, num_rows, sum, num_elements);
}

WP_PROGRAM(add_copies, warp, args)
{
    const int64_t step = wp_num_launch_warps(warp) * args->chunk_elements;
    wp_admit_next(warp); /* it waits for nobody */
    for (int64_t first = wp_launch_warp_idx(warp) * args->chunk_elements;
         first < args->num_elements; first += step) {
        const int64_t rest = args->num_elements - first;
        add_chunk(warp, args, first, rest < args->chunk_elements ? rest : args->chunk_elements);
    }
    return WP_STATUS_OK;
}
