/* SPDX-License-Identifier: MIT */
/*
 * Packets of 16 bytes on the cuda machine; part of primitives.h. A packet is one scalar of 128 bits,
 * stored and loaded by relaxed accesses of system scope, which PTX says are in one piece;
 * docs/memory-model.md tells why that suffices.
 */
#ifndef WEFT_MACHINE_CUDA_PACKETS_H
#define WEFT_MACHINE_CUDA_PACKETS_H

#include "machine/cuda/partial.h"
#include "machine/cuda/rows.h"

#define WEFT_PACKET_BYTES 16

struct weft__cuda_packet {
    uint64_t words[2];
};

/* Leaves the packet as it is where `wanted` is 0, without a branch: several are loaded together. */
WEFT_FN void weft__cuda_load_packet(struct weft__cuda_packet *packet, const char *slot,
                                    uint32_t wanted)
{
    asm volatile("{\n .reg .pred wanted;\n .reg .b128 packet;\n"
                 " setp.ne.u32 wanted, %3, 0;\n"
                 " mov.b128 packet, {%0, %1};\n"
                 " @wanted ld.relaxed.sys.global.b128 packet, [%2];\n"
                 " mov.b128 {%0, %1}, packet;\n}"
                 : "+l"(packet->words[0]), "+l"(packet->words[1])
                 : "l"(slot), "r"(wanted)
                 : "memory");
}

WEFT_FN void weft__cuda_store_packet(char *slot, struct weft__cuda_packet packet)
{
    asm volatile("{\n .reg .b128 packet;\n"
                 " mov.b128 packet, {%1, %2};\n"
                 " st.relaxed.sys.global.b128 [%0], packet;\n}"
                 :
                 : "l"(slot), "l"(packet.words[0]), "l"(packet.words[1])
                 : "memory");
}

WEFT_FN int weft__cuda_is_empty(struct weft__cuda_packet packet)
{
    return (packet.words[0] | packet.words[1]) == 0;
}

WEFT_FN int weft__cuda_is_escape(struct weft__cuda_packet packet)
{
    return (packet.words[0] & packet.words[1]) == WEFT_PACKET_ESCAPE;
}

WEFT_FN struct weft__cuda_packet weft__cuda_packet_of(int4 chunk)
{
    return {{((uint64_t)(uint32_t)chunk.y << 32 | (uint32_t)chunk.x) ^ WEFT_PACKET_KEY(0),
             ((uint64_t)(uint32_t)chunk.w << 32 | (uint32_t)chunk.z) ^ WEFT_PACKET_KEY(1)}};
}

WEFT_FN int4 weft__cuda_chunk_of(struct weft__cuda_packet packet)
{
    const uint64_t low = packet.words[0] ^ WEFT_PACKET_KEY(0);
    const uint64_t high = packet.words[1] ^ WEFT_PACKET_KEY(1);
    return make_int4((int)low, (int)(low >> 32), (int)high, (int)(high >> 32));
}

WEFT_FN char *weft__cuda_slot(const struct weft_packets *packets, int32_t rank, uint64_t slot)
{
    return packets->areas[rank] + packets->slots_offset + slot * WEFT_PACKET_BYTES;
}

WEFT_FN uint64_t *weft__cuda_escape_word(const struct weft_packets *packets, int32_t rank,
                                         uint64_t slot)
{
    return (uint64_t *)(packets->areas[rank] + packets->escapes_offset) + slot;
}

/* ------------------------------------------------------------------ packets of rows in memory */

/* The row may be in shared memory, or among the arguments. */
WEFT_FN int4 weft__cuda_load_chunk(const void *from)
{
    int4 chunk;
    asm volatile("ld.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
                 : "l"(from)
                 : "memory");
    return chunk;
}

WEFT_FN void weft__cuda_store_chunk(void *to, int4 chunk)
{
    asm volatile("st.v4.s32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
                 : "memory");
}

WEFT_FN uint64_t weft__cuda_num_packets(uint64_t bytes)
{
    return (bytes + WEFT_PACKET_BYTES - 1) / WEFT_PACKET_BYTES;
}

/* What the lane has stored to the row before, the compiler must store before what reads it here. */
WEFT_FN void weft__cuda_begin_row(void)
{
    asm volatile("" ::: "memory");
}

/* Packet i of a row of `bytes`; beyond the row's end there are zeros. */
WEFT_FN int4 weft__cuda_read_packet(const void *row, uint64_t i, uint64_t bytes)
{
    const char *from = (const char *)row + i * WEFT_PACKET_BYTES;
    const uint64_t num_left = bytes - i * WEFT_PACKET_BYTES;
    if ((uint64_t)from % 16 == 0 && num_left >= WEFT_PACKET_BYTES)
        return weft__cuda_load_chunk(from);
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t byte = 0; byte < WEFT_PACKET_BYTES; byte++) {
        if (byte < num_left)
            words[byte / 4] |= (uint32_t)(uint8_t)from[byte] << (8 * (byte % 4));
    }
    return make_int4((int)words[0], (int)words[1], (int)words[2], (int)words[3]);
}

WEFT_FN void weft__cuda_write_packet(void *row, uint64_t i, uint64_t bytes, int4 chunk)
{
    char *to = (char *)row + i * WEFT_PACKET_BYTES;
    const uint64_t num_left = bytes - i * WEFT_PACKET_BYTES;
    if ((uint64_t)to % 16 == 0 && num_left >= WEFT_PACKET_BYTES) {
        weft__cuda_store_chunk(to, chunk);
        return;
    }
    /* By way of memory: see weft__cuda_store_element. */
    volatile uint32_t words[4] = {(uint32_t)chunk.x, (uint32_t)chunk.y, (uint32_t)chunk.z,
                                  (uint32_t)chunk.w};
#pragma unroll 1
    for (uint32_t byte = 0; byte < WEFT_PACKET_BYTES && byte < num_left; byte++)
        to[byte] = (char)(words[byte / 4] >> (8 * (byte % 4)));
}

/* ------------------------------------------------------------------ sending */

/* Calls act(rank) for each target, from the rank after the own one on: not everybody stores to rank 0
 * first. */
template <typename Act>
WEFT_FN void weft__cuda_for_targets(const struct weft_packets *packets,
                                    struct weft_packet_targets to, Act act)
{
    const int32_t next = packets->rank + 1;
    int32_t rank = next > to.begin && next < to.end ? next : to.begin;
#pragma unroll 1
    for (int32_t i = to.begin; i < to.end; i++) {
        if (rank != packets->rank)
            act(rank);
        rank = rank + 1 < to.end ? rank + 1 : to.begin;
    }
}

/* What to store for the data; where that must be an escape, tells the targets which it is. */
WEFT_FN struct weft__cuda_packet weft__cuda_encode_packet(struct weft_warp *warp,
                                                          const struct weft_packets *packets,
                                                          struct weft_packet_targets to, uint64_t i,
                                                          int4 chunk)
{
    const struct weft__cuda_packet packet = weft__cuda_packet_of(chunk);
    const int is_empty = weft__cuda_is_empty(packet);
    if (!is_empty && !weft__cuda_is_escape(packet))
        return packet;
    const uint64_t value =
        2 * packets->sequence + (is_empty ? WEFT_ESCAPE_EMPTY : WEFT_ESCAPE_ESCAPE);
    weft__cuda_for_targets(packets, to, [&](int32_t rank) {
        weft_signal(warp, rank, weft__cuda_escape_word(packets, rank, to.slot + i), value);
    });
    return {{WEFT_PACKET_ESCAPE, WEFT_PACKET_ESCAPE}};
}

/* Packets first, first + WEFT_WARP_SIZE, ...: those that are there before num_packets. */
template <int NUM>
WEFT_FN void weft__cuda_send_some(struct weft_warp *warp, const struct weft_packets *packets,
                                  struct weft_packet_targets to, uint64_t first,
                                  uint64_t num_packets, const int4 (&chunks)[NUM])
{
    struct weft__cuda_packet sent[NUM];
#pragma unroll
    for (int u = 0; u < NUM; u++) {
        if (first + (uint64_t)u * WEFT_WARP_SIZE < num_packets)
            sent[u] =
                weft__cuda_encode_packet(warp, packets, to, first + u * WEFT_WARP_SIZE, chunks[u]);
    }
    weft__cuda_for_targets(packets, to, [&](int32_t rank) {
        char *slot = weft__cuda_slot(packets, rank, to.slot + first);
#pragma unroll
        for (int u = 0; u < NUM; u++) {
            if (first + (uint64_t)u * WEFT_WARP_SIZE < num_packets)
                weft__cuda_store_packet(slot + u * WEFT_WARP_SIZE * WEFT_PACKET_BYTES, sent[u]);
        }
    });
}

WEFT_FN void weft_packets_send(struct weft_warp *warp, const struct weft_packets *packets,
                               struct weft_packet_targets to, const void *src, uint64_t bytes)
{
    enum { UNROLL = 4 };
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
    const uint64_t num_whole = (uint64_t)src % 16 == 0 ? bytes / WEFT_PACKET_BYTES : 0;
    uint64_t first = (uint64_t)weft_lane_idx(warp);
    weft__cuda_begin_row();
#pragma unroll 1
    for (; first < num_whole; first += UNROLL * WEFT_WARP_SIZE) {
        int4 chunks[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (first + (uint64_t)u * WEFT_WARP_SIZE < num_whole)
                chunks[u] = weft__cuda_load_chunk((const int4 *)src + first + u * WEFT_WARP_SIZE);
        }
        weft__cuda_send_some(warp, packets, to, first, num_whole, chunks);
    }
    /* Of the lane's packets, those that are not whole or not aligned. */
    first = num_whole / WEFT_WARP_SIZE * WEFT_WARP_SIZE + (uint64_t)weft_lane_idx(warp);
    if (first < num_whole)
        first += WEFT_WARP_SIZE;
#pragma unroll 1
    for (; first < num_packets; first += WEFT_WARP_SIZE) {
        const int4 chunks[1] = {weft__cuda_read_packet(src, first, bytes)};
        weft__cuda_send_some(warp, packets, to, first, num_packets, chunks);
    }
}

/* ------------------------------------------------------------------ taking */

/* Slots that a lane takes together: slot + s * slots_apart, which rank + s * ranks_apart fills, for each
 * bit s of `wanted`. */
struct weft__cuda_slots {
    uint64_t slot;
    uint64_t slots_apart;
    int32_t rank;
    int32_t ranks_apart;
    uint32_t wanted;
};

WEFT_FN struct weft_wait_site weft__cuda_site_of(const struct weft_packets *packets,
                                                 const struct weft__cuda_slots *slots, int s)
{
    return {WEFT_PHASE_DATA, slots->rank + s * slots->ranks_apart, packets->sequence,
            packets->exchange};
}

/* Loads all slots that are wanted, again and again those that were empty. */
template <int NUM>
WEFT_FN enum weft_status weft__cuda_await_packets(struct weft_warp *warp,
                                                  const struct weft_packets *packets,
                                                  const struct weft__cuda_slots *slots,
                                                  struct weft__cuda_packet (&taken)[NUM])
{
    const char *first = weft__cuda_slot(packets, packets->rank, slots->slot);
    struct weft__cuda_patience patience = {0, 0, WEFT_FAILURE_NONE};
    uint32_t missing = slots->wanted;
    for (;;) {
#pragma unroll
        for (int s = 0; s < NUM; s++)
            weft__cuda_load_packet(&taken[s], first + s * slots->slots_apart * WEFT_PACKET_BYTES,
                                   missing >> s & 1u);
#pragma unroll
        for (int s = 0; s < NUM; s++) {
            if (!weft__cuda_is_empty(taken[s]))
                missing &= ~(1u << s);
        }
        if (missing == 0)
            return WEFT_STATUS_OK;
        const struct weft_wait_site site = weft__cuda_site_of(packets, slots, __ffs(missing) - 1);
        if (patience.why != WEFT_FAILURE_NONE) {
            const struct weft_failure failure = {patience.why, site, 0, packets->sequence, 0};
            return weft_fail(warp, &failure);
        }
        weft__cuda_be_patient(warp, &site, &patience);
    }
}

/* Those of `escaped` whose stored words would be zero get them back; the others are what they say. */
template <int NUM>
WEFT_FN enum weft_status
weft__cuda_resolve_escapes(struct weft_warp *warp, const struct weft_packets *packets,
                           const struct weft__cuda_slots *slots, uint32_t escaped,
                           struct weft__cuda_packet (&taken)[NUM])
{
    uint32_t zero = 0;
#pragma unroll 1
    for (; escaped != 0; escaped &= escaped - 1) {
        const int s = __ffs(escaped) - 1;
        const struct weft_wait_site site = weft__cuda_site_of(packets, slots, s);
        const uint64_t *word =
            weft__cuda_escape_word(packets, packets->rank, slots->slot + s * slots->slots_apart);
        const enum weft_status status = weft_wait(warp, word, 2 * packets->sequence, &site);
        if (status != WEFT_STATUS_OK)
            return status;
        if (weft__cuda_load_acquire(word) % 2 == WEFT_ESCAPE_EMPTY)
            zero |= 1u << s;
    }
#pragma unroll
    for (int s = 0; s < NUM; s++) {
        if (zero >> s & 1u)
            taken[s] = {{0, 0}};
    }
    return WEFT_STATUS_OK;
}

/* Waits for the packets that are wanted, empties their slots, and gives the data. */
template <int NUM>
WEFT_FN enum weft_status
weft__cuda_take_packets(struct weft_warp *warp, const struct weft_packets *packets,
                        const struct weft__cuda_slots *slots, int4 (&chunks)[NUM])
{
    struct weft__cuda_packet taken[NUM] = {};
    enum weft_status status = weft__cuda_await_packets(warp, packets, slots, taken);
    uint32_t escaped = 0;
#pragma unroll
    for (int s = 0; s < NUM; s++)
        escaped |= (uint32_t)weft__cuda_is_escape(taken[s]) << s;
    if (status == WEFT_STATUS_OK && escaped != 0)
        status = weft__cuda_resolve_escapes(warp, packets, slots, escaped, taken);
    if (status != WEFT_STATUS_OK)
        return status;
    char *first = weft__cuda_slot(packets, packets->rank, slots->slot);
#pragma unroll
    for (int s = 0; s < NUM; s++) {
        if (slots->wanted >> s & 1u)
            weft__cuda_store_packet(first + s * slots->slots_apart * WEFT_PACKET_BYTES, {{0, 0}});
        chunks[s] = weft__cuda_chunk_of(taken[s]);
    }
    return WEFT_STATUS_OK;
}

WEFT_FN enum weft_status weft__cuda_same_status(enum weft_status status)
{
    return __any_sync(0xffffffffu, status != WEFT_STATUS_OK) ? WEFT_STATUS_FAILED : WEFT_STATUS_OK;
}

WEFT_FN enum weft_status weft_packets_receive(struct weft_warp *warp,
                                              const struct weft_packets *packets, int32_t from,
                                              uint64_t slot, void *dst, uint64_t bytes)
{
    enum { UNROLL = 4 };
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
    enum weft_status status = WEFT_STATUS_OK;
#pragma unroll 1
    for (uint64_t first = (uint64_t)weft_lane_idx(warp); first < num_packets;
         first += UNROLL * WEFT_WARP_SIZE) {
        struct weft__cuda_slots slots = {slot + first, WEFT_WARP_SIZE, from, 0, 0};
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            slots.wanted |= (uint32_t)(first + (uint64_t)u * WEFT_WARP_SIZE < num_packets) << u;
        int4 chunks[UNROLL];
        status = weft__cuda_take_packets(warp, packets, &slots, chunks);
        if (status != WEFT_STATUS_OK)
            break;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (slots.wanted >> u & 1u)
                weft__cuda_write_packet(dst, first + u * WEFT_WARP_SIZE, bytes, chunks[u]);
        }
    }
    return weft__cuda_same_status(status);
}

/* No value of the words is an escape. A lane for each target; WEFT_COLL_MAX_RANKS are as many as lanes. */
WEFT_FN void weft_packets_send_words(struct weft_warp *warp, const struct weft_packets *packets,
                                     struct weft_packet_targets to, const uint64_t words[2])
{
    const int32_t rank = to.begin + weft_lane_idx(warp);
    if (rank < to.end && rank != packets->rank)
        weft__cuda_store_packet(weft__cuda_slot(packets, rank, to.slot),
                                {{words[0] ^ WEFT_PACKET_KEY(0), words[1] ^ WEFT_PACKET_KEY(1)}});
}

WEFT_FN enum weft_status weft_packets_take_words(struct weft_warp *warp,
                                                 const struct weft_packets *packets, int32_t from,
                                                 uint64_t slot, uint64_t words[2])
{
    const struct weft__cuda_slots slots = {slot, 0, from, 0, 1};
    struct weft__cuda_packet taken[1] = {};
    const enum weft_status status =
        weft__cuda_same_status(weft__cuda_await_packets(warp, packets, &slots, taken));
    if (weft_lane_idx(warp) == 0 && status == WEFT_STATUS_OK)
        weft__cuda_store_packet(weft__cuda_slot(packets, packets->rank, slot), {{0, 0}});
    words[0] = taken[0].words[0] ^ WEFT_PACKET_KEY(0);
    words[1] = taken[0].words[1] ^ WEFT_PACKET_KEY(1);
    return status;
}

WEFT_FN void weft_acquire_packets(struct weft_warp *warp)
{
    (void)warp;
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

/* ------------------------------------------------------------------ reducing */

/* Packet i of every rank, so many ranks at once as registers hold. */
WEFT_FN enum weft_status
weft__cuda_reduce_packet(struct weft_warp *warp, const struct weft_packets *packets,
                         const struct weft_packet_sources *from, uint64_t i, int4 own,
                         struct weft_reduction reduction, struct weft__cuda_partial *partial)
{
    enum { AT_ONCE = 4 };
#pragma unroll 1
    for (int32_t first = 0; first < packets->num_ranks; first += AT_ONCE) {
        const int32_t num_left = packets->num_ranks - first;
        const uint32_t present = num_left < AT_ONCE ? (1u << num_left) - 1 : (1u << AT_ONCE) - 1;
        const uint32_t own_bit = first <= packets->rank && packets->rank < first + AT_ONCE
                                     ? 1u << (packets->rank - first)
                                     : 0;
        const struct weft__cuda_slots slots = {from->slot + (uint64_t)first * from->slots_per_rank +
                                                   i,
                                               from->slots_per_rank, first, 1, present & ~own_bit};
        int4 chunks[AT_ONCE];
        const enum weft_status status = weft__cuda_take_packets(warp, packets, &slots, chunks);
        if (status != WEFT_STATUS_OK)
            return status;
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            if (own_bit >> s & 1u)
                chunks[s] = own;
        }
        weft__cuda_partial_add_all(partial, reduction, chunks, present);
    }
    return WEFT_STATUS_OK;
}

/* A lane's packets of a row. Called, which leaves the sums below their registers. */
static __device__ __noinline__ enum weft_status
weft__cuda_reduce_packets(struct weft_warp *warp, const struct weft_packets *packets,
                          const struct weft_packet_sources *from, void *dst,
                          struct weft_reduction reduction, uint64_t bytes)
{
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
#pragma unroll 1
    for (uint64_t i = (uint64_t)weft_lane_idx(warp); i < num_packets; i += WEFT_WARP_SIZE) {
        const int4 own = weft__cuda_read_packet(from->own, i, bytes); /* comes while others do */
        struct weft__cuda_partial partial;
        weft__cuda_partial_begin(&partial, reduction);
        const enum weft_status status =
            weft__cuda_reduce_packet(warp, packets, from, i, own, reduction, &partial);
        if (status != WEFT_STATUS_OK)
            return status;
        weft__cuda_write_packet(dst, i, bytes,
                                weft__cuda_partial_end(&partial, reduction, packets->num_ranks));
    }
    return WEFT_STATUS_OK;
}

/* The same for sums of a type among at most MAX_RANKS, without a choice on the way: what is done most, and
 * where every instruction counts. */
template <typename E, int MAX_RANKS>
WEFT_FN enum weft_status
weft__cuda_sum_packets(struct weft_warp *warp, const struct weft_packets *packets,
                       const struct weft_packet_sources *from, void *dst, uint64_t bytes)
{
    enum { PER_CHUNK = 16 / sizeof(E) };
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
    const uint32_t present = (1u << packets->num_ranks) - 1, own_bit = 1u << packets->rank;
#pragma unroll 1
    for (uint64_t i = (uint64_t)weft_lane_idx(warp); i < num_packets; i += WEFT_WARP_SIZE) {
        const struct weft__cuda_slots slots = {from->slot + i, from->slots_per_rank, 0, 1,
                                               present & ~own_bit};
        const int4 own = weft__cuda_read_packet(from->own, i, bytes);
        int4 chunks[MAX_RANKS];
        const enum weft_status status = weft__cuda_take_packets(warp, packets, &slots, chunks);
        if (status != WEFT_STATUS_OK)
            return status;
        float sum[PER_CHUNK], values[PER_CHUNK];
#pragma unroll
        for (int e = 0; e < PER_CHUNK; e++)
            sum[e] = -0.0f;
#pragma unroll
        for (int s = 0; s < MAX_RANKS; s++) {
            weft__cuda_decode(values, s == packets->rank ? own : chunks[s], E());
#pragma unroll
            for (int e = 0; e < PER_CHUNK; e++)
                sum[e] = present >> s & 1u ? __fadd_rn(sum[e], values[e]) : sum[e];
        }
        weft__cuda_write_packet(dst, i, bytes, weft__cuda_encode(sum, E()));
    }
    return WEFT_STATUS_OK;
}

template <typename E>
WEFT_FN enum weft_status
weft__cuda_sum_packets_of(struct weft_warp *warp, const struct weft_packets *packets,
                          const struct weft_packet_sources *from, void *dst, uint64_t bytes)
{
    return packets->num_ranks <= 4 ? weft__cuda_sum_packets<E, 4>(warp, packets, from, dst, bytes)
                                   : weft__cuda_sum_packets<E, 8>(warp, packets, from, dst, bytes);
}

WEFT_FN uint64_t weft_dtype_bytes(weft_dtype dtype); /* machine.h */

WEFT_FN enum weft_status weft_packets_reduce(struct weft_warp *warp,
                                             const struct weft_packets *packets,
                                             const struct weft_packet_sources *from, void *dst,
                                             struct weft_reduction reduction, uint64_t num_elements)
{
    const uint64_t bytes = num_elements * weft_dtype_bytes(reduction.dtype);
    const int is_sum = reduction.op == WEFT_REDUCTION_SUM && packets->num_ranks <= 8;
    enum weft_status status;
    if (is_sum && reduction.dtype == WEFT_BF16)
        status = weft__cuda_sum_packets_of<__nv_bfloat16>(warp, packets, from, dst, bytes);
    else if (is_sum && reduction.dtype == WEFT_FP16)
        status = weft__cuda_sum_packets_of<__half>(warp, packets, from, dst, bytes);
    else if (is_sum && reduction.dtype == WEFT_FP32)
        status = weft__cuda_sum_packets_of<float>(warp, packets, from, dst, bytes);
    else
        status = weft__cuda_reduce_packets(warp, packets, from, dst, reduction, bytes);
    return weft__cuda_same_status(status);
}

#endif
