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
    if (dtype == WEFT_FP8_E4M3)
        return act(weft__cuda_fp8());
    weft__cuda_with_wide_float(dtype, act);
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
    float sums[UNROLL][WEFT__CUDA_QUAD];
    weft__cuda_begin_sums(sums);
#pragma unroll 1
    for (int idx = 0; idx < 2; idx++) {
        const struct weft__cuda_mixed_part part = weft__cuda_mixed_part(mixed, idx);
        weft__cuda_with_float_element(part.dtype, [&](auto element) {
            enum { AT_ONCE = 8 / sizeof element }; /* 32 registers, when unrolled */
            weft__cuda_add_units<decltype(element), AT_ONCE>(sums, part.rows, part.num_rows,
                                                             weft__cuda_one(), first_quad);
        });
    }
    weft__cuda_with_float_element(mixed->sum.dst_dtype, [&](auto element) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            weft__cuda_store_floats(mixed->dst, first_quad + u * WP_WARP_SIZE, sums[u], element);
    });
}

/* The ends of rows, and rows that are not aligned. */
WP_FN void weft__cuda_sum_mixed_element(const struct weft__cuda_mixed *mixed, int64_t i)
{
    const float sum = weft__cuda_sum_element(
        mixed->srcs, mixed->num_srcs, weft__cuda_one(), i, [&](int32_t s, auto act) {
            weft__cuda_with_float_element(
                s < mixed->sum.num_first ? mixed->sum.first_dtype : mixed->sum.rest_dtype, act);
        });
    weft__cuda_with_float_element(mixed->sum.dst_dtype, [&](auto element) {
        weft__cuda_store_float(mixed->dst, i, sum, element);
    });
}

/* Called, as weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_sum_mixed(uint32_t lane_idx, struct weft__cuda_mixed mixed,
                                       int64_t num_elements)
{
    const uint32_t num_quads =
        weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, mixed.srcs, mixed.num_srcs) |
                              (uint32_t)(uint64_t)mixed.dst) == 16
            ? (uint32_t)(num_elements / WEFT__CUDA_QUAD)
            : 0;
    weft__cuda_step_along<4>(lane_idx, num_quads, [&](uint32_t first, auto count) {
        weft__cuda_sum_mixed_step<decltype(count)::COUNT>(&mixed, first);
    });
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
