/* SPDX-License-Identifier: MIT */
/* Packets on the cuda machine, taken and reduced; part of primitives.h. */
#pragma once

#include "machine/cuda/accumulate.h"
#include "machine/cuda/cuda_packets.h"
#include "machine/cuda/partial.h"

/* Packet i of every rank, so many ranks at once as registers hold. */
WP_FN enum wp_status weft__cuda_reduce_packet(struct wp_warp *warp,
                                              const struct wp_packets *packets,
                                              const struct wp_packet_sources *from, uint64_t i,
                                              int4 own, struct wp_reduction reduction,
                                              struct weft__cuda_partial *partial)
{
    enum { AT_ONCE = 4 };
#pragma unroll 1
    for (int32_t first = 0; first < packets->num_ranks; first += AT_ONCE) {
        const int32_t num_left = packets->num_ranks - first;
        const uint32_t present = num_left < AT_ONCE ? (1u << num_left) - 1 : (1u << AT_ONCE) - 1;
        const uint32_t own_bit = first <= packets->rank && packets->rank < first + AT_ONCE
                                     ? 1u << (packets->rank - first)
                                     : 0;
        const weft__cuda_slots slots = {from->slot + (uint64_t)first * from->slots_per_rank + i,
                                        from->slots_per_rank, first, 1, present & ~own_bit};
        int4 chunks[AT_ONCE];
        const enum wp_status status = weft__cuda_take_packets(warp, packets, &slots, NULL, chunks);
        if (status != WP_STATUS_OK)
            return status;
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            if (own_bit >> s & 1u)
                chunks[s] = own;
        }
        weft__cuda_partial_add_all(partial, reduction, chunks, present);
    }
    return WP_STATUS_OK;
}

/* A lane's packets of a row. Called, which leaves the sums below their registers. */
WP_CALLED_FN enum wp_status weft__cuda_reduce_packets(struct wp_warp *warp,
                                                      const struct wp_packets *packets,
                                                      const struct wp_packet_sources *from,
                                                      void *dst, struct wp_reduction reduction,
                                                      uint64_t bytes)
{
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
#pragma unroll 1
    for (uint64_t i = (uint64_t)wp_lane_idx(warp); i < num_packets; i += WP_WARP_SIZE) {
        const int4 own = weft__cuda_read_packet(from->own, i, bytes); /* comes while others do */
        struct weft__cuda_partial partial;
        weft__cuda_partial_begin(&partial, reduction);
        const enum wp_status status =
            weft__cuda_reduce_packet(warp, packets, from, i, own, reduction, &partial);
        if (status != WP_STATUS_OK)
            return status;
        weft__cuda_write_packet(dst, i, bytes,
                                weft__cuda_partial_end(&partial, reduction, packets->num_ranks));
    }
    return WP_STATUS_OK;
}

enum weft__cuda_ranks { WEFT__CUDA_RANKS_ARE_MAX, WEFT__CUDA_RANKS_AT_MOST_MAX };

/* The sum of what the ranks that are present have, in their order. */
template <typename E, int MAX_RANKS>
WP_FN int4 weft__cuda_sum_chunks(const int4 (&chunks)[MAX_RANKS], uint32_t present)
{
    enum { PER_CHUNK = 16 / sizeof(E) };
    float sum[PER_CHUNK], values[PER_CHUNK];
    weft__cuda_decode(sum, chunks[0], E()); /* rank 0 is always there */
#pragma unroll
    for (int s = 1; s < MAX_RANKS; s++) {
        weft__cuda_decode(values, chunks[s], E());
#pragma unroll
        for (int e = 0; e < PER_CHUNK; e++)
            sum[e] = present >> s & 1u ? __fadd_rn(sum[e], values[e]) : sum[e];
    }
    return weft__cuda_encode(sum, E());
}

/* A reduction whose type is known, and which is a sum, so that nothing is chosen on the way. This
 * is the most frequent one, where every instruction counts. */
template <typename E, int MAX_RANKS, weft__cuda_ranks RANKS>
WP_FN enum wp_status weft__cuda_sum_packets(struct wp_warp *warp, const struct wp_packets *packets,
                                            const struct wp_packet_sources *from, void *dst,
                                            uint64_t bytes)
{
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
    const int32_t num_ranks = RANKS == WEFT__CUDA_RANKS_ARE_MAX ? MAX_RANKS : packets->num_ranks;
    const uint32_t present = (1u << num_ranks) - 1, own_bit = 1u << packets->rank;
#pragma unroll 1
    for (uint64_t i = (uint64_t)wp_lane_idx(warp); i < num_packets; i += WP_WARP_SIZE) {
        const weft__cuda_slots slots = {from->slot + i, from->slots_per_rank, 0, 1,
                                        present & ~own_bit};
        const int4 own = weft__cuda_read_packet(from->own, i, bytes);
        int4 chunks[MAX_RANKS];
        const enum wp_status status = weft__cuda_take_packets(warp, packets, &slots, NULL, chunks);
        if (status != WP_STATUS_OK)
            return status;
#pragma unroll
        for (int s = 0; s < MAX_RANKS; s++)
            chunks[s] = s == packets->rank ? own : chunks[s];
        weft__cuda_write_packet(dst, i, bytes, weft__cuda_sum_chunks<E>(chunks, present));
    }
    return WP_STATUS_OK;
}

template <typename E>
WP_FN enum wp_status
weft__cuda_sum_packets_of(struct wp_warp *warp, const struct wp_packets *packets,
                          const struct wp_packet_sources *from, void *dst, uint64_t bytes)
{
    switch (packets->num_ranks) {
    case 2:
        return weft__cuda_sum_packets<E, 2, WEFT__CUDA_RANKS_ARE_MAX>(warp, packets, from, dst,
                                                                      bytes);
    case 4:
        return weft__cuda_sum_packets<E, 4, WEFT__CUDA_RANKS_ARE_MAX>(warp, packets, from, dst,
                                                                      bytes);
    case 8:
        return weft__cuda_sum_packets<E, 8, WEFT__CUDA_RANKS_ARE_MAX>(warp, packets, from, dst,
                                                                      bytes);
    default:
        return weft__cuda_sum_packets<E, 8, WEFT__CUDA_RANKS_AT_MOST_MAX>(warp, packets, from, dst,
                                                                          bytes);
    }
}

/* A lane's packets, of so many ranks at once. */
template <typename E, int AT_ONCE>
WP_FN enum wp_status weft__cuda_sum_some(struct wp_warp *warp, const struct wp_packets *packets,
                                         const struct wp_packet_rows *from, void *dst,
                                         uint64_t bytes, struct wp_packet_progress *progress)
{
    const uint64_t num_packets = weft__cuda_num_packets(bytes);
#pragma unroll 1
    for (uint64_t i = (uint64_t)wp_lane_idx(warp) + weft__cuda_num_taken(progress); i < num_packets;
         i += WP_WARP_SIZE) {
        const float begin = from->ranks == 0 ? 0.0f : -0.0f; /* the sum of none is +0 */
        float sum[16 / sizeof(E)];
#pragma unroll
        for (int e = 0; e < (int)(16 / sizeof(E)); e++)
            sum[e] = begin;
        uint32_t left = from->ranks;
#pragma unroll 1
        for (int32_t first = 0; left != 0; first += AT_ONCE, left >>= AT_ONCE) {
            const uint32_t present = left & ((1u << AT_ONCE) - 1);
            const weft__cuda_slots slots = {from->slot + (uint64_t)first * from->slots_per_rank + i,
                                            from->slots_per_rank, first, 1, present};
            int4 chunks[AT_ONCE];
            const enum wp_status status =
                weft__cuda_take_packets(warp, packets, &slots, progress, chunks);
            if (status != WP_STATUS_OK) {
                weft__cuda_note_taken(warp, progress, i);
                return status;
            }
            weft__cuda_add_chunks<E>(sum, chunks, present);
            if (AT_ONCE == 8 && WEFT__CUDA_PACKETS_ARE_SHORT)
                break; /* these have no more ranks */
        }
        weft__cuda_write_packet(dst, i, bytes, weft__cuda_encode(sum, E()));
        if (WEFT__CUDA_PACKETS_ARE_SHORT)
            break;
    }
    weft__cuda_note_taken(warp, progress, INT32_MAX); /* of a call that is repeated */
    return WP_STATUS_OK;
}

/* More ranks than are taken at once are none of those that may be missing: a lane takes all or
 * none. */
template <typename E>
WP_FN enum wp_status weft__cuda_sum_of(struct wp_warp *warp, const struct wp_packets *packets,
                                       const struct wp_packet_rows *from, void *dst, uint64_t bytes,
                                       struct wp_packet_progress *progress)
{
    return packets->num_ranks <= 4
               ? weft__cuda_sum_some<E, 4>(warp, packets, from, dst, bytes, progress)
               : weft__cuda_sum_some<E, 8>(warp, packets, from, dst, bytes, progress);
}

WP_FN enum wp_status wp_packets_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                    const struct wp_packet_rows *from, void *dst, weft_dtype dtype,
                                    uint64_t num_elements, struct wp_packet_progress *progress)
{
    enum wp_status status;
    if (dtype == WEFT_BF16)
        status = weft__cuda_sum_of<weft__cuda_bf16>(warp, packets, from, dst, num_elements * 2,
                                                    progress);
    else if (dtype == WEFT_FP16)
        status = weft__cuda_sum_of<__half>(warp, packets, from, dst, num_elements * 2, progress);
    else
        status = weft__cuda_sum_of<float>(warp, packets, from, dst, num_elements * 4, progress);
    return weft__cuda_same_status(status);
}

WP_FN uint64_t wp_dtype_bytes(weft_dtype dtype); /* machine.h */

WP_FN enum wp_status wp_packets_reduce(struct wp_warp *warp, const struct wp_packets *packets,
                                       const struct wp_packet_sources *from, void *dst,
                                       struct wp_reduction reduction, uint64_t num_elements)
{
    const uint64_t bytes = num_elements * wp_dtype_bytes(reduction.dtype);
    const int is_sum = reduction.op == WP_REDUCTION_SUM && packets->num_ranks <= 8;
    enum wp_status status;
    if (is_sum && reduction.dtype == WEFT_BF16)
        status = weft__cuda_sum_packets_of<weft__cuda_bf16>(warp, packets, from, dst, bytes);
    else if (is_sum && reduction.dtype == WEFT_FP16)
        status = weft__cuda_sum_packets_of<__half>(warp, packets, from, dst, bytes);
    else if (is_sum && reduction.dtype == WEFT_FP32)
        status = weft__cuda_sum_packets_of<float>(warp, packets, from, dst, bytes);
    else {
        /* Copies, so that what the others use can be in registers. */
        struct wp_warp called_warp = *warp;
        const struct wp_packets called_packets = *packets;
        const struct wp_packet_sources called_from = *from;
        status = weft__cuda_reduce_packets(&called_warp, &called_packets, &called_from, dst,
                                           reduction, bytes);
    }
    return weft__cuda_same_status(status);
}
