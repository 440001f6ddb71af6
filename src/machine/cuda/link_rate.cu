/* SPDX-License-Identifier: MIT */
/* Stores to the heaps of all others at the same pace, from a different one on for every rank. What
 * is stored does not matter, so nothing is loaded. */
#include "machine/machine.h"

#include "machine/cuda/link_rate.h"

WP_PROGRAM(link_rate, warp, args)
{
    enum { CHUNKS = WP_LINK_RATE_PIECE_BYTES / 16 };
    const uint32_t num_others = (uint32_t)args->num_ranks - 1;
    const uint32_t num_warps = (uint32_t)(wp_num_blocks(warp) * wp_num_warps(warp));
    uint32_t piece = (uint32_t)(wp_block_idx(warp) * wp_num_warps(warp) + wp_warp_idx(warp));
    for (; piece < args->num_pieces * num_others; piece += num_warps) {
        const uint32_t distance = 1 + piece % num_others;
        char *base =
            args->heap_bases[((uint32_t)args->rank + distance) % (uint32_t)args->num_ranks];
        if (base == NULL)
            continue;
        const uint64_t offset =
            args->slice_offset +
            (uint64_t)(piece / num_others % args->num_slice_pieces) * WP_LINK_RATE_PIECE_BYTES;
        int4 *chunks = (int4 *)(void *)(base + offset);
        for (int32_t i = wp_lane_idx(warp); i < CHUNKS; i += WP_WARP_SIZE)
            weft__cuda_store16(chunks + i, make_int4(i, i, i, i));
    }
    return WP_STATUS_OK;
}
