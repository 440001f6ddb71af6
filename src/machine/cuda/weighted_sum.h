/* SPDX-License-Identifier: MIT */
/* Sums of rows with weights on the cuda machine; part of primitives.h. A primitive of its own, so
 * that programs without such sums do not hold its code. */
#ifndef WEFT_MACHINE_CUDA_WEIGHTED_SUM_H
#define WEFT_MACHINE_CUDA_WEIGHTED_SUM_H

#include "machine/cuda/reduce.h"

/* What a warp sums. */
struct weft__cuda_weighted {
    void *dst;
    const void *const *srcs;
    const float *weights; /* NULL: all are 1 */
    int32_t num_srcs;
    struct wp_weighted_sum sum;
};

/* A product by 1 is exact. */
WP_FN float weft__cuda_weight(const struct weft__cuda_weighted *rows, int32_t s)
{
    return rows->weights == NULL ? 1.0f : rows->weights[s];
}

/* ------------------------------------------------------------------ several elements */

/* The rows that are there, one after the other. */
struct weft__cuda_weighted_row {
    const void *row; /* NULL: there are no more */
    float weight;
};
WP_FN struct weft__cuda_weighted_row weft__cuda_next_row(const struct weft__cuda_weighted *rows,
                                                         int32_t *s)
{
    while (*s < rows->num_srcs && rows->srcs[*s] == NULL)
        ++*s;
    struct weft__cuda_weighted_row next = {NULL, 0.0f};
    if (*s < rows->num_srcs) {
        next.row = rows->srcs[*s];
        next.weight = weft__cuda_weight(rows, *s);
        ++*s;
    }
    return next;
}

/* A lane has units of PER elements each, as many as make 16 bytes of the wider type; UNROLL of
 * them, which lie a warp apart. The loads of several rows are in flight together. No more of them
 * than tokens have ranks, as a rule: code that is fetched for the first time takes as long as the
 * rows do. */
template <typename S, int PER, int UNROLL>
WP_FN void weft__cuda_add_weighted(float (&sums)[UNROLL][PER],
                                   const struct weft__cuda_weighted *rows, uint32_t first_unit)
{
    enum { BYTES = PER * sizeof(S), PER_WORD = 4 / sizeof(S), AT_ONCE = 4 };
    int32_t s = 0;
#pragma unroll 1
    do {
        weft__cuda_unit<BYTES> units[AT_ONCE][UNROLL];
        struct weft__cuda_weighted_row next[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            next[r] = weft__cuda_next_row(rows, &s);
            if (next[r].row == NULL)
                continue;
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                weft__cuda_load_unit(&units[r][u], next[r].row, first_unit + u * WP_WARP_SIZE);
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            if (next[r].row == NULL)
                continue;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float values[PER];
#pragma unroll
                for (int w = 0; w < BYTES / 4; w++)
                    weft__cuda_decode_word(values + w * PER_WORD, units[r][u].words[w], S());
#pragma unroll
                for (int i = 0; i < PER; i++)
                    sums[u][i] = __fadd_rn(sums[u][i], __fmul_rn(next[r].weight, values[i]));
            }
        }
    } while (s < rows->num_srcs);
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
/* Eight are 16 bytes of the narrower types, four of the widest. */
WP_FN void weft__cuda_store_sums(const struct weft__cuda_weighted *rows, uint32_t i,
                                 const float (&sums)[8])
{
    if (rows->sum.dst_dtype == WEFT_BF16)
        weft__cuda_store_floats(rows->dst, i, sums, __nv_bfloat16());
    else
        weft__cuda_store_floats(rows->dst, i, sums, __half());
}
WP_FN void weft__cuda_store_sums(const struct weft__cuda_weighted *rows, uint32_t i,
                                 const float (&sums)[4])
{
    weft__cuda_with_wide_float(rows->sum.dst_dtype, [&](auto element) {
        weft__cuda_store_floats(rows->dst, i, sums, element);
    });
}

template <typename S, int PER, int UNROLL>
WP_FN void weft__cuda_weighted_step(const struct weft__cuda_weighted *rows, uint32_t first_unit)
{
    float sums[UNROLL][PER];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int i = 0; i < PER; i++)
            sums[u][i] = 0.0f;
    }
    weft__cuda_add_weighted<S>(sums, rows, first_unit);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        weft__cuda_store_sums(rows, first_unit + u * WP_WARP_SIZE, sums[u]);
}

/* Returns how many elements that were. Called, not inlined: together the types would need more
 * registers than there are, and spill 600 bytes. */
template <typename S, int PER>
static __device__ __noinline__ int64_t weft__cuda_weighted_units(
    uint32_t lane_idx, const struct weft__cuda_weighted *rows, int64_t num_elements)
{
    enum { UNROLL = 32 / (PER * sizeof(S)), STEP = WP_WARP_SIZE * UNROLL };
    const uint32_t num_units = (uint32_t)(num_elements / PER);
    uint32_t i = lane_idx;
#pragma unroll 1
    for (; i + STEP - WP_WARP_SIZE < num_units; i += STEP)
        weft__cuda_weighted_step<S, PER, UNROLL>(rows, i);
#pragma unroll 1
    for (; i < num_units; i += WP_WARP_SIZE)
        weft__cuda_weighted_step<S, PER, 1>(rows, i);
    return (int64_t)num_units * PER;
}

WP_FN int64_t weft__cuda_weighted_aligned(uint32_t lane_idx, const struct weft__cuda_weighted *rows,
                                          int64_t num_elements)
{
    const weft_dtype src_dtype = rows->sum.src_dtype;
    if (src_dtype == WEFT_FP32)
        return weft__cuda_weighted_units<float, 4>(lane_idx, rows, num_elements);
    if (rows->sum.dst_dtype == WEFT_FP32)
        return src_dtype == WEFT_BF16
                   ? weft__cuda_weighted_units<__nv_bfloat16, 4>(lane_idx, rows, num_elements)
                   : weft__cuda_weighted_units<__half, 4>(lane_idx, rows, num_elements);
    return src_dtype == WEFT_BF16
               ? weft__cuda_weighted_units<__nv_bfloat16, 8>(lane_idx, rows, num_elements)
               : weft__cuda_weighted_units<__half, 8>(lane_idx, rows, num_elements);
}

/* ------------------------------------------------------------------ single elements */

/* The ends of rows, and rows that are not aligned. */
WP_FN void weft__cuda_weighted_element(const struct weft__cuda_weighted *rows, int64_t i)
{
    float sums[8] = {0.0f};
#pragma unroll 1
    for (int32_t s = 0; s < rows->num_srcs; s++) {
        if (rows->srcs[s] == NULL)
            continue;
        weft__cuda_with_wide_float(rows->sum.src_dtype, [&](auto element) {
            float values[8];
            weft__cuda_decode(values, weft__cuda_load_element<decltype(element)>(rows->srcs[s], i),
                              element);
            sums[0] = __fadd_rn(sums[0], __fmul_rn(weft__cuda_weight(rows, s), values[0]));
        });
    }
    weft__cuda_with_wide_float(rows->sum.dst_dtype, [&](auto element) {
        weft__cuda_store_element<decltype(element)>(rows->dst, i, weft__cuda_encode(sums, element));
    });
}

/* Called, as weft__cuda_reduce_slowly is, and for its reasons. */
static inline __device__ __noinline__ void
weft__cuda_weighted_sum(uint32_t lane_idx, struct weft__cuda_weighted rows, int64_t num_elements)
{
    const uint32_t unit_bytes = weft__cuda_unit_bytes(
        weft__cuda_low_bits(lane_idx, rows.srcs, rows.num_srcs) | (uint32_t)(uint64_t)rows.dst);
    const int64_t num_done =
        unit_bytes == 16 ? weft__cuda_weighted_aligned(lane_idx, &rows, num_elements) : 0;
#pragma unroll 1
    for (int64_t i = num_done + lane_idx; i < num_elements; i += WP_WARP_SIZE)
        weft__cuda_weighted_element(&rows, i);
}

WP_FN void wp_row_weighted_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                               const float *weights, int32_t num_srcs, struct wp_weighted_sum sum,
                               int64_t num_elements)
{
    const struct weft__cuda_weighted rows = {dst, srcs, weights, num_srcs, sum};
    weft__cuda_weighted_sum((uint32_t)wp_lane_idx(warp), rows, num_elements);
}

#endif
