/* SPDX-License-Identifier: MIT */
/* Copies of rows on the cuda machine; part of primitives.h. */
#pragma once

#include "machine/cuda/units.h"

/* ------------------------------------------------------------------ 16 bytes at a time */

WP_FN int4 weft__cuda_load16(const int4 *src)
{
    int4 v;
    asm volatile("ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(src));
    return v;
}

WP_FN void weft__cuda_store16(int4 *dst, int4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.s32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(dst), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ------------------------------------------------------------------ copies */

/* Copies [begin, row_bytes) byte by byte: what the faster ways leave. */
WP_FN void weft__cuda_copy_bytes(uint32_t lane_idx, const void *const *dsts, int32_t num_dsts,
                                 const void *src, uint64_t begin, uint64_t row_bytes)
{
#pragma unroll 1
    for (uint64_t i = begin + lane_idx; i < row_bytes; i += WP_WARP_SIZE) {
        const char byte = ((const char *)src)[i];
#pragma unroll 1
        for (int32_t d = 0; d < num_dsts; d++) {
            if (dsts[d] != NULL)
                ((char *)dsts[d])[i] = byte;
        }
    }
}

/* Through registers, UNROLL units of a lane at a time: the first ones of the lane. */
template <int BYTES, int UNROLL, typename Idx>
WP_FN void weft__cuda_load_units(weft__cuda_unit<BYTES> *units, const void *src, Idx first,
                                 Idx num_units)
{
    const char *from = (const char *)src + (uint64_t)first * BYTES;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (first + u * WP_WARP_SIZE < num_units)
            weft__cuda_load_unit(&units[u], from, u * WP_WARP_SIZE);
    }
}

template <int BYTES, int UNROLL, typename Idx>
WP_FN void weft__cuda_store_units(const weft__cuda_unit<BYTES> *units, const void *const *dsts,
                                  int32_t num_dsts, Idx first, Idx num_units)
{
#pragma unroll 1
    for (int32_t d = 0; d < num_dsts; d++) {
        if (dsts[d] == NULL)
            continue;
        char *to = (char *)dsts[d] + (uint64_t)first * BYTES;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (first + u * WP_WARP_SIZE < num_units)
                weft__cuda_store_unit(to, u * WP_WARP_SIZE, units[u]);
        }
    }
}

/* Whether this is what has been prefetched to registers, which are the caller's now: what is not
 * wanted is dropped. */
WP_FN int weft__cuda_holds(struct wp_warp *warp, const void *src, uint32_t row_bytes)
{
    const int is_held = warp->prefetched == src && warp->prefetched_bytes == row_bytes;
    warp->prefetched = NULL;
    return is_held;
}

/* The first units of a lane of what has been prefetched, if that is this, and then the others. */
WP_FN void weft__cuda_copy_held(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                                const void *src, uint32_t row_bytes)
{
    enum { HELD = WEFT__CUDA_HELD_UNITS, STEP = HELD * WP_WARP_SIZE };
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp), num_units = row_bytes / 16;
    const int is_held = weft__cuda_holds(warp, src, row_bytes);
    if (num_dsts == 0)
        return;
    if (!is_held)
        weft__cuda_load_units<16, HELD>(warp->held, src, lane_idx, num_units);
    weft__cuda_store_units<16, HELD>(warp->held, dsts, num_dsts, lane_idx, num_units);
#pragma unroll 1
    for (uint32_t first = lane_idx + STEP; first < num_units; first += STEP) {
        weft__cuda_load_units<16, HELD>(warp->held, src, first, num_units);
        weft__cuda_store_units<16, HELD>(warp->held, dsts, num_dsts, first, num_units);
    }
}

/* Whole units of so many bytes. Returns how many bytes that were. */
template <int BYTES>
WP_FN uint64_t weft__cuda_copy_units(uint32_t lane_idx, const void *const *dsts, int32_t num_dsts,
                                     const void *src, uint64_t row_bytes)
{
    enum { UNROLL = BYTES == 16 ? WEFT__CUDA_ROW_UNROLL : 8, STEP = WP_WARP_SIZE * UNROLL };
    const uint64_t num_units = (uint64_t)(row_bytes / BYTES);
#pragma unroll 1
    for (uint64_t first = lane_idx; first < num_units; first += STEP) {
        weft__cuda_unit<BYTES> units[UNROLL];
        weft__cuda_load_units<BYTES, UNROLL>(units, src, first, num_units);
        weft__cuda_store_units<BYTES, UNROLL>(units, dsts, num_dsts, first, num_units);
    }
    return (uint64_t)num_units * BYTES;
}

/* Rows that are not aligned to 16 bytes. Called, not inlined: programs copy in several places. */
WP_CALLED_FN void weft__cuda_copy_narrowly(uint32_t lane_idx, const void *const *dsts,
                                           int32_t num_dsts, const void *src, uint32_t unit_bytes,
                                           uint64_t row_bytes)
{
    uint64_t num_done = 0;
    if (unit_bytes == 8)
        num_done = weft__cuda_copy_units<8>(lane_idx, dsts, num_dsts, src, row_bytes);
    else if (unit_bytes == 4)
        num_done = weft__cuda_copy_units<4>(lane_idx, dsts, num_dsts, src, row_bytes);
    else if (unit_bytes == 2)
        num_done = weft__cuda_copy_units<2>(lane_idx, dsts, num_dsts, src, row_bytes);
    weft__cuda_copy_bytes(lane_idx, dsts, num_dsts, src, num_done, row_bytes);
}

#if WEFT__CUDA_BULK
WP_FN uint32_t weft__cuda_arrival(struct wp_warp *warp)
{
    return (uint32_t)__cvta_generic_to_shared(&warp->block->arrivals[wp_warp_idx(warp)]);
}

/* Lane 0: the copy engine sees what the lane has acquired. */
WP_FN void weft__cuda_tell_engine(struct wp_warp *warp)
{
    if (warp->has_acquired)
        asm volatile("fence.proxy.async.global;" ::: "memory");
    warp->has_acquired = 0;
}

/* Lane 0: begins to fill the slot, once what was in it has been read by the stores before. */
WP_FN void weft__cuda_bulk_load(struct wp_warp *warp, const void *src, uint32_t bytes)
{
    const uint32_t slot = (uint32_t)__cvta_generic_to_shared(warp->memory->slot);
    const uint32_t arrival = weft__cuda_arrival(warp);
    weft__cuda_tell_engine(warp);
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(arrival), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(slot), "l"(src), "r"(bytes), "r"(arrival)
                 : "memory");
}

/* Lane 0: waits until the slot is full. */
WP_FN void weft__cuda_await_load(struct wp_warp *warp)
{
    const uint32_t arrival = weft__cuda_arrival(warp);
    const uint32_t parity = warp->num_loads % 2;
    uint32_t has_come = 0;
    while (!has_come)
        asm volatile("{\n .reg .pred p;\n"
                     " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     " selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(has_come)
                     : "r"(arrival), "r"(parity)
                     : "memory");
    warp->num_loads++;
}

/* Lane 0: what was prefetched is not wanted. */
WP_FN void weft__cuda_drop_prefetched(struct wp_warp *warp)
{
    if (warp->prefetched != NULL)
        weft__cuda_await_load(warp);
    warp->prefetched = NULL;
}

/* Lane 0: the slot gets what is at src, unless it has been prefetched. */
WP_FN void weft__cuda_fill_slot(struct wp_warp *warp, const void *src, uint32_t bytes)
{
    const int is_prefetched = warp->prefetched == src && warp->prefetched_bytes == bytes;
    if (!is_prefetched) {
        weft__cuda_drop_prefetched(warp);
        weft__cuda_bulk_load(warp, src, bytes);
    }
    weft__cuda_await_load(warp);
    warp->prefetched = NULL;
}

/* How many bytes of a row of so many chunks are copied at a time: it is cut into equal parts that
 * fit the slot. */
WP_FN uint32_t weft__cuda_bulk_part_bytes(const struct wp_warp *warp, uint32_t num_chunks)
{
    const uint32_t most_chunks = warp->launch->copy_slot_bytes / 16;
    if (num_chunks <= most_chunks)
        return num_chunks * 16;
    const uint32_t num_parts = (num_chunks + most_chunks - 1) / most_chunks;
    return (num_chunks + num_parts - 1) / num_parts * 16;
}

/* Lane 0 drives the copy engine; the stores are still under way when this returns. */
WP_FN void weft__cuda_copy_bulk(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                                const void *src, uint32_t num_chunks)
{
    const uint32_t slot = (uint32_t)__cvta_generic_to_shared(warp->memory->slot);
    const uint32_t part_bytes = weft__cuda_bulk_part_bytes(warp, num_chunks);
    if (wp_lane_idx(warp) == 0) {
        for (uint64_t begin = 0; begin < (uint64_t)num_chunks * 16; begin += part_bytes) {
            const uint64_t rest = (uint64_t)num_chunks * 16 - begin;
            const uint32_t bytes = (uint32_t)(rest < part_bytes ? rest : part_bytes);
            weft__cuda_fill_slot(warp, (const char *)src + begin, bytes);
            weft__cuda_tell_engine(warp); /* of the places, where the slot had been filled before */
#pragma unroll 1
            for (int32_t d = 0; d < num_dsts; d++) {
                if (dsts[d] != NULL)
                    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                                 :
                                 : "l"((char *)dsts[d] + begin), "r"(slot), "r"(bytes)
                                 : "memory");
            }
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        warp->has_stores = 1;
    }
    __syncwarp(); /* dsts may be overwritten */
}
#endif

/* Below this the engine's latency costs more than its width gains. */
enum { WEFT__CUDA_LEAST_BULK_BYTES = 1024 };

WP_FN int weft__cuda_goes_by_bulk(const struct wp_warp *warp, uint64_t row_bytes)
{
    return WEFT__CUDA_BULK && row_bytes >= WEFT__CUDA_LEAST_BULK_BYTES &&
           warp->launch->copy_slot_bytes >= WEFT__CUDA_LEAST_BULK_BYTES;
}

WP_FN void wp_row_prefetch(struct wp_warp *warp, const void *src, uint64_t row_bytes)
{
#if WEFT__CUDA_HOLDS
    weft__cuda_load_units<16, WEFT__CUDA_HELD_UNITS>(warp->held, src, (uint32_t)wp_lane_idx(warp),
                                                     (uint32_t)row_bytes / 16);
    warp->prefetched = src;
    warp->prefetched_bytes = (uint32_t)row_bytes;
#elif WEFT__CUDA_BULK
    if (!weft__cuda_goes_by_bulk(warp, row_bytes) || (uint64_t)src % 16 != 0)
        return;
    const uint32_t bytes = weft__cuda_bulk_part_bytes(warp, (uint32_t)(row_bytes / 16));
    if (wp_lane_idx(warp) == 0) {
        weft__cuda_drop_prefetched(warp);
        weft__cuda_bulk_load(warp, src, bytes);
        warp->prefetched = src;
        warp->prefetched_bytes = bytes;
    }
#endif
}

/* Without a slot nothing is under way. */
WP_FN void weft__cuda_end(struct wp_warp *warp)
{
#if WEFT__CUDA_BULK
    if (warp->launch->copy_slot_bytes == 0)
        return;
    weft__cuda_complete_stores(warp);
    if (wp_lane_idx(warp) == 0)
        weft__cuda_drop_prefetched(warp);
#endif
}

WP_FN void wp_row_copy(struct wp_warp *warp, const void *const *dsts, int32_t num_dsts,
                       const void *src, uint64_t row_bytes)
{
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t unit_bytes = weft__cuda_unit_bytes(
        weft__cuda_low_bits(lane_idx, dsts, num_dsts) | (uint32_t)(uint64_t)src);
    if (WEFT__CUDA_HOLDS) {
        weft__cuda_copy_held(warp, dsts, num_dsts, src, (uint32_t)row_bytes);
        return;
    }
    if (num_dsts == 0)
        return;
    if (unit_bytes < 16) {
        weft__cuda_copy_narrowly(lane_idx, dsts, num_dsts, src, unit_bytes, row_bytes);
        return;
    }
#if WEFT__CUDA_BULK
    if (weft__cuda_goes_by_bulk(warp, row_bytes))
        weft__cuda_copy_bulk(warp, dsts, num_dsts, src, (uint32_t)(row_bytes / 16));
    else
#endif
        weft__cuda_copy_units<16>(lane_idx, dsts, num_dsts, src, row_bytes);
    weft__cuda_copy_bytes(lane_idx, dsts, num_dsts, src, row_bytes / 16 * 16, row_bytes);
}

/* Memory of the host, from where the network sends without GPUDirect, is not cached by GPUs. */
WP_FN void wp_row_copy_for(struct wp_warp *warp, enum wp_reuse reuse, const void *const *dsts,
                           int32_t num_dsts, const void *src, uint64_t row_bytes)
{
    (void)reuse;
    wp_row_copy(warp, dsts, num_dsts, src, row_bytes);
}

/* A part of these rows; all their loads are in flight before the first store. */
template <int ROWS>
WP_FN void weft__cuda_copy_rows(const void *const *dsts, const void *const *srcs, int32_t num_rows,
                                uint32_t first_unit, uint32_t num_units)
{
    enum { UNROLL = WEFT__CUDA_ROW_UNROLL };
    weft__cuda_unit<16> units[ROWS][UNROLL];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const void *src = r < num_rows ? srcs[r] : NULL;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            units[r][u] = weft__cuda_unit<16>{{0, 0, 0, 0}};
            if (src != NULL && first_unit + u * WP_WARP_SIZE < num_units)
                weft__cuda_load_unit(&units[r][u], src, first_unit + u * WP_WARP_SIZE);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        void *dst = r < num_rows ? (void *)dsts[r] : NULL;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (dst != NULL && first_unit + u * WP_WARP_SIZE < num_units)
                weft__cuda_store_unit(dst, first_unit + u * WP_WARP_SIZE, units[r][u]);
        }
    }
}

/* Units of fewer bytes, and the ends of rows. */
WP_CALLED_FN void weft__cuda_copy_rows_narrowly(uint32_t lane_idx, const void *const *dsts,
                                                const void *const *srcs, int32_t num_rows,
                                                uint32_t unit_bytes, uint64_t row_bytes)
{
#pragma unroll 1
    for (int32_t r = 0; r < num_rows; r++) {
        if (srcs[r] != NULL)
            weft__cuda_copy_narrowly(lane_idx, dsts + r, 1, srcs[r], unit_bytes, row_bytes);
#pragma unroll 1
        for (uint64_t i = lane_idx; i < row_bytes && srcs[r] == NULL; i += WP_WARP_SIZE)
            ((char *)dsts[r])[i] = 0;
    }
}

/* Four rows at once are what a lane has registers for. */
WP_FN void wp_row_copy_each(struct wp_warp *warp, enum wp_reuse reuse, const void *const *dsts,
                            const void *const *srcs, int32_t num_rows, uint64_t row_bytes)
{
    enum { AT_ONCE = 4, STEP = WP_WARP_SIZE * WEFT__CUDA_ROW_UNROLL };
    const uint32_t lane_idx = (uint32_t)wp_lane_idx(warp);
    const uint32_t unit_bytes =
        weft__cuda_unit_bytes(weft__cuda_low_bits(lane_idx, dsts, num_rows) |
                              weft__cuda_low_bits(lane_idx, srcs, num_rows) | (uint32_t)row_bytes);
    (void)reuse;
    if (unit_bytes < 16) {
        weft__cuda_copy_rows_narrowly(lane_idx, dsts, srcs, num_rows, unit_bytes, row_bytes);
        return;
    }
#pragma unroll 1
    for (int32_t row = 0; row < num_rows; row += AT_ONCE) {
#pragma unroll 1
        for (uint32_t i = lane_idx; i < (uint32_t)(row_bytes / 16); i += STEP)
            weft__cuda_copy_rows<AT_ONCE>(dsts + row, srcs + row, num_rows - row, i,
                                          (uint32_t)(row_bytes / 16));
    }
}
