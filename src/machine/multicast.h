/* SPDX-License-Identifier: MIT */
/*
 * A multicast object: as much memory of every rank of a node, its parts, and ways to reach all of them at once:
 *
 *   wp_multicast_move        a row operation whose source is the rows of all parts, reduced, or whose destination is
 *                            all parts
 *   wp_multicast_post        a release to a word of each part
 *   wp_multicast_tell,       a release to a word for this rank in one rank's part, and that rank's wait for the
 *   wp_multicast_await_all   minimum of these words: for each of them
 *
 * Parts are memory of windows (programs/window.h), with an address each: rows of all parts are reduced in ascending
 * order. Where a switch between the ranks reaches all parts itself, they have a second memory for rows, with one
 * address for all, at which a load sums and a store goes to all; in which order it sums, the switch alone knows. Words
 * are in windows all the same, so that waits tell who is late.
 *
 * Values of words only grow. A rank does not tell itself, nor wait for its own post: what a block's warps do for each
 * other is ordered by syncs.
 */
#pragma once

#include "machine/machine.h"

struct wp_multicast {
    int32_t rank;
    int32_t num_ranks;
    char *const *bases; /* [num_ranks] of the window that the parts are in, as mapped here */
    uint64_t offset;    /* of the object in each of these windows */
    /* Of rows: where this rank reaches its own part, and the switch all parts. NULL: they are in
     * windows, too. */
    char *own_rows, *all_rows;
};

/* A word for each rank. */
#define WP_MULTICAST_WORD_BYTES(num_ranks)                                                         \
    (((uint64_t)(num_ranks) * sizeof(uint64_t) + 63) / 64 * 64)

/* Where byte `offset` of the object is in a rank's part. */
WP_FN char *wp_multicast_part(const struct wp_multicast *multicast, int32_t rank, uint64_t offset)
{
    return multicast->bases[rank] + multicast->offset + offset;
}

WP_FN uint64_t *wp_multicast_word(const struct wp_multicast *multicast, int32_t rank,
                                  uint64_t offset)
{
    return (uint64_t *)(void *)wp_multicast_part(multicast, rank, offset);
}

/* ------------------------------------------------------------------ rows */

/* One end of a move: a row of this rank's, or the rows at an offset of the object in all parts. */
struct wp_multicast_end {
    char *row; /* NULL: of all parts */
    uint64_t offset;
};

/* The row at `offset` in this rank's own part. */
WP_FN char *wp_multicast_own_row(const struct wp_multicast *multicast, uint64_t offset)
{
    return multicast->own_rows != NULL ? multicast->own_rows + offset
                                       : wp_multicast_part(multicast, multicast->rank, offset);
}

#if defined(WP_HAS_SWITCH)
#include "switch.h"
#endif

WP_FN int32_t wp_multicast_num_rows(const struct wp_multicast *multicast,
                                    const struct wp_multicast_end *end)
{
    return end->row != NULL ? 1 : multicast->num_ranks;
}

/* One lane: the rows of an end from the part of rank `first` on. */
WP_FN void wp_multicast_list(struct wp_warp *warp, const struct wp_multicast *multicast,
                             const struct wp_multicast_end *end, int32_t first, const void **rows)
{
    const int32_t num_rows = wp_multicast_num_rows(multicast, end);
    for (int32_t i = wp_lane_idx(warp); i < num_rows; i += WP_WARP_SIZE)
        rows[i] =
            end->row != NULL
                ? end->row
                : wp_multicast_part(multicast, (first + i) % multicast->num_ranks, end->offset);
}

/* A row operation (machine.h): to = from, reduced if that is all parts, as `reduction` says. */
WP_FN void wp_multicast_move(struct wp_warp *warp, const struct wp_multicast *multicast,
                             const struct wp_multicast_end *to, const struct wp_multicast_end *from,
                             struct wp_reduction reduction, uint64_t num_bytes)
{
    const void **srcs = wp_warp_pointers(warp);
    const void **dsts = srcs + multicast->num_ranks;
#if defined(WP_HAS_SWITCH)
    if (multicast->all_rows != NULL) {
        wp_switch_fence(warp);
        if (to->row == NULL || from->row == NULL) {
            wp_switch_move(warp, multicast->all_rows, to, from, reduction.dtype, num_bytes);
            return;
        }
    }
#endif
    wp_warp_sync(warp); /* the previous pointers have been used */
    wp_multicast_list(warp, multicast, from, 0, srcs);
    wp_multicast_list(warp, multicast, to, multicast->rank, dsts); /* not all to rank 0 first */
    wp_warp_sync(warp);
    if (from->row == NULL)
        wp_row_reduce_compact(warp, dsts, wp_multicast_num_rows(multicast, to), srcs,
                              multicast->num_ranks, reduction,
                              (int64_t)(num_bytes / wp_dtype_bytes(reduction.dtype)));
    else
        wp_row_copy(warp, dsts, wp_multicast_num_rows(multicast, to), from->row, num_bytes);
}

/* ------------------------------------------------------------------ words */

/* Warp-wide: the word at `offset` in every part is `value`, behind what the warp has done or
 * ordered before. */
WP_FN void wp_multicast_post(struct wp_warp *warp, const struct wp_multicast *multicast,
                             uint64_t offset, uint64_t value)
{
    for (int32_t i = 1 + wp_lane_idx(warp); i < multicast->num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = (multicast->rank + i) % multicast->num_ranks;
        wp_signal(warp, rank, wp_multicast_word(multicast, rank, offset), value);
    }
}

/* One lane: waits for what `rank` has posted. */
WP_FN enum wp_status wp_multicast_await(struct wp_warp *warp, const struct wp_multicast *multicast,
                                        uint64_t offset, uint64_t at_least,
                                        const struct wp_wait_site *site)
{
    if (site->rank == multicast->rank)
        return WP_STATUS_OK;
    return wp_wait(warp, wp_multicast_word(multicast, multicast->rank, offset), at_least, site);
}

/* One lane: this rank's word at `rank` is `value`, behind what the lane has done or ordered
 * before. */
WP_FN void wp_multicast_tell(struct wp_warp *warp, const struct wp_multicast *multicast,
                             int32_t rank, uint64_t offset, uint64_t value)
{
    if (rank != multicast->rank)
        wp_signal(warp, rank, wp_multicast_word(multicast, rank, offset) + multicast->rank, value);
}

/* Warp-wide: waits until all ranks have told so much; a failure names one that has not. */
WP_FN enum wp_status wp_multicast_await_all(struct wp_warp *warp,
                                            const struct wp_multicast *multicast, uint64_t offset,
                                            uint64_t at_least, const struct wp_wait_site *site)
{
    struct wp_wait_site one = *site;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = 1 + wp_lane_idx(warp); i < multicast->num_ranks && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        one.rank = (multicast->rank + i) % multicast->num_ranks;
        status = wp_wait(warp, wp_multicast_word(multicast, multicast->rank, offset) + one.rank,
                         at_least, &one);
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}
