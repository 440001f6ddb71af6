/* SPDX-License-Identifier: MIT */
/*
 * Rings: how rows go from a rank to its partner in another node, through memory of the network that is as small as
 * one likes. There is one for each (node, channel) and direction:
 *
 *     out slots of the sender  == put, and arrived[slot] += 1 ==>  in slots of the receiver
 *     consumed[slot]           <== an add of 1 by the receiver ==  when it has read the slot
 *
 * Chunks are numbered from 0 on over all operations; chunk k uses slot k % num_slots, for the (k / num_slots)-th time.
 * A slot has words of its own, so that it does not matter in which order the network delivers. That a slot has been
 * consumed tells the sender both that the receiver's may be written again and that its own has been sent.
 * The chunks of a ring are filled by one warp one after the other, and so are the rings of several
 * nodes by several warps: nobody waits for one node before it serves another, so that there is no circle of
 * ranks that wait for each other, however few slots there are.
 */
#ifndef WEFT_PROGRAMS_RING_H
#define WEFT_PROGRAMS_RING_H

#include "programs/exchange.h"
#include "programs/nodes.h"

enum { WEFT_CHUNK_HEADER_BYTES = 64, WEFT_WIRE_ALIGNMENT = 16 };

/* At the start of every chunk is what the sender called (struct weft_call), for the receiver to compare. */
WEFT_STATIC_ASSERT(sizeof(struct weft_call) <= WEFT_CHUNK_HEADER_BYTES, "it fits its room");

struct weft_rings { /* of a weft_ep */
    struct weft_nodes nodes;
    int32_t num_channels; /* rings for each node */
    int32_t num_slots;    /* of a ring, for each direction */
    uint32_t slot_bytes;  /* a multiple of WEFT_WIRE_ALIGNMENT */
    /* This rank's, both zero at first, and where they begin for puts, on every rank: words arrived and consumed, and
     * slots, which only puts access from outside. */
    char *words, *slots;
    uint64_t words_place, slots_place;
    /* [halves][num_nodes][num_channels] chunks sent and received by the operations before (parity.h). */
    uint64_t *num_sent;
    uint64_t *num_received;
    /* [num_nodes][num_channels][num_slots] rows of the chunk there that have been read; zero between operations. */
    uint32_t *num_rows_read;
};

/* What goes to and comes from one node through one channel. */
struct weft_ring {
    const struct weft_rings *rings;
    int32_t node;
    int32_t channel;
    int32_t partner;
    uint64_t first_out; /* slots */
    uint64_t first_in;
};

/* ------------------------------------------------------------------ layout */

WEFT_FN uint64_t weft_wire_round_up(uint64_t bytes)
{
    return (bytes + WEFT_WIRE_ALIGNMENT - 1) / WEFT_WIRE_ALIGNMENT * WEFT_WIRE_ALIGNMENT;
}

/* The own node has no rings. */
WEFT_FN uint64_t weft_rings_num_slots(const struct weft_rings *rings)
{
    return (uint64_t)(rings->nodes.num_nodes - 1) * (uint64_t)rings->num_channels *
           (uint64_t)rings->num_slots;
}

/* Arrived, then consumed. */
WEFT_FN uint64_t weft_rings_words_bytes(const struct weft_rings *rings)
{
    return weft_wire_round_up(2 * weft_rings_num_slots(rings) * sizeof(uint64_t));
}

/* In, then out. */
WEFT_FN uint64_t weft_rings_slots_bytes(const struct weft_rings *rings)
{
    return 2 * weft_rings_num_slots(rings) * rings->slot_bytes;
}

WEFT_FN uint64_t weft_rings_arrived(uint64_t slot)
{
    return slot * sizeof(uint64_t);
}

WEFT_FN uint64_t weft_rings_consumed(const struct weft_rings *rings, uint64_t slot)
{
    return (weft_rings_num_slots(rings) + slot) * sizeof(uint64_t);
}

WEFT_FN uint64_t weft_rings_in(const struct weft_rings *rings, uint64_t slot)
{
    return slot * rings->slot_bytes;
}

WEFT_FN uint64_t weft_rings_out(const struct weft_rings *rings, uint64_t slot)
{
    return weft_rings_in(rings, weft_rings_num_slots(rings) + slot);
}

/* Slots have the same place at both ends: by how many nodes the receiver's is after the sender's. */
WEFT_FN uint64_t weft_rings_first_slot(const struct weft_rings *rings, int32_t from, int32_t to)
{
    const int32_t num_nodes = rings->nodes.num_nodes;
    const int32_t distance = (to - from + num_nodes) % num_nodes;
    return (uint64_t)(distance - 1) * (uint64_t)rings->num_channels * (uint64_t)rings->num_slots;
}

WEFT_FN struct weft_ring weft_ring_of(const struct weft_rings *rings, int32_t node, int32_t channel)
{
    const uint64_t offset = (uint64_t)channel * (uint64_t)rings->num_slots;
    const int32_t own = rings->nodes.node;
    const struct weft_ring ring = {rings,
                                   node,
                                   channel,
                                   weft_partner(&rings->nodes, node),
                                   weft_rings_first_slot(rings, own, node) + offset,
                                   weft_rings_first_slot(rings, node, own) + offset};
    return ring;
}

/* ------------------------------------------------------------------ chunks */

WEFT_FN int32_t weft_rows_per_chunk(const struct weft_rings *rings, uint64_t wire_row_bytes)
{
    return (int32_t)((rings->slot_bytes - WEFT_CHUNK_HEADER_BYTES) / wire_row_bytes);
}

/* Every num_channels-th of the chunks of num_rows rows goes through the channel. */
WEFT_FN int32_t weft_num_chunks(const struct weft_rings *rings, int32_t num_rows,
                                int32_t rows_per_chunk, int32_t channel)
{
    const int32_t num_chunks = (num_rows + rows_per_chunk - 1) / rows_per_chunk;
    return (num_chunks + rings->num_channels - 1 - channel) / rings->num_channels;
}

/* One of the rings' counters, as operation `sequence` finds it. */
WEFT_FN uint64_t *weft_ring_counter(const struct weft_ring *ring, uint64_t *counters,
                                    uint64_t sequence)
{
    const struct weft_rings *rings = ring->rings;
    const uint64_t row =
        weft_half(sequence) * (uint64_t)rings->nodes.num_nodes + (uint64_t)ring->node;
    return counters + row * (uint64_t)rings->num_channels + ring->channel;
}

/* One lane: how many chunks this operation sends and receives. */
WEFT_FN void weft_ring_advance(const struct weft_ring *ring, uint64_t sequence, int32_t num_sent,
                               int32_t num_received)
{
    const struct weft_rings *rings = ring->rings;
    *weft_ring_counter(ring, rings->num_sent, sequence + 1) =
        *weft_ring_counter(ring, rings->num_sent, sequence) + (uint64_t)num_sent;
    *weft_ring_counter(ring, rings->num_received, sequence + 1) =
        *weft_ring_counter(ring, rings->num_received, sequence) + (uint64_t)num_received;
}

/* ------------------------------------------------------------------ slots */

WEFT_FN uint64_t weft_ring_slot_idx(const struct weft_ring *ring, uint64_t chunk)
{
    return chunk % (uint64_t)ring->rings->num_slots;
}

/* How often the chunk's slot was used before. */
WEFT_FN uint64_t weft_ring_lap(const struct weft_ring *ring, uint64_t chunk)
{
    return chunk / (uint64_t)ring->rings->num_slots;
}

/* Warp-wide, of a word of this rank that the partner adds to. */
WEFT_FN enum weft_status weft_ring_wait(const struct weft_operation *op,
                                        const struct weft_ring *ring, uint64_t word,
                                        uint64_t at_least)
{
    const struct weft_wait_site site = weft_operation_site(op, WEFT_PHASE_DATA, ring->partner);
    const char *at = ring->rings->words + word;
    return (enum weft_status)weft_max_u32(
        op->warp,
        (uint32_t)weft_wait(op->warp, (const uint64_t *)(const void *)at, at_least, &site));
}

/* Warp-wide: waits until the slot of the chunk may be written. */
WEFT_FN enum weft_status weft_ring_reserve(const struct weft_operation *op,
                                           const struct weft_ring *ring, uint64_t chunk)
{
    const uint64_t slot = ring->first_out + weft_ring_slot_idx(ring, chunk);
    return weft_ring_wait(op, ring, weft_rings_consumed(ring->rings, slot),
                          weft_ring_lap(ring, chunk));
}

WEFT_FN char *weft_ring_out_slot(const struct weft_ring *ring, uint64_t chunk)
{
    const uint64_t slot = ring->first_out + weft_ring_slot_idx(ring, chunk);
    return ring->rings->slots + weft_rings_out(ring->rings, slot);
}

/* Warp-wide: sends what has been written to the slot. */
WEFT_FN void weft_ring_send(struct weft_warp *warp, const struct weft_ring *ring, uint64_t chunk,
                            uint64_t num_bytes)
{
    const struct weft_rings *rings = ring->rings;
    const uint64_t slot = ring->first_out + weft_ring_slot_idx(ring, chunk);
    const struct weft_access put =
        weft_counted_put(ring->partner, rings->slots_place + weft_rings_out(rings, slot),
                         rings->slots_place + weft_rings_in(rings, slot), num_bytes,
                         rings->words_place + weft_rings_arrived(slot));
    weft_remote_post(warp, &put);
}

/* Warp-wide: waits for the chunk. */
WEFT_FN enum weft_status weft_ring_receive(const struct weft_operation *op,
                                           const struct weft_ring *ring, uint64_t chunk)
{
    const uint64_t slot = ring->first_in + weft_ring_slot_idx(ring, chunk);
    return weft_ring_wait(op, ring, weft_rings_arrived(slot), weft_ring_lap(ring, chunk) + 1);
}

WEFT_FN const char *weft_ring_in_slot(const struct weft_ring *ring, uint64_t chunk)
{
    const uint64_t slot = ring->first_in + weft_ring_slot_idx(ring, chunk);
    return ring->rings->slots + weft_rings_in(ring->rings, slot);
}

/* Warp-wide: the chunk has been read. */
WEFT_FN void weft_ring_consume(struct weft_warp *warp, const struct weft_ring *ring, uint64_t chunk)
{
    const struct weft_rings *rings = ring->rings;
    const uint64_t slot = ring->first_in + weft_ring_slot_idx(ring, chunk);
    const struct weft_access credit = weft_counted_put(
        ring->partner, 0, 0, 0, rings->words_place + weft_rings_consumed(rings, slot));
    weft_remote_post(warp, &credit);
}

#endif
