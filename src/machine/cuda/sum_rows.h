/* SPDX-License-Identifier: MIT */
/* Sums and averages of rows of bf16, fp16 and fp32 on the cuda machine; part of primitives.h. */
#pragma once

#include "machine/cuda/accumulate.h"
#include "machine/cuda/cuda_rows.h"
#include "machine/cuda/partial.h"

/* A warp's reduction. */
struct weft__cuda_rows {
    const void *const *dsts;
    int32_t num_dsts;
    const void *const *srcs;
    int32_t num_srcs;
    int32_t num_present; /* null pointers are not; or reduction.num_averaged, if that is not 0 */
    struct wp_reduction reduction;
};

/* All lanes call. */
WP_FN int32_t weft__cuda_num_present(uint32_t lane_idx, const void *const *rows, int32_t num_rows)
{
    uint32_t num_present = 0;
#pragma unroll 1
    for (int32_t i = (int32_t)lane_idx; i < num_rows; i += WP_WARP_SIZE)
        num_present += rows[i] != NULL;
    return (int32_t)__reduce_add_sync(0xffffffffu, num_present);
}

/* Chunks of a lane, a warp's apart, to all rows but the first. Loops for each chunk, which the
 * compiler unrolled, were half the code of programs that reduce. */
template <int NUM_CHUNKS>
WP_FN void weft__cuda_store_further(const struct weft__cuda_rows *rows, uint32_t first,
                                    const int4 (&chunks)[NUM_CHUNKS])
{
#pragma unroll 1
    for (int32_t d = 1; d < rows->num_dsts; d++) {
        int4 *dst = (int4 *)rows->dsts[d];
#pragma unroll
        for (int u = 0; u < NUM_CHUNKS && dst != NULL; u++)
            weft__cuda_store16(dst + first + u * WP_WARP_SIZE, chunks[u]);
    }
}

/* ------------------------------------------------------------------ sums of a few rows */

/* The last step of a sum before it is rounded. */
enum weft__cuda_sum_end { WEFT__CUDA_STAYS, WEFT__CUDA_DIVIDED };

/* Where there are more sources, their addresses are read each time that they are used: the
 * registers are for rows. */
enum { WEFT__CUDA_MOST_KNOWN_SOURCES = 4 };

template <int NUM_SRCS> WP_FN const int4 *weft__cuda_source(const void *const *srcs, int s)
{
    if (NUM_SRCS <= WEFT__CUDA_MOST_KNOWN_SOURCES)
        return (const int4 *)srcs[s];
    return (const int4 *)((const void *const volatile *)srcs)[s];
}

/* UNROLL chunks per lane from `first` on, the loads of all sources in flight together: rows of
 * other GPUs are microseconds away. */
template <typename E, int NUM_SRCS, int UNROLL, weft__cuda_sum_end END>
WP_FN void weft__cuda_sum_step(const struct weft__cuda_rows *rows, int4 *first_dst,
                               const void *const *srcs, uint32_t first)
{
    enum { PER_CHUNK = 16 / sizeof(E) };
    int4 v[UNROLL][NUM_SRCS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int s = 0; s < NUM_SRCS; s++)
            v[u][s] =
                weft__cuda_load16(weft__cuda_source<NUM_SRCS>(srcs, s) + first + u * WP_WARP_SIZE);
    }
    const float start = rows->reduction.op == WP_REDUCTION_SUM_FROM_ZERO ? 0.0f : -0.0f;
    int4 chunks[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        float sums[PER_CHUNK];
#pragma unroll
        for (int i = 0; i < PER_CHUNK; i++)
            sums[i] = start;
        weft__cuda_add_chunks<E>(sums, v[u], (1u << NUM_SRCS) - 1);
#pragma unroll
        for (int i = 0; i < PER_CHUNK && END == WEFT__CUDA_DIVIDED; i++)
            sums[i] = weft__cuda_average<NUM_SRCS>(sums[i]);
        chunks[u] = weft__cuda_encode(sums, E());
        if (first_dst != NULL)
            weft__cuda_store16(first_dst + first + u * WP_WARP_SIZE, chunks[u]);
    }
    weft__cuda_store_further(rows, first, chunks);
}

template <typename E, int NUM_SRCS, int UNROLL, weft__cuda_sum_end END>
WP_FN void weft__cuda_sum_steps(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                uint32_t num_chunks)
{
    int4 *first_dst = (int4 *)rows->dsts[0];
    const void *known[WEFT__CUDA_MOST_KNOWN_SOURCES];
#pragma unroll
    for (int s = 0; s < NUM_SRCS && s < WEFT__CUDA_MOST_KNOWN_SOURCES; s++)
        known[s] = rows->srcs[s];
    const void *const *srcs = NUM_SRCS <= WEFT__CUDA_MOST_KNOWN_SOURCES ? known : rows->srcs;
    weft__cuda_step_along<UNROLL>(lane_idx, num_chunks, [&](uint32_t first, auto count) {
        weft__cuda_sum_step<E, NUM_SRCS, decltype(count)::COUNT, END>(rows, first_dst, srcs, first);
    });
}

/* No row is missing. A choice inside the loop would keep its loads apart. */
template <typename E, int NUM_SRCS, int UNROLL>
WP_FN void weft__cuda_sum_known(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                uint32_t num_chunks)
{
    if (rows->reduction.op == WP_REDUCTION_AVG)
        weft__cuda_sum_steps<E, NUM_SRCS, UNROLL, WEFT__CUDA_DIVIDED>(lane_idx, rows, num_chunks);
    else
        weft__cuda_sum_steps<E, NUM_SRCS, UNROLL, WEFT__CUDA_STAYS>(lane_idx, rows, num_chunks);
}

enum weft__cuda_done { WEFT__CUDA_NOT_DONE = 0, WEFT__CUDA_DONE };

/* Does nothing where there is no code for so many sources. About 16 loads of a lane are in flight,
 * as many as the registers hold: measured on H200, combine took 776 us with 8 and 534 with 16. The
 * compiler keeps them together only while what the program calls is frugal, too. */
template <typename E>
WP_FN enum weft__cuda_done weft__cuda_sum_few(uint32_t lane_idx, const struct weft__cuda_rows *rows,
                                              uint32_t num_chunks)
{
    if (rows->num_present != rows->num_srcs)
        return WEFT__CUDA_NOT_DONE;
    switch (rows->num_srcs) {
    case 1:
        weft__cuda_sum_known<E, 1, 4>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 2:
        weft__cuda_sum_known<E, 2, 4>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 3:
        weft__cuda_sum_known<E, 3, 4>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 4:
        weft__cuda_sum_known<E, 4, 4>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 5:
        weft__cuda_sum_known<E, 5, 3>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 6:
        weft__cuda_sum_known<E, 6, 3>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 7:
        weft__cuda_sum_known<E, 7, 2>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    case 8:
        weft__cuda_sum_known<E, 8, 2>(lane_idx, rows, num_chunks);
        return WEFT__CUDA_DONE;
    default:
        return WEFT__CUDA_NOT_DONE;
    }
}

/* Sums and averages of whole chunks of aligned rows. */
WP_FN enum weft__cuda_done
weft__cuda_sum_rows(uint32_t lane_idx, const struct weft__cuda_rows *rows, uint32_t num_chunks)
{
    if (!weft__cuda_adds(rows->reduction.op))
        return WEFT__CUDA_NOT_DONE;
    if (rows->reduction.dtype == WEFT_BF16)
        return weft__cuda_sum_few<weft__cuda_bf16>(lane_idx, rows, num_chunks);
    if (rows->reduction.dtype == WEFT_FP16)
        return weft__cuda_sum_few<__half>(lane_idx, rows, num_chunks);
    if (rows->reduction.dtype == WEFT_FP32)
        return weft__cuda_sum_few<float>(lane_idx, rows, num_chunks);
    return WEFT__CUDA_NOT_DONE;
}
