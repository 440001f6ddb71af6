/* SPDX-License-Identifier: MIT */
/* copy: moves rows inside this rank's memory: to and from where other ranks can reach them. */
#include "programs/copy.h"

#include "programs/block.h"

WP_FN void copy_chunk(struct wp_warp *warp, const struct wp_copied_row *row, uint64_t begin,
                      uint64_t bytes)
{
    const void **dsts = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* the previous pointer has been used */
    if (wp_lane_idx(warp) == 0)
        dsts[0] = row->dst + begin;
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, 1, row->src + begin, bytes);
}

WP_FN uint64_t copied_bytes(const struct wp_copied_row *row)
{
    const uint64_t there =
        row->num_rows == NULL ? row->bytes : (uint64_t)*row->num_rows * row->row_bytes;
    return there < row->bytes ? there : row->bytes;
}

WP_PROGRAM(copy, warp, args)
{
    const int32_t warp_idx = wp_launch_warp_idx(warp);
    const int32_t num_warps = wp_num_launch_warps(warp);
    const uint64_t step_bytes = (uint64_t)num_warps * args->chunk_bytes;
    wp_admit_next(warp); /* it waits for nobody */
    for (int32_t i = 0; i < args->num_rows; i++) {
        const struct wp_copied_row *row = &args->rows[i];
        const uint64_t bytes = copied_bytes(row);
        for (uint64_t begin = (uint64_t)warp_idx * args->chunk_bytes; begin < bytes;
             begin += step_bytes) {
            const uint64_t rest = bytes - begin;
            copy_chunk(warp, row, begin, rest < args->chunk_bytes ? rest : args->chunk_bytes);
        }
    }
    return WP_STATUS_OK;
}
