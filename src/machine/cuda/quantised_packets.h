/* SPDX-License-Identifier: MIT */
/* Rows that are quantised on their way into packets, on the cuda machine; part of primitives.h. */
#pragma once

#include "machine/cuda/cuda_packets.h"
#include "machine/cuda/cuda_quantise.h"

/* Codes of the lanes' octets as packets: of each two rounds a lane has one, of its own octet and
 * its neighbour's. */
template <int UNROLL>
WP_FN void weft__cuda_pair_codes(uint32_t lane_idx, const weft__cuda_unit<8> (&codes)[UNROLL],
                                 int4 (&chunks)[UNROLL / 2])
{
    const int is_odd = lane_idx % 2;
#pragma unroll
    for (int u = 0; u < UNROLL; u += 2) {
        const weft__cuda_unit<8> own = is_odd ? codes[u + 1] : codes[u];
        const weft__cuda_unit<8> given = is_odd ? codes[u] : codes[u + 1];
        const uint32_t low = __shfl_xor_sync(0xffffffffu, given.words[0], 1);
        const uint32_t high = __shfl_xor_sync(0xffffffffu, given.words[1], 1);
        chunks[u / 2] = is_odd
                            ? make_int4((int)low, (int)high, (int)own.words[0], (int)own.words[1])
                            : make_int4((int)own.words[0], (int)own.words[1], (int)low, (int)high);
    }
}

enum { WEFT__CUDA_CODES = 16, WEFT__CUDA_SCALES = 4 /* of a packet */ };

/* The scale of a group, by one lane. */
template <typename S>
WP_FN struct weft__scale weft__cuda_scale_of(const void *src, struct wp_quantisation how,
                                             int64_t group)
{
    uint32_t greatest = 0;
#pragma unroll 1
    for (int64_t i = group * how.group_elements; i < (group + 1) * how.group_elements; i++) {
        weft__cuda_wide<S, 1> wide;
        weft__cuda_load_wide<S>(&wide, src, i);
        greatest = max(greatest, weft__cuda_greatest_magnitude<S, 1>(wide));
    }
    return weft__scale_of_group(greatest, how.dst_dtype, how.scale);
}

/* Where codes and scales go. */
struct weft__cuda_quantised_targets {
    const struct wp_packets *packets;
    struct wp_packet_targets codes, scales;
};

/* All groups: each lane makes packets by itself, and reads groups for each of them. */
template <typename S>
WP_FN void weft__cuda_send_groups(struct wp_warp *warp,
                                  const struct weft__cuda_quantised_targets &to, const void *src,
                                  struct wp_quantisation how, int64_t num_elements)
{
    const int64_t lane_idx = wp_lane_idx(warp), num_groups = num_elements / how.group_elements;
#pragma unroll 1
    for (int64_t i = lane_idx; i * WEFT__CUDA_CODES < num_elements; i += WP_WARP_SIZE) {
        uint64_t words[2] = {0, 0};
#pragma unroll 1
        for (int64_t k = 0; k < WEFT__CUDA_CODES && i * WEFT__CUDA_CODES + k < num_elements; k++) {
            const int64_t e = i * WEFT__CUDA_CODES + k;
            const struct weft__scale scale =
                weft__cuda_scale_of<S>(src, how, e / how.group_elements);
            weft__cuda_wide<S, 1> wide;
            float values[1];
            weft__cuda_load_wide<S>(&wide, src, e);
            weft__cuda_decode_wide<S>(values, wide);
            const uint64_t code =
                weft__cuda_narrow(how.dst_dtype, __fmul_rn(values[0], scale.multiplier));
            words[k / 8] |= code << (8 * (k % 8));
        }
        const int4 chunks[1] = {
            make_int4((int)words[0], (int)(words[0] >> 32), (int)words[1], (int)(words[1] >> 32))};
        weft__cuda_send_some(warp, to.packets, to.codes, (uint64_t)i, chunks, 1);
    }
#pragma unroll 1
    for (int64_t i = lane_idx; i * WEFT__CUDA_SCALES < num_groups; i += WP_WARP_SIZE) {
        uint32_t bits[WEFT__CUDA_SCALES];
#pragma unroll
        for (int64_t k = 0; k < WEFT__CUDA_SCALES; k++) {
            const int64_t group = i * WEFT__CUDA_SCALES + k;
            bits[k] = group < num_groups ? weft__cuda_scale_of<S>(src, how, group).bits : 0;
        }
        const int4 chunks[1] = {make_int4((int)bits[0], (int)bits[1], (int)bits[2], (int)bits[3])};
        weft__cuda_send_some(warp, to.packets, to.scales, (uint64_t)i, chunks, 1);
    }
}

/* Scales that the first lanes have, from group `first` on, as packets. */
WP_FN void weft__cuda_send_scales(struct wp_warp *warp,
                                  const struct weft__cuda_quantised_targets &to, uint32_t bits,
                                  uint32_t first, uint32_t end)
{
    enum { SCALES = WEFT__CUDA_SCALES };
    const uint32_t group = (uint32_t)wp_lane_idx(warp) * SCALES;
    const int from = (int)(group & (WP_WARP_SIZE - 1));
    const int4 chunks[1] = {make_int4((int)__shfl_sync(0xffffffffu, bits, from),
                                      (int)__shfl_sync(0xffffffffu, bits, from + 1),
                                      (int)__shfl_sync(0xffffffffu, bits, from + 2),
                                      (int)__shfl_sync(0xffffffffu, bits, from + 3))};
    if (first + group < end)
        weft__cuda_send_some(warp, to.packets, to.scales, (first + group) / SCALES, chunks, 1);
}

/* Codes of octets `first` and so on of so many, and scales of their groups. */
template <int UNROLL>
WP_FN void weft__cuda_send_codes(struct wp_warp *warp,
                                 const struct weft__cuda_quantised_targets &to, uint32_t lanes_log2,
                                 const weft__cuda_unit<8> (&codes)[UNROLL], uint32_t scale_bits,
                                 uint32_t first, uint32_t num_octets)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t turn = lane_idx % 2 * WP_WARP_SIZE + lane_idx / 2 * 2;
    const uint32_t end = min(num_octets, first + UNROLL * WP_WARP_SIZE);
    int4 chunks[UNROLL / 2];
    uint32_t set = 0;
    weft__cuda_pair_codes(lane_idx, codes, chunks);
#pragma unroll
    for (int u = 0; u < UNROLL / 2; u++)
        set |= (uint32_t)(first + 2 * u * WP_WARP_SIZE + turn < num_octets) << u;
    if (set != 0)
        weft__cuda_send_some(warp, to.packets, to.codes, (first + turn) / 2, chunks, set);
    weft__cuda_send_scales(warp, to, scale_bits, first >> lanes_log2, end >> lanes_log2);
}

/* Groups of which some lanes have an octet each. */
template <typename S>
WP_FN void weft__cuda_send_octets(struct wp_warp *warp,
                                  const struct weft__cuda_quantised_targets &to, const void *src,
                                  struct wp_quantisation how, int64_t num_elements)
{
    enum { UNROLL = WEFT__CUDA_QUANTISE_UNROLL };
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t lanes_log2 = weft__cuda_lanes_log2(how.group_elements);
    weft__cuda_quantise_octets_to<S>(
        lane_idx, how, lanes_log2, num_elements,
        [&](auto &wide, uint32_t first, uint32_t num_octets) {
            weft__cuda_load_octets(wide, src, first + lane_idx, num_octets);
        },
        [&](const weft__cuda_unit<8>(&codes)[UNROLL], uint32_t scale_bits, uint32_t first,
            uint32_t num_octets) {
            weft__cuda_send_codes(warp, to, lanes_log2, codes, scale_bits, first, num_octets);
        });
}

/* The same of the usual type, of which the lanes have loaded all. */
WP_FN void weft__cuda_send_loaded_octets(struct wp_warp *warp,
                                         const struct weft__cuda_quantised_targets &to,
                                         const struct wp_packet_row *row,
                                         struct wp_quantisation how, int64_t num_elements)
{
    enum { UNROLL = WEFT__CUDA_LOADED < 2 ? 2 : WEFT__CUDA_LOADED };
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t num_octets = (uint32_t)(num_elements / WEFT__CUDA_OCTET);
    const uint32_t lanes_log2 = weft__cuda_lanes_log2(how.group_elements);
    weft__cuda_wide<weft__cuda_bf16, 8> wide[UNROLL];
    weft__cuda_unit<8> codes[UNROLL];
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LOADED; u++) {
        const int4 chunk = row->chunks[u];
        wide[u].units[0] = {
            {(uint32_t)chunk.x, (uint32_t)chunk.y, (uint32_t)chunk.z, (uint32_t)chunk.w}};
    }
    const uint32_t bits = weft__cuda_make_codes<weft__cuda_bf16>(
        lane_idx, how, lanes_log2, wide, lane_idx < num_octets ? num_octets - lane_idx : 0, codes);
    weft__cuda_send_codes(warp, to, lanes_log2, codes, bits, 0, num_octets);
}

/* All types and alignments. Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_send_quantised(struct wp_warp *warp,
                                            struct weft__cuda_quantised_targets to, const void *src,
                                            struct wp_quantisation how, int64_t num_elements)
{
    const int has_octets = (uint64_t)src % 16 == 0 && weft__cuda_lanes_log2(how.group_elements) > 0;
    weft__cuda_with_wide_float(how.src_dtype, [&](auto element) {
        typedef decltype(element) S;
        if (has_octets)
            weft__cuda_send_octets<S>(warp, to, src, how, num_elements);
        else
            weft__cuda_send_groups<S>(warp, to, src, how, num_elements);
    });
}

/* Programs that know that rows are aligned have the usual type, and no code for others. These are
 * given copies: what a called function has pointers to is in memory, and with the program's own
 * structs there a dispatch of 8 tokens in FP16, which does not quantise, took 8.2 us on 4 H200
 * (2026-11-27), before 7.2. */
WP_FN void wp_packets_send_quantised(struct wp_warp *warp, const struct wp_packets *packets,
                                     struct wp_packet_targets to, uint64_t scales_slot,
                                     const struct wp_packet_row *row, struct wp_quantisation how,
                                     int64_t num_elements)
{
    struct weft__cuda_quantised_targets targets = {packets, to, to};
    targets.scales.slot = scales_slot;
    if constexpr (WEFT__CUDA_ROWS_ARE_ALIGNED) {
        weft__cuda_send_loaded_octets(warp, targets, row, how, num_elements);
    } else {
        const struct wp_packets packets_copy = *packets;
        struct wp_warp warp_copy = *warp;
        targets.packets = &packets_copy;
        weft__cuda_send_quantised(&warp_copy, targets, row->src, how, num_elements);
    }
}
