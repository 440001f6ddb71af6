/* SPDX-License-Identifier: MIT */
/* Stores a word of this rank's into every heap, and tells the time. */
#include "machine/machine.h"

#include "machine/cuda/probe.h"

WP_PROGRAM(probe, warp, args)
{
    for (int32_t rank = wp_lane_idx(warp); rank < args->num_ranks; rank += WP_WARP_SIZE) {
        if (args->heap_bases[rank] != NULL) {
            uint64_t *slots = (uint64_t *)(void *)(args->heap_bases[rank] + args->slots_offset);
            wp_signal(warp, rank, slots + args->rank, args->secret + (uint64_t)rank);
        }
    }
    if (wp_lane_idx(warp) == 0)
        *args->clock_ns = wp_now_ns(warp);
    return WP_STATUS_OK;
}
