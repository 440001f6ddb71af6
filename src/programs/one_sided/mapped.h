/* SPDX-License-Identifier: MIT */
/* Accesses to the heap of a rank that is mapped, by loads and stores. */
#pragma once

#include "machine/machine.h"

struct wp_mapped {
    char *own, *peer;     /* heaps */
    uint64_t chunk_bytes; /* that a warp copies at a time */
};

/* The bytes of a put or get, by several warps: that of warp_idx of num_warps takes its part. Ends
 * with nothing. */
WP_FN void wp_copy_mapped(struct wp_warp *warp, const struct wp_mapped *mapped,
                          const struct wp_access *access, int32_t warp_idx, int32_t num_warps)
{
    const int is_get = access->operation == WP_ACCESS_GET;
    char *dst = (is_get ? mapped->own : mapped->peer) + access->target;
    const char *src = (is_get ? mapped->peer : mapped->own) + access->source;
    const void **dsts = wp_warp_pointers(warp);
    const uint64_t step_bytes = (uint64_t)num_warps * mapped->chunk_bytes;
    for (uint64_t begin = (uint64_t)warp_idx * mapped->chunk_bytes; begin < access->num_bytes;
         begin += step_bytes) {
        const uint64_t rest = access->num_bytes - begin;
        wp_warp_sync(warp); /* the previous pointer has been used */
        if (wp_lane_idx(warp) == 0)
            dsts[0] = dst + begin;
        wp_warp_sync(warp);
        wp_row_copy(warp, dsts, 1, src + begin,
                    rest < mapped->chunk_bytes ? rest : mapped->chunk_bytes);
    }
}

/* The add of a signal or fetch-add, by one lane: after what was ordered before it. */
WP_FN void wp_add_mapped(struct wp_warp *warp, const struct wp_mapped *mapped,
                         const struct wp_access *access)
{
    const uint64_t before = wp_fetch_add(
        warp, access->rank, (uint64_t *)(void *)(mapped->peer + access->word), access->add);
    if (access->operation == WP_ACCESS_FETCH_ADD)
        *(uint64_t *)(void *)(mapped->own + access->target) = before;
}

WP_FN int wp_access_has_bytes(const struct wp_access *access)
{
    return access->operation != WP_ACCESS_FETCH_ADD && access->operation != WP_ACCESS_FLUSH;
}

WP_FN int wp_access_has_add(const struct wp_access *access)
{
    return access->operation == WP_ACCESS_PUT_SIGNAL || access->operation == WP_ACCESS_FETCH_ADD;
}
