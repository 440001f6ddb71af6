/* SPDX-License-Identifier: MIT */
/* How a launch of low latency begins and ends, and what a block remembers from launch to launch. */
#pragma once

#include "programs/low_latency/nodes.h"

struct wp_ll_run { /* what a warp knows */
    struct wp_operation op;
    const struct wp_low_latency *ll;
    struct wp_ll_numbers numbers;            /* as they will be after the launch */
    struct wp_ll_half halves[WP_NUM_HALVES]; /* as well */
    /* With masks, in packets (packets.h): a bit for each rank that the warp goes on without; and where
     * the caller wants to know of these, or NULL. */
    uint32_t masked;
    int32_t *missing_ranks;
};

/* ------------------------------------------------------------------ the block */

WP_FN int32_t wp_ll_thread_idx(struct wp_warp *warp)
{
    return wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
}

WP_FN int32_t wp_ll_num_threads(struct wp_warp *warp)
{
    return wp_num_warps(warp) * WP_WARP_SIZE;
}

/* Memory of the block at [begin, end), if it has so much; else `far`. */
WP_FN void *wp_ll_near_or(struct wp_warp *warp, uint64_t begin, uint64_t end, void *far)
{
    return wp_ll_is_near(end) ? (char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES + begin
                              : (char *)far;
}

/* Whether this is the block's leader warp: the last one, which has the least other work. It signals the
 * other ranks, and with masks waits for all of them. */
WP_FN int wp_ll_is_leader_warp(struct wp_warp *warp)
{
    return wp_warp_idx(warp) == wp_num_warps(warp) - 1;
}

/* [num_ranks] The ranks that this block goes on without. The leader warp finds them when the launch
 * begins, and whenever it waits for all. */
WP_FN int32_t *wp_ll_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const int64_t num_ranks = run->ll->exchange.num_ranks;
    return (int32_t *)wp_ll_near_or(warp, 0, (uint64_t)num_ranks * sizeof(int32_t),
                                    run->ll->masks.missing + wp_block_idx(warp) * num_ranks);
}

/* With signals only. */
WP_FN int wp_ll_is_missing(const struct wp_ll_run *run, int32_t rank)
{
    return wp_ll_has_masks(&run->ll->masks) && wp_ll_missing(run)[rank] != 0;
}

/* In packets only, with at most WP_LL_NEAR_RANKS ranks: each warp goes by what it knows. */
WP_FN int wp_ll_leaves_out(const struct wp_ll_run *run, int32_t rank)
{
    return wp_ll_has_masks(&run->ll->masks) && (run->masked >> rank & 1u) != 0;
}

/* Notes the ranks that are masked by now. */
WP_FN void wp_ll_miss_masked(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    if (!wp_ll_has_masks(&run->ll->masks) || wp_ll_has_packets(&run->ll->plan) ||
        !wp_ll_is_leader_warp(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks; rank += WP_WARP_SIZE)
        wp_ll_missing(run)[rank] = wp_ll_is_masked(&run->ll->masks, rank);
    wp_warp_sync(warp);
}

/* ------------------------------------------------------------------ begin and end */

/* Loads what the block remembers, all loads at once. */
WP_FN struct wp_ll_block wp_ll_remembered(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    enum { NUM_WORDS = sizeof(struct wp_ll_block) / sizeof(uint64_t) };
    const uint64_t *from = (const uint64_t *)(const void *)&ll->blocks[wp_block_idx(warp)];
    uint64_t words[NUM_WORDS];
    struct wp_ll_block block;
    for (int32_t i = 0; i < NUM_WORDS; i++)
        words[i] = wp_load_now(from + i);
    memcpy(&block, words, sizeof block);
    return block;
}

WP_FN struct wp_ll_run wp_ll_run_of(const struct wp_low_latency *ll, struct wp_operation op,
                                    struct wp_ll_block block)
{
    const struct wp_ll_run run = {op, ll,  block.numbers, {block.halves[0], block.halves[1]},
                                  0,  NULL};
    wp_ll_miss_masked(&run);
    return run;
}

/* As wp_operation_begin. */
WP_FN struct wp_ll_run wp_ll_begin(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const struct wp_ll_block block = wp_ll_remembered(warp, ll); /* while the operation begins */
    return wp_ll_run_of(ll, wp_operation_begin(warp, &ll->exchange, NULL), block);
}

/* wp_ll_begin in two steps, so that other loads are under way at the same time. */
struct wp_ll_loads {
    struct wp_ll_block block;
    struct wp_operation_loads operation;
    int32_t is_masked; /* the lane's rank */
};

/* By a lane. */
WP_FN int32_t wp_ll_load_masked(const struct wp_low_latency *ll, int32_t rank)
{
    return rank < ll->exchange.num_ranks && wp_ll_is_masked(&ll->masks, rank);
}

/* Warp-wide: a bit for each masked rank. Lane n has loaded the mask of rank n. */
WP_FN uint32_t wp_ll_find_masked(struct wp_warp *warp, const struct wp_low_latency *ll,
                                 int32_t is_masked)
{
    uint32_t masked = 0;
    if (!wp_ll_has_masks(&ll->masks))
        return masked;
    masked = wp_ballot(warp, is_masked);
    for (int32_t first = WP_WARP_SIZE; first < WP_LL_NEAR_RANKS && first < ll->exchange.num_ranks;
         first += WP_WARP_SIZE)
        masked |= wp_ballot(warp, wp_ll_load_masked(ll, first + wp_lane_idx(warp))) << first;
    return masked;
}

WP_FN struct wp_ll_loads wp_ll_load(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const struct wp_ll_loads loads = {wp_ll_remembered(warp, ll),
                                      wp_operation_load(warp, &ll->exchange),
                                      wp_ll_load_masked(ll, wp_lane_idx(warp))};
    return loads;
}

WP_FN struct wp_ll_run wp_ll_begin_loaded(struct wp_warp *warp, const struct wp_low_latency *ll,
                                          struct wp_ll_loads loads)
{
    struct wp_ll_run run =
        wp_ll_run_of(ll, wp_operation_of(warp, &ll->exchange, NULL, loads.operation), loads.block);
    run.masked = wp_ll_find_masked(warp, ll, loads.is_masked);
    return run;
}

/* Every warp calls this, after all warps of the block have read what was remembered before. */
WP_FN void wp_ll_remember_run(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    struct wp_ll_block *block = &run->ll->blocks[wp_block_idx(warp)];
    if (wp_warp_idx(warp) != 0 || wp_lane_idx(warp) != 0)
        return;
    block->numbers = run->numbers;
    block->halves[0] = run->halves[0];
    block->halves[1] = run->halves[1];
}

/* As wp_operation_end; the warps of a block have the same status. */
WP_FN enum wp_status wp_ll_end(const struct wp_ll_run *run, enum wp_status status)
{
    wp_operation_end(&run->op, status);
    if (status == WP_STATUS_OK)
        wp_ll_remember_run(run);
    return status;
}

/* wp_ll_end for warps that have met since they began, unless one has failed. They need not meet again. */
WP_FN enum wp_status wp_ll_end_met(const struct wp_ll_run *run, enum wp_status status)
{
    if (status != WP_STATUS_OK)
        return wp_operation_end(&run->op, status);
    wp_admit_next(run->op.warp); /* the block waits for nothing more */
    wp_operation_advance(&run->op);
    wp_ll_remember_run(run);
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
