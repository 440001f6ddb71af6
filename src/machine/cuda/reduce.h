/* SPDX-License-Identifier: MIT */
/* Reductions of rows on the cuda machine; part of primitives.h. */
#ifndef WEFT_MACHINE_CUDA_REDUCE_H
#define WEFT_MACHINE_CUDA_REDUCE_H

#include "machine/cuda/sum_rows.h"

/* Whole chunks of aligned rows. */
WEFT_FN void weft__cuda_reduce_chunks(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                      int64_t num_chunks)
{
    enum { AT_ONCE = 4 };
    const int32_t num_present = weft__cuda_num_present(rows->srcs, rows->num_srcs);
#pragma unroll 1
    for (int64_t i = lane_idx; i < num_chunks; i += WEFT_WARP_SIZE) {
        struct weft__cuda_partial partial;
        weft__cuda_partial_begin(&partial, rows->reduction);
#pragma unroll 1
        for (int32_t first = 0; first < rows->num_srcs; first += AT_ONCE) {
            int4 chunks[AT_ONCE];
            uint32_t present = 0;
#pragma unroll
            for (int s = 0; s < AT_ONCE; s++) {
                if (first + s < rows->num_srcs && rows->srcs[first + s] != NULL) {
                    chunks[s] = weft__cuda_load16((const int4 *)rows->srcs[first + s] + i);
                    present |= 1u << s;
                }
            }
            weft__cuda_partial_add_all(&partial, rows->reduction, chunks, present);
        }
        weft__cuda_store_chunk(rows, (int4 *)rows->dsts[0], i,
                               weft__cuda_partial_end(&partial, rows->reduction, num_present));
    }
}

template <typename E> WEFT_FN int4 weft__cuda_load_element(const void *row, int64_t i)
{
    const char *element = (const char *)row + i * (int64_t)sizeof(E);
    int4 chunk = make_int4(0, 0, 0, 0);
    if ((uint64_t)element % sizeof(E) == 0) {
        const E value = *(const E *)element;
        memcpy(&chunk, &value, sizeof(E));
    } else {
        memcpy(&chunk, element, sizeof(E)); /* byte by byte */
    }
    return chunk;
}

template <typename E> WEFT_FN void weft__cuda_store_element(void *row, int64_t i, int4 chunk)
{
    char *element = (char *)row + i * (int64_t)sizeof(E);
    if ((uint64_t)element % sizeof(E) == 0) {
        E value;
        memcpy(&value, &chunk, sizeof(E));
        *(E *)element = value;
        return;
    }
    /* By way of memory: ptxas 13.0 stores the low byte of a rounded bf16 as if an integer were
     * wanted, 0.6 as 1. */
    volatile uint32_t words[2] = {(uint32_t)chunk.x, (uint32_t)chunk.y};
#pragma unroll
    for (int byte = 0; byte < (int)sizeof(E); byte++)
        element[byte] = (char)(words[byte / 4] >> (8 * (byte % 4)));
}

/* Element by element: the ends of rows, and rows that are not aligned. */
template <typename E>
WEFT_FN void weft__cuda_reduce_elements(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                        int64_t begin, int64_t num_elements)
{
    typedef typename weft__cuda_values<E>::type V;
    const enum weft_reduction_op op = rows->reduction.op;
    const int32_t num_present = weft__cuda_num_present(rows->srcs, rows->num_srcs);
#pragma unroll 1
    for (int64_t i = begin + lane_idx; i < num_elements; i += WEFT_WARP_SIZE) {
        V sum[16 / sizeof(E)] = {weft__cuda_neutral(op, E())}, values[16 / sizeof(E)];
#pragma unroll 1
        for (int32_t s = 0; s < rows->num_srcs; s++) {
            if (rows->srcs[s] == NULL)
                continue;
            weft__cuda_decode(values, weft__cuda_load_element<E>(rows->srcs[s], i), E());
            sum[0] = weft__cuda_apply(op, sum[0], values[0], E());
        }
        if (op == WEFT_REDUCTION_AVG)
            sum[0] = weft__cuda_divide(sum[0], num_present, E());
        const int4 chunk = weft__cuda_encode(sum, E());
        for (int32_t d = 0; d < rows->num_dsts; d++) {
            if (rows->dsts[d] != NULL)
                weft__cuda_store_element<E>((void *)rows->dsts[d], i, chunk);
        }
    }
}

/* Called, not inlined: it would take registers from the loops above, and programs that reduce in
 * several places hold it once. */
static inline __device__ __noinline__ void
weft__cuda_reduce_slowly(uint32_t lane_idx, struct weft__cuda_rows rows, int64_t num_done,
                         int64_t num_chunks, int64_t num_elements)
{
    if (num_done == 0)
        weft__cuda_reduce_chunks(lane_idx, &rows, num_chunks);
    weft__cuda_with_element(rows.reduction.dtype, [&](auto element) {
        weft__cuda_reduce_elements<decltype(element)>(
            lane_idx, &rows, num_chunks * (int64_t)(16 / sizeof element), num_elements);
    });
}

WEFT_FN uint64_t weft_dtype_bytes(weft_dtype dtype); /* machine.h */

WEFT_FN void weft_row_reduce(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                             const void *const *srcs, int32_t num_srcs,
                             struct weft_reduction reduction, int64_t num_elements)
{
    const uint32_t lane_idx = (uint32_t)weft_lane_idx(warp);
    const struct weft__cuda_rows rows = {dsts, num_dsts, srcs, num_srcs, reduction};
    const int64_t per_chunk = 16 / (int64_t)weft_dtype_bytes(reduction.dtype);
    if (num_dsts == 0)
        return;
    int64_t num_chunks = 0;
    if (weft__cuda_unit_bytes(srcs, num_srcs, dsts[0]) == 16 &&
        weft__cuda_unit_bytes(dsts + 1, num_dsts - 1, NULL) == 16)
        num_chunks = num_elements / per_chunk;
    int64_t num_done = 0;
    if (weft__cuda_sum_rows(lane_idx, &rows, (uint32_t)num_chunks) == WEFT__CUDA_DONE)
        num_done = num_chunks * per_chunk;
    if (num_done < num_elements)
        weft__cuda_reduce_slowly(lane_idx, rows, num_done, num_chunks, num_elements);
}

#endif
