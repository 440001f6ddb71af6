/* SPDX-License-Identifier: MIT */
/* Rows with scales on the cuda machine; part of primitives.h. Primitives of their own, so that
 * programs without such rows do not hold their code. */
#pragma once

#include "machine/cuda/reduce.h"
#include "machine/scales.h"

/* ------------------------------------------------------------------ a lane's elements */

/* Elements that a lane has side by side. */
enum { WEFT__CUDA_OCTET = 8, WEFT__CUDA_WARP_LOG2 = 5 };

/* PER elements, an octet or one, as they lie in memory. */
template <typename S, int PER> struct weft__cuda_wide {
    weft__cuda_unit<16> units[sizeof(S) / 2];
};
template <typename S> struct weft__cuda_wide<S, 1> {
    int4 element; /* in its low bytes */
};

template <typename S>
WP_FN void weft__cuda_load_wide(weft__cuda_wide<S, 8> *wide, const void *row, int64_t i)
{
#pragma unroll
    for (int u = 0; u < (int)sizeof(S) / 2; u++)
        weft__cuda_load_unit(&wide->units[u], row, (uint32_t)i * (sizeof(S) / 2) + u);
}
template <typename S>
WP_FN void weft__cuda_load_wide(weft__cuda_wide<S, 1> *wide, const void *row, int64_t i)
{
    wide->element = weft__cuda_load_element<S>(row, i);
}

template <typename S>
WP_FN void weft__cuda_decode_wide(float (&values)[8], const weft__cuda_wide<S, 8> &wide)
{
#pragma unroll
    for (int w = 0; w < (int)sizeof(S) * 2; w++)
        weft__cuda_decode_word(values + w * (4 / sizeof(S)), wide.units[w / 4].words[w % 4], S());
}
template <typename S>
WP_FN void weft__cuda_decode_wide(float (&values)[1], const weft__cuda_wide<S, 1> &wide)
{
    float all[2];
    weft__cuda_decode_word(all, (uint32_t)wide.element.x, S());
    values[0] = all[0];
}

template <typename S, int PER>
WP_FN uint32_t weft__cuda_greatest_magnitude(const weft__cuda_wide<S, PER> &wide)
{
    float values[PER];
    uint32_t greatest = 0;
    weft__cuda_decode_wide<S>(values, wide);
#pragma unroll
    for (int i = 0; i < PER; i++)
        greatest = max(greatest, weft__finite_magnitude(__float_as_uint(values[i])));
    return greatest;
}

/* The same, or if it is more than all numbers, that not all are finite. Of bf16 a magnitude's bits
 * are in one half of a word, so that those of two are compared at a time. */
enum { WEFT__CUDA_NOT_FINITE = 0x7f800000 };
WP_FN uint32_t weft__cuda_greatest_of_octet(const weft__cuda_wide<weft__cuda_bf16, 8> &wide)
{
    uint32_t both = 0;
#pragma unroll
    for (int w = 0; w < 4; w++)
        both = __vmaxu2(both, wide.units[0].words[w] & 0x7fff7fffu);
    return max(both << 16, both & 0xffff0000u);
}
template <typename S> WP_FN uint32_t weft__cuda_greatest_of_octet(const weft__cuda_wide<S, 8> &wide)
{
    return weft__cuda_greatest_magnitude<S, 8>(wide);
}

/* Maxima of octets: those behind the row's end have none. Elements are looked at only if not all
 * are finite. */
template <typename S, int UNROLL>
WP_FN void weft__cuda_find_greatest(const weft__cuda_wide<S, 8> (&wide)[UNROLL], uint32_t num_left,
                                    uint32_t (&greatest)[UNROLL])
{
    uint32_t most = 0;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const uint32_t of_octet = weft__cuda_greatest_of_octet(wide[u]);
        greatest[u] = (uint32_t)u * WP_WARP_SIZE < num_left ? of_octet : 0;
        most = max(most, greatest[u]);
    }
    if (most < WEFT__CUDA_NOT_FINITE)
        return;
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (greatest[u] >= WEFT__CUDA_NOT_FINITE)
            greatest[u] = weft__cuda_greatest_magnitude<S, 8>(wide[u]);
}

/* As weft__int8_of_float, in the low byte. */
WP_FN uint32_t weft__cuda_int8_of_float(float value)
{
    const float number = isnan(value) ? 0.0f : value;
    const float between = fmaxf(fminf(number, 127.0f), -127.0f);
    return __float_as_uint(__fadd_rn(between, 0x1.8p23f)) & 0xffu;
}

/* The code of a value that has been multiplied. */
WP_FN uint32_t weft__cuda_narrow(weft_dtype narrow, float value)
{
    return narrow == WEFT_INT8 ? weft__cuda_int8_of_float(value) : weft__cuda_fp8_of_float(value);
}

/* Narrows two values: that of `low` is in the low byte. */
WP_FN uint32_t weft__cuda_narrow_pair(weft_dtype narrow, float low, float high)
{
    return narrow == WEFT_INT8 ? weft__cuda_int8_of_float(low) | weft__cuda_int8_of_float(high) << 8
                               : weft__cuda_fp8_of_floats(low, high);
}

/* ------------------------------------------------------------------ quantise */

struct weft__cuda_quantised {
    struct wp_quantised_rows to;
    const void *src;
    struct wp_quantisation how;
};

template <typename S>
WP_FN weft__cuda_unit<8> weft__cuda_codes_of(struct wp_quantisation how,
                                             const weft__cuda_wide<S, 8> &wide, float multiplier)
{
    float values[8];
    weft__cuda_unit<8> codes = {{0, 0}};
    weft__cuda_decode_wide<S>(values, wide);
#pragma unroll
    for (int k = 0; k < 8; k += 2)
        codes.words[k / 4] |=
            weft__cuda_narrow_pair(how.dst_dtype, __fmul_rn(values[k], multiplier),
                                   __fmul_rn(values[k + 1], multiplier))
            << (8 * (k % 4));
    return codes;
}

template <typename S>
WP_FN void weft__cuda_store_codes(const struct weft__cuda_quantised *row, int64_t i,
                                  const weft__cuda_wide<S, 8> &wide, float multiplier)
{
    const weft__cuda_unit<8> codes = weft__cuda_codes_of<S>(row->how, wide, multiplier);
#pragma unroll 1
    for (int32_t d = 0; d < row->to.num_dsts; d++) {
        if (row->to.dsts[d] != NULL)
            weft__cuda_store_unit((void *)row->to.dsts[d], (uint32_t)i, codes);
    }
}
template <typename S>
WP_FN void weft__cuda_store_codes(const struct weft__cuda_quantised *row, int64_t i,
                                  const weft__cuda_wide<S, 1> &wide, float multiplier)
{
    float values[1];
    weft__cuda_decode_wide<S>(values, wide);
    const uint32_t code = weft__cuda_narrow(row->how.dst_dtype, __fmul_rn(values[0], multiplier));
#pragma unroll 1
    for (int32_t d = 0; d < row->to.num_dsts; d++) {
        if (row->to.dsts[d] != NULL)
            ((uint8_t *)row->to.dsts[d])[i] = (uint8_t)code;
    }
}

WP_FN void weft__cuda_store_scale(const struct weft__cuda_quantised *row, int32_t d,
                                  int64_t group_idx, uint32_t bits)
{
    if (row->to.dsts[d] == NULL)
        return;
    char *scale =
        (char *)row->to.scales[d] + row->to.scales_offset + wp_scale_offset(row->how, group_idx);
    if (row->how.scale == WP_SCALE_UE8M0)
        *(uint8_t *)scale = (uint8_t)(bits >> 23);
    else
        weft__cuda_store_element<float>(scale, 0, make_int4((int)bits, 0, 0, 0));
}

/* ------------------------------------------------------------------ groups of a part of a warp */

/* The logarithm of how many lanes have a group, an octet each: 0 if that is not a power of two from
 * 4 on. */
WP_FN uint32_t weft__cuda_lanes_log2(int32_t group_elements)
{
    const uint32_t lanes = (uint32_t)group_elements / WEFT__CUDA_OCTET;
    const int fits = group_elements % WEFT__CUDA_OCTET == 0 && (lanes & (lanes - 1)) == 0;
    return fits && lanes >= 4 && lanes <= WP_WARP_SIZE ? 31u - (uint32_t)__clz((int)lanes) : 0;
}

/* From what the lanes of a group know, in UNROLL rounds, that of one group for each lane, if there
 * are so many groups: the groups of the first round go to the first lanes, and so on. */
template <int UNROLL>
WP_FN uint32_t weft__cuda_own_group(uint32_t lane_idx, uint32_t lanes_log2,
                                    const uint32_t (&of_rounds)[UNROLL])
{
    const uint32_t per_round_log2 = WEFT__CUDA_WARP_LOG2 - lanes_log2;
    const uint32_t first_lane = (lane_idx & ((1u << per_round_log2) - 1)) << lanes_log2;
    uint32_t own = 0;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const uint32_t other = __shfl_sync(0xffffffffu, of_rounds[u], (int)first_lane);
        own = lane_idx >> per_round_log2 == (uint32_t)u ? other : own;
    }
    return own;
}

/* Octets first + lane, a warp's further on the next one, and so on. */
template <typename S, int UNROLL>
WP_FN void weft__cuda_load_octets(weft__cuda_wide<S, 8> (&wide)[UNROLL], const void *row,
                                  uint32_t i, uint32_t num_octets)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (i + u * WP_WARP_SIZE < num_octets)
            weft__cuda_load_wide<S>(&wide[u], row, i + u * WP_WARP_SIZE);
    }
}

/* Rows in packets have no more for each lane than two. */
#ifdef WP_PACKETS_ARE_SHORT
enum { WEFT__CUDA_QUANTISE_UNROLL = 2 };
#else
enum { WEFT__CUDA_QUANTISE_UNROLL = 4 };
#endif

/* UNROLL octets a lane. All lanes take part, since those of a group meet; those behind the row's
 * end have none of `num_left` from their first one on. Each scale is computed once, since that is a
 * division; the bits that are returned are those of the lane's own group (weft__cuda_own_group). */
template <typename S, int UNROLL>
WP_FN uint32_t weft__cuda_make_codes(uint32_t lane_idx, struct wp_quantisation how,
                                     uint32_t lanes_log2,
                                     const weft__cuda_wide<S, 8> (&wide)[UNROLL], uint32_t num_left,
                                     weft__cuda_unit<8> (&codes)[UNROLL])
{
    const uint32_t per_round_log2 = WEFT__CUDA_WARP_LOG2 - lanes_log2;
    uint32_t greatest[UNROLL];
    weft__cuda_find_greatest<S>(wide, num_left, greatest);
#pragma unroll
    for (uint32_t distance = 1u << lanes_log2 >> 1; distance > 0; distance /= 2) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            greatest[u] =
                max(greatest[u], __shfl_xor_sync(0xffffffffu, greatest[u], (int)distance));
    }
    const struct weft__scale scale = weft__scale_of_group(
        weft__cuda_own_group<UNROLL>(lane_idx, lanes_log2, greatest), how.dst_dtype, how.scale);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const uint32_t of_lane = ((uint32_t)u << per_round_log2) + (lane_idx >> lanes_log2);
        const float multiplier = __shfl_sync(0xffffffffu, scale.multiplier, (int)of_lane);
        codes[u] = weft__cuda_codes_of<S>(how, wide[u], multiplier);
    }
    return scale.bits;
}

/* Quantises a row: so many octets a lane, whose loads are in flight together, at a time. */
template <typename S, typename Load, typename Store>
WP_FN void weft__cuda_quantise_octets_to(uint32_t lane_idx, struct wp_quantisation how,
                                         uint32_t lanes_log2, int64_t num_elements, Load load,
                                         Store store)
{
    enum { UNROLL = WEFT__CUDA_QUANTISE_UNROLL, STEP = WP_WARP_SIZE * UNROLL };
    const uint32_t num_octets = (uint32_t)(num_elements / WEFT__CUDA_OCTET);
#pragma unroll 1
    for (uint32_t first = 0; first < num_octets; first += STEP) {
        const uint32_t own = first + lane_idx;
        weft__cuda_wide<S, 8> wide[UNROLL];
        weft__cuda_unit<8> codes[UNROLL];
        load(wide, first, num_octets);
        const uint32_t bits = weft__cuda_make_codes<S>(
            lane_idx, how, lanes_log2, wide, own < num_octets ? num_octets - own : 0, codes);
        store(codes, bits, first, num_octets);
    }
}

template <typename S, typename Load>
WP_FN void weft__cuda_quantise_octets(uint32_t lane_idx, const struct weft__cuda_quantised *row,
                                      uint32_t lanes_log2, int64_t num_elements, Load load)
{
    enum { UNROLL = WEFT__CUDA_QUANTISE_UNROLL };
    const uint32_t per_round_log2 = WEFT__CUDA_WARP_LOG2 - lanes_log2;
    weft__cuda_quantise_octets_to<S>(
        lane_idx, row->how, lanes_log2, num_elements, load,
        [&](const weft__cuda_unit<8>(&codes)[UNROLL], uint32_t scale_bits, uint32_t first,
            uint32_t num_octets) {
            const uint32_t group = (first >> lanes_log2) + lane_idx;
            const int has_group =
                lane_idx >> per_round_log2 < UNROLL && group < num_octets >> lanes_log2;
#pragma unroll 1
            for (int32_t d = 0; d < row->to.num_dsts; d++) {
                void *dst = (void *)row->to.dsts[d];
                if (dst == NULL)
                    continue;
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                    if (first + u * WP_WARP_SIZE + lane_idx < num_octets)
                        weft__cuda_store_unit(dst, first + u * WP_WARP_SIZE + lane_idx, codes[u]);
                }
                if (has_group)
                    weft__cuda_store_scale(row, d, group, scale_bits);
            }
        });
}

/* ------------------------------------------------------------------ groups of any size */

/* One after the other, by all lanes; each is read twice. */
template <typename S, int PER>
WP_FN void weft__cuda_quantise_groups(uint32_t lane_idx, const struct weft__cuda_quantised *row,
                                      int64_t num_elements)
{
    const int64_t per_group = row->how.group_elements / PER;
    const int64_t num_groups = num_elements / row->how.group_elements;
#pragma unroll 1
    for (int64_t group = 0; group < num_groups; group++) {
        const int64_t first = group * per_group, end = first + per_group;
        weft__cuda_wide<S, PER> wide;
        uint32_t greatest = 0;
#pragma unroll 1
        for (int64_t i = first + lane_idx; i < end; i += WP_WARP_SIZE) {
            weft__cuda_load_wide<S>(&wide, row->src, i);
            greatest = max(greatest, weft__cuda_greatest_magnitude<S, PER>(wide));
        }
        const struct weft__scale scale = weft__scale_of_group(
            __reduce_max_sync(0xffffffffu, greatest), row->how.dst_dtype, row->how.scale);
#pragma unroll 1
        for (int64_t i = first + lane_idx; i < end; i += WP_WARP_SIZE) {
            weft__cuda_load_wide<S>(&wide, row->src, i);
            weft__cuda_store_codes<S>(row, i, wide, scale.multiplier);
        }
#pragma unroll 1
        for (int32_t d = (int32_t)lane_idx; d < row->to.num_dsts; d += WP_WARP_SIZE)
            weft__cuda_store_scale(row, d, group, scale.bits);
    }
}

/* Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_quantise(uint32_t lane_idx, struct weft__cuda_quantised row,
                                      int64_t num_elements)
{
    const int32_t group = row.how.group_elements;
    const uint32_t lanes_log2 = weft__cuda_lanes_log2(group);
    /* Elements become at least half as wide. */
    const uint32_t low_bits = weft__cuda_low_bits(lane_idx, row.to.dsts, row.to.num_dsts) * 2;
    const int is_aligned = weft__cuda_unit_bytes(low_bits | (uint32_t)(uint64_t)row.src) == 16;
    weft__cuda_with_wide_float(row.how.src_dtype, [&](auto element) {
        if (is_aligned && lanes_log2 > 0)
            weft__cuda_quantise_octets<decltype(element)>(
                lane_idx, &row, lanes_log2, num_elements,
                [&](auto &wide, uint32_t first, uint32_t num_octets) {
                    weft__cuda_load_octets(wide, row.src, first + lane_idx, num_octets);
                });
        else if (is_aligned && group % WEFT__CUDA_OCTET == 0)
            weft__cuda_quantise_groups<decltype(element), 8>(lane_idx, &row, num_elements);
        else
            weft__cuda_quantise_groups<decltype(element), 1>(lane_idx, &row, num_elements);
    });
}

/* The usual type, whose first octets may have been prefetched. */
WP_FN void
weft__cuda_load_held(struct wp_warp *warp, const void *src, int is_held,
                     weft__cuda_wide<weft__cuda_bf16, 8> (&wide)[WEFT__CUDA_QUANTISE_UNROLL],
                     uint32_t first, uint32_t num_octets)
{
    if (first > 0 || !is_held)
        weft__cuda_load_octets(wide, src, first + (uint32_t)wp_lane_idx(warp), num_octets);
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_HELD_UNITS && u < WEFT__CUDA_QUANTISE_UNROLL; u++) {
        if (first == 0 && is_held)
            wide[u].units[0] = warp->held[u];
    }
}

/* The same in place. */
WP_FN void weft__cuda_quantise_held(struct wp_warp *warp, const struct weft__cuda_quantised *row,
                                    uint32_t lanes_log2, int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const int is_held = weft__cuda_holds(warp, row->src, (uint32_t)num_elements * 2);
    weft__cuda_quantise_octets<weft__cuda_bf16>(
        lane_idx, row, lanes_log2, num_elements,
        [&](auto &wide, uint32_t first, uint32_t num_octets) {
            weft__cuda_load_held(warp, row->src, is_held, wide, first, num_octets);
        });
}

WP_FN void wp_row_quantise(struct wp_warp *warp, struct wp_quantised_rows to, const void *src,
                           struct wp_quantisation how, int64_t num_elements)
{
    const struct weft__cuda_quantised row = {to, src, how};
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t lanes_log2 = weft__cuda_lanes_log2(how.group_elements);
    if (WEFT__CUDA_ROWS_ARE_ALIGNED && how.src_dtype == WEFT_BF16 && lanes_log2 > 0)
        weft__cuda_quantise_held(warp, &row, lanes_log2, num_elements);
    else
        weft__cuda_quantise(lane_idx, row, num_elements);
}
