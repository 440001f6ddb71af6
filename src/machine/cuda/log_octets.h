/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT on the cuda machine, eight elements of a lane at a time: of any type and
 * at any address. Part of log_rows.h. */
#pragma once

#include "machine/cuda/dequantise.h"
#include "machine/cuda/weighted_sum.h"
#include "machine/log_format.h"

/* ------------------------------------------------------------------ eight elements of a lane */

enum { WEFT__CUDA_LOG_LANES = WP_LOG_GROUP_ELEMENTS / WEFT__CUDA_OCTET /* that have a group */ };

/* Words at any address. */
template <int WORDS> WP_FN void weft__cuda_load_bytes(uint32_t (&words)[WORDS], const void *src)
{
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        const uint8_t *bytes = (const uint8_t *)src + 4 * w;
        words[w] = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                   (uint32_t)bytes[3] << 24;
    }
}
template <int WORDS> WP_FN void weft__cuda_store_bytes(void *dst, const uint32_t (&words)[WORDS])
{
#pragma unroll
    for (int b = 0; b < 4 * WORDS; b++)
        ((uint8_t *)dst)[b] = (uint8_t)(words[b / 4] >> (8 * (b % 4)));
}

template <int BYTES>
WP_FN void weft__cuda_load_at(weft__cuda_unit<BYTES> *unit, const void *src, int is_aligned)
{
    if (is_aligned)
        weft__cuda_load_unit(unit, src, 0);
    else
        weft__cuda_load_bytes(unit->words, src);
}
template <int BYTES>
WP_FN void weft__cuda_store_at(void *dst, weft__cuda_unit<BYTES> unit, int is_aligned)
{
    if (is_aligned)
        weft__cuda_store_unit(dst, 0, unit);
    else
        weft__cuda_store_bytes(dst, unit.words);
}

/* A lane's octet of a row. Its high bits are two of each of these eight bytes, which it
 * shares with three other lanes of the group. */
struct weft__cuda_log_octet {
    weft__cuda_unit<8> low, high;
    weft__cuda_unit<4> header;
};

WP_FN uint32_t weft__cuda_log_shift(uint32_t octet)
{
    return octet % WEFT__CUDA_LOG_LANES / 4 * 2;
}

/* Where these are; the header is where the group's is. */
WP_FN struct weft__log_place weft__cuda_log_place(uint32_t octet, uint32_t num_octets)
{
    const uint32_t lane = octet % WEFT__CUDA_LOG_LANES;
    struct weft__log_place place =
        weft__log_place_of(octet / WEFT__CUDA_LOG_LANES, num_octets / WEFT__CUDA_LOG_LANES);
    place.low += lane * 8;
    place.high += lane % 4 * 8;
    return place;
}

/* ------------------------------------------------------------------ encode */

struct weft__cuda_log_encoded {
    char *dst;
    struct weft__cuda_weighted sum; /* that is encoded, when it is rounded to its own type */
    uint32_t num_octets;
    int is_aligned; /* the dst and the sources */
};

/* Over the lanes that have the group. */
WP_FN uint32_t weft__cuda_log_header(const float (&values)[8], int is_there)
{
    uint32_t least = 0x7fffffffu, greatest = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t magnitude =
            is_there ? weft__finite_magnitude(__float_as_uint(values[i])) : 0;
        least = magnitude != 0 && magnitude < least ? magnitude : least;
        greatest = max(greatest, magnitude);
    }
#pragma unroll
    for (int distance = WEFT__CUDA_LOG_LANES / 2; distance > 0; distance /= 2) {
        least = min(least, __shfl_xor_sync(0xffffffffu, least, distance));
        greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
    }
    return greatest == 0 ? 0 : weft__log_header(least, greatest);
}

/* The four lanes whose elements are 32 apart get each other's high bits. */
WP_FN void weft__cuda_share_high_bits(struct weft__cuda_log_octet *codes)
{
#pragma unroll
    for (int w = 0; w < 2; w++) {
        codes->high.words[w] |= __shfl_xor_sync(0xffffffffu, codes->high.words[w], 4);
        codes->high.words[w] |= __shfl_xor_sync(0xffffffffu, codes->high.words[w], 8);
    }
}

WP_FN void weft__cuda_log_codes(struct weft__cuda_log_octet *codes, const float (&values)[8],
                                uint32_t octet, int is_there)
{
    codes->header.words[0] = weft__cuda_log_header(values, is_there);
    const struct weft__log_range range = weft__log_range_of(codes->header.words[0]);
    codes->low = weft__cuda_unit<8>{{0, 0}};
    codes->high = weft__cuda_unit<8>{{0, 0}};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t code = is_there ? weft__log_code(__float_as_uint(values[i]), range) : 0;
        codes->low.words[i / 4] |= (code & 0xffu) << (8 * (i % 4));
        codes->high.words[i / 4] |= code >> 8 << (8 * (i % 4) + weft__cuda_log_shift(octet));
    }
    weft__cuda_share_high_bits(codes);
}

WP_FN void weft__cuda_store_log(const struct weft__cuda_log_encoded *row,
                                const struct weft__cuda_log_octet *codes, uint32_t octet)
{
    const struct weft__log_place place = weft__cuda_log_place(octet, row->num_octets);
    const uint32_t lane = octet % WEFT__CUDA_LOG_LANES;
    weft__cuda_store_at(row->dst + place.low, codes->low, row->is_aligned);
    if (lane < 4)
        weft__cuda_store_at(row->dst + place.high, codes->high, row->is_aligned);
    if (lane == 0)
        weft__cuda_store_at(row->dst + place.header, codes->header, row->is_aligned);
}

template <typename S>
WP_FN void weft__cuda_load_octet(weft__cuda_wide<S, 8> *wide, const void *row, uint32_t octet,
                                 int is_aligned)
{
    enum { UNITS = sizeof(S) / 2 };
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        weft__cuda_load_at(&wide->units[u], (const char *)row + ((uint64_t)octet * UNITS + u) * 16,
                           is_aligned);
}

/* The values that are encoded, rounded. */
template <typename S>
WP_FN void weft__cuda_log_source(float (&values)[8], const struct weft__cuda_log_encoded *row,
                                 uint32_t octet)
{
    enum { PER_WORD = 4 / sizeof(S) };
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int32_t s = 0; s < row->sum.num_srcs; s++) {
        weft__cuda_wide<S, 8> wide;
        if (row->sum.srcs[s] == NULL)
            continue;
        weft__cuda_load_octet<S>(&wide, row->sum.srcs[s], octet, row->is_aligned);
        weft__cuda_decode_wide<S>(values, wide);
        weft__cuda_add_values(sums, values, weft__cuda_weight(row->sum.weights, s));
    }
#pragma unroll
    for (int i = 0; i < 8; i += PER_WORD)
        weft__cuda_decode_word(values + i, weft__cuda_encode_word(sums + i, S()), S());
}

/* All lanes take every step, since those of a group meet. */
template <typename S>
WP_FN void weft__cuda_encode_octets(uint32_t lane_idx, const struct weft__cuda_log_encoded *row,
                                    uint32_t begin, uint32_t end)
{
#pragma unroll 1
    for (uint32_t first = begin; first < end; first += WP_WARP_SIZE) {
        const uint32_t octet = first + lane_idx;
        struct weft__cuda_log_octet codes;
        float values[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (octet < end)
            weft__cuda_log_source<S>(values, row, octet);
        weft__cuda_log_codes(&codes, values, octet, octet < end);
        if (octet < end)
            weft__cuda_store_log(row, &codes, octet);
    }
}

/* Octets [begin, end), of any type and alignment: whole blocks, or up to the end. Called, as
 * weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_log_encode(uint32_t lane_idx, struct weft__cuda_log_encoded row,
                                        uint32_t begin, uint32_t end)
{
    weft__cuda_with_wide_float(row.sum.sum.src_dtype, [&](auto element) {
        weft__cuda_encode_octets<decltype(element)>(lane_idx, &row, begin, end);
    });
}

/* ------------------------------------------------------------------ sums */

struct weft__cuda_log_sum {
    void *dst;
    const void *const *firsts; /* wide rows, to which the others are added */
    int32_t num_firsts;
    weft_dtype first_dtype;
    const void *const *srcs;
    const float *weights; /* NULL: all are 1 */
    int32_t num_srcs;
    weft_dtype dst_dtype;
    int is_aligned; /* all sources and dst */
};

WP_FN void weft__cuda_add_first_octets(float (&sums)[8], const struct weft__cuda_log_sum *sum,
                                       uint32_t octet)
{
#pragma unroll 1
    for (int32_t s = 0; s < sum->num_firsts; s++) {
        if (sum->firsts[s] == NULL)
            continue;
        weft__cuda_with_wide_float(sum->first_dtype, [&](auto element) {
            weft__cuda_wide<decltype(element), 8> wide;
            float values[8];
            weft__cuda_load_octet<decltype(element)>(&wide, sum->firsts[s], octet, sum->is_aligned);
            weft__cuda_decode_wide<decltype(element)>(values, wide);
            weft__cuda_add_values(sums, values, weft__cuda_one());
        });
    }
}

/* By the units that sum floats, too: other integers have half their rate. */
WP_FN uint32_t weft__cuda_times_plus(uint32_t factor, uint32_t times, uint32_t plus)
{
    uint32_t sum;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(factor), "r"(times), "r"(plus));
    return sum;
}

/* Byte `i` of each word, one behind the other, as a number. */
WP_FN uint32_t weft__cuda_join_bytes(uint32_t low, uint32_t high, int i)
{
    uint32_t joined;
    /* From the third byte on the sign of the high one, which has none. */
    asm("prmt.b32 %0, %1, %2, %3;"
        : "=r"(joined)
        : "r"(low), "r"(high), "r"(0xcc40u + (uint32_t)i * 0x1111u));
    return joined;
}

/* Whether one of four codes has no steps: a low byte and a ninth bit of 0. */
WP_FN uint32_t weft__cuda_lacks_steps(uint32_t low, uint32_t ninth)
{
    const uint32_t steps = low | weft__cuda_times_plus(ninth, 0xffu, 0);
    return (steps - 0x01010101u) & ~steps & 0x80808080u;
}

/* As weft__log_number has them. */
WP_FN void weft__cuda_add_log(float (&sums)[8], const struct weft__cuda_log_octet &codes,
                              float weight, uint32_t octet)
{
    const struct weft__log_range range = weft__log_range_of(codes.header.words[0]);
    const uint32_t before = range.base - range.step; /* code 1 has the base */
    uint32_t ninths[2], signs[2];
#pragma unroll
    for (int w = 0; w < 2; w++) {
        const uint32_t high = codes.high.words[w] >> weft__cuda_log_shift(octet);
        ninths[w] = high & 0x01010101u;
        signs[w] = high & 0x02020202u;
    }
    const uint32_t some_lack = weft__cuda_lacks_steps(codes.low.words[0], ninths[0]) |
                               weft__cuda_lacks_steps(codes.low.words[1], ninths[1]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t steps = weft__cuda_join_bytes(codes.low.words[i / 4], ninths[i / 4], i % 4);
        const uint32_t sign =
            weft__cuda_times_plus(signs[i / 4], 1u << (30 - 8 * (i % 4)), 0) & 0x80000000u;
        uint32_t number = weft__cuda_times_plus(steps, range.step, before) | sign;
        if (some_lack != 0) /* a sign alone is NaN */
            number = steps == 0 ? min(sign, 0x7fffffffu) : number;
        sums[i] = __fadd_rn(sums[i], __fmul_rn(weight, __uint_as_float(number)));
    }
}

/* The loads of several rows are in flight together. */
WP_FN void weft__cuda_sum_log_octet(float (&sums)[8], const struct weft__cuda_log_sum *sum,
                                    uint32_t octet, uint32_t num_octets)
{
    enum { AT_ONCE = 8 };
    const struct weft__log_place place = weft__cuda_log_place(octet, num_octets);
#pragma unroll 1
    for (int32_t first = 0; first < sum->num_srcs; first += AT_ONCE) {
        struct weft__cuda_log_octet codes[AT_ONCE];
        uint32_t present = 0;
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            const char *row =
                (const char *)(first + s < sum->num_srcs ? sum->srcs[first + s] : NULL);
            if (row == NULL)
                continue;
            present |= 1u << s;
            weft__cuda_load_at(&codes[s].low, row + place.low, sum->is_aligned);
            weft__cuda_load_at(&codes[s].high, row + place.high, sum->is_aligned);
            weft__cuda_load_at(&codes[s].header, row + place.header, sum->is_aligned);
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            if (present >> s & 1u)
                weft__cuda_add_log(sums, codes[s], weft__cuda_weight(sum->weights, first + s),
                                   octet);
        }
    }
}

template <typename D>
WP_FN void weft__cuda_store_octet(const struct weft__cuda_log_sum *sum, uint32_t octet,
                                  const float (&values)[8])
{
    enum { UNITS = sizeof(D) / 2, PER_UNIT = 16 / sizeof(D) };
    char *dst = (char *)sum->dst + (uint64_t)octet * UNITS * 16;
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        weft__cuda_store_at(dst + 16 * u, weft__cuda_encode_unit(values + u * PER_UNIT, D()),
                            sum->is_aligned);
}

enum weft__cuda_first_rows { WEFT__CUDA_LOGS_ALONE, WEFT__CUDA_LOGS_AFTER_FIRST };

/* Called, as weft__cuda_reduce_slowly is, and for its reasons. */
template <weft__cuda_first_rows FIRSTS>
WP_CALLED_FN void weft__cuda_sum_log(uint32_t lane_idx, struct weft__cuda_log_sum sum,
                                     uint32_t first_octet, int64_t num_elements)
{
    const uint32_t num_octets = (uint32_t)(num_elements / WEFT__CUDA_OCTET);
#pragma unroll 1
    for (uint32_t octet = first_octet + lane_idx; octet < num_octets; octet += WP_WARP_SIZE) {
        float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (FIRSTS == WEFT__CUDA_LOGS_AFTER_FIRST)
            weft__cuda_add_first_octets(sums, &sum, octet);
        weft__cuda_sum_log_octet(sums, &sum, octet, num_octets);
        weft__cuda_with_wide_float(sum.dst_dtype, [&](auto element) {
            weft__cuda_store_octet<decltype(element)>(&sum, octet, sums);
        });
    }
}
