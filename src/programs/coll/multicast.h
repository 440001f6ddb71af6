/* SPDX-License-Identifier: MIT */
/*
 * The queues through which the program multicast moves rows, in a multicast object
 * (machine/multicast.h). Every rank is the head of the part of its number, which may be empty: it
 * reduces and spreads the part for all. A block is a channel; for every head it has two queues of
 * slots in each rank's memory:
 *
 *   up     every rank writes to its own slot, then tells; the head reads those of all
 *   down   the head writes to the slots of all, then posts; every rank reads its own
 *
 * What is told and posted is the number of the last chunk that has been put in, counted since the
 * object was made. Chunk k is in slot k % num_slots.
 *
 * A chunk goes through stages (multicast.c), each `lag` steps after the one before, and lag is at
 * most half of the slots. Claim: a slot is written when all have read what was in it before. Proof:
 * in step s a rank waits until all have put in the chunk that its next stage takes, so all others
 * have ended step s - lag, and with it have taken out what they put in or got lag steps before
 * that: chunk s - 2 lag of the first stage, or of the second one that many steps later. It writes
 * the slot of chunk s, which had s - num_slots before. In the first steps of an operation, which
 * wait for nothing, the same is true of the last steps of the operation before: all ranks have
 * ended all but the last lag of them.
 */
#pragma once

#include "machine/multicast.h"
#include "programs/coll/packet_area.h"

enum wp_multicast_queue { WP_QUEUE_UP, WP_QUEUE_DOWN, WP_NUM_QUEUES };

struct wp_multicast_queues {
    int32_t num_channels;
    int32_t num_slots;   /* of a queue, 2 or more */
    uint64_t slot_bytes; /* a multiple of 16 */
};

struct wp_multicast_args {
    struct wp_packet_area area;
    struct wp_call_header header;
    struct wp_multicast object;
    struct wp_multicast_queues queues;
    uint64_t *num_chunks_before; /* [num_channels][WP_NUM_QUEUES] in the operations before */
    int32_t uses_up;   /* all-reduce, reduce-scatter: each rank has all parts of the input */
    int32_t uses_down; /* all-reduce, all-gather: each rank gets all parts of the output */
    struct wp_span parts[WEFT_COLL_MAX_RANKS]; /* [num_ranks] of the array that has all parts */
    uint64_t num_chunks;                       /* of the longest */
    struct wp_reduction reduction;
    const char *in;
    char *out;
};

/* ------------------------------------------------------------------ layout: words, then slots */

WP_FN uint64_t wp_multicast_num_queues(const struct wp_multicast_queues *queues, int32_t num_ranks)
{
    return (uint64_t)queues->num_channels * (uint64_t)num_ranks * WP_NUM_QUEUES;
}

WP_FN uint64_t wp_multicast_queue_idx(int32_t num_ranks, int32_t channel, int32_t head,
                                      enum wp_multicast_queue queue)
{
    const uint64_t of_head = (uint64_t)channel * (uint64_t)num_ranks + (uint64_t)head;
    return of_head * WP_NUM_QUEUES + queue;
}

WP_FN uint64_t wp_multicast_word_offset(int32_t num_ranks, uint64_t queue_idx)
{
    return queue_idx * WP_MULTICAST_WORD_BYTES(num_ranks);
}

WP_FN uint64_t wp_multicast_slot_offset(const struct wp_multicast_queues *queues, int32_t num_ranks,
                                        uint64_t queue_idx, uint64_t chunk)
{
    const uint64_t num_slots = (uint64_t)queues->num_slots;
    const uint64_t first =
        wp_multicast_word_offset(num_ranks, wp_multicast_num_queues(queues, num_ranks));
    return first + (queue_idx * num_slots + chunk % num_slots) * queues->slot_bytes;
}

WP_FN uint64_t wp_multicast_object_bytes(const struct wp_multicast_queues *queues,
                                         int32_t num_ranks)
{
    return wp_multicast_slot_offset(queues, num_ranks, wp_multicast_num_queues(queues, num_ranks),
                                    0);
}
