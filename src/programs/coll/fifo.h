/* SPDX-License-Identifier: MIT */
/*
 * Fifos: how rows go from a rank to one whose memory it reaches, in steps, through as few slots as
 * one likes. What ring.h is between nodes, without a network. There is one for each (channel,
 * sender, receiver):
 *
 *     sender                                    receiver
 *     head                                      slots, tail
 *       ==  stores to a slot, then tail = number + 1, released  ==>
 *       <==  head = number + 1, a credit, when the slot has been read  ==
 *
 * Steps are numbered from 0 on over all operations; step n uses slot n % num_slots. Tail is the
 * number of steps posted, head that of steps consumed; both only grow, so that graphs can be
 * replayed. The sender writes a slot when head says that the step before in it has been consumed:
 * the credit was behind the loads of the slot.
 *
 * A step may also go directly: to where its bytes are wanted in the end, which the receiver has
 * told. It has a number like others, so that the words go on, but no slot, and waits for no room.
 *
 * A channel is a block's. Its words and counters are touched by one launch at a time, and all of
 * them by the same lane of a launch or behind a sync. Within an operation, a rank may post
 * num_slots steps to a peer beyond what the peer has consumed; with one slot ranks that send before
 * they receive would wait for each other.
 */
#pragma once

#include "programs/exchange.h"

enum { WP_FIFO_SLOT_ALIGNMENT = 16, WP_FIFO_LEAST_SLOTS = 2 };

struct wp_fifos {
    uint64_t words_offset; /* in every heap, zero at first: tails, then heads */
    uint64_t slots_offset; /* in every heap */
    /* This rank's: [max_blocks][num_ranks] steps posted to, and consumed of, each by the operations
     * before. */
    uint64_t *num_posted;
    uint64_t *num_consumed;
    uint64_t slot_bytes; /* a multiple of WP_FIFO_SLOT_ALIGNMENT */
    int32_t num_slots;   /* of a fifo */
    int32_t num_senders; /* whose slots a channel has */
};

/* The fifos of this rank and a peer, one in each direction. */
struct wp_fifo {
    const struct wp_fifos *fifos;
    const struct wp_operation *op;
    int32_t channel;
    int32_t peer;
    /* Whose of the senders' slots are the peer's here, and this rank's at the peer: below
     * num_senders. */
    int32_t in_idx, out_idx;
};

/* ------------------------------------------------------------------ layout */

WP_FN uint64_t wp_fifos_num_pairs(const struct wp_exchange *exchange)
{
    return (uint64_t)exchange->max_blocks * (uint64_t)exchange->num_ranks;
}

WP_FN uint64_t wp_fifos_words_bytes(const struct wp_exchange *exchange)
{
    return 2 * wp_fifos_num_pairs(exchange) * sizeof(uint64_t);
}

WP_FN uint64_t wp_fifo_pair(const struct wp_fifo *fifo, int32_t rank)
{
    return (uint64_t)fifo->channel * (uint64_t)fifo->op->exchange->num_ranks + (uint64_t)rank;
}

/* In the heap of `owner`: what `sender` has posted. */
WP_FN uint64_t *wp_fifo_tail(const struct wp_fifo *fifo, int32_t owner, int32_t sender)
{
    char *words = fifo->op->exchange->bases[owner] + fifo->fifos->words_offset;
    return (uint64_t *)(void *)words + wp_fifo_pair(fifo, sender);
}

/* In the heap of `owner`: what `receiver` has consumed. */
WP_FN uint64_t *wp_fifo_head(const struct wp_fifo *fifo, int32_t owner, int32_t receiver)
{
    return wp_fifo_tail(fifo, owner, receiver) + wp_fifos_num_pairs(fifo->op->exchange);
}

/* In the heap of `owner`: the slot of a step of its sender `idx`. */
WP_FN char *wp_fifo_slot(const struct wp_fifo *fifo, int32_t owner, int32_t idx, uint64_t number)
{
    const struct wp_fifos *fifos = fifo->fifos;
    const uint64_t first = (uint64_t)fifo->channel * (uint64_t)fifos->num_senders + (uint64_t)idx;
    const uint64_t num_slots = (uint64_t)fifos->num_slots;
    return fifo->op->exchange->bases[owner] + fifos->slots_offset +
           (first * num_slots + number % num_slots) * fifos->slot_bytes;
}

/* ------------------------------------------------------------------ to the peer */

/* The number of the i-th step that this operation posts to the peer. */
WP_FN uint64_t wp_fifo_out_number(const struct wp_fifo *fifo, uint64_t i)
{
    return fifo->fifos->num_posted[wp_fifo_pair(fifo, fifo->peer)] + i;
}

WP_FN char *wp_fifo_out_slot(const struct wp_fifo *fifo, uint64_t number)
{
    return wp_fifo_slot(fifo, fifo->peer, fifo->out_idx, number);
}

/* By one lane: waits until the slot of the step may be written. Pairs with wp_fifo_consume. */
WP_FN enum wp_status wp_fifo_reserve(const struct wp_fifo *fifo, uint64_t number)
{
    const uint64_t num_slots = (uint64_t)fifo->fifos->num_slots;
    const struct wp_wait_site site = wp_operation_site(fifo->op, WP_PHASE_ROOM, fifo->peer);
    if (number < num_slots)
        return WP_STATUS_OK;
    return wp_wait(fifo->op->warp, wp_fifo_head(fifo, fifo->op->exchange->rank, fifo->peer),
                   number + 1 - num_slots, &site);
}

/* By one lane, behind a sync of all that have written the step. Pairs with wp_fifo_receive. */
WP_FN void wp_fifo_post(const struct wp_fifo *fifo, uint64_t number)
{
    wp_signal(fifo->op->warp, fifo->peer, wp_fifo_tail(fifo, fifo->peer, fifo->op->exchange->rank),
              number + 1);
}

/* ------------------------------------------------------------------ from the peer */

/* The number of the i-th step that this operation consumes of the peer's. */
WP_FN uint64_t wp_fifo_in_number(const struct wp_fifo *fifo, uint64_t i)
{
    return fifo->fifos->num_consumed[wp_fifo_pair(fifo, fifo->peer)] + i;
}

WP_FN const char *wp_fifo_in_slot(const struct wp_fifo *fifo, uint64_t number)
{
    return wp_fifo_slot(fifo, fifo->op->exchange->rank, fifo->in_idx, number);
}

/* By one lane: waits for the step. Pairs with wp_fifo_post. */
WP_FN enum wp_status wp_fifo_receive(const struct wp_fifo *fifo, uint64_t number)
{
    const struct wp_wait_site site = wp_operation_site(fifo->op, WP_PHASE_DATA, fifo->peer);
    return wp_wait(fifo->op->warp, wp_fifo_tail(fifo, fifo->op->exchange->rank, fifo->peer),
                   number + 1, &site);
}

/* By one lane, behind a sync of all that have read the step, of those that came directly too. Pairs
 * with wp_fifo_reserve; nobody need wait for the last ones. */
WP_FN void wp_fifo_consume(const struct wp_fifo *fifo, uint64_t number)
{
    wp_credit(fifo->op->warp, fifo->peer, wp_fifo_head(fifo, fifo->peer, fifo->op->exchange->rank),
              number + 1);
}

/* ------------------------------------------------------------------ the next operation */

/* By one lane, when all warps of the block need the numbers no more. num_posted is the number of
 * steps that this operation has posted to the peer. */
WP_FN void wp_fifo_advance_out(const struct wp_fifo *fifo, uint64_t num_posted)
{
    fifo->fifos->num_posted[wp_fifo_pair(fifo, fifo->peer)] += num_posted;
}

/* The same for the steps that it has consumed from the peer. */
WP_FN void wp_fifo_advance_in(const struct wp_fifo *fifo, uint64_t num_consumed)
{
    fifo->fifos->num_consumed[wp_fifo_pair(fifo, fifo->peer)] += num_consumed;
}
