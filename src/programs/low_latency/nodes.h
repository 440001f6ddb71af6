/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/low_latency/layout.h"

/* ================== partners */

/* Which ranks of other nodes a rank reaches through a partner, which relays (relay.h). Without relays,
 * it reaches each of them itself. */

/* On one node, nothing is loaded for this. */
WP_FN int wp_ll_is_remote(const struct wp_low_latency *ll, int32_t rank)
{
    return WP_LL_HAS_NODES(&ll->plan) && ll->exchange.bases[rank] == NULL;
}

/* Whether answers to `source` stay in this rank's slots, where `source` reads them. */
WP_FN int wp_ll_stays(const struct wp_low_latency *ll, int32_t source)
{
    return ll->plan.answers_stay && !wp_ll_is_remote(ll, source);
}

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

/* Whether only the partner signals that a rank's mail has come. */
WP_FN int wp_ll_is_brought(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return mail == WP_LL_ROWS && wp_ll_is_relayed(ll, rank);
}

/* Whether a word of the network tells that a rank's mail has come. */
WP_FN int wp_ll_is_put(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return wp_ll_is_remote(ll, rank) && !wp_ll_is_brought(ll, mail, rank);
}

/* The rank of a node that relays for a rank of another node: the one with the same index in its node.
 * In a node with fewer ranks, they take turns. */
WP_FN int32_t wp_ll_partner(const struct wp_low_latency *ll, int32_t rank, int32_t node)
{
    const struct wp_nodes *nodes = &ll->network.nodes;
    return wp_node_rank(nodes, node, nodes->local_idxs[rank] % nodes->sizes[node]);
}

/* The rank that relays to this one for a rank of another node. */
WP_FN int32_t wp_ll_bringer(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_partner(ll, rank, ll->network.nodes.node);
}

/* Whether this rank relays for it. */
WP_FN int wp_ll_relays_for(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_bringer(ll, rank) == ll->exchange.rank;
}

/* Whether `rank` of another node relays for this rank. */
WP_FN int wp_ll_is_relayed_by(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_partner(ll, ll->exchange.rank, ll->network.node_of_rank[rank]) == rank;
}

/* Whether only partners exchange a mail between nodes. */
WP_FN int wp_ll_is_of_partners(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return mail == WP_LL_ANSWERS ? wp_ll_is_summed(ll, rank) : wp_ll_is_relayed(ll, rank);
}

/* Whether this rank puts mail to a rank of another node: rows to the rank that relays them, sums of
 * answers to the ranks whose rows it has relayed. */
WP_FN int wp_ll_puts_to(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    if (!wp_ll_is_of_partners(ll, mail, rank))
        return 1;
    return mail == WP_LL_ANSWERS ? wp_ll_relays_for(ll, rank) : wp_ll_is_relayed_by(ll, rank);
}

/* Whether that rank puts mail to this one. */
WP_FN int wp_ll_gets_puts_of(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    if (!wp_ll_is_of_partners(ll, mail, rank))
        return 1;
    return mail == WP_LL_ANSWERS ? wp_ll_is_relayed_by(ll, rank) : wp_ll_relays_for(ll, rank);
}

/* Whether a rank signals such a word of this rank at all. */
WP_FN int wp_ll_is_told_by(const struct wp_low_latency *ll, enum wp_ll_words words,
                           enum wp_ll_mail mail, int32_t rank)
{
    const int is_remote = wp_ll_is_remote(ll, rank);
    if (words == WP_LL_ROOM)
        return wp_ll_puts_to(ll, mail, rank);
    if (words == WP_LL_ARRIVED && mail != WP_LL_ROWS) /* rows come of all, some by partners */
        return (is_remote || mail != WP_LL_RELAYS) && wp_ll_gets_puts_of(ll, mail, rank);
    return 1;
}

/* The rank that signals that a rank's mail has come. */
WP_FN int32_t wp_ll_teller(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return wp_ll_is_brought(ll, mail, rank) ? wp_ll_bringer(ll, rank) : rank;
}

/* ================== the network */

/*
 * How a rank reaches the area of a rank of another node, which is not mapped. It stages in memory of the
 * network what it would store there. A put brings that to the same slot:
 *
 *     rows of a block for a rank    one put to its slots; the word that comes with it says which
 *     answers of a block to a rank  one put: their slots there lie one behind the other
 *     a head                        one put
 *     credit, the announced wait    an addition to a word
 *     the return of a masked rank   a signal, behind all that it has put before
 *
 * The network may bring a later put first, and words can only be added to. So each half has its own
 * arrival word. What it grows by describes one operation; the receiver remembers the old value. Words of
 * credit are plain counters. Staged slots, and slots for answers, belong to one block. So a block that
 * has its own credit overwrites nothing that another block has in flight.
 *
 * With masks each rank has its own staged slots and its own slots for answers, since a put to a rank
 * that was masked since may still be in flight.
 */

/* ------------------------------------------------------------------ memory of the network */

WP_FN uint64_t wp_ll_block_words(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return (uint64_t)num_ranks * (uint64_t)plan->num_blocks;
}

/* The sets of words of blocks: arrived for each half, room and returned, of both mails, or steps. */
WP_FN uint64_t wp_ll_num_block_sets(const struct wp_ll_plan *plan)
{
    return WP_LL_NUM_MAILS * ((uint64_t)plan->num_halves + 2);
}

/* Behind them, words of ranks: of heads for each half, and of announced waits. */
WP_FN uint64_t wp_ll_network_words_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    const uint64_t num_of_ranks = ((uint64_t)plan->num_halves + 1) * (uint64_t)num_ranks;
    return wp_ll_align(
        (wp_ll_num_block_sets(plan) * wp_ll_block_words(plan, num_ranks) + num_of_ranks) *
        sizeof(uint64_t));
}

WP_FN uint64_t wp_ll_network_block_word(const struct wp_low_latency *ll, uint64_t set, int32_t rank,
                                        int32_t block)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    return (set * wp_ll_block_words(&ll->plan, num_ranks) +
            (uint64_t)rank * (uint64_t)ll->plan.num_blocks + (uint64_t)block) *
           sizeof(uint64_t);
}

/* Offsets in every rank's memory of the network: the words of a block of `rank`, */
WP_FN uint64_t wp_ll_network_arrived(const struct wp_low_latency *ll, enum wp_ll_mail mail,
                                     uint64_t number, int32_t rank, int32_t block)
{
    const uint64_t half = wp_ll_half(&ll->plan, number);
    return wp_ll_network_block_word(ll, (uint64_t)mail * (uint64_t)ll->plan.num_halves + half, rank,
                                    block);
}

WP_FN uint64_t wp_ll_network_room(const struct wp_low_latency *ll, enum wp_ll_mail mail,
                                  int32_t rank, int32_t block)
{
    const uint64_t num_arrived = WP_LL_NUM_MAILS * (uint64_t)ll->plan.num_halves;
    return wp_ll_network_block_word(ll, num_arrived + (uint64_t)mail, rank, block);
}

WP_FN uint64_t wp_ll_network_returned(const struct wp_low_latency *ll, enum wp_ll_mail step,
                                      int32_t rank, int32_t block)
{
    const uint64_t num_before = WP_LL_NUM_MAILS * ((uint64_t)ll->plan.num_halves + 1);
    return wp_ll_network_block_word(ll, num_before + (uint64_t)step, rank, block);
}

WP_FN uint64_t wp_ll_network_rank_word(const struct wp_low_latency *ll, uint64_t set, int32_t rank)
{
    const uint64_t idx = set * (uint64_t)ll->exchange.num_ranks + (uint64_t)rank;
    return wp_ll_network_block_word(ll, wp_ll_num_block_sets(&ll->plan), 0, 0) +
           idx * sizeof(uint64_t);
}

/* the word of its heads, */
WP_FN uint64_t wp_ll_network_head_word(const struct wp_low_latency *ll, uint64_t number,
                                       int32_t rank)
{
    return wp_ll_network_rank_word(ll, wp_ll_half(&ll->plan, number), rank);
}

/* the word of its announced waits, */
WP_FN uint64_t wp_ll_network_waits(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_network_rank_word(ll, (uint64_t)ll->plan.num_halves, rank);
}

enum wp_ll_direction { WP_LL_FROM /* a rank */, WP_LL_TO };

WP_FN uint64_t wp_ll_network_head(const struct wp_low_latency *ll, enum wp_ll_direction direction,
                                  uint64_t number, int32_t rank)
{
    const uint64_t half =
        (uint64_t)direction * (uint64_t)ll->plan.num_halves + wp_ll_half(&ll->plan, number);
    const uint64_t idx = half * (uint64_t)ll->exchange.num_ranks + (uint64_t)rank;
    return ll->network.heads_offset + idx * ll->offsets.head_bytes;
}

/* a block's staged rows, and its staged answers to the i-th of some ranks. */
WP_FN uint64_t wp_ll_staged_row(const struct wp_low_latency *ll, uint64_t number, int32_t block,
                                int32_t row)
{
    const uint64_t idx =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.num_blocks + (uint64_t)block;
    return ll->network.rows_offset +
           (idx * (uint64_t)ll->network.staged_rows + (uint64_t)row) * ll->plan.slot.bytes;
}

WP_FN uint64_t wp_ll_staged_answer(const struct wp_low_latency *ll, uint64_t number, int32_t i,
                                   int32_t block, int32_t answer)
{
    const uint64_t answered =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->network.num_answered + (uint64_t)i;
    const uint64_t idx = answered * (uint64_t)ll->plan.num_blocks + (uint64_t)block;
    return ll->network.answers_offset +
           (idx * (uint64_t)ll->network.staged_answers + (uint64_t)answer) * ll->plan.answer_bytes;
}

/* The number of nodes from this one to another. */
WP_FN int32_t wp_ll_hops_to(const struct wp_nodes *nodes, int32_t node)
{
    return node > nodes->node ? node - nodes->node : node - nodes->node + nodes->num_nodes;
}

/* The offset of a block's message for the partner in another node. */
WP_FN uint64_t wp_ll_staged_message(const struct wp_low_latency *ll, uint64_t number, int32_t block,
                                    int32_t node)
{
    const uint64_t idx =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.num_blocks + (uint64_t)block;
    const uint64_t num_others = (uint64_t)ll->plan.message.num_nodes - 1;
    return ll->network.messages_offset +
           (idx * num_others + (uint64_t)wp_ll_hops_to(&ll->network.nodes, node) - 1) *
               ll->plan.message.bytes;
}

WP_FN uint64_t *wp_ll_own_word(const struct wp_low_latency *ll, uint64_t word)
{
    return (uint64_t *)(void *)(ll->network.memory + word);
}

/* ------------------------------------------------------------------ puts */

/* All lanes get the same answer, although lanes may see a mask at different times. */
WP_FN int wp_ll_warp_masks(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_has_masks(&ll->masks) && wp_ballot(warp, wp_ll_is_masked(&ll->masks, rank)) != 0;
}

/* Warp-wide: num_bytes from `staged` to `offset` in the area of `rank`, and then `add` to a word. */
struct wp_ll_put {
    int32_t rank;
    uint64_t staged, offset, num_bytes; /* of memory of the network, and of the area */
    uint64_t word, add;
    enum wp_access_start start;
};

WP_FN void wp_ll_post(struct wp_warp *warp, const struct wp_low_latency *ll,
                      const struct wp_ll_put *put)
{
    const uint64_t place = ll->network.place;
    const struct wp_access access = {WP_ACCESS_PUT_SIGNAL,
                                     put->rank,
                                     place + put->staged,
                                     ll->area_offset + put->offset,
                                     put->num_bytes,
                                     place + put->word,
                                     put->add,
                                     WP_ACCESS_MAY_BE_LOST,
                                     put->start,
                                     0};
    wp_remote_post(warp, &access);
}

/* ------------------------------------------------------------------ what has arrived */

/* How many numbers have used the half of `number`, with it. */
WP_FN uint64_t wp_ll_lap(const struct wp_ll_plan *plan, uint64_t number)
{
    return (number + (uint64_t)plan->num_halves - 1) >> (plan->num_halves - 1); /* of one or two */
}

/* The value of an arrival word before the next operation. */
WP_FN uint64_t *wp_ll_taken(const struct wp_low_latency *ll, enum wp_ll_mail mail, uint64_t number,
                            int32_t rank, int32_t block)
{
    const uint64_t set =
        (uint64_t)mail * (uint64_t)ll->plan.num_halves + wp_ll_half(&ll->plan, number);
    return ll->network.taken + set * wp_ll_block_words(&ll->plan, ll->exchange.num_ranks) +
           (uint64_t)rank * (uint64_t)ll->plan.num_blocks + (uint64_t)block;
}

/* By how much an arrival word has grown with the last operation. Answers add WP_LL_ANSWERED. */
enum { WP_LL_ANSWERED = 1 };
WP_FN uint64_t wp_ll_told_value(const struct wp_low_latency *ll, enum wp_ll_mail mail,
                                uint64_t number, int32_t rank, int32_t block)
{
    return *wp_ll_own_word(ll, wp_ll_network_arrived(ll, mail, number, rank, block)) -
           *wp_ll_taken(ll, mail, number, rank, block);
}

/* The value that rows add to their word. It is never 0. */
WP_FN uint64_t wp_ll_range_word(const struct wp_low_latency *ll, struct wp_ll_range range)
{
    return ((uint64_t)range.first << ll->network.range_bits | (uint64_t)range.num_rows) + 1;
}

/* The slots that have come, as their word says. */
WP_FN struct wp_ll_range wp_ll_remote_range(const struct wp_low_latency *ll, uint64_t number,
                                            int32_t source, int32_t block)
{
    const uint64_t value = wp_ll_told_value(ll, WP_LL_ROWS, number, source, block) - 1;
    const int32_t range_bits = ll->network.range_bits;
    const struct wp_ll_range range = {(int32_t)(value >> range_bits),
                                      (int32_t)(value & ((UINT64_C(1) << range_bits) - 1))};
    return range;
}

/* A word of this rank, and its least value when a block of a rank has signalled `number`. */
struct wp_ll_told {
    const uint64_t *word;
    uint64_t at_least;
};

WP_FN struct wp_ll_told wp_ll_told_remotely(const struct wp_low_latency *ll, enum wp_ll_words words,
                                            enum wp_ll_mail mail, int32_t rank, int32_t block,
                                            uint64_t number)
{
    struct wp_ll_told told = {NULL, number};
    if (words == WP_LL_ROOM) {
        told.word = wp_ll_own_word(ll, wp_ll_network_room(ll, mail, rank, block));
        return told;
    }
    if (words == WP_LL_RETURNED) {
        told.word = wp_ll_own_word(ll, wp_ll_network_returned(ll, mail, rank, block));
        return told;
    }
    const enum wp_ll_mail told_of = mail == WP_LL_RELAYS ? WP_LL_ROWS : mail;
    told.word = wp_ll_own_word(ll, wp_ll_network_arrived(ll, told_of, number, rank, block));
    told.at_least = *wp_ll_taken(ll, told_of, number, rank, block) + 1;
    return told;
}

/* Returns 1 if a word that has come is above what was awaited. Then that value must be awaited. */
WP_FN int wp_ll_says_more(struct wp_ll_told *told, enum wp_ll_words words)
{
    const uint64_t awaited = told->at_least;
    if (words == WP_LL_ARRIVED)
        told->at_least = *told->word;
    return told->at_least > awaited;
}

/* The epoch that a block has signalled to a rank last, in a step of its return (low_latency_unmask.c). */
WP_FN uint64_t *wp_ll_told_epoch(const struct wp_low_latency *ll, enum wp_ll_mail step,
                                 int32_t rank, int32_t block)
{
    return ll->network.told_epochs +
           (uint64_t)step * wp_ll_block_words(&ll->plan, ll->exchange.num_ranks) +
           (uint64_t)rank * (uint64_t)ll->plan.num_blocks + (uint64_t)block;
}

/* ------------------------------------------------------------------ room */

/* One lane calls this when the mail of `number` is no longer needed. */
WP_FN void wp_ll_note_taken(const struct wp_low_latency *ll, enum wp_ll_mail mail, uint64_t number,
                            int32_t rank, int32_t block)
{
    *wp_ll_taken(ll, mail, number, rank, block) =
        *wp_ll_own_word(ll, wp_ll_network_arrived(ll, mail, number, rank, block));
}

/* A credit: the last numbers of rows and of answers that are no longer needed; 0: none. */
struct wp_ll_room {
    uint64_t rows, answers;
};

/* Warp-wide: gives a rank credit for `number`, unless it is 0 or the rank sends no such mail here. With
 * two results the rank needs the credit only after another result. So the credit goes with the next rows:
 * alone it is as much work for TCP as the rows are (a step of one token between two hosts takes 39 us,
 * not 46; 2 cores of an AMD EPYC, 2026-11-28). */
WP_FN void wp_ll_post_room(struct wp_warp *warp, const struct wp_low_latency *ll,
                           enum wp_ll_mail mail, uint64_t number, int32_t rank)
{
    const int32_t block = wp_block_idx(warp);
    const struct wp_ll_put room = {rank,
                                   0,
                                   0,
                                   0,
                                   wp_ll_network_room(ll, mail, ll->exchange.rank, block),
                                   1,
                                   ll->plan.num_halves > 1 ? WP_ACCESS_WITH_THE_NEXT
                                                           : WP_ACCESS_AT_ONCE};
    if (number == 0 || !wp_ll_gets_puts_of(ll, mail, rank))
        return;
    if (wp_lane_idx(warp) == 0)
        wp_ll_note_taken(ll, mail, number, rank, block);
    wp_ll_post(warp, ll, &room);
}

/* All warps of the block call this. It gives credit to the ranks of other nodes. The two credits of a
 * rank follow each other, so that they can share a message. */
WP_FN void wp_ll_tell_room_remotely(struct wp_warp *warp, const struct wp_low_latency *ll,
                                    struct wp_ll_room room)
{
    for (int32_t i = wp_warp_idx(warp); i < ll->network.num_remote; i += wp_num_warps(warp)) {
        const int32_t rank = ll->network.ranks[i];
        if (wp_ll_warp_masks(warp, ll, rank))
            continue;
        wp_ll_post_room(warp, ll, WP_LL_ANSWERS, room.answers, rank);
        wp_ll_post_room(warp, ll, WP_LL_ROWS, room.rows, rank);
    }
}
