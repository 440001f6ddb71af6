/* SPDX-License-Identifier: MIT */
/* Sums of rows of different types on the cuda machine; part of primitives.h. A primitive of its
 * own, so that programs without such rows do not hold its code. */
#pragma once

#include "machine/cuda/reduce.h"

/* A warp's sum. */
struct weft__cuda_mixed {
    void *dst;
    const void *const *srcs;
    int32_t num_srcs;
    struct wp_mixed_sum sum;
};

/* Lanes have four elements each at a time, of whatever type: so many that the widest are 16 bytes,
 * and that neighbours' lie side by side in all rows. */
enum { WEFT__CUDA_QUAD = 4 };

/* Calls `act` with an element of the type. */
template <typename Act> WP_FN void weft__cuda_with_float_element(weft_dtype dtype, Act act)
{
    switch (dtype) {
    case WEFT_BF16:
        return act(weft__cuda_bf16());
    case WEFT_FP16:
        return act(__half());
    case WEFT_FP32:
        return act(float());
    default:
        return act(weft__cuda_fp8());
    }
}

/* ------------------------------------------------------------------ four elements */

WP_FN void weft__cuda_load_quad(uint32_t (&words)[4], const void *row, uint32_t quad)
{
    const int4 v = weft__cuda_load16((const int4 *)row + quad);
    words[0] = (uint32_t)v.x;
    words[1] = (uint32_t)v.y;
    words[2] = (uint32_t)v.z;
    words[3] = (uint32_t)v.w;
}
WP_FN void weft__cuda_load_quad(uint32_t (&words)[2], const void *row, uint32_t quad)
{
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"((const uint2 *)row + quad));
}
WP_FN void weft__cuda_load_quad(uint32_t (&words)[1], const void *row, uint32_t quad)
{
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(words[0])
                 : "l"((const uint32_t *)row + quad));
}

WP_FN void weft__cuda_store_quad(void *row, uint32_t quad, const uint32_t (&words)[4])
{
    weft__cuda_store16((int4 *)row + quad,
                       make_int4((int)words[0], (int)words[1], (int)words[2], (int)words[3]));
}
WP_FN void weft__cuda_store_quad(void *row, uint32_t quad, const uint32_t (&words)[2])
{
    asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"((uint2 *)row + quad), "r"(words[0]), "r"(words[1])
                 : "memory");
}
WP_FN void weft__cuda_store_quad(void *row, uint32_t quad, const uint32_t (&words)[1])
{
    asm volatile("st.global.L1::no_allocate.u32 [%0], %1;"
                 :
                 : "l"((uint32_t *)row + quad), "r"(words[0])
                 : "memory");
}

/* ------------------------------------------------------------------ sums of quads */

/* The sums of UNROLL quads of a lane, which lie a warp apart. */
template <int UNROLL> struct weft__cuda_quad_sums {
    float values[UNROLL][WEFT__CUDA_QUAD];
};

/* The loads of several rows are in flight together, as in weft__cuda_sum_step. */
template <typename E, int UNROLL>
WP_FN void weft__cuda_add_quads(struct weft__cuda_quad_sums<UNROLL> *sums, const void *const *rows,
                                int32_t num_rows, uint32_t first_quad)
{
    enum { PER_WORD = 4 / sizeof(E), AT_ONCE = 8 / sizeof(E) /* 32 registers, when unrolled */ };
#pragma unroll 1
    for (int32_t first = 0; first < num_rows; first += AT_ONCE) {
        uint32_t words[AT_ONCE][UNROLL][sizeof(E)];
        uint32_t present = 0;
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            const void *row = first + s < num_rows ? rows[first + s] : NULL;
            if (row == NULL)
                continue;
            present |= 1u << s;
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                weft__cuda_load_quad(words[s][u], row, first_quad + u * WP_WARP_SIZE);
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            if (!(present >> s & 1u))
                continue;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float values[WEFT__CUDA_QUAD];
#pragma unroll
                for (int w = 0; w < (int)sizeof(E); w++)
                    weft__cuda_decode_word(values + w * PER_WORD, words[s][u][w], E());
#pragma unroll
                for (int i = 0; i < WEFT__CUDA_QUAD; i++)
                    sums->values[u][i] = __fadd_rn(sums->values[u][i], values[i]);
            }
        }
    }
}

template <typename E, int UNROLL>
WP_FN void weft__cuda_store_quads(const struct weft__cuda_quad_sums<UNROLL> *sums, void *dst,
                                  uint32_t first_quad)
{
    enum { PER_WORD = 4 / sizeof(E) };
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        uint32_t words[sizeof(E)];
#pragma unroll
        for (int w = 0; w < (int)sizeof(E); w++)
            words[w] = weft__cuda_encode_word(sums->values[u] + w * PER_WORD, E());
        weft__cuda_store_quad(dst, first_quad + u * WP_WARP_SIZE, words);
    }
}

/* Part 0 of the sources are the first ones, part 1 the others. */
struct weft__cuda_mixed_part {
    const void *const *rows;
    int32_t num_rows;
    weft_dtype dtype;
};

WP_FN struct weft__cuda_mixed_part weft__cuda_mixed_part(const struct weft__cuda_mixed *mixed,
                                                         int idx)
{
    const int32_t num_first = mixed->sum.num_first;
    const struct weft__cuda_mixed_part first = {mixed->srcs, num_first, mixed->sum.first_dtype};
    const struct weft__cuda_mixed_part rest = {mixed->srcs + num_first, mixed->num_srcs - num_first,
                                               mixed->sum.rest_dtype};
    return idx == 0 ? first : rest;
}

template <int UNROLL>
WP_FN void weft__cuda_sum_mixed_step(const struct weft__cuda_mixed *mixed, uint32_t first_quad)
{
    struct weft__cuda_quad_sums<UNROLL> sums;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int i = 0; i < WEFT__CUDA_QUAD; i++)
            sums.values[u][i] = 0.0f;
    }
#pragma unroll 1
    for (int idx = 0; idx < 2; idx++) {
        const struct weft__cuda_mixed_part part = weft__cuda_mixed_part(mixed, idx);
        weft__cuda_with_float_element(part.dtype, [&](auto element) {
            weft__cuda_add_quads<decltype(element)>(&sums, part.rows, part.num_rows, first_quad);
        });
    }
    weft__cuda_with_float_element(mixed->sum.dst_dtype, [&](auto element) {
        weft__cuda_store_quads<decltype(element)>(&sums, mixed->dst, first_quad);
    });
}

/* ------------------------------------------------------------------ single elements */

/* The ends of rows, and rows that are not aligned. */
WP_FN void weft__cuda_sum_mixed_element(const struct weft__cuda_mixed *mixed, int64_t i)
{
    float sums[16] = {0.0f};
#pragma unroll 1
    for (int32_t s = 0; s < mixed->num_srcs; s++) {
        if (mixed->srcs[s] == NULL)
            continue;
        const int is_first = s < mixed->sum.num_first;
        weft__cuda_with_float_element(
            is_first ? mixed->sum.first_dtype : mixed->sum.rest_dtype, [&](auto element) {
                float values[16];
                weft__cuda_decode(
                    values, weft__cuda_load_element<decltype(element)>(mixed->srcs[s], i), element);
                sums[0] = __fadd_rn(sums[0], values[0]);
            });
    }
    weft__cuda_with_float_element(mixed->sum.dst_dtype, [&](auto element) {
        weft__cuda_store_element<decltype(element)>(mixed->dst, i,
                                                    weft__cuda_encode(sums, element));
    });
}

/* Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_sum_mixed(uint32_t lane_idx, struct weft__cuda_mixed mixed,
                                       int64_t num_elements)
{
    enum { UNROLL = 4, STEP = WP_WARP_SIZE * UNROLL };
    const uint32_t num_quads =
        weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, mixed.srcs, mixed.num_srcs) |
                              (uint32_t)(uint64_t)mixed.dst) == 16
            ? (uint32_t)(num_elements / WEFT__CUDA_QUAD)
            : 0;
    uint32_t quad = lane_idx;
#pragma unroll 1
    for (; quad + STEP - WP_WARP_SIZE < num_quads; quad += STEP)
        weft__cuda_sum_mixed_step<UNROLL>(&mixed, quad);
#pragma unroll 1
    for (; quad < num_quads; quad += WP_WARP_SIZE)
        weft__cuda_sum_mixed_step<1>(&mixed, quad);
#pragma unroll 1
    for (int64_t i = (int64_t)num_quads * WEFT__CUDA_QUAD + lane_idx; i < num_elements;
         i += WP_WARP_SIZE)
        weft__cuda_sum_mixed_element(&mixed, i);
}

WP_FN void wp_row_sum_mixed(struct wp_warp *warp, void *dst, const void *const *srcs,
                            int32_t num_srcs, struct wp_mixed_sum sum, int64_t num_elements)
{
    const struct weft__cuda_mixed mixed = {dst, srcs, num_srcs, sum};
    weft__cuda_sum_mixed((uint32_t)wp_lane_idx(warp), mixed, num_elements);
}
