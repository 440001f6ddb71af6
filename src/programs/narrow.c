/* SPDX-License-Identifier: MIT */
/* narrow: rows inside this rank's memory to rows of a narrower type. */
#include "programs/narrow.h"

#include "programs/block.h"
#include "programs/narrow_rows.h"

enum { PART_ELEMENTS = 4 * WP_LOG_BLOCK_ELEMENTS }; /* that a warp does at a time */

WP_FN void narrow_part(struct wp_warp *warp, const struct wp_narrow_args *args, int64_t row,
                       int64_t first)
{
    const int64_t rest = args->num_elements - first;
    const char *src =
        args->src + (uint64_t)row * wp_elements_bytes(args->src_dtype, args->num_elements);
    char *dst = args->dst + (uint64_t)row * wp_elements_bytes(args->dst_dtype, args->num_elements);
    wp_narrow_row(warp, dst + wp_elements_bytes(args->dst_dtype, first), args->dst_dtype,
                  src + wp_elements_bytes(args->src_dtype, first), args->src_dtype,
                  rest < PART_ELEMENTS ? rest : PART_ELEMENTS);
}

WP_PROGRAM(narrow, warp, args)
{
    const int32_t num_rows = *args->num_rows < args->max_rows ? *args->num_rows : args->max_rows;
    const int64_t num_parts = (args->num_elements + PART_ELEMENTS - 1) / PART_ELEMENTS;
    const int32_t num_warps = wp_num_launch_warps(warp);
    wp_admit_next(warp); /* it waits for nobody */
    for (int64_t unit = wp_launch_warp_idx(warp); unit < num_rows * num_parts; unit += num_warps)
        narrow_part(warp, args, unit / num_parts, unit % num_parts * PART_ELEMENTS);
    return WP_STATUS_OK;
}
