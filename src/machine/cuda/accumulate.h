/* SPDX-License-Identifier: MIT */
/* Shared by sums of rows on the cuda machine: steps along a row, and sums of elements that a lane
 * has, of rows in memory or of chunks in registers. Part of primitives.h. */
#pragma once

#include "machine/cuda/elements.h"
#include "machine/cuda/units.h"

/* ------------------------------------------------------------------ along a row */

template <int N> struct weft__cuda_count {
    enum { COUNT = N };
};

/* Calls step(unit, count) for `count` units of a lane, a warp apart: UNROLL of them while the row
 * has as many, then each of the others. */
template <int UNROLL, typename Step>
WP_FN void weft__cuda_step_along(uint32_t lane_idx, uint32_t num_units, Step step)
{
    enum { STEP = WP_WARP_SIZE * UNROLL };
    uint32_t i = lane_idx;
#pragma unroll 1
    for (; i + STEP - WP_WARP_SIZE < num_units; i += STEP)
        step(i, weft__cuda_count<UNROLL>());
#pragma unroll 1
    for (; i < num_units; i += WP_WARP_SIZE)
        step(i, weft__cuda_count<1>());
}

/* ------------------------------------------------------------------ over elements */

/* The weight of all rows of a sum that has none. */
struct weft__cuda_one {
};

WP_FN struct weft__cuda_one weft__cuda_weight(struct weft__cuda_one one, int32_t)
{
    return one;
}
/* NULL: all are 1. A product by 1 is exact. */
WP_FN float weft__cuda_weight(const float *weights, int32_t s)
{
    return weights == NULL ? 1.0f : weights[s];
}

WP_FN float weft__cuda_weigh(struct weft__cuda_one, float value)
{
    return value;
}
WP_FN float weft__cuda_weigh(float weight, float value)
{
    return __fmul_rn(weight, value);
}

template <int UNROLL, int PER> WP_FN void weft__cuda_begin_sums(float (&sums)[UNROLL][PER])
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int i = 0; i < PER; i++)
            sums[u][i] = 0.0f;
    }
}

template <typename Weight, int PER>
WP_FN void weft__cuda_add_values(float (&sums)[PER], const float (&values)[PER], Weight weight)
{
#pragma unroll
    for (int i = 0; i < PER; i++)
        sums[i] = __fadd_rn(sums[i], weft__cuda_weigh(weight, values[i]));
}

/* Adds UNROLL units of PER elements, which lie a warp apart, of each row. The loads of AT_ONCE rows
 * are in flight together: as many as a lane has registers for. */
template <typename S, int AT_ONCE, int UNROLL, int PER, typename Weights>
WP_FN void weft__cuda_add_units(float (&sums)[UNROLL][PER], const void *const *rows,
                                int32_t num_rows, Weights weights, uint32_t first_unit)
{
    enum { BYTES = PER * sizeof(S), PER_WORD = 4 / sizeof(S) };
#pragma unroll 1
    for (int32_t first = 0; first < num_rows; first += AT_ONCE) {
        weft__cuda_unit<BYTES> units[AT_ONCE][UNROLL];
        const void *row[AT_ONCE];
        decltype(weft__cuda_weight(weights, 0)) weight[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            row[r] = first + r < num_rows ? rows[first + r] : NULL;
            if (row[r] == NULL)
                continue;
            weight[r] = weft__cuda_weight(weights, first + r);
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                weft__cuda_load_unit(&units[r][u], row[r], first_unit + u * WP_WARP_SIZE);
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            if (row[r] == NULL)
                continue;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float values[PER];
#pragma unroll
                for (int w = 0; w < BYTES / 4; w++)
                    weft__cuda_decode_word(values + w * PER_WORD, units[r][u].words[w], S());
                weft__cuda_add_values(sums[u], values, weight[r]);
            }
        }
    }
}

template <typename D, int PER>
WP_FN void weft__cuda_store_floats(void *row, uint32_t i, const float (&values)[PER], D)
{
    enum { BYTES = PER * sizeof(D), PER_WORD = 4 / sizeof(D) };
    weft__cuda_unit<BYTES> unit;
#pragma unroll
    for (int w = 0; w < BYTES / 4; w++)
        unit.words[w] = weft__cuda_encode_word(values + w * PER_WORD, D());
    weft__cuda_store_unit(row, i, unit);
}

/* Element i of the sum: the ends of rows, and rows that are not aligned. Row s has the type that
 * with_type(s, act) calls `act` with an element of. */
template <typename Weights, typename WithType>
WP_FN float weft__cuda_sum_element(const void *const *rows, int32_t num_rows, Weights weights,
                                   int64_t i, WithType with_type)
{
    float sum[1] = {0.0f};
#pragma unroll 1
    for (int32_t s = 0; s < num_rows; s++) {
        if (rows[s] == NULL)
            continue;
        with_type(s, [&](auto element) {
            float values[16 / sizeof element];
            weft__cuda_decode(values, weft__cuda_load_element<decltype(element)>(rows[s], i),
                              element);
            sum[0] = __fadd_rn(sum[0], weft__cuda_weigh(weft__cuda_weight(weights, s), values[0]));
        });
    }
    return sum[0];
}

/* Rounds the sum to element i of a row. */
template <typename D> WP_FN void weft__cuda_store_float(void *row, int64_t i, float sum, D)
{
    float values[16 / sizeof(D)] = {sum};
    weft__cuda_store_element<D>(row, i, weft__cuda_encode(values, D()));
}

/* Adds to the sum of chunks those of the chunks whose bit is set, in order. The others add -0,
 * which changes no sum, so that there are no branches: with them a step of one token by rank took
 * 7.47 us among 4 H200, without 6.91 (2026-11-27). */
template <typename E, int NUM>
WP_FN void weft__cuda_add_chunks(float (&sum)[16 / sizeof(E)], const int4 (&chunks)[NUM],
                                 uint32_t present)
{
    const int minus_zero = (int)(sizeof(E) == 4 ? 0x80000000u : 0x80008000u);
    float values[16 / sizeof(E)];
#pragma unroll
    for (int s = 0; s < NUM; s++) {
        const int is_present = present >> s & 1u;
        const int4 chunk =
            is_present ? chunks[s] : make_int4(minus_zero, minus_zero, minus_zero, minus_zero);
        weft__cuda_decode(values, chunk, E());
        weft__cuda_add_values(sum, values, weft__cuda_one());
    }
}
