/* SPDX-License-Identifier: MIT */
/*
 * Low latency: dispatch and combine in one launch each, without layout, notify, or a word before the
 * rows. Each rank has room for the rows of all others, so a sender needs no answer to know where a
 * row goes: to slot [source rank][index], where index counts the source's tokens for that rank.
 * Answers go to slot [place of the token][choice] of the token's owner; places are a block's own.
 *
 * Block b of every rank has the same part of the work: it sends tokens of the b-th share of its
 * rank, takes what block b of the others has sent, and sends the answers to that. So blocks of one
 * rank never wait for each other. Two words for every block of every other rank keep order, both
 * ways in the same manner; their values are numbers of what was sent, which only grow:
 *
 *     arrived[mail][source][block]    the last that has come from there             (the source signals)
 *     room[mail][target][block]       the last that the target needs no more there  (the target signals)
 *
 * Mail is rows or answers. Number n lies in half n % num_halves, and is sent when the target needs
 * number n - num_halves no more: rows are needed until the answers that end their result have been
 * received, or it is released, answers until they have been summed. So nothing that is still read is overwritten, whatever runs on whichever stream.
 *
 * Ranks of other nodes are reached by puts into the same slots (low_latency/network.h): rows and
 * answers are staged here, those of a block for a rank one behind the other, and go in one put.
 */
#pragma once

#include "programs/low_latency/waits.h"

/* The place of a token of a block. */
WP_FN int32_t wp_ll_place_of(const struct wp_ll_plan *plan, int32_t block,
                             struct wp_ll_tokens tokens, int32_t token)
{
    return block * plan->block_tokens + token - tokens.begin;
}

/* ------------------------------------------------------------------ what is told */

/* By all warps of each block of a launch that receives, which with masks have met since one of them has waited for all:
 * whether the warp tells who is missing, while the others go on: that which speaks for the block that waits last, so that
 * all is known. */
WP_FN int wp_ll_tells_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_masks *masks = &run->ll->masks;
    uint32_t is_last = 0;
    if (!wp_ll_has_masks(masks) || !wp_ll_speaks(warp))
        return 0;
    if (wp_lane_idx(warp) == 0)
        is_last = (uint32_t)wp_is_done_last(warp, masks->num_blocks_done);
    is_last = wp_max_u32(warp, is_last);
    wp_warp_sync(warp); /* the first lane has met the other blocks */
    return (int)is_last;
}

/* By that warp. */
WP_FN void wp_ll_tell_missing(const struct wp_ll_run *run, int32_t *missing_ranks)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_masks *masks = &run->ll->masks;
    for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
         rank += WP_WARP_SIZE) {
        if (missing_ranks != NULL)
            missing_ranks[rank] = wp_ll_is_masked(masks, rank);
    }
}

/* Of a number. In registers: GPUs keep arrays in memory whose index is found as they run. */
WP_FN struct wp_ll_half wp_ll_half_of(const struct wp_ll_run *run, uint64_t number)
{
    return wp_ll_half(&run->ll->plan, number) == 0 ? run->halves[0] : run->halves[1];
}

WP_FN void wp_ll_remember(struct wp_ll_run *run, uint64_t number, struct wp_ll_half half)
{
    if (wp_ll_half(&run->ll->plan, number) == 0)
        run->halves[0] = half;
    else
        run->halves[1] = half;
}

/* What a rank must need no more before `number` can be sent. */
WP_FN uint64_t wp_ll_number_before(const struct wp_ll_run *run, uint64_t number)
{
    const uint64_t num_halves = (uint64_t)run->ll->plan.num_halves;
    return number > num_halves ? number - num_halves : 0;
}

/* Whether the others are known to have summed the answers in whose slots those of `number` go, which are to `result`. Those
 * before ended a result, as all ranks know, and whoever has sent the rows that are answered now had ended it by then. So
 * where one result follows the other nobody looks. In packets it is so with masks, too: who had gone on without this rank
 * would have sent it none. */
WP_FN int wp_ll_is_room_known(const struct wp_ll_run *run, uint64_t number, uint64_t result)
{
    if (WP_LL_HAS_NODES(&run->ll->plan) ||
        (wp_ll_has_masks(&run->ll->masks) && !wp_ll_has_packets(&run->ll->plan)))
        return 0;
    const struct wp_ll_half before = wp_ll_half_of(run, number);
    return before.use == WP_LL_RESULT_ENDS && before.answered <= wp_ll_number_before(run, result);
}

/* By all warps of the block, when `number` is written: tells all ranks of this node. On GPUs the warp that speaks waits
 * until all that they send has left. */
WP_FN void wp_ll_tell_arrived(const struct wp_ll_run *run, enum wp_ll_mail mail, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    wp_block_sync(warp);
    if (!wp_ll_speaks(warp))
        return;
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (!wp_ll_is_remote(ll, rank) && !wp_ll_is_missing(run, rank))
            wp_signal(warp, rank, wp_ll_word(ll, rank, WP_LL_ARRIVED, mail, own, block), number);
    }
}

/* Room of who leaves. */
#define WP_LL_NEEDS_NOTHING (UINT64_MAX >> 1)

/* By the warp that speaks. */
WP_FN void wp_ll_tell_node_room(const struct wp_ll_run *run, struct wp_ll_room room)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (wp_ll_is_remote(ll, rank) || wp_ll_is_missing(run, rank))
            continue;
        if (room.answers > 0)
            wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_ROOM, WP_LL_ANSWERS, own, block),
                      room.answers);
        if (room.rows > 0)
            wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_ROOM, WP_LL_ROWS, own, block),
                      room.rows);
    }
}

/* By all warps of the block, which have met since they needed rows and answers up to these numbers: tells
 * all ranks that they do so no more. */
WP_FN void wp_ll_tell_room(const struct wp_ll_run *run, struct wp_ll_room room)
{
    struct wp_warp *warp = run->op.warp;
    if (WP_LL_HAS_NODES(&run->ll->plan))
        wp_ll_tell_room_remotely(warp, run->ll, room);
    if (wp_ll_speaks(warp))
        wp_ll_tell_node_room(run, room);
}

/* ------------------------------------------------------------------ rows that have come */

/* Of a block of `source`, once it has told. */
WP_FN struct wp_ll_range wp_ll_range(const struct wp_low_latency *ll, uint64_t number,
                                     int32_t source, int32_t block)
{
    if (!wp_ll_is_put(ll, WP_LL_ROWS, source))
        return *wp_ll_range_of(ll, ll->exchange.rank, number, source, block);
    return wp_ll_remote_range(ll, number, source, block);
}

/* In memory of the warp: what a block of the i-th of some sources has sent. Behind what is found out
 * about each choice of a row. */
enum { WP_LL_RANGES_OFFSET = WEFT_MAX_TOPK * sizeof(int32_t) };
WP_FN struct wp_ll_range *wp_ll_warp_ranges(struct wp_warp *warp)
{
    return (struct wp_ll_range *)((char *)wp_warp_shared(warp) + WP_LL_RANGES_OFFSET);
}
WP_STATIC_ASSERT(WP_LL_RANGES_OFFSET + WP_WARP_SIZE * sizeof(struct wp_ll_range) <=
                     WP_WARP_SHARED_BYTES,
                 "a range for each lane");

/* The i-th source: the ranks after this one, and it last, so that answers to others are on their way while its own are
 * written. */
WP_FN int32_t wp_ll_source(const struct wp_low_latency *ll, int32_t i)
{
    return wp_rank_after(&ll->exchange, i + 1);
}

/* Of the sources from the i-th on, that for this lane. */
WP_FN struct wp_ll_range wp_ll_range_for_lane(const struct wp_ll_run *run, uint64_t number,
                                              int32_t i)
{
    const struct wp_low_latency *ll = run->ll;
    const struct wp_ll_range none = {0, 0};
    const int32_t mine = i + wp_lane_idx(run->op.warp);
    if (mine >= ll->exchange.num_ranks || wp_ll_is_missing(run, wp_ll_source(ll, mine)))
        return none;
    return wp_ll_range(ll, number, wp_ll_source(ll, mine), wp_block_idx(run->op.warp));
}

/* When those before have been used. */
WP_FN void wp_ll_keep_ranges(struct wp_warp *warp, struct wp_ll_range of_lane)
{
    wp_ll_warp_ranges(warp)[wp_lane_idx(warp)] = of_lane;
    wp_warp_sync(warp);
}

/* Warp-wide: reads the ranges of this block of the sources from the i-th on, one for each lane. */
WP_FN void wp_ll_read_ranges(const struct wp_ll_run *run, uint64_t number, int32_t i)
{
    struct wp_warp *warp = run->op.warp;
    wp_warp_sync(warp); /* each lane has waited for some sources; those before have been used */
    wp_ll_keep_ranges(warp, wp_ll_range_for_lane(run, number, i));
}

/* Elements of a part of a row. */
struct wp_ll_elements {
    int32_t first;
    int32_t num;
};
WP_FN struct wp_ll_elements wp_ll_elements_of(const struct wp_ll_plan *plan, struct wp_ll_span span)
{
    const struct wp_ll_elements elements = {(int32_t)(span.begin >> plan->element_bytes_log2),
                                            (int32_t)(span.bytes >> plan->element_bytes_log2)};
    return elements;
}

/* Part of a row of dtype. */
WP_FN struct wp_ll_span wp_ll_span(const struct wp_ll_plan *plan, const struct wp_ll_share *share,
                                   int32_t part)
{
    return wp_ll_part_span(share, part, (uint32_t)plan->hidden << plan->element_bytes_log2);
}

/* Warp-wide: the place in a list of what the lane has for it, if anything; the list grows. */
WP_FN int32_t wp_ll_list(struct wp_warp *warp, int32_t *num_listed, int has_one)
{
    const uint32_t lanes = wp_ballot(warp, has_one);
    const int32_t place = *num_listed + wp_lanes_below(warp, lanes);
    *num_listed += wp_popcount(lanes);
    return place;
}

WP_FN int wp_ll_is_quantised(const struct wp_ll_plan *plan)
{
    return plan->quantisation.dst_dtype != plan->dtype;
}
