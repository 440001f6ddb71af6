/* SPDX-License-Identifier: MIT */
/* Packets of rows of WEFT_LOG_10BIT on the cuda machine; part of primitives.h. Of a block a lane has two octets, as log_blocks.h
 * has them, and two packets: low bytes of an octet of its own and of its neighbour's; and, in some lanes, high bits of a
 * group, or the headers. */
#pragma once

#include "machine/cuda/log_blocks.h"
#include "machine/cuda/packets.h"
#include "machine/cuda/quantised_packets.h"

enum {
    WEFT__CUDA_LOG_BLOCK_PACKETS = WEFT__LOG_BLOCK_BYTES / WP_PACKET_BYTES,
    WEFT__CUDA_LOG_PACKETS = 2 /* that a lane has */
};
static_assert(WEFT__LOG_BLOCK_BYTES % WP_PACKET_BYTES == 0, "blocks begin with a packet");

/* Which packets a lane has of a block of so many groups. */
struct weft__cuda_log_turn {
    uint32_t low, rest;
    uint32_t set; /* whether there are such ones: a bit for each */
};

enum { WEFT__CUDA_LOG_HIGH_LANES = 4 /* of 16 */, WEFT__CUDA_LOG_HEADERS_LANE = 4 };

WP_FN struct weft__cuda_log_turn weft__cuda_log_turn_of(uint32_t lane_idx, uint32_t num_groups)
{
    const uint32_t lane = lane_idx % WEFT__CUDA_LOG_LANES;
    const uint32_t group = weft__cuda_group_of(lane_idx, (int)(lane_idx % 2));
    const int has_high = lane < WEFT__CUDA_LOG_HIGH_LANES;
    const int has_low = group < num_groups;
    const int has_rest = has_high ? has_low : lane_idx == WEFT__CUDA_LOG_HEADERS_LANE;
    return {lane_idx % 2 * (WP_WARP_SIZE / 2) + lane_idx / 2,
            has_high ? 8 * num_groups + 2 * group + lane / 2 : 10 * num_groups,
            (uint32_t)has_low | (uint32_t)has_rest << 1};
}

/* ------------------------------------------------------------------ octets and packets */

WP_FN void weft__cuda_pack_log(uint32_t lane_idx, int4 (&chunks)[WEFT__CUDA_LOG_PACKETS],
                               const struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS])
{
    const weft__cuda_unit<8> low[] = {codes[0].low, codes[1].low};
    const weft__cuda_unit<8> high[] = {codes[0].high, codes[1].high};
    int4 low_chunk[1], high_chunk[1];
    weft__cuda_pair_codes(lane_idx, low, low_chunk);
    weft__cuda_pair_codes(lane_idx, high, high_chunk);
    const uint32_t first = codes[0].header.words[0], third = codes[1].header.words[0];
    const uint32_t second = __shfl_xor_sync(0xffffffffu, first, WEFT__CUDA_LOG_LANES);
    const uint32_t fourth = __shfl_xor_sync(0xffffffffu, third, WEFT__CUDA_LOG_LANES);
    chunks[0] = low_chunk[0];
    chunks[1] = lane_idx % WEFT__CUDA_LOG_LANES < WEFT__CUDA_LOG_HIGH_LANES
                    ? high_chunk[0]
                    : make_int4((int)first, (int)second, (int)third, (int)fourth);
}

/* The way back of weft__cuda_pair_codes. */
WP_FN void weft__cuda_unpair_codes(uint32_t lane_idx, int4 chunk, weft__cuda_unit<8> *first,
                                   weft__cuda_unit<8> *second)
{
    const int is_odd = lane_idx % 2;
    const uint32_t low = __shfl_xor_sync(0xffffffffu, (uint32_t)(is_odd ? chunk.x : chunk.z), 1);
    const uint32_t high = __shfl_xor_sync(0xffffffffu, (uint32_t)(is_odd ? chunk.y : chunk.w), 1);
    first->words[0] = is_odd ? low : (uint32_t)chunk.x;
    first->words[1] = is_odd ? high : (uint32_t)chunk.y;
    second->words[0] = is_odd ? (uint32_t)chunk.z : low;
    second->words[1] = is_odd ? (uint32_t)chunk.w : high;
}

WP_FN void weft__cuda_unpack_log(uint32_t lane_idx,
                                 struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS],
                                 int4 low, int4 rest)
{
    const int with_high =
        (int)(lane_idx / WEFT__CUDA_LOG_LANES * WEFT__CUDA_LOG_LANES + lane_idx % 4);
    const int is_first = lane_idx < WEFT__CUDA_LOG_LANES;
    uint32_t headers[WEFT__LOG_BLOCK_GROUPS] = {(uint32_t)rest.x, (uint32_t)rest.y,
                                                (uint32_t)rest.z, (uint32_t)rest.w};
    weft__cuda_unpair_codes(lane_idx, low, &codes[0].low, &codes[1].low);
    weft__cuda_unpair_codes(lane_idx, rest, &codes[0].high, &codes[1].high);
#pragma unroll
    for (int g = 0; g < WEFT__LOG_BLOCK_GROUPS; g++)
        headers[g] = __shfl_sync(0xffffffffu, headers[g], WEFT__CUDA_LOG_HEADERS_LANE);
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
#pragma unroll
        for (int w = 0; w < 2; w++)
            codes[u].high.words[w] = __shfl_sync(0xffffffffu, codes[u].high.words[w], with_high);
        codes[u].header.words[0] = is_first ? headers[2 * u] : headers[2 * u + 1];
    }
}

/* ------------------------------------------------------------------ sending */

struct weft__cuda_log_lane {
    struct weft__cuda_log_octet octets[WEFT__CUDA_LANE_OCTETS];
};

/* Of any type, alignment, and numbers; a short block, too. Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN struct weft__cuda_log_lane
weft__cuda_log_lane_of(uint32_t lane_idx, struct weft__cuda_log_encoded row, uint32_t block)
{
    struct weft__cuda_log_lane codes;
    weft__cuda_with_wide_float(row.sum.sum.src_dtype, [&](auto element) {
#pragma unroll 1
        for (uint32_t u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
            const uint32_t octet = block * WEFT__CUDA_BLOCK_OCTETS + u * WP_WARP_SIZE + lane_idx;
            float values[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (octet < row.num_octets)
                weft__cuda_log_source<decltype(element)>(values, &row, octet);
            weft__cuda_log_codes(&codes.octets[u], values, octet, octet < row.num_octets);
        }
    });
    return codes;
}

/* Of a block that there is. */
WP_FN uint32_t weft__cuda_log_groups(uint32_t num_octets, uint32_t block)
{
    const uint32_t num_left = num_octets - block * WEFT__CUDA_BLOCK_OCTETS;
    return min(num_left, (uint32_t)WEFT__CUDA_BLOCK_OCTETS) / WEFT__CUDA_LOG_LANES;
}

WP_FN void
weft__cuda_send_log_block(struct wp_warp *warp, const struct wp_packets *packets,
                          struct wp_packet_targets to, uint32_t block, uint32_t num_groups,
                          const struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS])
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const struct weft__cuda_log_turn turn = weft__cuda_log_turn_of(lane_idx, num_groups);
    int4 chunks[WEFT__CUDA_LOG_PACKETS];
    weft__cuda_pack_log(lane_idx, chunks, codes);
    if (turn.set != 0)
        weft__cuda_send_some(warp, packets, to, block * WEFT__CUDA_LOG_BLOCK_PACKETS + turn.low,
                             chunks, turn.set, turn.rest - turn.low);
}

/* Whether plain groups of bf16 (log_blocks.h) are all that the lanes' elements are of, and there are codes for them. */
WP_FN int weft__cuda_encode_plain(uint32_t lane_idx,
                                  struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS],
                                  const weft__cuda_unit<16> (&elements)[WEFT__CUDA_LANE_OCTETS])
{
    const uint32_t extremes[WEFT__CUDA_LANE_OCTETS] = {
        weft__cuda_extremes<WEFT__CUDA_PLAIN_GROUPS>(elements[0]),
        weft__cuda_extremes<WEFT__CUDA_PLAIN_GROUPS>(elements[1])};
    if (!__all_sync(0xffffffffu,
                    weft__cuda_is_plain(extremes[0]) && weft__cuda_is_plain(extremes[1])))
        return 0;
    weft__cuda_encode_bf16<WEFT__CUDA_PLAIN_GROUPS>(codes, elements, extremes, lane_idx);
    return 1;
}

/* Blocks of bf16 in place, whose elements take(elements, block) gives. */
template <typename Take>
WP_FN void weft__cuda_send_log_blocks(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_packet_targets to,
                                      const struct weft__cuda_log_encoded *row, Take take)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
#pragma unroll 1
    for (uint32_t block = 0; block * WEFT__CUDA_BLOCK_OCTETS < row->num_octets; block++) {
        const uint32_t num_groups = weft__cuda_log_groups(row->num_octets, block);
        struct weft__cuda_log_octet codes[WEFT__CUDA_LANE_OCTETS];
        weft__cuda_unit<16> elements[WEFT__CUDA_LANE_OCTETS];
        int is_encoded = num_groups == WEFT__LOG_BLOCK_GROUPS;
        if (is_encoded) {
            take(elements, block);
            is_encoded = weft__cuda_encode_plain(lane_idx, codes, elements);
        }
        if (!is_encoded) {
            const struct weft__cuda_log_lane made = weft__cuda_log_lane_of(lane_idx, *row, block);
            codes[0] = made.octets[0];
            codes[1] = made.octets[1];
        }
        weft__cuda_send_log_block(warp, packets, to, block, num_groups, codes);
    }
}

/* All types and alignments. Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_send_log_octets(struct wp_warp *warp, const struct wp_packets *packets,
                                             struct wp_packet_targets to,
                                             struct weft__cuda_log_encoded row)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
#pragma unroll 1
    for (uint32_t block = 0; block * WEFT__CUDA_BLOCK_OCTETS < row.num_octets; block++)
        weft__cuda_send_log_block(warp, packets, to, block,
                                  weft__cuda_log_groups(row.num_octets, block),
                                  weft__cuda_log_lane_of(lane_idx, row, block).octets);
}

/* Copies, so that what the others use can be in registers. */
WP_FN void weft__cuda_send_any_log(struct wp_warp *warp, const struct wp_packets *packets,
                                   struct wp_packet_targets to,
                                   const struct weft__cuda_log_encoded &row)
{
    struct wp_warp called_warp = *warp;
    const struct wp_packets called_packets = *packets;
    weft__cuda_send_log_octets(&called_warp, &called_packets, to, row);
}

/* Programs whose rows are aligned have bf16, and rows of a few packets for each lane, which are loaded. */
WP_FN void wp_packets_send_log(struct wp_warp *warp, const struct wp_packets *packets,
                               struct wp_packet_targets to, const struct wp_packet_row *row,
                               weft_dtype dtype, int64_t num_elements)
{
    const void *const srcs[] = {row->src};
    const struct weft__cuda_log_encoded encoded = {
        NULL,
        {NULL, srcs, NULL, 1, {dtype, dtype, WP_READ_SOON}},
        (uint32_t)(num_elements / WEFT__CUDA_OCTET),
        WEFT__CUDA_ROWS_ARE_ALIGNED};
    if constexpr (WEFT__CUDA_ROWS_ARE_ALIGNED && WEFT__CUDA_PACKETS_ARE_LONG) {
        const int4(&chunks)[WEFT__CUDA_LOADED] = row->chunks;
        weft__cuda_send_log_blocks(
            warp, packets, to, &encoded,
            [&](weft__cuda_unit<16>(&elements)[WEFT__CUDA_LANE_OCTETS], uint32_t block) {
#pragma unroll
                for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
                    const int4 chunk = block == 0 ? chunks[u] : chunks[u + WEFT__CUDA_LANE_OCTETS];
                    elements[u] = {{(uint32_t)chunk.x, (uint32_t)chunk.y, (uint32_t)chunk.z,
                                    (uint32_t)chunk.w}};
                }
            });
    } else {
        weft__cuda_send_any_log(warp, packets, to, encoded);
    }
}

WP_FN void wp_packets_send_log_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                   struct wp_packet_targets to, const void *const *srcs,
                                   const float *weights, int32_t num_srcs, weft_dtype dtype,
                                   int64_t num_elements)
{
    const struct weft__cuda_log_encoded encoded = {
        NULL,
        {NULL, srcs, weights, num_srcs, {dtype, dtype, WP_READ_SOON}},
        (uint32_t)(num_elements / WEFT__CUDA_OCTET),
        WEFT__CUDA_ROWS_ARE_ALIGNED};
    if constexpr (WEFT__CUDA_ROWS_ARE_ALIGNED) {
        const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
        weft__cuda_send_log_blocks(
            warp, packets, to, &encoded,
            [&](weft__cuda_unit<16>(&elements)[WEFT__CUDA_LANE_OCTETS], uint32_t block) {
                weft__cuda_block_source(elements, &encoded.sum,
                                        block * WEFT__CUDA_BLOCK_OCTETS + lane_idx);
            });
    } else {
        weft__cuda_send_any_log(warp, packets, to, encoded);
    }
}

/* ------------------------------------------------------------------ sums */

/* Adds what some ranks have of a block, in their order. */
WP_FN enum wp_status weft__cuda_add_log_blocks(struct wp_warp *warp,
                                               const struct wp_packets *packets,
                                               const struct wp_packet_rows *from, uint32_t block,
                                               uint32_t num_groups,
                                               float (&sums)[WEFT__CUDA_LANE_OCTETS][8])
{
    enum { AT_ONCE = 4, NUM = AT_ONCE * WEFT__CUDA_LOG_PACKETS };
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const struct weft__cuda_log_turn turn = weft__cuda_log_turn_of(lane_idx, num_groups);
    const uint64_t first_slot = from->slot + block * WEFT__CUDA_LOG_BLOCK_PACKETS + turn.low;
    uint32_t left = from->ranks;
#pragma unroll 1
    for (int32_t first = 0; left != 0; first += AT_ONCE, left >>= AT_ONCE) {
        uint32_t wanted = 0;
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
            wanted |= (left >> r & 1u ? turn.set : 0) << (r * WEFT__CUDA_LOG_PACKETS);
        const weft__cuda_slots_of<WEFT__CUDA_LOG_PACKETS> slots = {
            first_slot + (uint64_t)first * from->slots_per_rank,
            from->slots_per_rank,
            first,
            1,
            wanted,
            turn.rest - turn.low};
        int4 chunks[NUM];
        const enum wp_status status = weft__cuda_same_status(
            weft__cuda_take_packets(warp, packets, &slots, NULL, chunks)); /* then lanes meet */
        if (status != WP_STATUS_OK)
            return status;
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            struct weft__cuda_log_octet codes[WEFT__CUDA_LANE_OCTETS];
            if (!(left >> r & 1u))
                continue;
            weft__cuda_unpack_log(lane_idx, codes, chunks[r * WEFT__CUDA_LOG_PACKETS],
                                  chunks[r * WEFT__CUDA_LOG_PACKETS + 1]);
#pragma unroll
            for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
                weft__cuda_add_log(sums[u], codes[u], 1.0f, lane_idx);
        }
    }
    return WP_STATUS_OK;
}

WP_FN void weft__cuda_store_log_sums(const struct weft__cuda_log_sum *sum, uint32_t octet,
                                     const float (&sums)[8])
{
    if constexpr (WEFT__CUDA_ROWS_ARE_ALIGNED)
        weft__cuda_store_floats(sum->dst, octet, sums, __nv_bfloat16());
    else
        weft__cuda_with_wide_float(sum->dst_dtype, [&](auto element) {
            weft__cuda_store_octet<decltype(element)>(sum, octet, sums);
        });
}

/* As wp_packets_send_log. */
WP_FN enum wp_status wp_packets_log_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                        const struct wp_packet_rows *from, void *dst,
                                        weft_dtype dtype, int64_t num_elements)
{
    const struct weft__cuda_log_sum sum = {dst, NULL, 0, dtype, NULL, NULL, 0, dtype, 0};
    const uint32_t num_octets = (uint32_t)(num_elements / WEFT__CUDA_OCTET);
#pragma unroll 1
    for (uint32_t first = 0; first < num_octets; first += WEFT__CUDA_BLOCK_OCTETS) {
        const uint32_t block = first / WEFT__CUDA_BLOCK_OCTETS;
        float sums[WEFT__CUDA_LANE_OCTETS][8];
        weft__cuda_begin_sums(sums);
        const enum wp_status status = weft__cuda_add_log_blocks(
            warp, packets, from, block, weft__cuda_log_groups(num_octets, block), sums);
        if (status != WP_STATUS_OK)
            return status;
#pragma unroll
        for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
            const uint32_t octet = first + u * WP_WARP_SIZE + (uint32_t)wp_lane_idx(warp);
            if (octet < num_octets)
                weft__cuda_store_log_sums(&sum, octet, sums[u]);
        }
    }
    return WP_STATUS_OK;
}
