/* SPDX-License-Identifier: MIT */
/* The way back from rows with scales on the cuda machine; part of primitives.h. */
#pragma once

#include "machine/cuda/cuda_quantise.h"

struct weft__cuda_dequantised {
    void *dst;
    const void *src;
    const void *scales;
    struct wp_quantisation how;
};

WP_FN float weft__cuda_load_scale(const struct weft__cuda_dequantised *row, int64_t group_idx)
{
    const char *scale = (const char *)row->scales + wp_scale_offset(row->how, group_idx);
    if (row->how.scale == WP_SCALE_UE8M0)
        return __uint_as_float((uint32_t) * (const uint8_t *)scale << 23);
    return __int_as_float(weft__cuda_load_element<float>(scale, 0).x);
}

/* Four codes to four numbers. */
WP_FN void weft__cuda_widen(weft_dtype narrow, float *values, uint32_t codes)
{
    if (narrow != WEFT_INT8)
        return weft__cuda_decode_word(values, codes, weft__cuda_fp8());
#pragma unroll
    for (int i = 0; i < 4; i++)
        values[i] = (float)(int8_t)(codes >> (8 * i) & 0xffu);
}

/* As many values as make 16 bytes. */
template <typename D> WP_FN weft__cuda_unit<16> weft__cuda_encode_unit(const float *values, D)
{
    weft__cuda_unit<16> unit;
#pragma unroll
    for (int w = 0; w < 4; w++)
        unit.words[w] = weft__cuda_encode_word(values + w * (4 / sizeof(D)), D());
    return unit;
}

template <typename D>
WP_FN void weft__cuda_store_wide(void *row, uint32_t octet, const float (&values)[8], D)
{
    enum { UNITS = sizeof(D) / 2, PER_UNIT = 16 / sizeof(D) };
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        weft__cuda_store_unit(row, octet * UNITS + u,
                              weft__cuda_encode_unit(values + u * PER_UNIT, D()));
}

/* UNROLL octets, whose loads are in flight together. */
template <typename D, int UNROLL>
WP_FN void weft__cuda_dequantise_step(const struct weft__cuda_dequantised *row, uint32_t octet)
{
    const uint32_t octets_of_group = (uint32_t)row->how.group_elements / WEFT__CUDA_OCTET;
    weft__cuda_unit<8> codes[UNROLL];
    float scales[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        weft__cuda_load_unit(&codes[u], row->src, octet + u * WP_WARP_SIZE);
        scales[u] = weft__cuda_load_scale(row, (octet + u * WP_WARP_SIZE) / octets_of_group);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        float values[8];
        weft__cuda_widen(row->how.src_dtype, values, codes[u].words[0]);
        weft__cuda_widen(row->how.src_dtype, values + 4, codes[u].words[1]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            values[i] = __fmul_rn(values[i], scales[u]);
        weft__cuda_store_wide(row->dst, octet + u * WP_WARP_SIZE, values, D());
    }
}

/* Groups of any size, and rows that are not aligned. */
template <typename D>
WP_FN void weft__cuda_dequantise_element(const struct weft__cuda_dequantised *row, int64_t i)
{
    const uint8_t code = ((const uint8_t *)row->src)[i];
    const float scale = weft__cuda_load_scale(row, i / row->how.group_elements);
    float values[8] = {0.0f};
    weft__cuda_widen(row->how.src_dtype, values, code);
    values[0] = __fmul_rn(values[0], scale);
    weft__cuda_store_element<D>(row->dst, i, weft__cuda_encode(values, D()));
}

/* Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_dequantise(uint32_t lane_idx, struct weft__cuda_dequantised row,
                                        int64_t num_elements)
{
    /* Elements become at least twice as wide. */
    const uint32_t low_bits = (uint32_t)(uint64_t)row.src * 2 | (uint32_t)(uint64_t)row.dst;
    const int by_octets = low_bits % 16 == 0 && row.how.group_elements % WEFT__CUDA_OCTET == 0;
    const uint32_t num_octets = by_octets ? (uint32_t)(num_elements / WEFT__CUDA_OCTET) : 0;
    weft__cuda_with_wide_float(row.how.dst_dtype, [&](auto element) {
        weft__cuda_step_along<4>(lane_idx, num_octets, [&](uint32_t octet, auto count) {
            weft__cuda_dequantise_step<decltype(element), decltype(count)::COUNT>(&row, octet);
        });
#pragma unroll 1
        for (int64_t i = (int64_t)num_octets * WEFT__CUDA_OCTET + lane_idx; i < num_elements;
             i += WP_WARP_SIZE)
            weft__cuda_dequantise_element<decltype(element)>(&row, i);
    });
}

WP_FN void wp_row_dequantise(struct wp_warp *warp, void *dst, const void *src, const void *scales,
                             struct wp_quantisation how, int64_t num_elements)
{
    const struct weft__cuda_dequantised row = {dst, src, scales, how};
    weft__cuda_dequantise((uint32_t)wp_lane_idx(warp), row, num_elements);
}
