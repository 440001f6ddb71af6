/* SPDX-License-Identifier: MIT */
/*
 * Rings: how rows go from a rank to its partner in another node, through memory of the network that
 * is as small as one likes. There is one for each (node, channel) and direction:
 *
 *     out slots of the sender  == put, and arrived[slot] += 1 ==>  in slots of the receiver
 *     consumed[slot]           <== an add of 1 by the receiver ==  when it has read the slot
 *
 * Chunks are numbered from 0 on over all operations; chunk k uses slot k % num_slots, for the (k /
 * num_slots)-th time. A slot has words of its own, so that it does not matter in which order the
 * network delivers. That a slot has been consumed tells the sender both that the receiver's may be
 * written again and that its own has been sent. To send a credit is as much work as to send a small
 * chunk. Where chunks are consumed in order, one credit is for num_credited slots, counted from
 * slot 0, and adds to the word of the last of them: so a chunk may have to wait until the chunk
 * wp_ring_window(rings) before it has been consumed. The chunks of a ring are filled by one warp
 * one after the other, and so are the rings of several nodes by several warps: nobody waits for one
 * node before it serves another, so that there is no circle of ranks that wait for each other,
 * however few slots there are.
 */
#pragma once

#include "programs/exchange.h"
#include "programs/nodes.h"

enum { WP_CHUNK_HEADER_BYTES = 64, WP_WIRE_ALIGNMENT = 16 };

/* At the start of every chunk is what the sender called (struct wp_call), for the receiver to
 * compare. */
WP_STATIC_ASSERT(sizeof(struct wp_call) <= WP_CHUNK_HEADER_BYTES, "it fits its room");

struct wp_rings { /* of a weft_ep or a weft_coll */
    struct wp_nodes nodes;
    int32_t
        reach; /* there are rings to so many nodes after the own one, and from as many before it */
    int32_t num_channels;  /* rings for each of them */
    int32_t num_tree_ways; /* WP_TREE_NUM_WAYS: the rings are along a tree of the nodes; else 0 */
    int32_t num_slots;     /* of a ring, for each direction */
    int32_t num_credited;  /* slots that a credit frees, and the last one of the ring fewer */
    uint32_t slot_bytes;   /* a multiple of WP_WIRE_ALIGNMENT */
    /* This rank's, both zero at first, and where they begin for puts, on every rank: words arrived
     * and consumed, and slots, which only puts access from outside. */
    char *words, *slots;
    uint64_t words_place, slots_place;
    /* [halves][num_nodes, or neighbours in the tree][num_channels] chunks sent and received by the
     * operations before (parity.h). */
    uint64_t *num_sent;
    uint64_t *num_received;
    /* [num_nodes][num_channels][num_slots] rows of the chunk there that have been read; zero
     * between operations. */
    uint32_t *num_rows_read;
};

/* Both directions between this rank and one node through one channel. The node is within reach. */
struct wp_ring {
    const struct wp_rings *rings;
    int32_t node;
    int32_t channel;
    int32_t row; /* of the counters */
    int32_t partner;
    uint64_t first_out; /* slots */
    uint64_t first_in;
};

/* The neighbours of a node in a tree. */
enum wp_tree_neighbour {
    WP_TREE_PARENT,
    WP_TREE_FIRST_CHILD,
    WP_TREE_SECOND_CHILD,
    WP_TREE_NUM_NEIGHBOURS
};
/* Where the slots of rings along a tree are, at both ends: by which of its parent's children the
 * lower end is, and whether they go up. So a node has as many ways to send, and to receive, however
 * many nodes there are. */
enum wp_tree_way { WP_TREE_UP = 0, WP_TREE_DOWN = 2, WP_TREE_NUM_WAYS = 4 };

/* ------------------------------------------------------------------ layout */

WP_FN uint64_t wp_wire_round_up(uint64_t bytes)
{
    return (bytes + WP_WIRE_ALIGNMENT - 1) / WP_WIRE_ALIGNMENT * WP_WIRE_ALIGNMENT;
}

/* The slots of one direction. */
WP_FN uint64_t wp_rings_num_slots(const struct wp_rings *rings)
{
    return (uint64_t)(rings->reach + rings->num_tree_ways) * (uint64_t)rings->num_channels *
           (uint64_t)rings->num_slots;
}

/* Each of the rings' counters has so many rows, for each of its halves. */
WP_FN uint64_t wp_rings_num_rows(const struct wp_rings *rings)
{
    return rings->num_tree_ways > 0 ? (uint64_t)WP_TREE_NUM_NEIGHBOURS
                                    : (uint64_t)rings->nodes.num_nodes;
}

WP_FN uint64_t wp_rings_num_counters(const struct wp_rings *rings)
{
    return wp_rings_num_rows(rings) * (uint64_t)rings->num_channels;
}

/* Arrived, then consumed. */
WP_FN uint64_t wp_rings_words_bytes(const struct wp_rings *rings)
{
    return wp_wire_round_up(2 * wp_rings_num_slots(rings) * sizeof(uint64_t));
}

/* In, then out. */
WP_FN uint64_t wp_rings_slots_bytes(const struct wp_rings *rings)
{
    return 2 * wp_rings_num_slots(rings) * rings->slot_bytes;
}

WP_FN uint64_t wp_rings_arrived(uint64_t slot)
{
    return slot * sizeof(uint64_t);
}

WP_FN uint64_t wp_rings_consumed(const struct wp_rings *rings, uint64_t slot)
{
    return (wp_rings_num_slots(rings) + slot) * sizeof(uint64_t);
}

WP_FN uint64_t wp_rings_in(const struct wp_rings *rings, uint64_t slot)
{
    return slot * rings->slot_bytes;
}

WP_FN uint64_t wp_rings_out(const struct wp_rings *rings, uint64_t slot)
{
    return wp_rings_in(rings, wp_rings_num_slots(rings) + slot);
}

/* Slots have the same place at both ends: by how many nodes the receiver's is after the
 * sender's. */
WP_FN uint64_t wp_rings_first_slot(const struct wp_rings *rings, int32_t from, int32_t to)
{
    const int32_t num_nodes = rings->nodes.num_nodes;
    const int32_t distance = (to - from + num_nodes) % num_nodes;
    return (uint64_t)(distance - 1) * (uint64_t)rings->num_channels * (uint64_t)rings->num_slots;
}

WP_FN struct wp_ring wp_ring_of(const struct wp_rings *rings, int32_t node, int32_t channel)
{
    const uint64_t offset = (uint64_t)channel * (uint64_t)rings->num_slots;
    const int32_t own = rings->nodes.node;
    const struct wp_ring ring = {rings,
                                 node,
                                 channel,
                                 node,
                                 wp_partner(&rings->nodes, node),
                                 wp_rings_first_slot(rings, own, node) + offset,
                                 wp_rings_first_slot(rings, node, own) + offset};
    return ring;
}

/* To and from a neighbour in the tree, of which and its parent the lower one is child number
 * `child`. */
WP_FN struct wp_ring wp_tree_ring_of(const struct wp_rings *rings, enum wp_tree_neighbour neighbour,
                                     int32_t node, int32_t child, int32_t channel)
{
    const uint64_t way_slots = (uint64_t)rings->num_channels * (uint64_t)rings->num_slots;
    const uint64_t first = (uint64_t)channel * (uint64_t)rings->num_slots;
    const uint64_t up = first + (uint64_t)(WP_TREE_UP + child) * way_slots;
    const uint64_t down = first + (uint64_t)(WP_TREE_DOWN + child) * way_slots;
    const int is_parent = neighbour == WP_TREE_PARENT;
    const struct wp_ring ring = {rings,
                                 node,
                                 channel,
                                 (int32_t)neighbour,
                                 wp_partner(&rings->nodes, node),
                                 is_parent ? up : down,
                                 is_parent ? down : up};
    return ring;
}

/* ------------------------------------------------------------------ chunks */

WP_FN int32_t wp_rows_per_chunk(const struct wp_rings *rings, uint64_t wire_row_bytes)
{
    return (int32_t)((rings->slot_bytes - WP_CHUNK_HEADER_BYTES) / wire_row_bytes);
}

/* Every num_channels-th of the chunks of num_rows rows goes through the channel. */
WP_FN int32_t wp_num_chunks(const struct wp_rings *rings, int32_t num_rows, int32_t rows_per_chunk,
                            int32_t channel)
{
    const int32_t num_chunks = (num_rows + rows_per_chunk - 1) / rows_per_chunk;
    return (num_chunks + rings->num_channels - 1 - channel) / rings->num_channels;
}

/* One of the rings' counters, as operation `sequence` finds it. */
WP_FN uint64_t *wp_ring_counter(const struct wp_ring *ring, uint64_t *counters, uint64_t sequence)
{
    const struct wp_rings *rings = ring->rings;
    const uint64_t row = wp_parity(sequence) * wp_rings_num_rows(rings) + (uint64_t)ring->row;
    return counters + row * (uint64_t)rings->num_channels + ring->channel;
}

/* One lane: how many chunks this operation sends and receives. */
WP_FN void wp_ring_advance(const struct wp_ring *ring, uint64_t sequence, int64_t num_sent,
                           int64_t num_received)
{
    const struct wp_rings *rings = ring->rings;
    *wp_ring_counter(ring, rings->num_sent, sequence + 1) =
        *wp_ring_counter(ring, rings->num_sent, sequence) + (uint64_t)num_sent;
    *wp_ring_counter(ring, rings->num_received, sequence + 1) =
        *wp_ring_counter(ring, rings->num_received, sequence) + (uint64_t)num_received;
}

/* By one warp: operation `sequence` uses no ring, but what the warp counts behind a sync. */
WP_FN void wp_rings_pass(struct wp_warp *warp, const struct wp_rings *rings, uint64_t sequence)
{
    const uint64_t num_counters = wp_rings_num_counters(rings);
    const uint64_t from = wp_parity(sequence) * num_counters;
    const uint64_t to = wp_parity(sequence + 1) * num_counters;
    for (uint64_t i = (uint64_t)wp_lane_idx(warp); i < num_counters; i += WP_WARP_SIZE) {
        rings->num_sent[to + i] = rings->num_sent[from + i];
        rings->num_received[to + i] = rings->num_received[from + i];
    }
}

/* ------------------------------------------------------------------ slots */

WP_FN uint64_t wp_ring_slot_idx(const struct wp_ring *ring, uint64_t chunk)
{
    return chunk % (uint64_t)ring->rings->num_slots;
}

/* How often the chunk's slot was used before. */
WP_FN uint64_t wp_ring_lap(const struct wp_ring *ring, uint64_t chunk)
{
    return chunk / (uint64_t)ring->rings->num_slots;
}

/* The slot with whose credit the one with that index is freed. */
WP_FN uint64_t wp_ring_credit_idx(const struct wp_rings *rings, uint64_t slot_idx)
{
    const uint64_t num_credited = (uint64_t)rings->num_credited;
    const uint64_t last = slot_idx - slot_idx % num_credited + num_credited - 1;
    return last < (uint64_t)rings->num_slots ? last : (uint64_t)rings->num_slots - 1;
}

/* How many chunks there are, one behind the other, of which at least the first has room. */
WP_FN int32_t wp_ring_window(const struct wp_rings *rings)
{
    return rings->num_slots - rings->num_credited + 1;
}

/* Warp-wide, of a word of this rank that the partner adds to. */
WP_FN enum wp_status wp_ring_wait(const struct wp_operation *op, const struct wp_ring *ring,
                                  uint64_t word, uint64_t at_least)
{
    const struct wp_wait_site site = wp_operation_site(op, WP_PHASE_DATA, ring->partner);
    const char *at = ring->rings->words + word;
    return (enum wp_status)wp_max_u32(
        op->warp, (uint32_t)wp_wait(op->warp, (const uint64_t *)(const void *)at, at_least, &site));
}

/* Warp-wide: waits until the slot of the chunk may be written. */
WP_FN enum wp_status wp_ring_reserve(const struct wp_operation *op, const struct wp_ring *ring,
                                     uint64_t chunk)
{
    const uint64_t slot =
        ring->first_out + wp_ring_credit_idx(ring->rings, wp_ring_slot_idx(ring, chunk));
    return wp_ring_wait(op, ring, wp_rings_consumed(ring->rings, slot), wp_ring_lap(ring, chunk));
}

WP_FN char *wp_ring_out_slot(const struct wp_ring *ring, uint64_t chunk)
{
    const uint64_t slot = ring->first_out + wp_ring_slot_idx(ring, chunk);
    return ring->rings->slots + wp_rings_out(ring->rings, slot);
}

/* Warp-wide: sends what has been written to the slot. */
WP_FN void wp_ring_send(struct wp_warp *warp, const struct wp_ring *ring, uint64_t chunk,
                        uint64_t num_bytes)
{
    const struct wp_rings *rings = ring->rings;
    const uint64_t slot = ring->first_out + wp_ring_slot_idx(ring, chunk);
    const struct wp_access put =
        wp_counted_put(ring->partner, rings->slots_place + wp_rings_out(rings, slot),
                       rings->slots_place + wp_rings_in(rings, slot), num_bytes,
                       rings->words_place + wp_rings_arrived(slot));
    wp_remote_post(warp, &put);
}

/* Warp-wide: waits for the chunk. */
WP_FN enum wp_status wp_ring_receive(const struct wp_operation *op, const struct wp_ring *ring,
                                     uint64_t chunk)
{
    const uint64_t slot = ring->first_in + wp_ring_slot_idx(ring, chunk);
    return wp_ring_wait(op, ring, wp_rings_arrived(slot), wp_ring_lap(ring, chunk) + 1);
}

WP_FN const char *wp_ring_in_slot(const struct wp_ring *ring, uint64_t chunk)
{
    const uint64_t slot = ring->first_in + wp_ring_slot_idx(ring, chunk);
    return ring->rings->slots + wp_rings_in(ring->rings, slot);
}

/* Warp-wide: the chunk has been read. */
WP_FN void wp_ring_consume(struct wp_warp *warp, const struct wp_ring *ring, uint64_t chunk)
{
    const struct wp_rings *rings = ring->rings;
    const uint64_t slot_idx = wp_ring_slot_idx(ring, chunk);
    if (wp_ring_credit_idx(rings, slot_idx) != slot_idx)
        return;
    const uint64_t slot = ring->first_in + slot_idx;
    const struct wp_access credit =
        wp_counted_put(ring->partner, 0, 0, 0, rings->words_place + wp_rings_consumed(rings, slot));
    wp_remote_post(warp, &credit);
}
