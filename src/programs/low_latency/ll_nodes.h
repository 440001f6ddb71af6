/* SPDX-License-Identifier: MIT */
/*
 * How a rank reaches the area of a rank of another node, which is not mapped. It stages in memory
 * of the network what it would store there. A put brings that to the same slot:
 *
 *     rows of a block for a rank    one put to its slots; the word that comes with it says which
 *     answers of a block to a rank  one put: their slots there lie one behind the other
 *     a head                        one put
 *     credit, the announced wait    an addition to a word
 *     the return of a masked rank   a signal, behind all that it has put before
 *
 * The network may bring a later put first, and words can only be added to. So each buffer has its
 * own arrival word. What it grows by describes one operation; the receiver remembers the old value.
 * Words of credit are plain counters. Staged slots, and slots for answers, belong to one block. So
 * a block that has its own credit overwrites nothing that another block has in flight.
 *
 * With masks each rank has its own staged slots and its own slots for answers, since a put to a
 * rank that was masked since may still be in flight.
 */
#pragma once

#include "programs/low_latency/ll_layout.h"

#define WP_LL_NODES(remote, near) (remote) /* ll_launch.h */

/* ------------------------------------------------------------------ partners */

/* Which ranks of other nodes a rank reaches through a partner, which relays (ll_relay.h). Without
 * relays, it reaches each of them itself. */

/* Whether rows between this rank and another rank are relayed. */
WP_FN int wp_ll_is_relayed(const struct wp_low_latency *ll, int32_t rank)
{
    return WP_LL_HAS_RELAYS(&ll->plan) && wp_ll_is_remote(ll, rank);
}

/* Whether answers between this rank and another rank are summed by a partner. */
WP_FN int wp_ll_is_summed(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_is_relayed(ll, rank) && wp_ll_has_node_sums(&ll->plan);
}

/* 1: a word of the network announces the payload of the rank. 0: it is rows, which the partner
 * announces. */
WP_FN int wp_ll_is_put(const struct wp_low_latency *ll, enum wp_ll_payload payload, int32_t rank)
{
    return wp_ll_is_remote(ll, rank) && !(payload == WP_LL_ROWS && wp_ll_is_relayed(ll, rank));
}

/* The rank of a node that relays for a rank of another node: the one with the same index in its
 * node. In a node with fewer ranks, they take turns. */
WP_FN int32_t wp_ll_partner(const struct wp_low_latency *ll, int32_t rank, int32_t node)
{
    const struct wp_nodes *nodes = &ll->network.nodes;
    return wp_node_rank(nodes, node, nodes->local_idxs[rank] % nodes->sizes[node]);
}

/* The rank that relays to this one for a rank of another node. */
WP_FN int32_t wp_ll_forwarder(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_partner(ll, rank, ll->network.nodes.node);
}

enum wp_ll_direction { WP_LL_FROM /* a rank */, WP_LL_TO };

/* Whether payload is put from or to a rank of another node. If it is relayed, only partners do so:
 * rows go to the rank that relays them, sums of answers to the ranks whose rows it has relayed. */
WP_FN int wp_ll_exchanges(const struct wp_low_latency *ll, enum wp_ll_payload payload,
                          enum wp_ll_direction direction, int32_t rank)
{
    const int is_answer = payload == WP_LL_ANSWERS;
    if (is_answer ? !wp_ll_is_summed(ll, rank) : !wp_ll_is_relayed(ll, rank))
        return 1;
    return is_answer == (direction == WP_LL_TO) /* this rank relays */
               ? wp_ll_forwarder(ll, rank) == ll->exchange.rank
               : wp_ll_partner(ll, ll->exchange.rank, ll->network.node_of_rank[rank]) == rank;
}

/* The rank that signals that a rank's payload has come. */
WP_FN int32_t wp_ll_word_sender(const struct wp_low_latency *ll, enum wp_ll_payload payload,
                                int32_t rank)
{
    return payload == WP_LL_ROWS && rank != WP_NO_RANK && wp_ll_is_relayed(ll, rank)
               ? wp_ll_forwarder(ll, rank)
               : rank;
}

/* ------------------------------------------------------------------ memory of the network */

/* The sets of words of blocks: arrived for each buffer, credit and returned, of both payloads, or
 * steps. */
WP_FN uint64_t wp_ll_num_block_sets(const struct wp_ll_plan *plan)
{
    return WP_LL_NUM_PAYLOADS * ((uint64_t)plan->num_buffers + 2);
}

/* Behind them, words of ranks: of heads for each buffer, and of announced waits. */
WP_FN uint64_t wp_ll_network_words_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    const uint64_t num_blocks = (uint64_t)plan->num_blocks;
    const uint64_t num_of_ranks = (uint64_t)plan->num_buffers + 1;
    return wp_ll_align((wp_ll_num_block_sets(plan) * num_blocks + num_of_ranks) *
                       (uint64_t)num_ranks * sizeof(uint64_t));
}

/* In a table of sets of words: the word of a block of `rank`. */
WP_FN uint64_t wp_ll_block_word(const struct wp_low_latency *ll, uint64_t set, int32_t rank,
                                int32_t block)
{
    return (set * (uint64_t)ll->exchange.num_ranks + (uint64_t)rank) *
               (uint64_t)ll->plan.num_blocks +
           (uint64_t)block;
}

/* The set of words of `number`, if they are WP_LL_ARRIVED. */
WP_FN uint64_t wp_ll_word_set(const struct wp_low_latency *ll, enum wp_ll_words words,
                              enum wp_ll_payload payload, uint64_t number)
{
    const uint64_t num_buffers = (uint64_t)ll->plan.num_buffers;
    return words == WP_LL_ARRIVED
               ? (uint64_t)payload * num_buffers + wp_ll_buffer(&ll->plan, number)
               : WP_LL_NUM_PAYLOADS * (num_buffers + (uint64_t)words - WP_LL_CREDIT) +
                     (uint64_t)payload;
}

/* Offset, in every rank's memory of the network, of a word of a block of `rank`. */
WP_FN uint64_t wp_ll_network_word(const struct wp_low_latency *ll, enum wp_ll_words words,
                                  enum wp_ll_payload payload, uint64_t number, int32_t rank,
                                  int32_t block)
{
    return wp_ll_block_word(ll, wp_ll_word_set(ll, words, payload, number), rank, block) *
           sizeof(uint64_t);
}

WP_FN uint64_t wp_ll_network_rank_word(const struct wp_low_latency *ll, uint64_t set, int32_t rank)
{
    const uint64_t idx = set * (uint64_t)ll->exchange.num_ranks + (uint64_t)rank;
    return (wp_ll_block_word(ll, wp_ll_num_block_sets(&ll->plan), 0, 0) + idx) * sizeof(uint64_t);
}

/* Offset of the word of its expert counts. */
WP_FN uint64_t wp_ll_network_head_word(const struct wp_low_latency *ll, uint64_t number,
                                       int32_t rank)
{
    return wp_ll_network_rank_word(ll, wp_ll_buffer(&ll->plan, number), rank);
}

/* Offset of the word of its announced waits. */
WP_FN uint64_t wp_ll_network_waits(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_network_rank_word(ll, (uint64_t)ll->plan.num_buffers, rank);
}

WP_FN uint64_t wp_ll_network_head(const struct wp_low_latency *ll, enum wp_ll_direction direction,
                                  uint64_t number, int32_t rank)
{
    const uint64_t buffer =
        (uint64_t)direction * (uint64_t)ll->plan.num_buffers + wp_ll_buffer(&ll->plan, number);
    const uint64_t idx = buffer * (uint64_t)ll->exchange.num_ranks + (uint64_t)rank;
    return ll->network.heads_offset + idx * ll->offsets.head_bytes;
}

/* The index of a block's first staged thing, of which a buffer has `num` sets for each block. */
WP_FN uint64_t wp_ll_staged_idx(const struct wp_low_latency *ll, uint64_t number, uint64_t num,
                                int32_t i, int32_t block)
{
    return (wp_ll_buffer(&ll->plan, number) * num + (uint64_t)i) * (uint64_t)ll->plan.num_blocks +
           (uint64_t)block;
}

/* a block's staged answers to the i-th of some ranks. */
WP_FN uint64_t wp_ll_staged_answer(const struct wp_low_latency *ll, uint64_t number, int32_t i,
                                   int32_t block, int32_t answer)
{
    const uint64_t idx = wp_ll_staged_idx(ll, number, (uint64_t)ll->network.num_answered, i, block);
    return ll->network.answers_offset +
           (idx * (uint64_t)ll->network.staged_answers + (uint64_t)answer) * ll->plan.answer_bytes;
}

WP_FN uint64_t *wp_ll_own_word(const struct wp_low_latency *ll, uint64_t word)
{
    return (uint64_t *)(void *)(ll->network.memory + word);
}

/* ------------------------------------------------------------------ puts */

/* num_bytes from `staged` in memory of the network to `offset` in the area of a rank, and then
 * `add` to a word there. */
struct wp_ll_put {
    int32_t rank;
    uint64_t staged, offset, num_bytes, add;
};

/* Warp-wide. `word` is an offset in memory of the network. */
WP_FN void wp_ll_post(struct wp_warp *warp, const struct wp_low_latency *ll,
                      enum wp_access_operation operation, const struct wp_ll_put *put,
                      uint64_t word, enum wp_access_start start)
{
    const uint64_t place = ll->network.place;
    const struct wp_access access = {operation,
                                     put->rank,
                                     place + put->staged,
                                     ll->area_offset + put->offset,
                                     put->num_bytes,
                                     place + word,
                                     put->add,
                                     WP_ACCESS_MAY_BE_LOST,
                                     start,
                                     WP_ACCESS_ADDED_BY_NETWORK,
                                     wp_ll_period_ms(&ll->masks),
                                     0};
    wp_remote_post(warp, &access);
}

/* Warp-wide: puts a payload of this block. */
WP_FN void wp_ll_put_payload(struct wp_warp *warp, const struct wp_low_latency *ll,
                             enum wp_ll_payload payload, uint64_t number,
                             const struct wp_ll_put *put)
{
    wp_ll_post(warp, ll, WP_ACCESS_PUT_SIGNAL, put,
               wp_ll_network_word(ll, WP_LL_ARRIVED, payload, number, ll->exchange.rank,
                                  wp_block_idx(warp)),
               WP_ACCESS_AT_ONCE);
}

/* Warp-wide: adds 1 to a word of a rank. */
WP_FN void wp_ll_post_word(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank,
                           uint64_t word, enum wp_access_start start)
{
    const struct wp_ll_put put = {rank, 0, 0, 0, 1};
    wp_ll_post(warp, ll, WP_ACCESS_PUT_SIGNAL, &put, word, start);
}

/* ------------------------------------------------------------------ what has arrived */

/* The value of an arrival word before the next operation. */
WP_FN uint64_t *wp_ll_taken(const struct wp_low_latency *ll, enum wp_ll_payload payload,
                            uint64_t number, int32_t rank, int32_t block)
{
    return ll->network.taken +
           wp_ll_block_word(ll, wp_ll_word_set(ll, WP_LL_ARRIVED, payload, number), rank, block);
}

/* The value that rows add to their word. It is never 0. */
WP_FN uint64_t wp_ll_range_word(const struct wp_low_latency *ll, struct wp_ll_range range)
{
    return ((uint64_t)range.first << ll->network.range_bits | (uint64_t)range.num_rows) + 1;
}

/* Answers add WP_LL_ANSWERED. */
enum { WP_LL_ANSWERED = 1 };

/* The slots that have come from a rank that puts rows, as their word says. */
WP_FN struct wp_ll_range wp_ll_remote_range(const struct wp_low_latency *ll, uint64_t number,
                                            int32_t source, int32_t block)
{
    const uint64_t word = wp_ll_network_word(ll, WP_LL_ARRIVED, WP_LL_ROWS, number, source, block);
    const uint64_t grown =
        *wp_ll_own_word(ll, word) - *wp_ll_taken(ll, WP_LL_ROWS, number, source, block);
    const int32_t range_bits = ll->network.range_bits;
    const struct wp_ll_range range = {(int32_t)((grown - 1) >> range_bits),
                                      (int32_t)((grown - 1) & ((UINT64_C(1) << range_bits) - 1))};
    return range;
}

/* The slots that have come from any rank. */
WP_FN struct wp_ll_range wp_ll_told_range(const struct wp_low_latency *ll, uint64_t number,
                                          int32_t source, int32_t block)
{
    if (!wp_ll_is_put(ll, WP_LL_ROWS, source))
        return *wp_ll_range_of(ll, ll->exchange.rank, number, source, block);
    return wp_ll_remote_range(ll, number, source, block);
}

/* Returns 1 if a block of `rank` signals no such word in this node. Then it finds the word of the
 * network that is signalled, if any. */
WP_FN int wp_ll_is_told_remotely(const struct wp_low_latency *ll, enum wp_ll_words words,
                                 enum wp_ll_payload payload, int32_t rank, int32_t block,
                                 uint64_t number, struct wp_ll_awaited *told)
{
    const int is_remote = wp_ll_is_remote(ll, rank);
    const enum wp_ll_payload told_of = payload == WP_LL_RELAYS ? WP_LL_ROWS : payload;
    if (words == WP_LL_CREDIT && !wp_ll_exchanges(ll, payload, WP_LL_TO, rank))
        return 1;
    if (words == WP_LL_ARRIVED && payload != WP_LL_ROWS && /* rows come of all, some by partners */
        !((is_remote || payload != WP_LL_RELAYS) && wp_ll_exchanges(ll, payload, WP_LL_FROM, rank)))
        return 1;
    if (!is_remote || (words != WP_LL_CREDIT && !wp_ll_is_put(ll, payload, rank)))
        return 0;
    told->word = wp_ll_own_word(ll, wp_ll_network_word(ll, words, told_of, number, rank, block));
    told->at_least =
        words == WP_LL_ARRIVED ? *wp_ll_taken(ll, told_of, number, rank, block) + 1 : number;
    return 1;
}

/* Returns 1 if the word of `rank` that has come is above what was awaited. Then that value must be
 * awaited: it describes what has come. Nothing more is added before there is credit. */
WP_FN int wp_ll_says_more(const struct wp_low_latency *ll, enum wp_ll_words words,
                          enum wp_ll_payload payload, int32_t rank, struct wp_ll_awaited *told)
{
    const uint64_t awaited = told->at_least;
    if (told->word == NULL || words != WP_LL_ARRIVED || !wp_ll_is_put(ll, payload, rank))
        return 0;
    told->at_least = *told->word;
    return told->at_least > awaited;
}

/* Warp-wide: receives the head of a rank of another node, or waits for a period in vain. */
WP_FN enum wp_status wp_ll_take_remote_head(struct wp_warp *warp, const struct wp_low_latency *ll,
                                            uint64_t number, int32_t *counts,
                                            const struct wp_wait_site *site)
{
    const uint64_t at = wp_ll_network_head(ll, WP_LL_FROM, number, site->rank);
    const int32_t *head = (const int32_t *)(const void *)(ll->network.memory + at);
    const uint64_t num_buffers = (uint64_t)ll->plan.num_buffers;
    /* How many numbers have used this buffer: of one or two. */
    const uint64_t lap = (number + num_buffers - 1) >> (num_buffers - 1);
    enum wp_status status = wp_wait(
        warp, wp_ll_own_word(ll, wp_ll_network_head_word(ll, number, site->rank)), lap, site);
    status = (enum wp_status)wp_max_u32(warp, (uint32_t)status);
    for (int32_t i = wp_lane_idx(warp); i < ll->plan.max_local_experts && status == WP_STATUS_OK;
         i += WP_WARP_SIZE)
        counts[i] = head[i];
    return status;
}

/* ------------------------------------------------------------------ announced waits */

/* How often a rank of another node has announced a wait. Nobody else changes the word: a NIC's adds
 * are atomic among each other alone. */
WP_FN uint64_t wp_ll_waits_told(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank)
{
    const uint64_t word = wp_ll_network_waits(ll, rank);
    const struct wp_wait_site site = {WP_PHASE_START, rank, 0, ll->network.place + word, 0};
    uint64_t told;
    wp_wait_value(warp, wp_ll_own_word(ll, word), 0, &site, &told); /* any value will do */
    return told;
}

/* Warp-wide: announces this rank's wait to the ranks of other nodes that `mask` does not mask. */
WP_FN void wp_ll_send_waits_remotely(struct wp_warp *warp, const struct wp_low_latency *ll,
                                     const int32_t *mask)
{
    for (int32_t i = 0; WP_LL_HAS_NODES(&ll->plan) && i < ll->network.num_remote; i++) {
        const int32_t rank = ll->network.ranks[i];
        if (wp_ballot(warp, wp_load_relaxed(&mask[rank]) != 0) == 0)
            wp_ll_post_word(warp, ll, rank, wp_ll_network_waits(ll, ll->exchange.rank),
                            WP_ACCESS_AT_ONCE);
    }
}

/* ------------------------------------------------------------------ credit */

/* Warp-wide: gives a rank credit for `number`, unless it is 0 or the rank sends no such payload
 * here. With two results the rank needs the credit only after another result. So the credit goes
 * with the next rows: alone it is as much work for TCP as the rows are (a step of one token between
 * two hosts takes 39 us, not 46; 2 cores of an AMD EPYC, 2026-11-28). */
WP_FN void wp_ll_post_credit(struct wp_warp *warp, const struct wp_low_latency *ll,
                             enum wp_ll_payload payload, uint64_t number, int32_t rank)
{
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    if (number == 0 || !wp_ll_exchanges(ll, payload, WP_LL_FROM, rank))
        return;
    if (wp_lane_idx(warp) == 0) /* the payload of `number` is no longer needed */
        *wp_ll_taken(ll, payload, number, rank, block) = *wp_ll_own_word(
            ll, wp_ll_network_word(ll, WP_LL_ARRIVED, payload, number, rank, block));
    wp_ll_post_word(warp, ll, rank, wp_ll_network_word(ll, WP_LL_CREDIT, payload, 0, own, block),
                    ll->plan.num_buffers > 1 ? WP_ACCESS_WITH_THE_NEXT : WP_ACCESS_AT_ONCE);
}

/* All warps of the block call this. It gives credit to the ranks of other nodes. The two credits of
 * a rank follow each other, so that they can share a message. */
WP_FN void wp_ll_give_remote_credit(struct wp_warp *warp, const struct wp_low_latency *ll,
                                    struct wp_ll_credit credit)
{
    for (int32_t i = wp_warp_idx(warp); WP_LL_HAS_NODES(&ll->plan) && i < ll->network.num_remote;
         i += wp_num_warps(warp)) {
        const int32_t rank = ll->network.ranks[i];
        if (wp_ll_warp_masks(warp, &ll->masks, rank))
            continue;
        wp_ll_post_credit(warp, ll, WP_LL_ANSWERS, credit.answers, rank);
        wp_ll_post_credit(warp, ll, WP_LL_ROWS, credit.rows, rank);
    }
}
