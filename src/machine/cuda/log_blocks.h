/* SPDX-License-Identifier: MIT */
/* Whole blocks of WEFT_LOG_10BIT of which all is aligned, on the cuda machine; part of log_rows.h.
 * A lane has two octets of a block, which are half a block apart. What limits is the rate of
 * integer instructions, which is half that of floats. Of bf16 a magnitude has 15 bits: behind 2^23
 * a float holds it as it is, so codes come of sums of floats. */
#pragma once

#include "machine/cuda/log_octets.h"

enum {
    WEFT__CUDA_BLOCK_OCTETS = WP_LOG_BLOCK_ELEMENTS / WEFT__CUDA_OCTET,
    WEFT__CUDA_LANE_OCTETS = WEFT__CUDA_BLOCK_OCTETS / WP_WARP_SIZE,
    WEFT__CUDA_LOG_HIGH_OFFSET = WP_LOG_BLOCK_ELEMENTS,
    WEFT__CUDA_LOG_HEADERS_OFFSET = WEFT__CUDA_LOG_HIGH_OFFSET + WP_LOG_BLOCK_ELEMENTS / 4
};

/* The group, of the block's four, of octet u of the lane. */
WP_FN uint32_t weft__cuda_group_of(uint32_t lane_idx, int u)
{
    return u * (WP_WARP_SIZE / WEFT__CUDA_LOG_LANES) + lane_idx / WEFT__CUDA_LOG_LANES;
}

/* ------------------------------------------------------------------ encode */

/* In a plain group all elements are 0, or none is, nor is any so far below the greatest that it has
 * no code of its own, and the greatest has the last code; of a group of few different magnitudes,
 * whose step has been rounded down by much, it would have one beyond. So the code of each is its
 * distance from the least in steps. */
enum weft__cuda_groups { WEFT__CUDA_PLAIN_GROUPS, WEFT__CUDA_FINITE_GROUPS };

/* Extremes of the lane's group, whose lanes meet: in the high half the greatest magnitude, in the
 * low half how far the least one is below 2^15; where groups may be other than plain, the least
 * that is not 0. */
template <weft__cuda_groups GROUPS> WP_FN uint32_t weft__cuda_extremes(weft__cuda_unit<16> elements)
{
    uint32_t greatest = 0, farthest = 0; /* of each half of the words */
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint32_t magnitudes = elements.words[w] & 0x7fff7fffu;
        const uint32_t distances = 0x80008000u - magnitudes;
        greatest = __vmaxu2(greatest, magnitudes);
        farthest = __vmaxu2(farthest, GROUPS == WEFT__CUDA_PLAIN_GROUPS ? distances
                                                                        : distances & 0x7fff7fffu);
    }
    uint32_t both =
        __vmaxu2(__byte_perm(farthest, greatest, 0x5410), __byte_perm(farthest, greatest, 0x7632));
#pragma unroll
    for (int distance = WEFT__CUDA_LOG_LANES / 2; distance > 0; distance /= 2)
        both = __vmaxu2(both, __shfl_xor_sync(0xffffffffu, both, distance));
    return both;
}

/* The least magnitude that the extremes tell of; of zeros alone 0. */
WP_FN uint32_t weft__cuda_least_of(uint32_t extremes)
{
    return (0x8000u - (extremes & 0xffffu)) & 0x7fffu;
}

WP_FN int weft__cuda_is_finite(uint32_t extremes)
{
    return extremes < 0x7f80u << 16;
}

WP_FN int weft__cuda_is_plain(uint32_t extremes)
{
    enum { FEW_MAGNITUDES = 8, MOST_DISTANCE = 32 << 7 };
    const uint32_t greatest = extremes >> 16, least = weft__cuda_least_of(extremes);
    const uint32_t distance = greatest - least;
    return weft__cuda_is_finite(extremes) && (least > 0 || greatest == 0) &&
           distance <= MOST_DISTANCE && (distance == 0 || distance >= FEW_MAGNITUDES);
}

/* The factors for all codes of a group. Magnitudes, of 15 bits, are behind 2^23. */
struct weft__cuda_bf16_codes {
    float base;         /* the least that is not 0 */
    float inverse;      /* of the step */
    float first_code;   /* 1, behind 2^23; of zeros alone 0 */
    float zeros_end;    /* those below have code 0 */
    uint32_t sign_bits; /* in the high bits of four codes; of zeros alone none */
};

/* 1 / step, as a division has it, without the branch for numbers that are not normal: steps are
 * whole numbers. */
WP_FN float weft__cuda_inverse_of(uint32_t step)
{
    const float number = (float)step;
    float about;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(about) : "f"(number));
    const float error = __fmaf_rn(-number, about, 1.0f);
    return step == 0 ? 0.0f : __fmaf_rn(about, error, about);
}

WP_FN struct weft__cuda_bf16_codes weft__cuda_bf16_codes_of(uint32_t header)
{
    const struct weft__log_range range = weft__log_range_of(header);
    /* Half of the base, which has a bit to spare: twice a magnitude below it is less. */
    const uint32_t half = __float_as_uint(__fmul_rn(0.5f, __uint_as_float(range.base)));
    const struct weft__cuda_bf16_codes codes = {
        __uint_as_float(0x4b000000u | range.base >> 16),
        __fmul_rn(weft__cuda_inverse_of(range.step), 0x1p16f),
        header == 0 ? 0x1p23f : 0x1p23f + 1.0f,
        __uint_as_float(0x4b000000u | max(1u, (half + 0xffffu) >> 16)),
        header == 0 ? 0 : 0x02020202u};
    return codes;
}

/* In the low bits, behind the byte 0x4b: the code of a magnitude, as weft__log_code has it. */
template <weft__cuda_groups GROUPS>
WP_FN uint32_t weft__cuda_bf16_code(float magnitude, struct weft__cuda_bf16_codes how)
{
    float above = __fsub_rn(magnitude, how.base);
    if (GROUPS != WEFT__CUDA_PLAIN_GROUPS)
        above = fmaxf(above, 0.0f);
    float position = __fmul_rn(above, how.inverse);
    if (GROUPS != WEFT__CUDA_PLAIN_GROUPS)
        position = fminf(position, (float)WEFT__LOG_STEPS);
    const float code = __fadd_rz(__fadd_rn(position, 0.5f), how.first_code);
    if (GROUPS != WEFT__CUDA_PLAIN_GROUPS && magnitude < how.zeros_end)
        return 0x4b000000u;
    return __float_as_uint(code);
}

/* Splits the four elements in two words: their low bytes, and their high bits. */
template <weft__cuda_groups GROUPS>
WP_FN void weft__cuda_bf16_quad(uint32_t *low, uint32_t *high, const uint32_t words[2],
                                struct weft__cuda_bf16_codes how)
{
    uint32_t pairs[2], signs[2];
#pragma unroll
    for (int w = 0; w < 2; w++) {
        const uint32_t magnitudes = words[w] & 0x7fff7fffu;
        const uint32_t first = weft__cuda_bf16_code<GROUPS>(
            __uint_as_float(__byte_perm(magnitudes, 0x4b00u, 0x5410)), how);
        const uint32_t second = weft__cuda_bf16_code<GROUPS>(
            __uint_as_float(__byte_perm(magnitudes, 0x4b00u, 0x5432)), how);
        pairs[w] = weft__cuda_times_plus(second, 0x10000u, first);
        signs[w] = words[w];
        if (GROUPS != WEFT__CUDA_PLAIN_GROUPS) /* code 0 has none */
            signs[w] &=
                (first == 0x4b000000u ? 0 : 0xffffu) | (second == 0x4b000000u ? 0 : 0xffff0000u);
    }
    *low = __byte_perm(pairs[0], pairs[1], 0x6420);
    /* The byte 0x4b of the first has turned the last bit of the second. */
    const uint32_t ninth = (__byte_perm(pairs[0], pairs[1], 0x7531) ^ 0x01000100u) & 0x01010101u;
    *high = ninth | (__byte_perm(signs[0], signs[1], 0x7531) >> 6 & how.sign_bits);
}

/* Octets of groups that are so, whose lanes meet. */
template <weft__cuda_groups GROUPS>
WP_FN void weft__cuda_encode_bf16(struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS],
                                  const weft__cuda_unit<16> (&elements)[WEFT__CUDA_LANE_OCTETS],
                                  const uint32_t (&extremes)[WEFT__CUDA_LANE_OCTETS],
                                  uint32_t lane_idx)
{
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
        codes[u].header.words[0] =
            weft__log_header(weft__cuda_least_of(extremes[u]) << 16, extremes[u] & 0xffff0000u);
        const struct weft__cuda_bf16_codes how = weft__cuda_bf16_codes_of(codes[u].header.words[0]);
#pragma unroll
        for (int w = 0; w < 2; w++) {
            uint32_t high;
            weft__cuda_bf16_quad<GROUPS>(&codes[u].low.words[w], &high, elements[u].words + 2 * w,
                                         how);
            codes[u].high.words[w] = high << weft__cuda_log_shift(lane_idx);
        }
    }
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
        weft__cuda_share_high_bits(&codes[u]);
}

/* The lane's elements of a block: of one row as they are, else summed and rounded. */
WP_FN void weft__cuda_block_source(weft__cuda_unit<16> (&elements)[WEFT__CUDA_LANE_OCTETS],
                                   const struct weft__cuda_weighted *rows, uint32_t first_octet)
{
    if (rows->num_srcs == 1 && rows->weights == NULL && rows->srcs[0] != NULL) {
#pragma unroll
        for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
            weft__cuda_load_unit(&elements[u], rows->srcs[0], first_octet + u * WP_WARP_SIZE);
        return;
    }
    float sums[WEFT__CUDA_LANE_OCTETS][8];
    weft__cuda_begin_sums(sums);
    weft__cuda_add_units<weft__cuda_bf16, 2>(sums, rows->srcs, rows->num_srcs, rows->weights,
                                             first_octet);
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
#pragma unroll
        for (int w = 0; w < 4; w++)
            elements[u].words[w] = weft__cuda_encode_word(sums[u] + 2 * w, weft__cuda_bf16());
    }
}

/* In each group the lanes of the first quarter store the high bits of octet 0, those of the second
 * of octet 1. */
WP_FN void
weft__cuda_store_block(char *block, uint32_t lane_idx,
                       const struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS])
{
    const uint32_t lane = lane_idx % WEFT__CUDA_LOG_LANES;
    const int quarter = (int)lane / 4;
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
        weft__cuda_store_unit(block, u * WP_WARP_SIZE + lane_idx, codes[u].low);
    if (quarter < WEFT__CUDA_LANE_OCTETS)
        weft__cuda_store_unit(block + WEFT__CUDA_LOG_HIGH_OFFSET,
                              weft__cuda_group_of(lane_idx, quarter) * 4 + lane % 4,
                              quarter == 0 ? codes[0].high : codes[1].high);
    if (lane < WEFT__CUDA_LANE_OCTETS)
        weft__cuda_store_unit(block + WEFT__CUDA_LOG_HEADERS_OFFSET,
                              weft__cuda_group_of(lane_idx, (int)lane),
                              lane == 0 ? codes[0].header : codes[1].header);
}
static_assert(WEFT__CUDA_LANE_OCTETS == 2, "as the choices above and below have it");

/* A block whose groups are not all plain. Called, since it is mostly not needed. Returns 0 if not
 * all is finite. */
WP_CALLED_FN int weft__cuda_encode_finite(uint32_t lane_idx, char *block, weft__cuda_unit<16> first,
                                          weft__cuda_unit<16> second)
{
    const weft__cuda_unit<16> elements[WEFT__CUDA_LANE_OCTETS] = {first, second};
    const uint32_t extremes[WEFT__CUDA_LANE_OCTETS] = {
        weft__cuda_extremes<WEFT__CUDA_FINITE_GROUPS>(first),
        weft__cuda_extremes<WEFT__CUDA_FINITE_GROUPS>(second)};
    struct weft__cuda_log_octet codes[WEFT__CUDA_LANE_OCTETS];
    if (!__all_sync(0xffffffffu,
                    weft__cuda_is_finite(extremes[0]) && weft__cuda_is_finite(extremes[1])))
        return 0;
    weft__cuda_encode_bf16<WEFT__CUDA_FINITE_GROUPS>(codes, elements, extremes, lane_idx);
    weft__cuda_store_block(block, lane_idx, codes);
    return 1;
}

WP_FN void weft__cuda_encode_block(uint32_t lane_idx, const struct weft__cuda_log_encoded *row,
                                   uint32_t block,
                                   const weft__cuda_unit<16> (&elements)[WEFT__CUDA_LANE_OCTETS])
{
    const uint32_t extremes[WEFT__CUDA_LANE_OCTETS] = {
        weft__cuda_extremes<WEFT__CUDA_PLAIN_GROUPS>(elements[0]),
        weft__cuda_extremes<WEFT__CUDA_PLAIN_GROUPS>(elements[1])};
    char *to = row->dst + (uint64_t)block * WEFT__LOG_BLOCK_BYTES;
    struct weft__cuda_log_octet codes[WEFT__CUDA_LANE_OCTETS];
    if (__all_sync(0xffffffffu,
                   weft__cuda_is_plain(extremes[0]) && weft__cuda_is_plain(extremes[1]))) {
        weft__cuda_encode_bf16<WEFT__CUDA_PLAIN_GROUPS>(codes, elements, extremes, lane_idx);
        weft__cuda_store_block(to, lane_idx, codes);
    } else if (!weft__cuda_encode_finite(lane_idx, to, elements[0], elements[1])) {
        weft__cuda_log_encode(lane_idx, *row, block * WEFT__CUDA_BLOCK_OCTETS,
                              (block + 1) * WEFT__CUDA_BLOCK_OCTETS);
    }
}

/* The next block's elements are under way while one is encoded. */
WP_FN void weft__cuda_encode_blocks(uint32_t lane_idx, const struct weft__cuda_log_encoded *row,
                                    uint32_t num_blocks)
{
    weft__cuda_unit<16> elements[WEFT__CUDA_LANE_OCTETS], next[WEFT__CUDA_LANE_OCTETS];
    if (num_blocks > 0)
        weft__cuda_block_source(next, &row->sum, lane_idx);
#pragma unroll 1
    for (uint32_t block = 0; block < num_blocks; block++) {
#pragma unroll
        for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
            elements[u] = next[u];
        if (block + 1 < num_blocks)
            weft__cuda_block_source(next, &row->sum,
                                    (block + 1) * WEFT__CUDA_BLOCK_OCTETS + lane_idx);
        weft__cuda_encode_block(lane_idx, row, block, elements);
    }
}

/* ------------------------------------------------------------------ sums */

WP_FN void weft__cuda_load_block(struct weft__cuda_log_octet (&codes)[WEFT__CUDA_LANE_OCTETS],
                                 const char *block, uint32_t lane_idx)
{
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++) {
        const uint32_t group = weft__cuda_group_of(lane_idx, u);
        weft__cuda_load_unit(&codes[u].low, block, u * WP_WARP_SIZE + lane_idx);
        weft__cuda_load_unit(&codes[u].high, block + WEFT__CUDA_LOG_HIGH_OFFSET,
                             group * 4 + lane_idx % 4);
        weft__cuda_load_unit(&codes[u].header, block + WEFT__CUDA_LOG_HEADERS_OFFSET, group);
    }
}

/* The loads of several rows are in flight together. */
WP_FN void weft__cuda_sum_block(uint32_t lane_idx, const struct weft__cuda_log_sum *sum,
                                uint32_t block)
{
    enum { AT_ONCE = 4 };
    const uint64_t offset = (uint64_t)block * WEFT__LOG_BLOCK_BYTES;
    float sums[WEFT__CUDA_LANE_OCTETS][8];
    weft__cuda_begin_sums(sums);
#pragma unroll 1
    for (int32_t first = 0; first < sum->num_srcs; first += AT_ONCE) {
        struct weft__cuda_log_octet codes[AT_ONCE][WEFT__CUDA_LANE_OCTETS];
        uint32_t present = 0;
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            const char *row =
                (const char *)(first + s < sum->num_srcs ? sum->srcs[first + s] : NULL);
            if (row == NULL)
                continue;
            present |= 1u << s;
            weft__cuda_load_block(codes[s], row + offset, lane_idx);
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            if (!(present >> s & 1u))
                continue;
            const float weight = weft__cuda_weight(sum->weights, first + s);
#pragma unroll
            for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
                weft__cuda_add_log(sums[u], codes[s][u], weight, lane_idx);
        }
    }
#pragma unroll
    for (int u = 0; u < WEFT__CUDA_LANE_OCTETS; u++)
        weft__cuda_store_floats(sum->dst,
                                block * WEFT__CUDA_BLOCK_OCTETS + u * WP_WARP_SIZE + lane_idx,
                                sums[u], weft__cuda_bf16());
}
