/* SPDX-License-Identifier: MIT */
/* Row operations of the cuda machine; part of primitives.h. */
#ifndef WEFT_MACHINE_CUDA_ROWS_H
#define WEFT_MACHINE_CUDA_ROWS_H

/* ------------------------------------------------------------------ 16 bytes at a time */

/* Rows are read once and written once: they need no place in L1. */
WEFT_FN int4 weft__cuda_load16(const int4 *src)
{
    int4 v;
    asm volatile("ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(src));
    return v;
}

WEFT_FN void weft__cuda_store16(int4 *dst, int4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.s32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(dst), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

WEFT_FN int weft__cuda_all_aligned(const void *const *ptrs, int32_t num_ptrs, const void *other)
{
    uint64_t bits = (uint64_t)other;
    for (int32_t i = 0; i < num_ptrs; i++)
        bits |= (uint64_t)ptrs[i];
    return bits % 16 == 0;
}

/* ------------------------------------------------------------------ copies */

/* Copies [begin, row_bytes) byte by byte: what the faster ways leave. */
WEFT_FN void weft__cuda_copy_bytes(struct weft_warp *warp, const void *const *dsts,
                                   int32_t num_dsts, const void *src, uint64_t begin,
                                   uint64_t row_bytes)
{
#pragma unroll 1
    for (uint64_t i = begin + (uint64_t)weft_lane_idx(warp); i < row_bytes; i += WEFT_WARP_SIZE) {
        const char byte = ((const char *)src)[i];
        for (int32_t d = 0; d < num_dsts; d++) {
            if (dsts[d] != NULL)
                ((char *)dsts[d])[i] = byte;
        }
    }
}

/* Through registers. */
WEFT_FN void weft__cuda_copy_chunks(struct weft_warp *warp, const void *const *dsts,
                                    int32_t num_dsts, const void *src, uint64_t num_chunks)
{
    enum { UNROLL = WEFT__CUDA_ROW_UNROLL, STEP = WEFT_WARP_SIZE * UNROLL };
    const int4 *from = (const int4 *)src;
    for (uint64_t first = (uint64_t)weft_lane_idx(warp); first < num_chunks; first += STEP) {
        int4 v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (first + (uint64_t)u * WEFT_WARP_SIZE < num_chunks)
                v[u] = weft__cuda_load16(from + first + u * WEFT_WARP_SIZE);
        }
        for (int32_t d = 0; d < num_dsts; d++) {
            if (dsts[d] == NULL)
                continue;
            int4 *to = (int4 *)dsts[d] + first;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                if (first + (uint64_t)u * WEFT_WARP_SIZE < num_chunks)
                    weft__cuda_store16(to + u * WEFT_WARP_SIZE, v[u]);
            }
        }
    }
}

#if WEFT__CUDA_BULK
/* Lane 0: fills the slot, once what was in it has been read by the stores before. */
WEFT_FN void weft__cuda_bulk_load(struct weft_warp *warp, uint32_t slot, const char *src,
                                  uint32_t bytes)
{
    const uint32_t arrival =
        (uint32_t)__cvta_generic_to_shared(&warp->block->arrivals[weft_warp_idx(warp)]);
    const uint32_t parity = warp->num_loads % 2;
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

/* Lane 0 drives the copy engine; the stores are still under way when this returns. The row is cut into
 * equal parts that fit the slot. */
WEFT_FN void weft__cuda_copy_bulk(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                                  const void *src, uint64_t num_chunks)
{
    const uint32_t slot = (uint32_t)__cvta_generic_to_shared(warp->memory->slot);
    const uint64_t most_chunks = warp->launch->copy_slot_bytes / 16;
    const uint64_t num_parts = (num_chunks + most_chunks - 1) / most_chunks;
    const uint64_t part_bytes = (num_chunks + num_parts - 1) / num_parts * 16;
    if (weft_lane_idx(warp) == 0) {
        for (uint64_t begin = 0; begin < num_chunks * 16; begin += part_bytes) {
            const uint64_t rest = num_chunks * 16 - begin;
            const uint32_t bytes = (uint32_t)(rest < part_bytes ? rest : part_bytes);
            weft__cuda_bulk_load(warp, slot, (const char *)src + begin, bytes);
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

WEFT_FN void weft_row_copy(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                           const void *src, uint64_t row_bytes)
{
    /* Below this the engine's latency costs more than its width gains. */
    enum { LEAST_BULK_BYTES = 1024 };
    if (num_dsts == 0)
        return;
    if (!weft__cuda_all_aligned(dsts, num_dsts, src)) {
        weft__cuda_copy_bytes(warp, dsts, num_dsts, src, 0, row_bytes);
        return;
    }
    const uint64_t num_chunks = row_bytes / 16;
#if WEFT__CUDA_BULK
    if (row_bytes >= LEAST_BULK_BYTES && warp->launch->copy_slot_bytes >= LEAST_BULK_BYTES)
        weft__cuda_copy_bulk(warp, dsts, num_dsts, src, num_chunks);
    else
#endif
        weft__cuda_copy_chunks(warp, dsts, num_dsts, src, num_chunks);
    weft__cuda_copy_bytes(warp, dsts, num_dsts, src, num_chunks * 16, row_bytes);
}

/* ------------------------------------------------------------------ sums */

template <typename T> WEFT_FN T weft__cuda_load_element(const void *row, int64_t i)
{
    if ((uint64_t)row % sizeof(T) == 0)
        return ((const T *)row)[i];
    T value;
    memcpy(&value, (const char *)row + i * (int64_t)sizeof(T), sizeof(T));
    return value;
}

WEFT_FN float weft__cuda_to_float(float value)
{
    return value;
}
WEFT_FN float weft__cuda_to_float(__half value)
{
    return __half2float(value);
}
WEFT_FN float weft__cuda_to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

/* The elements of one 32-bit word of a row, added to sum and taken from it. */
WEFT_FN void weft__cuda_add_word(float *sum, uint32_t word, float)
{
    sum[0] = __fadd_rn(sum[0], __uint_as_float(word));
}
WEFT_FN void weft__cuda_add_word(float *sum, uint32_t word, __nv_bfloat16)
{
    sum[0] = __fadd_rn(sum[0], __uint_as_float(word << 16));
    sum[1] = __fadd_rn(sum[1], __uint_as_float(word & 0xffff0000u));
}
WEFT_FN void weft__cuda_add_word(float *sum, uint32_t word, __half)
{
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    sum[0] = __fadd_rn(sum[0], __low2float(pair));
    sum[1] = __fadd_rn(sum[1], __high2float(pair));
}

/* The 16-bit conversions give the canonical NaN by themselves. */
WEFT_FN uint32_t weft__cuda_round_word(const float *sum, float)
{
    return isnan(sum[0]) ? 0x7fffffffu : __float_as_uint(sum[0]);
}
WEFT_FN uint32_t weft__cuda_round_word(const float *sum, __nv_bfloat16)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(sum[0], sum[1]);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}
WEFT_FN uint32_t weft__cuda_round_word(const float *sum, __half)
{
    const __half2 pair = __floats2half2_rn(sum[0], sum[1]);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

template <typename T> WEFT_FN void weft__cuda_store_element(void *row, int64_t i, float value)
{
    const float pair[2] = {value, 0.0f};
    const uint32_t word = weft__cuda_round_word(pair, T());
    char *element = (char *)row + i * (int64_t)sizeof(T);
    if ((uint64_t)row % sizeof(T) != 0) {
        /* By way of memory: ptxas 13.0 stores the low byte of a rounded bf16 as if an integer were
         * wanted, 0.6 as 1. */
        volatile uint32_t bits = word;
        for (int byte = 0; byte < (int)sizeof(T); byte++)
            element[byte] = (char)(bits >> (8 * byte));
    } else if (sizeof(T) == sizeof(uint32_t)) {
        *(uint32_t *)element = word;
    } else {
        *(uint16_t *)element = (uint16_t)word;
    }
}

template <typename T>
WEFT_FN void weft__cuda_sum_elements(struct weft_warp *warp, void *dst, const void *const *srcs,
                                     int32_t num_srcs, int64_t begin, int64_t num_elements)
{
#pragma unroll 1
    for (int64_t i = begin + weft_lane_idx(warp); i < num_elements; i += WEFT_WARP_SIZE) {
        float sum = 0.0f;
#pragma unroll 1
        for (int32_t s = 0; s < num_srcs; s++) {
            if (srcs[s] != NULL)
                sum = __fadd_rn(sum, weft__cuda_to_float(weft__cuda_load_element<T>(srcs[s], i)));
        }
        weft__cuda_store_element<T>(dst, i, sum);
    }
}

template <typename T> WEFT_FN void weft__cuda_add_chunk(float *sum, int4 chunk)
{
    enum { PER_WORD = 4 / sizeof(T) };
    weft__cuda_add_word(sum, (uint32_t)chunk.x, T());
    weft__cuda_add_word(sum + PER_WORD, (uint32_t)chunk.y, T());
    weft__cuda_add_word(sum + 2 * PER_WORD, (uint32_t)chunk.z, T());
    weft__cuda_add_word(sum + 3 * PER_WORD, (uint32_t)chunk.w, T());
}

template <typename T> WEFT_FN int4 weft__cuda_round_chunk(const float *sum)
{
    enum { PER_WORD = 4 / sizeof(T) };
    return make_int4((int)weft__cuda_round_word(sum, T()),
                     (int)weft__cuda_round_word(sum + PER_WORD, T()),
                     (int)weft__cuda_round_word(sum + 2 * PER_WORD, T()),
                     (int)weft__cuda_round_word(sum + 3 * PER_WORD, T()));
}

/* UNROLL chunks per lane from `first` on, the loads of all sources in flight together: rows of other
 * GPUs are microseconds away. */
template <typename T, int NUM_SRCS, int UNROLL>
WEFT_FN void weft__cuda_sum_step(int4 *dst, const int4 *const *srcs, uint32_t first)
{
    int4 v[UNROLL][NUM_SRCS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int s = 0; s < NUM_SRCS; s++)
            v[u][s] = weft__cuda_load16(srcs[s] + first + u * WEFT_WARP_SIZE);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        float sum[16 / sizeof(T)] = {};
#pragma unroll
        for (int s = 0; s < NUM_SRCS; s++)
            weft__cuda_add_chunk<T>(sum, v[u][s]);
        weft__cuda_store16(dst + first + u * WEFT_WARP_SIZE, weft__cuda_round_chunk<T>(sum));
    }
}

template <typename T, int NUM_SRCS, int UNROLL>
WEFT_FN void weft__cuda_sum_known(struct weft_warp *warp, void *dst, const void *const *ptrs,
                                  uint32_t num_chunks)
{
    enum { STEP = WEFT_WARP_SIZE * UNROLL };
    const int4 *srcs[NUM_SRCS];
#pragma unroll
    for (int s = 0; s < NUM_SRCS; s++)
        srcs[s] = (const int4 *)ptrs[s];
    uint32_t i = (uint32_t)weft_lane_idx(warp);
#pragma unroll 1
    for (; i + STEP - WEFT_WARP_SIZE < num_chunks; i += STEP)
        weft__cuda_sum_step<T, NUM_SRCS, UNROLL>((int4 *)dst, srcs, i);
#pragma unroll 1
    for (; i < num_chunks; i += WEFT_WARP_SIZE)
        weft__cuda_sum_step<T, NUM_SRCS, 1>((int4 *)dst, srcs, i);
}

/* Any number of sources, null ones among them. */
template <typename T>
WEFT_FN void weft__cuda_sum_any(struct weft_warp *warp, void *dst, const void *const *srcs,
                                int32_t num_srcs, int64_t num_chunks)
{
    enum { PER_CHUNK = 16 / sizeof(T), AT_ONCE = 4 };
#pragma unroll 1
    for (int64_t i = weft_lane_idx(warp); i < num_chunks; i += WEFT_WARP_SIZE) {
        float sum[PER_CHUNK] = {};
#pragma unroll 1
        for (int32_t first = 0; first < num_srcs; first += AT_ONCE) {
            int4 v[AT_ONCE];
#pragma unroll
            for (int s = 0; s < AT_ONCE; s++) {
                if (first + s < num_srcs && srcs[first + s] != NULL)
                    v[s] = weft__cuda_load16((const int4 *)srcs[first + s] + i);
            }
#pragma unroll
            for (int s = 0; s < AT_ONCE; s++) {
                if (first + s < num_srcs && srcs[first + s] != NULL)
                    weft__cuda_add_chunk<T>(sum, v[s]);
            }
        }
        weft__cuda_store16((int4 *)dst + i, weft__cuda_round_chunk<T>(sum));
    }
}

WEFT_FN int weft__cuda_all_there(const void *const *ptrs, int32_t num_ptrs)
{
    int all = 1;
    for (int32_t i = 0; i < num_ptrs; i++)
        all &= ptrs[i] != NULL;
    return all;
}

template <typename T>
WEFT_FN void weft__cuda_sum_rows(struct weft_warp *warp, void *dst, const void *const *srcs,
                                 int32_t num_srcs, int64_t num_elements)
{
    enum { PER_CHUNK = 16 / sizeof(T) };
    int64_t num_chunks = num_elements / PER_CHUNK;
    if (!weft__cuda_all_aligned(srcs, num_srcs, dst))
        num_chunks = 0;
    switch (weft__cuda_all_there(srcs, num_srcs) ? num_srcs : 0) {
    case 1:
        weft__cuda_sum_known<T, 1, 4>(warp, dst, srcs, (uint32_t)num_chunks);
        break;
    case 2:
        weft__cuda_sum_known<T, 2, 4>(warp, dst, srcs, (uint32_t)num_chunks);
        break;
    case 3:
        weft__cuda_sum_known<T, 3, 4>(warp, dst, srcs, (uint32_t)num_chunks);
        break;
    case 4:
        weft__cuda_sum_known<T, 4, 4>(warp, dst, srcs, (uint32_t)num_chunks);
        break;
    default:
        weft__cuda_sum_any<T>(warp, dst, srcs, num_srcs, num_chunks);
    }
    weft__cuda_sum_elements<T>(warp, dst, srcs, num_srcs, num_chunks * PER_CHUNK, num_elements);
}

WEFT_FN void weft_row_sum(struct weft_warp *warp, void *dst, const void *const *srcs,
                          int32_t num_srcs, weft_dtype dtype, int64_t num_elements)
{
    if (dtype == WEFT_BF16)
        weft__cuda_sum_rows<__nv_bfloat16>(warp, dst, srcs, num_srcs, num_elements);
    else if (dtype == WEFT_FP16)
        weft__cuda_sum_rows<__half>(warp, dst, srcs, num_srcs, num_elements);
    else
        weft__cuda_sum_rows<float>(warp, dst, srcs, num_srcs, num_elements);
}

#endif
