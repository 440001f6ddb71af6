/* SPDX-License-Identifier: MIT */
/*
 * Accesses to the heap of any rank: by loads and stores where it is mapped, by the network where not. Places are
 * offsets in the heaps. For programs; each is called by all lanes of a warp together, and any number of warps and
 * ranks may do so at any time.
 */
#ifndef WEFT_PROGRAMS_ONE_SIDED_H
#define WEFT_PROGRAMS_ONE_SIDED_H

#include "programs/mapped.h"

enum { WEFT_ONE_SIDED_CHUNK_BYTES = 16 << 10 };

struct weft_heaps {
    int32_t rank; /* this one */
    int32_t num_ranks;
    char *const *bases; /* [num_ranks] where they are here; NULL: nowhere */
};

WEFT_FN void weft_access_mapped(struct weft_warp *warp, const struct weft_heaps *heaps,
                                const struct weft_access *access)
{
    const struct weft_mapped mapped = {heaps->bases[heaps->rank], heaps->bases[access->rank],
                                       WEFT_ONE_SIDED_CHUNK_BYTES};
    if (weft_access_has_bytes(access))
        weft_copy_mapped(warp, &mapped, access, 0, 1);
    weft_row_sync(warp); /* the add is lane 0's, the bytes are of all */
    if (weft_access_has_add(access) && weft_lane_idx(warp) == 0)
        weft_add_mapped(warp, &mapped, access);
    weft_warp_sync(warp);
}

/* All lanes return the same. */
WEFT_FN enum weft_status weft_await_access(struct weft_warp *warp, uint64_t number,
                                           const struct weft_wait_site *site)
{
    const enum weft_status status = weft_remote_await(warp, number, site);
    return (enum weft_status)weft_max_u32(warp, (uint32_t)status);
}

WEFT_FN enum weft_status weft_access_remote(struct weft_warp *warp,
                                            const struct weft_access *access)
{
    struct weft_access awaited = *access;
    awaited.loss = WEFT_ACCESS_MUST_NOT_BE_LOST;
    const uint64_t number = weft_remote_post(warp, &awaited);
    const int is_add_alone = access->operation == WEFT_ACCESS_PUT_SIGNAL && access->num_bytes == 0;
    const struct weft_wait_site site = {WEFT_PHASE_ACCESS, access->rank, number,
                                        access->num_bytes > 0 ? access->target : access->word};
    return is_add_alone ? WEFT_STATUS_OK : weft_await_access(warp, number, &site);
}

/* One access. When it returns, sources may change, and what was asked for is here, for all lanes. */
WEFT_FN enum weft_status weft_access_heap(struct weft_warp *warp, const struct weft_heaps *heaps,
                                          const struct weft_access *access)
{
    if (heaps->bases[access->rank] == NULL)
        return weft_access_remote(warp, access);
    weft_access_mapped(warp, heaps, access);
    return WEFT_STATUS_OK;
}

/* All accesses that this rank has posted, and the warp has made, are visible at their targets. */
WEFT_FN enum weft_status weft_quiet(struct weft_warp *warp, const struct weft_heaps *heaps)
{
    uint64_t number = 0;
    int32_t num_flushes = 0;
    for (int32_t rank = 0; rank < heaps->num_ranks; rank++) {
        const struct weft_access flush = {WEFT_ACCESS_FLUSH,       rank, 0, 0, 0, 0, 0,
                                          WEFT_ACCESS_MAY_BE_LOST, 0,    0};
        if (heaps->bases[rank] != NULL)
            continue;
        number = weft_remote_post(warp, &flush);
        num_flushes++;
    }
    /* Its number is the last. */
    const struct weft_wait_site site = {WEFT_PHASE_FLUSH, WEFT_NO_RANK, number, 1};
    return num_flushes > 0 ? weft_await_access(warp, number, &site) : WEFT_STATUS_OK;
}

#endif
