/* SPDX-License-Identifier: MIT */
/*
 * Accesses to the heap of any rank: by loads and stores where it is mapped, by the network where
 * not. Places are offsets in the heaps. For programs; each is called by all lanes of a warp
 * together, and any number of warps and ranks may do so at any time. Whoever adds to a word says
 * who else does: where it is mapped, processors do (WP_ACCESS_ADDED_BY_ALL).
 */
#pragma once

#include "programs/one_sided/mapped.h"

enum { WP_ONE_SIDED_CHUNK_BYTES = 16 << 10 };

struct wp_heaps {
    int32_t rank; /* this one */
    int32_t num_ranks;
    char *const *bases; /* [num_ranks] where they are here; NULL: nowhere */
};

WP_FN void wp_access_mapped(struct wp_warp *warp, const struct wp_heaps *heaps,
                            const struct wp_access *access)
{
    const struct wp_mapped mapped = {heaps->bases[heaps->rank], heaps->bases[access->rank],
                                     WP_ONE_SIDED_CHUNK_BYTES};
    if (wp_access_has_bytes(access))
        wp_copy_mapped(warp, &mapped, access, 0, 1);
    wp_row_sync(warp); /* the add is lane 0's, the bytes are of all */
    if (wp_access_has_add(access) && wp_lane_idx(warp) == 0)
        wp_add_mapped(warp, &mapped, access);
    wp_warp_sync(warp);
}

/* All lanes return the same. */
WP_FN enum wp_status wp_await_access(struct wp_warp *warp, uint64_t number,
                                     const struct wp_wait_site *site)
{
    const enum wp_status status = wp_remote_await(warp, number, site);
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* A flush comes to no own memory: what the own NIC does there is awaited. */
WP_FN enum wp_status wp_access_remote(struct wp_warp *warp, const struct wp_heaps *heaps,
                                      const struct wp_access *access)
{
    struct wp_access awaited = *access;
    awaited.loss = WP_ACCESS_MUST_NOT_BE_LOST;
    const uint64_t number = wp_remote_post(warp, &awaited);
    const int is_add_alone = access->operation == WP_ACCESS_PUT_SIGNAL && access->num_bytes == 0 &&
                             access->rank != heaps->rank;
    const struct wp_wait_site site = {WP_PHASE_ACCESS, access->rank, number,
                                      access->num_bytes > 0 ? access->target : access->word, 0};
    return is_add_alone ? WP_STATUS_OK : wp_await_access(warp, number, &site);
}

/* One access. When it returns, sources may change, and what was asked for is here, for all
 * lanes. */
WP_FN enum wp_status wp_access_heap(struct wp_warp *warp, const struct wp_heaps *heaps,
                                    const struct wp_access *access)
{
    if (heaps->bases[access->rank] == NULL)
        return wp_access_remote(warp, heaps, access);
    wp_access_mapped(warp, heaps, access);
    return WP_STATUS_OK;
}

WP_FN uint64_t wp_post_flush(struct wp_warp *warp, int32_t rank)
{
    const struct wp_access flush = {WP_ACCESS_FLUSH,
                                    rank,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    WP_ACCESS_MAY_BE_LOST,
                                    WP_ACCESS_AT_ONCE,
                                    WP_ACCESS_ADDED_BY_NETWORK,
                                    0,
                                    0};
    return wp_remote_post(warp, &flush);
}

/* All accesses that this rank has posted, and the warp has made, are visible at their targets. */
WP_FN enum wp_status wp_quiet(struct wp_warp *warp, const struct wp_heaps *heaps)
{
    enum { NUM_FLUSHES_AT_A_TIME = 16 };
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = 0; rank < heaps->num_ranks && status == WP_STATUS_OK;) {
        uint64_t numbers[NUM_FLUSHES_AT_A_TIME];
        int32_t num_flushes = 0;
        for (; rank < heaps->num_ranks && num_flushes < NUM_FLUSHES_AT_A_TIME; rank++)
            if (heaps->bases[rank] == NULL)
                numbers[num_flushes++] = wp_post_flush(warp, rank);
        for (int32_t i = 0; i < num_flushes && status == WP_STATUS_OK; i++) {
            const struct wp_wait_site site = {WP_PHASE_FLUSH, WP_NO_RANK, numbers[i], 1, 0};
            status = wp_await_access(warp, numbers[i], &site);
        }
    }
    return status;
}
