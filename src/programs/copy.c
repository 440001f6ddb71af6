/* SPDX-License-Identifier: MIT */
/* copy: moves rows inside this rank's memory: to and from where other ranks can reach them. */
#include "programs/copy.h"

#include "programs/block.h"

WEFT_FN void copy_chunk(struct weft_warp *warp, const struct weft_copied_row *row, uint64_t begin,
                        uint64_t bytes)
{
    const void **dsts = weft_warp_pointers(warp);
    weft_warp_sync(warp); /* the previous pointer has been used */
    if (weft_lane_idx(warp) == 0)
        dsts[0] = row->dst + begin;
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, 1, row->src + begin, bytes);
}

WEFT_PROGRAM(copy, warp, args)
{
    const int32_t warp_idx = weft_launch_warp_idx(warp);
    const int32_t num_warps = weft_num_launch_warps(warp);
    const uint64_t step_bytes = (uint64_t)num_warps * args->chunk_bytes;
    weft_admit_next(warp); /* it waits for nobody */
    for (int32_t i = 0; i < args->num_rows; i++) {
        const struct weft_copied_row *row = &args->rows[i];
        for (uint64_t begin = (uint64_t)warp_idx * args->chunk_bytes; begin < row->bytes;
             begin += step_bytes) {
            const uint64_t rest = row->bytes - begin;
            copy_chunk(warp, row, begin, rest < args->chunk_bytes ? rest : args->chunk_bytes);
        }
    }
    return WEFT_STATUS_OK;
}
