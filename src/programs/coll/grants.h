/* SPDX-License-Identifier: MIT */
/*
 * Grants: how rows go in steps from any rank to any other, whether its memory is reached or not,
 * where nobody but these two take part. The receiver has few slots, and gives them to whom it
 * receives from, for as long as its operation lasts; so they may lie in memory that it needs for
 * other things before and after. For each (channel, sender, receiver):
 *
 *     sender                                      receiver
 *       <==  granted: up to which step, and where  ==   when its operation begins
 *       ==  bytes to a slot, arrived[step] += 1  ==>
 *       <==  consumed += 1  ==                          when the slot has been read
 *
 * Steps are numbered from 0 on over all operations, of which each end counts its own: so a step may
 * come from another operation of the sender's than the one before. Words only grow, and what was
 * before is in memory of the device, so that graphs can be replayed. Step n is put into slot n %
 * num_slots of those that were granted, once the step before in it has been consumed. It has an
 * arrival word of its own among max_slots, since a network may bring first what was sent later; no
 * more steps are under way than there are such words.
 *
 * Nothing is granted beyond the steps that the receiver's operation takes. So when it ends, all
 * that was granted has come and has been read, and nobody writes to its slots until the next grant;
 * the word of a grant stays as it is until the last of its steps has been sent. What goes to a rank
 * of another node is put from slots of the sender, which are its own again when the last step has
 * been consumed: it waits for that.
 */
#pragma once

#include "programs/exchange.h"

/* A grant in one word: the number of the first step that is not granted, then how many slots, and
 * the first of them. */
enum { WP_GRANT_FIRST_BITS = 20, WP_GRANT_LIMIT_BIT = 28, WP_GRANT_MAX_SLOTS = 255 };

struct wp_grants {
    uint64_t words_offset; /* in every heap, zero at first: for ranks of the node */
    char *network_words;   /* in memory of the network, zero at first: for the others */
    uint64_t network_place;
    uint64_t in_offset, out_offset; /* of slots, in every heap */
    uint64_t slot_bytes;
    int32_t max_slots; /* of a grant */
    int32_t num_channels;
    /* This rank's, [num_channels][num_ranks], by the operations before: steps posted to and
     * consumed of the rank, and the last grant to it. */
    uint64_t *num_posted, *num_consumed, *last_grants;
};

/* One channel to or from a peer. */
struct wp_line {
    const struct wp_grants *grants;
    const struct wp_operation *op;
    int32_t channel;
    int32_t peer;
    uint64_t first_slot; /* this rank's: to receive, or to send to another node */
    uint64_t num_slots;
};

/* ------------------------------------------------------------------ layout */

WP_FN uint64_t wp_grants_num_pairs(const struct wp_grants *grants, int32_t num_ranks)
{
    return (uint64_t)grants->num_channels * (uint64_t)num_ranks;
}

/* A pair of ranks has the words of arrivals, and these. */
enum wp_grant_word { WP_GRANT_GRANTED, WP_GRANT_CONSUMED, WP_NUM_GRANT_WORDS };

WP_FN uint64_t wp_grants_words_bytes(const struct wp_grants *grants, int32_t num_ranks)
{
    return wp_grants_num_pairs(grants, num_ranks) *
           ((uint64_t)WP_NUM_GRANT_WORDS + (uint64_t)grants->max_slots) * sizeof(uint64_t);
}

WP_FN uint64_t wp_line_pair(const struct wp_line *line, int32_t rank)
{
    return (uint64_t)line->channel * (uint64_t)line->op->exchange->num_ranks + (uint64_t)rank;
}

/* Where a word about `rank` is, among a rank's. */
WP_FN uint64_t wp_line_word(const struct wp_line *line, int32_t rank, uint64_t word)
{
    const uint64_t num_words = (uint64_t)WP_NUM_GRANT_WORDS + (uint64_t)line->grants->max_slots;
    return (wp_line_pair(line, rank) * num_words + word) * sizeof(uint64_t);
}

WP_FN uint64_t wp_line_arrival(const struct wp_line *line, uint64_t number)
{
    return WP_NUM_GRANT_WORDS + number % (uint64_t)line->grants->max_slots;
}

WP_FN int wp_line_is_remote(const struct wp_line *line)
{
    return line->op->exchange->bases[line->peer] == NULL;
}

/* This rank's word, to which the peer tells. */
WP_FN uint64_t *wp_line_own_word(const struct wp_line *line, uint64_t word)
{
    const struct wp_exchange *exchange = line->op->exchange;
    char *words = wp_line_is_remote(line)
                      ? line->grants->network_words
                      : exchange->bases[exchange->rank] + line->grants->words_offset;
    return (uint64_t *)(void *)(words + wp_line_word(line, line->peer, word));
}

/* The peer's, if it is of the node. */
WP_FN uint64_t *wp_line_peers_word(const struct wp_line *line, uint64_t word)
{
    const struct wp_exchange *exchange = line->op->exchange;
    char *words = exchange->bases[line->peer] + line->grants->words_offset;
    return (uint64_t *)(void *)(words + wp_line_word(line, exchange->rank, word));
}

/* An addition to the peer's, which is of another node, behind bytes that come with it. */
WP_FN struct wp_access wp_line_put(const struct wp_line *line, uint64_t source, uint64_t target,
                                   uint64_t num_bytes, uint64_t word)
{
    const uint64_t own_word = wp_line_word(line, line->op->exchange->rank, word);
    return wp_counted_put(line->peer, source, target, num_bytes,
                          line->grants->network_place + own_word);
}

/* ------------------------------------------------------------------ to the peer */

/* The grant of the peer: valid from wp_line_reserve of a step on until the step is posted. */
WP_FN uint64_t wp_line_granted(const struct wp_line *line)
{
    return *wp_line_own_word(line, WP_GRANT_GRANTED);
}

WP_FN uint64_t wp_granted_slots(uint64_t granted)
{
    return granted >> WP_GRANT_FIRST_BITS & WP_GRANT_MAX_SLOTS;
}

/* By one lane: waits until the peer has consumed so many steps. Pairs with wp_line_consume. */
WP_FN enum wp_status wp_line_await_consumed(const struct wp_line *line, uint64_t num_steps)
{
    const struct wp_wait_site site = wp_operation_site(line->op, WP_PHASE_CREDIT, line->peer);
    return wp_wait(line->op->warp, wp_line_own_word(line, WP_GRANT_CONSUMED), num_steps, &site);
}

/* By one lane: waits until the step may be written. Pairs with wp_line_grant. */
WP_FN enum wp_status wp_line_reserve(const struct wp_line *line, uint64_t number)
{
    const struct wp_wait_site site = wp_operation_site(line->op, WP_PHASE_CREDIT, line->peer);
    const enum wp_status status = wp_wait(line->op->warp, wp_line_own_word(line, WP_GRANT_GRANTED),
                                          (number + 1) << WP_GRANT_LIMIT_BIT, &site);
    if (status != WP_STATUS_OK)
        return status;
    uint64_t num_slots = wp_granted_slots(wp_line_granted(line));
    if (wp_line_is_remote(line) && line->num_slots < num_slots)
        num_slots = line->num_slots;
    return number < num_slots ? WP_STATUS_OK : wp_line_await_consumed(line, number + 1 - num_slots);
}

/* Where the step is to come, in the peer's heap. */
WP_FN uint64_t wp_line_peers_slot(const struct wp_line *line, uint64_t number)
{
    const uint64_t granted = wp_line_granted(line);
    const uint64_t first = granted & ((UINT64_C(1) << WP_GRANT_FIRST_BITS) - 1);
    return line->grants->in_offset +
           (first + number % wp_granted_slots(granted)) * line->grants->slot_bytes;
}

/* Where it is staged, in this rank's. */
WP_FN uint64_t wp_line_staged_slot(const struct wp_line *line, uint64_t number)
{
    return line->grants->out_offset +
           (line->first_slot + number % line->num_slots) * line->grants->slot_bytes;
}

/* Where this rank writes it. */
WP_FN char *wp_line_out_slot(const struct wp_line *line, uint64_t number)
{
    const struct wp_exchange *exchange = line->op->exchange;
    return wp_line_is_remote(line)
               ? exchange->bases[exchange->rank] + wp_line_staged_slot(line, number)
               : exchange->bases[line->peer] + wp_line_peers_slot(line, number);
}

/* Warp-wide: what has been written of the step goes to the peer. Pairs with wp_line_receive. */
WP_FN void wp_line_post(const struct wp_line *line, uint64_t number, uint64_t num_bytes)
{
    struct wp_warp *warp = line->op->warp;
    const uint64_t word = wp_line_arrival(line, number);
    if (wp_line_is_remote(line)) {
        const struct wp_access put = wp_line_put(line, wp_line_staged_slot(line, number),
                                                 wp_line_peers_slot(line, number), num_bytes, word);
        wp_remote_post(warp, &put);
        return;
    }
    wp_row_sync(warp);
    if (wp_lane_idx(warp) == 0)
        wp_signal(warp, line->peer, wp_line_peers_word(line, word),
                  number / (uint64_t)line->grants->max_slots + 1);
}

/* ------------------------------------------------------------------ from the peer */

/* Warp-wide: the peer may send the next num_steps steps, 1 at least, from `number` on. Pairs with
 * wp_line_reserve. */
WP_FN void wp_line_grant(const struct wp_line *line, uint64_t number, uint64_t num_steps)
{
    struct wp_warp *warp = line->op->warp;
    uint64_t *last = &line->grants->last_grants[wp_line_pair(line, line->peer)];
    const uint64_t before = *last;
    const uint64_t grant = (number + num_steps) << WP_GRANT_LIMIT_BIT |
                           line->num_slots << WP_GRANT_FIRST_BITS | line->first_slot;
    if (wp_line_is_remote(line)) {
        struct wp_access put = wp_line_put(line, 0, 0, 0, WP_GRANT_GRANTED);
        put.add = grant - before;
        wp_remote_post(warp, &put);
    } else if (wp_lane_idx(warp) == 0)
        wp_signal(warp, line->peer, wp_line_peers_word(line, WP_GRANT_GRANTED), grant);
    wp_warp_sync(warp); /* all lanes have read the last one */
    if (wp_lane_idx(warp) == 0)
        *last = grant;
}

/* By one lane: waits for the step. Pairs with wp_line_post. */
WP_FN enum wp_status wp_line_receive(const struct wp_line *line, uint64_t number)
{
    const struct wp_wait_site site = wp_operation_site(line->op, WP_PHASE_DATA, line->peer);
    return wp_wait(line->op->warp, wp_line_own_word(line, wp_line_arrival(line, number)),
                   number / (uint64_t)line->grants->max_slots + 1, &site);
}

WP_FN const char *wp_line_in_slot(const struct wp_line *line, uint64_t number)
{
    const struct wp_exchange *exchange = line->op->exchange;
    return exchange->bases[exchange->rank] + line->grants->in_offset +
           (line->first_slot + number % line->num_slots) * line->grants->slot_bytes;
}

/* Warp-wide: the step has been read. Pairs with wp_line_await_consumed; within a node nobody need
 * wait for the last ones. */
WP_FN void wp_line_consume(const struct wp_line *line, uint64_t number)
{
    struct wp_warp *warp = line->op->warp;
    if (wp_line_is_remote(line)) {
        const struct wp_access put = wp_line_put(line, 0, 0, 0, WP_GRANT_CONSUMED);
        wp_remote_post(warp, &put);
        return;
    }
    wp_row_sync(warp);
    if (wp_lane_idx(warp) == 0)
        wp_credit(warp, line->peer, wp_line_peers_word(line, WP_GRANT_CONSUMED), number + 1);
}
