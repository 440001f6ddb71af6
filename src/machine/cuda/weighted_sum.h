/* SPDX-License-Identifier: MIT */
/* Sums of rows with weights on the cuda machine; part of primitives.h. A primitive of its own, so
 * that programs without such sums do not hold its code. */
#pragma once

#include "machine/cuda/cuda_packets.h"
#include "machine/cuda/reduce.h"

/* A warp's sum. */
struct weft__cuda_weighted {
    void *dst;
    const void *const *srcs;
    const float *weights; /* NULL: all are 1 */
    int32_t num_srcs;
    struct wp_weighted_sum sum;
};

/* Eight are 16 bytes of the narrower types, four of the widest. */
WP_FN void weft__cuda_store_sums(const struct weft__cuda_weighted *rows, uint32_t i,
                                 const float (&sums)[8])
{
    if (rows->sum.dst_dtype == WEFT_BF16)
        weft__cuda_store_floats(rows->dst, i, sums, weft__cuda_bf16());
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

/* A lane has units of PER elements each, as many as make 16 bytes of the wider type. Calls
 * take(first_unit, sums) for the sums of the units first_unit, a warp further on, and so
 * on. */
template <typename S, int PER, int UNROLL, typename Take>
WP_FN void weft__cuda_weighted_step(const struct weft__cuda_weighted *rows, uint32_t first_unit,
                                    Take take)
{
    enum { AT_ONCE = WEFT__CUDA_PACKETS_ARE_SHORT ? 4 : 2 };
    float sums[UNROLL][PER];
    weft__cuda_begin_sums(sums);
    weft__cuda_add_units<S, AT_ONCE>(sums, rows->srcs, rows->num_srcs, rows->weights, first_unit);
    take(first_unit, sums);
}

/* Returns how many elements that were. */
template <typename S, int PER, typename Take>
WP_FN int64_t weft__cuda_take_weighted(uint32_t lane_idx, const struct weft__cuda_weighted *rows,
                                       int64_t num_elements, Take take)
{
    enum { UNROLL = WEFT__CUDA_PACKETS_ARE_SHORT ? 1 : 64 / (PER * sizeof(S)) };
    const uint32_t num_units = (uint32_t)(num_elements / PER);
    weft__cuda_step_along<UNROLL>(lane_idx, num_units, [&](uint32_t first, auto count) {
        weft__cuda_weighted_step<S, PER, decltype(count)::COUNT>(rows, first, take);
    });
    return (int64_t)num_units * PER;
}

template <typename S, int PER>
WP_FN int64_t weft__cuda_weighted_units(uint32_t lane_idx, const struct weft__cuda_weighted *rows,
                                        int64_t num_elements)
{
    return weft__cuda_take_weighted<S, PER>(
        lane_idx, rows, num_elements, [&](uint32_t first_unit, const auto &sums) {
#pragma unroll
            for (int u = 0; u < (int)(sizeof sums / sizeof *sums); u++)
                weft__cuda_store_sums(rows, first_unit + u * WP_WARP_SIZE, sums[u]);
        });
}

/* Called, not inlined: together the types would need more registers than there are, and spill 600
 * bytes. */
template <typename S, int PER>
WP_CALLED_FN int64_t weft__cuda_weighted_called(uint32_t lane_idx, struct weft__cuda_weighted rows,
                                                int64_t num_elements)
{
    return weft__cuda_weighted_units<S, PER>(lane_idx, &rows, num_elements);
}

WP_FN int64_t weft__cuda_weighted_aligned(uint32_t lane_idx, const struct weft__cuda_weighted *rows,
                                          int64_t num_elements)
{
    const weft_dtype src_dtype = rows->sum.src_dtype;
    if (src_dtype == WEFT_FP32)
        return weft__cuda_weighted_called<float, 4>(lane_idx, *rows, num_elements);
    if (rows->sum.dst_dtype == WEFT_FP32)
        return src_dtype == WEFT_BF16
                   ? weft__cuda_weighted_called<weft__cuda_bf16, 4>(lane_idx, *rows, num_elements)
                   : weft__cuda_weighted_called<__half, 4>(lane_idx, *rows, num_elements);
    return src_dtype == WEFT_BF16
               ? weft__cuda_weighted_called<weft__cuda_bf16, 8>(lane_idx, *rows, num_elements)
               : weft__cuda_weighted_called<__half, 8>(lane_idx, *rows, num_elements);
}

/* ------------------------------------------------------------------ single elements */

WP_FN float weft__cuda_weighted_value(const struct weft__cuda_weighted *rows, int64_t i)
{
    return weft__cuda_sum_element(
        rows->srcs, rows->num_srcs, rows->weights, i,
        [&](int32_t, auto act) { weft__cuda_with_wide_float(rows->sum.src_dtype, act); });
}

WP_FN void weft__cuda_weighted_element(const struct weft__cuda_weighted *rows, int64_t i)
{
    const float sum = weft__cuda_weighted_value(rows, i);
    weft__cuda_with_wide_float(rows->sum.dst_dtype, [&](auto element) {
        weft__cuda_store_float(rows->dst, i, sum, element);
    });
}

/* All types and alignments, from element num_done on. Called, as weft__cuda_reduce_slowly is, and
 * for its reasons. */
WP_CALLED_FN void weft__cuda_weighted_sum(uint32_t lane_idx, struct weft__cuda_weighted rows,
                                          uint32_t unit_bytes, int64_t num_done,
                                          int64_t num_elements)
{
    if (unit_bytes == 16 && num_done == 0)
        num_done = weft__cuda_weighted_aligned(lane_idx, &rows, num_elements);
#pragma unroll 1
    for (int64_t i = num_done + lane_idx; i < num_elements; i += WP_WARP_SIZE)
        weft__cuda_weighted_element(&rows, i);
}

/* The usual type in place: calls cost registers, whose contents wait in memory. */
WP_FN void wp_row_weighted_sum(struct wp_warp *warp, void *dst, const void *const *srcs,
                               const float *weights, int32_t num_srcs, struct wp_weighted_sum sum,
                               int64_t num_elements)
{
    const struct weft__cuda_weighted rows = {dst, srcs, weights, num_srcs, sum};
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t unit_bytes = weft__cuda_unit_bytes(
        weft__cuda_low_bits(lane_idx, srcs, num_srcs) | (uint32_t)(uint64_t)dst);
    const int is_usual =
        unit_bytes == 16 && sum.src_dtype == WEFT_BF16 && sum.dst_dtype == WEFT_BF16;
    int64_t num_done = 0;
    if (is_usual)
        num_done = weft__cuda_weighted_units<weft__cuda_bf16, 8>(lane_idx, &rows, num_elements);
    if (!(is_usual && WEFT__CUDA_ROWS_ARE_ALIGNED) && num_done < num_elements)
        weft__cuda_weighted_sum(lane_idx, rows, unit_bytes, num_done, num_elements);
}

/* ------------------------------------------------------------------ sent in packets */

template <typename D, int UNROLL, int PER>
WP_FN void weft__cuda_send_sums(struct wp_warp *warp, const struct wp_packets *packets,
                                struct wp_packet_targets to, uint32_t first_unit,
                                const float (&sums)[UNROLL][PER])
{
    int4 chunks[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        chunks[u] = weft__cuda_encode(sums[u], D());
    weft__cuda_send_some(warp, packets, to, first_unit, chunks, (1u << UNROLL) - 1);
}

/* Where a unit is a packet. */
template <typename S>
WP_FN void weft__cuda_send_aligned_sums(struct wp_warp *warp, const struct wp_packets *packets,
                                        struct wp_packet_targets to,
                                        const struct weft__cuda_weighted *rows,
                                        int64_t num_elements)
{
    weft__cuda_take_weighted<S, 16 / sizeof(S)>((uint32_t)wp_lane_idx(warp), rows, num_elements,
                                                [&](uint32_t first_unit, const auto &sums) {
                                                    weft__cuda_send_sums<S>(warp, packets, to,
                                                                            first_unit, sums);
                                                });
}

/* All types and alignments: if there are no units each lane makes packets by itself. Called, as
 * weft__cuda_reduce_slowly is, and for its reasons. */
WP_CALLED_FN void weft__cuda_send_weighted(struct wp_warp *warp, const struct wp_packets *packets,
                                           struct wp_packet_targets to,
                                           struct weft__cuda_weighted rows, int64_t num_elements)
{
    const uint32_t low_bits =
        weft__cuda_low_bits((uint32_t)wp_lane_idx(warp), rows.srcs, rows.num_srcs);
    const int is_aligned = weft__cuda_unit_bytes(low_bits) == 16 &&
                           num_elements * wp_dtype_bytes(rows.sum.dst_dtype) % 16 == 0;
    weft__cuda_with_wide_float(rows.sum.dst_dtype, [&](auto element) {
        enum { PER = 16 / sizeof(element) };
        if (is_aligned && rows.sum.src_dtype == rows.sum.dst_dtype) {
            weft__cuda_send_aligned_sums<decltype(element)>(warp, packets, to, &rows, num_elements);
            return;
        }
#pragma unroll 1
        for (int64_t i = wp_lane_idx(warp); i * PER < num_elements; i += WP_WARP_SIZE) {
            float sums[PER];
#pragma unroll
            for (int k = 0; k < PER; k++)
                sums[k] = i * PER + k < num_elements ? weft__cuda_weighted_value(&rows, i * PER + k)
                                                     : 0.0f;
            const int4 chunks[1] = {weft__cuda_encode(sums, element)};
            weft__cuda_send_some(warp, packets, to, (uint64_t)i, chunks, 1);
        }
    });
}

/* As wp_packets_send_quantised: aligned rows are of the usual type. */
WP_FN void wp_packets_send_weighted_sum(struct wp_warp *warp, const struct wp_packets *packets,
                                        struct wp_packet_targets to, const void *const *srcs,
                                        const float *weights, int32_t num_srcs,
                                        struct wp_weighted_sum sum, int64_t num_elements)
{
    const struct weft__cuda_weighted rows = {NULL, srcs, weights, num_srcs, sum};
    if constexpr (WEFT__CUDA_ROWS_ARE_ALIGNED)
        weft__cuda_send_aligned_sums<weft__cuda_bf16>(warp, packets, to, &rows, num_elements);
    else
        weft__cuda_send_weighted(warp, packets, to, rows, num_elements);
}
