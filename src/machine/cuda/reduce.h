/* SPDX-License-Identifier: MIT */
/* Reductions of rows on the cuda machine; part of primitives.h. */
#pragma once

#include "machine/cuda/sum_rows.h"

/* Rows as far as they are whole units, of 16 bytes or narrower ones, which are reduced as if zeros
 * followed them. Returns how many bytes that were. */
WP_FN uint64_t weft__cuda_reduce_units(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                       uint32_t unit_bytes, uint64_t row_bytes)
{
    enum { AT_ONCE = 4 };
    const uint32_t num_units = (uint32_t)(row_bytes / unit_bytes);
#pragma unroll 1
    for (uint32_t i = lane_idx; i < num_units; i += WP_WARP_SIZE) {
        struct weft__cuda_partial partial;
        weft__cuda_partial_begin(&partial, rows->reduction);
#pragma unroll 1
        for (int32_t first = 0; first < rows->num_srcs; first += AT_ONCE) {
            int4 units[AT_ONCE];
            uint32_t present = 0;
#pragma unroll
            for (int s = 0; s < AT_ONCE; s++) {
                if (first + s < rows->num_srcs && rows->srcs[first + s] != NULL) {
                    units[s] = weft__cuda_load_any(rows->srcs[first + s], i, unit_bytes);
                    present |= 1u << s;
                }
            }
            weft__cuda_partial_add_all(&partial, rows->reduction, units, present);
        }
        const int4 unit = weft__cuda_partial_end(&partial, rows->reduction, rows->num_present);
        for (int32_t d = 0; d < rows->num_dsts; d++) {
            if (rows->dsts[d] != NULL)
                weft__cuda_store_any((void *)rows->dsts[d], i, unit_bytes, unit);
        }
    }
    return (uint64_t)num_units * unit_bytes;
}

/* Element by element: the ends of rows, and rows that are aligned to less than 4 bytes, or than an
 * element. */
template <typename E>
WP_FN void weft__cuda_reduce_elements(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                      int64_t begin, int64_t num_elements)
{
    typedef typename weft__cuda_values<E>::type V;
    const enum wp_reduction_op op = rows->reduction.op;
#pragma unroll 1
    for (int64_t i = begin + lane_idx; i < num_elements; i += WP_WARP_SIZE) {
        V sum[16 / sizeof(E)] = {weft__cuda_neutral(op, E())}, values[16 / sizeof(E)];
#pragma unroll 1
        for (int32_t s = 0; s < rows->num_srcs; s++) {
            if (rows->srcs[s] == NULL)
                continue;
            weft__cuda_decode(values, weft__cuda_load_element<E>(rows->srcs[s], i), E());
            sum[0] = weft__cuda_apply(op, sum[0], values[0], E());
        }
        if (op == WP_REDUCTION_AVG)
            sum[0] = weft__cuda_divide(sum[0], rows->num_present, E());
        const int4 chunk = weft__cuda_encode(sum, E());
        for (int32_t d = 0; d < rows->num_dsts; d++) {
            if (rows->dsts[d] != NULL)
                weft__cuda_store_element<E>((void *)rows->dsts[d], i, chunk);
        }
    }
}

WP_FN uint64_t wp_dtype_bytes(weft_dtype dtype); /* machine.h */

/* From begin_bytes on. Called, not inlined: it would take registers from the loops above, and
 * programs that reduce in several places hold it once. */
WP_CALLED_FN void weft__cuda_reduce_slowly(uint32_t lane_idx, struct weft__cuda_rows rows,
                                           uint32_t unit_bytes, uint64_t begin_bytes,
                                           uint64_t row_bytes)
{
    if (begin_bytes == 0 && unit_bytes >= 4 && unit_bytes >= wp_dtype_bytes(rows.reduction.dtype))
        begin_bytes = weft__cuda_reduce_units(lane_idx, &rows, unit_bytes, row_bytes);
    weft__cuda_with_element(rows.reduction.dtype, [&](auto element) {
        weft__cuda_reduce_elements<decltype(element)>(lane_idx, &rows,
                                                      (int64_t)(begin_bytes / sizeof element),
                                                      (int64_t)(row_bytes / sizeof element));
    });
}

/* The rows that the warp reduces, and at *unit_bytes in which units it may. All lanes call. */
WP_FN struct weft__cuda_rows weft__cuda_rows_of(uint32_t lane_idx, const void *const *dsts,
                                                int32_t num_dsts, const void *const *srcs,
                                                int32_t num_srcs, struct wp_reduction reduction,
                                                uint32_t *unit_bytes)
{
    *unit_bytes = weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, srcs, num_srcs) |
                                        weft__cuda_low_bits(lane_idx, dsts, num_dsts));
    const int32_t num_present = reduction.num_averaged > 0
                                    ? reduction.num_averaged
                                    : weft__cuda_num_present(lane_idx, srcs, num_srcs);
    const struct weft__cuda_rows rows = {dsts, num_dsts, srcs, num_srcs, num_present, reduction};
    return rows;
}

WP_FN void wp_row_reduce(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                         const void *const *srcs, int32_t num_srcs, struct wp_reduction reduction,
                         int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint64_t row_bytes = (uint64_t)num_elements * wp_dtype_bytes(reduction.dtype);
    if (num_dsts == 0)
        return;
    uint32_t unit_bytes = 0;
    const struct weft__cuda_rows rows =
        weft__cuda_rows_of(lane_idx, dsts, num_dsts, srcs, num_srcs, reduction, &unit_bytes);
    uint64_t num_done = 0;
    if (unit_bytes == 16 &&
        weft__cuda_sum_rows(lane_idx, &rows, (uint32_t)(row_bytes / 16)) == WEFT__CUDA_DONE)
        num_done = row_bytes / 16 * 16;
    if (num_done < row_bytes)
        weft__cuda_reduce_slowly(lane_idx, rows, unit_bytes, num_done, row_bytes);
}

/* Without code of its own for each number of sources, which is a megabyte at every place. */
WP_FN void wp_row_reduce_compact(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                                 const void *const *srcs, int32_t num_srcs,
                                 struct wp_reduction reduction, int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    if (num_dsts == 0)
        return;
    uint32_t unit_bytes = 0;
    const struct weft__cuda_rows rows =
        weft__cuda_rows_of(lane_idx, dsts, num_dsts, srcs, num_srcs, reduction, &unit_bytes);
    weft__cuda_reduce_slowly(lane_idx, rows, unit_bytes, 0,
                             (uint64_t)num_elements * wp_dtype_bytes(reduction.dtype));
}
