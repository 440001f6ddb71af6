/* SPDX-License-Identifier: MIT */
/* How launches of low latency begin and end, and what a block has in its memory: with masks, whom it goes on without. */
#pragma once

#include "programs/low_latency_network.h"

struct wp_ll_run { /* what a warp knows */
    struct wp_operation op;
    const struct wp_low_latency *ll;
    struct wp_ll_numbers numbers;            /* as they will be after the launch */
    struct wp_ll_half halves[WP_NUM_HALVES]; /* as well */
};

/* ------------------------------------------------------------------ memory of the block */

/* Behind the words of wp_block_max, where there is room; else `far`. */
WP_FN void *wp_ll_near(struct wp_warp *warp, uint64_t offset, uint64_t bytes, void *far)
{
    return WP_BLOCK_WORDS_BYTES + offset + bytes <= WP_BLOCK_SHARED_BYTES
               ? (char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES + offset
               : (char *)far;
}

/* At the beginning, with masks. */
WP_FN uint64_t wp_ll_missing_bytes(const struct wp_low_latency *ll)
{
    return wp_ll_has_masks(&ll->masks)
               ? wp_ll_align((uint64_t)ll->exchange.num_ranks * sizeof(int32_t))
               : 0;
}

/* Whether the warp speaks for its block: it tells the other ranks, and with masks waits for all of them. That is the last
 * one, which has least to do besides. */
WP_FN int wp_ll_speaks(struct wp_warp *warp)
{
    return wp_warp_idx(warp) == wp_num_warps(warp) - 1;
}

/* The ranks that this block goes on without, as the warp that speaks finds when the launch begins, and whenever it waits for
 * all: [num_ranks]. */
WP_FN int32_t *wp_ll_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const int64_t num_ranks = run->ll->exchange.num_ranks;
    return (int32_t *)wp_ll_near(warp, 0, (uint64_t)num_ranks * sizeof(int32_t),
                                 run->ll->masks.missing + wp_block_idx(warp) * num_ranks);
}

WP_FN int wp_ll_is_missing(const struct wp_ll_run *run, int32_t rank)
{
    return wp_ll_has_masks(&run->ll->masks) && wp_ll_missing(run)[rank] != 0;
}

/* Those that are masked by now. */
WP_FN void wp_ll_miss_masked(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    if (!wp_ll_has_masks(&run->ll->masks) || !wp_ll_speaks(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks; rank += WP_WARP_SIZE)
        wp_ll_missing(run)[rank] = wp_ll_is_masked(&run->ll->masks, rank);
    wp_warp_sync(warp);
}

/* ------------------------------------------------------------------ begin and end */

/* As wp_operation_begin. */
WP_FN struct wp_ll_run wp_ll_begin(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const struct wp_ll_block *block = &ll->blocks[wp_block_idx(warp)];
    const struct wp_ll_run run = {wp_operation_begin(warp, &ll->exchange, NULL),
                                  ll,
                                  block->numbers,
                                  {block->halves[0], block->halves[1]}};
    wp_ll_miss_masked(&run);
    return run;
}

/* As wp_operation_end; the warps of a block have the same status. */
WP_FN enum wp_status wp_ll_end(const struct wp_ll_run *run, enum wp_status status)
{
    struct wp_warp *warp = run->op.warp;
    struct wp_ll_block *block = &run->ll->blocks[wp_block_idx(warp)];
    wp_operation_end(&run->op, status);
    if (status == WP_STATUS_OK && wp_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0) {
        block->numbers = run->numbers;
        block->halves[0] = run->halves[0];
        block->halves[1] = run->halves[1];
    }
    return status;
}

/* Warp-wide: an operation that does not fit what is outstanding. In graphs the host cannot see it. */
WP_FN enum wp_status wp_ll_fail(const struct wp_ll_run *run, uint64_t expected, uint64_t seen)
{
    const struct wp_failure failure = {WP_FAILURE_OUTSTANDING,
                                       wp_operation_site(&run->op, WP_PHASE_START, WP_NO_RANK), 0,
                                       expected, seen};
    return wp_fail(run->op.warp, &failure);
}
