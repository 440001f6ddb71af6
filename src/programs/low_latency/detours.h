/* SPDX-License-Identifier: MIT */
/*
 * Low latency through partners (low_latency/relay.h), with masks: rows that a partner was to relay and does not, and the
 * way around him. Between any two ranks all is as by the straight route: heads, answers, room, and the word that tells of
 * rows are theirs alone. Only the rows themselves come by the partner, and the word says so; their source sums what
 * the ranks of a node answer itself, in the same order.
 *
 *     source     one message to each partner; to each other rank a word: which rows, and that they are brought
 *     partner    relays what has come, into slots that nobody else writes to; tells the ranks of his node for each source
 *                that it is there, or, where he has masked the source, that it lacks
 *     receiver   awaits the source's word, then the partner's, and copies rows into the source's slots. If the partner is
 *                missing, or tells that they lack, then there are none: it answers that it had no rows
 *     source     takes such an answer for none, and from then on sends its rows to that rank straight; as to all ranks
 *                of a node whose partner it has masked
 *
 * So whoever waits for a rank knows what for, and masks none but the one that is silent: a source is not masked for want of
 * its partner, nor he for want of the source. What is lost is what partners have under way when they, or their
 * connections, are lost, at most of the results that are outstanding then; both sides tell of it (WP_LL_LACKING).
 *
 *     the partner dies before he has relayed      rows lack at the others of his node, in this step and those that
 *                                                 were sent before their sources know; all else comes
 *     after he has relayed                        as without partners: only his own answers are missing
 *     the source dies                             the partner masks it, and tells that its rows lack; the others wait for
 *                                                 the source's own word, too, and mask it
 *     a receiver dies                             nobody waits for it: who relays to it masks it, or writes in vain
 *     two mask each other, and the others do not  source and partner: straight, or it lacks once; partner and receiver:
 *                                                 lacks once, then straight; source and receiver: as without partners
 *     a partner stopped comes back late           he writes to slots and words of his own, which nobody reads who has
 *                                                 masked him
 *     he returns (low_latency_unmask.c)           who clears waits until he has stopped; all is relayed again
 *
 * That a source sends straight is its own choice, of which each word tells: nothing is agreed upon.
 */
#pragma once

#include "programs/low_latency/pack.h"
#include "programs/low_latency/relay.h"

/* Whether rows are brought, of a source of another node that has told of them. */
WP_FN int wp_ll_comes_brought(const struct wp_ll_taker *taker, int32_t source)
{
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t block = wp_block_idx(taker->run->op.warp);
    return wp_ll_relays_for(ll, source) ||
           (wp_ll_remote_range(ll, taker->number, source, block).num_rows &
            wp_ll_brought_flag(ll)) != 0;
}

/* Which rows a source has sent. The partner's word is of his message. */
WP_FN struct wp_ll_range wp_ll_sent_range(const struct wp_ll_taker *taker, int32_t source)
{
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t block = wp_block_idx(taker->run->op.warp);
    if (wp_ll_relays_for(ll, source))
        return *wp_ll_range_of(ll, ll->exchange.rank, taker->number, source, block);
    struct wp_ll_range range = wp_ll_remote_range(ll, taker->number, source, block);
    range.num_rows &= ~wp_ll_brought_flag(ll);
    return range;
}

/* By one lane: remembers which rows have come. */
WP_FN void wp_ll_settle_range(const struct wp_ll_taker *taker, int32_t source)
{
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(taker->run->op.warp);
    struct wp_ll_range range = wp_ll_sent_range(taker, source);
    if (wp_ll_comes_brought(taker, source) &&
        (wp_ll_is_missing(taker->run, wp_ll_bringer(ll, source)) ||
         wp_ll_range_of(ll, own, taker->number, source, block)->num_rows == WP_LL_ROWS_LACK)) {
        range.first += range.num_rows;
        range.num_rows = WP_LL_ROWS_LACK;
        wp_ll_note_lacking(taker->run, source);
    }
    *wp_ll_come_range(ll, taker->number, source, block) = range;
}

/* By all warps, which meet afterwards. */
WP_FN void wp_ll_settle_ranges(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_ll_network *network = &taker->args->ll.network;
    for (int32_t i = wp_ll_thread_idx(warp); i < network->num_remote; i += wp_ll_num_threads(warp))
        if (!wp_ll_is_missing(taker->run, network->ranks[i]))
            wp_ll_settle_range(taker, network->ranks[i]);
    wp_block_sync(warp);
}

/* A part of a row that has been brought, to the source's slot. */
WP_FN void wp_ll_take_part(const struct wp_ll_taker *taker, int32_t source, int32_t idx,
                           int32_t part)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const struct wp_ll_span span =
        wp_ll_part_span(&ll->share_of_sources, part, (uint32_t)ll->plan.slot.bytes);
    const int32_t own = ll->exchange.rank;
    const char *from =
        wp_ll_brought_row(ll, own, taker->number, wp_ll_brought_idx(ll, source), idx);
    if (span.bytes == 0)
        return;
    wp_warp_sync(warp); /* the pointers before have been used */
    if (wp_lane_idx(warp) == 0)
        wp_warp_pointers(warp)[0] = wp_ll_row(ll, own, taker->number, source, idx) + span.begin;
    wp_warp_sync(warp);
    wp_row_copy(warp, wp_warp_pointers(warp), 1, from + span.begin, span.bytes);
}

/* By all warps, when this block of all sources has told, and of all partners who bring rows. */
WP_FN void wp_ll_take_brought(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const struct wp_ll_share *share = &ll->share_of_sources;
    int32_t unit = wp_warp_idx(warp); /* of those of all sources: from the i-th one's first on */
    wp_ll_settle_ranges(taker);
    for (int32_t i = 0; i < ll->network.num_remote; i++) {
        const int32_t source = ll->network.ranks[i];
        if (wp_ll_is_missing(taker->run, source) || !wp_ll_comes_brought(taker, source))
            continue;
        const struct wp_ll_range range = wp_ll_range(ll, taker->number, source, wp_block_idx(warp));
        const int32_t num_units = range.num_rows << share->parts_log2;
        for (; unit < num_units; unit += wp_num_warps(warp)) {
            const struct wp_part at = wp_ll_unit_part(share, unit);
            wp_ll_take_part(taker, source, range.first + at.token, at.part);
        }
        unit -= num_units;
    }
    wp_block_sync(warp);
}
