/* SPDX-License-Identifier: MIT */
/* Rows sent in packets on the cuda machine; part of primitives.h. */
#pragma once

#include "machine/cuda/packet_slots.h"

/* Some programs know that no row has more than a packet for each lane; but if they are quantised on
 * the way, they have two units of 16 bytes before. */
#ifdef WP_PACKETS_ARE_SHORT
#define WEFT__CUDA_PACKETS_ARE_SHORT 1
#else
#define WEFT__CUDA_PACKETS_ARE_SHORT 0
#endif
#ifdef WP_PACKETS_ARE_QUANTISED
#define WEFT__CUDA_SHORT_UNITS 2
#else
#define WEFT__CUDA_SHORT_UNITS 1
#endif

/* Others know that rows which are sent have four whole packets for each lane at most, which are on
 * their way together. Of those that come they take as many at a time. */
#ifdef WP_PACKETS_ARE_LONG
#define WEFT__CUDA_PACKETS_ARE_LONG 1
#else
#define WEFT__CUDA_PACKETS_ARE_LONG 0
#endif

/* Calls act(rank) for each target, from the rank after the own one on: not everybody stores to rank
 * 0 first. */
template <typename Act>
WP_FN void weft__cuda_for_targets(const struct wp_packets *packets, struct wp_packet_targets to,
                                  Act act)
{
    const int32_t next = packets->rank + 1;
    int32_t rank = next > to.begin && next < to.end ? next : to.begin;
#pragma unroll 1
    for (int32_t i = to.begin; i < to.end; i++) {
        if (wp_packets_go_to(packets, to, rank))
            act(rank);
        rank = rank + 1 < to.end ? rank + 1 : to.begin;
    }
}

/* Tells the targets what those packets say for which escapes are stored: `empty` of them zeros. */
WP_FN void weft__cuda_tell_escapes(struct wp_warp *warp, const struct wp_packets *packets,
                                   struct wp_packet_targets to, uint64_t first, uint32_t apart,
                                   uint32_t escaped, uint32_t empty)
{
#pragma unroll 1
    for (; escaped != 0; escaped &= escaped - 1) {
        const int u = __ffs(escaped) - 1;
        const uint64_t value =
            2 * packets->sequence + (empty >> u & 1u ? WP_ESCAPE_EMPTY : WP_ESCAPE_ESCAPE);
        weft__cuda_for_targets(packets, to, [&](int32_t rank) {
            wp_signal(warp, rank,
                      weft__cuda_escape_word(packets, rank, to.slot + first + u * apart), value);
        });
    }
}

/* Packets first, first + apart, ... that are set. */
template <int NUM>
WP_FN void weft__cuda_send_some(struct wp_warp *warp, const struct wp_packets *packets,
                                struct wp_packet_targets to, uint64_t first,
                                const int4 (&chunks)[NUM], uint32_t set,
                                uint32_t apart = WP_WARP_SIZE)
{
    struct weft__cuda_packet sent[NUM];
    uint32_t empty = 0, escaped = 0;
#pragma unroll
    for (int u = 0; u < NUM; u++) {
        sent[u] = weft__cuda_packet_of(chunks[u]);
        empty |= (uint32_t)weft__cuda_is_empty(sent[u]) << u;
        escaped |= (uint32_t)weft__cuda_is_escape(sent[u]) << u;
    }
    escaped = (escaped | empty) & set;
    if (escaped != 0) {
        weft__cuda_tell_escapes(warp, packets, to, first, apart, escaped, empty);
#pragma unroll
        for (int u = 0; u < NUM; u++) {
            if (escaped >> u & 1u)
                sent[u] = {{WP_PACKET_ESCAPE, WP_PACKET_ESCAPE}};
        }
    }
    weft__cuda_for_targets(packets, to, [&](int32_t rank) {
        char *slot = weft__cuda_slot(packets, rank, to.slot + first);
#pragma unroll
        for (int u = 0; u < NUM; u++) {
            if (set >> u & 1u)
                weft__cuda_store_packet(slot + u * apart * WP_PACKET_BYTES, sent[u]);
        }
    });
}

/* A row that is to be sent. Where a lane has few whole packets of it at most, these are loaded:
 * short messages have no instructions to spare, nor time to wait for one load after the other. */
enum { WEFT__CUDA_LOADED = WEFT__CUDA_PACKETS_ARE_LONG ? 4 : WEFT__CUDA_SHORT_UNITS };
struct wp_packet_row {
    const void *src;
    uint64_t bytes;
    int4 chunks[WEFT__CUDA_LOADED];
    uint32_t loaded; /* of the lane's: a bit for each */
};

WP_FN struct wp_packet_row wp_packets_load(struct wp_warp *warp, const void *src, uint64_t bytes)
{
    enum { MOST_BYTES = WEFT__CUDA_LOADED * WP_WARP_SIZE * WP_PACKET_BYTES };
    struct wp_packet_row row;
    const int is_short = WEFT__CUDA_PACKETS_ARE_SHORT || WEFT__CUDA_PACKETS_ARE_LONG ||
                         (bytes <= MOST_BYTES && (uint64_t)src % 16 == 0);
    row.src = src;
    row.bytes = bytes;
    row.loaded = 0;
    weft__cuda_begin_row();
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LOADED; u++) {
        const uint32_t i = (uint32_t)wp_lane_idx(warp) + u * WP_WARP_SIZE;
        row.chunks[u] = make_int4(0, 0, 0, 0);
        if (is_short && (i + 1) * WP_PACKET_BYTES <= (uint32_t)bytes) {
            row.chunks[u] = weft__cuda_load_chunk((const int4 *)src + i);
            row.loaded |= 1u << u;
        }
    }
    return row;
}

WP_FN void weft__cuda_send_long(struct wp_warp *warp, const struct wp_packets *packets,
                                struct wp_packet_targets to, const void *src, uint64_t bytes)
{
    enum { UNROLL = 4, LAST = (UNROLL - 1) * WP_WARP_SIZE };
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
    const uint64_t num_whole = (uint64_t)src % 16 == 0 ? bytes / WP_PACKET_BYTES : 0;
    uint64_t first = (uint64_t)wp_lane_idx(warp);
#pragma unroll 1
    for (; first + LAST < num_whole; first += UNROLL * WP_WARP_SIZE) {
        int4 chunks[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            chunks[u] = weft__cuda_load_chunk((const int4 *)src + first + u * WP_WARP_SIZE);
        weft__cuda_send_some(warp, packets, to, first, chunks, (1u << UNROLL) - 1);
    }
#pragma unroll 1
    for (; first < num_packets; first += WP_WARP_SIZE) {
        const int4 chunks[1] = {weft__cuda_read_packet(src, first, bytes)};
        weft__cuda_send_some(warp, packets, to, first, chunks, 1);
    }
}

WP_FN void wp_packets_send(struct wp_warp *warp, const struct wp_packets *packets,
                           struct wp_packet_targets to, const struct wp_packet_row *row)
{
    if (row->loaded != 0) {
        weft__cuda_send_some(warp, packets, to, (uint64_t)wp_lane_idx(warp), row->chunks,
                             WEFT__CUDA_LOADED == 1 ? 1 : row->loaded);
    } else if (!WEFT__CUDA_PACKETS_ARE_SHORT && !WEFT__CUDA_PACKETS_ARE_LONG) {
        weft__cuda_send_long(warp, packets, to, row->src, row->bytes);
    }
}
