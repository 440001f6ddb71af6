/* SPDX-License-Identifier: MIT */
/* The primitives on the cuda machine: a warp is a GPU warp. Signals are released and waits acquire at
 * system scope, since peers are other GPUs. */
#ifndef WEFT_MACHINE_CUDA_PRIMITIVES_H
#define WEFT_MACHINE_CUDA_PRIMITIVES_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define WEFT_WARP_SIZE 32
#define WEFT_FN        static __device__ __forceinline__

enum { WEFT__CUDA_MAX_WARPS = 32, WEFT__CUDA_ROW_UNROLL = 4 };

struct weft__cuda_launch {
    uint64_t timeout_ns;
    const uint32_t *comm_failed; /* set by the host when the communicator has failed */
    uint32_t *failure_is_taken;
    struct weft_failure *failure;
};

struct weft_warp {
    const struct weft__cuda_launch *launch;
    char *shared;
    const void **pointers;
};

#define WEFT_PROGRAM(name, warp, args)                                                             \
    static __device__ enum weft_status name##_body(struct weft_warp *warp,                         \
                                                   const struct weft_##name##_args *args);         \
    extern "C" __global__ void __launch_bounds__(WEFT_WARP_SIZE *WEFT__CUDA_MAX_WARPS)             \
        weft__cuda_##name(const __grid_constant__ struct weft__cuda_launch launch,                 \
                          const __grid_constant__ struct weft_##name##_args name_args)             \
    {                                                                                              \
        __shared__ __align__(16) char shared[WEFT_BLOCK_SHARED_BYTES];                             \
        __shared__ const void *pointers[WEFT__CUDA_MAX_WARPS][WEFT_WARP_POINTERS];                 \
        struct weft_warp this_warp = {&launch, shared, pointers[threadIdx.x / WEFT_WARP_SIZE]};    \
        (void)name##_body(&this_warp, &name_args);                                                 \
    }                                                                                              \
    static __device__ enum weft_status name##_body(struct weft_warp *warp,                         \
                                                   const struct weft_##name##_args *args)

WEFT_FN int32_t weft_block_idx(const struct weft_warp *warp)
{
    (void)warp;
    return (int32_t)blockIdx.x;
}

WEFT_FN int32_t weft_num_blocks(const struct weft_warp *warp)
{
    (void)warp;
    return (int32_t)gridDim.x;
}

WEFT_FN int32_t weft_warp_idx(const struct weft_warp *warp)
{
    (void)warp;
    return (int32_t)(threadIdx.x / WEFT_WARP_SIZE);
}

WEFT_FN int32_t weft_num_warps(const struct weft_warp *warp)
{
    (void)warp;
    return (int32_t)(blockDim.x / WEFT_WARP_SIZE);
}

WEFT_FN int32_t weft_lane_idx(const struct weft_warp *warp)
{
    (void)warp;
    return (int32_t)(threadIdx.x % WEFT_WARP_SIZE);
}

WEFT_FN void weft_warp_sync(struct weft_warp *warp)
{
    (void)warp;
    __syncwarp();
}

WEFT_FN void weft_block_sync(struct weft_warp *warp)
{
    (void)warp;
    __syncthreads();
}

WEFT_FN uint32_t weft_ballot(struct weft_warp *warp, int predicate)
{
    (void)warp;
    return __ballot_sync(0xffffffffu, predicate);
}

WEFT_FN int32_t weft_lanes_below(struct weft_warp *warp, uint32_t ballot)
{
    return __popc(ballot & ((1u << weft_lane_idx(warp)) - 1u));
}

WEFT_FN int32_t weft_popcount(uint32_t ballot)
{
    return __popc(ballot);
}

WEFT_FN uint32_t weft_max_u32(struct weft_warp *warp, uint32_t value)
{
    (void)warp;
    return __reduce_max_sync(0xffffffffu, value);
}

WEFT_FN void *weft_block_shared(struct weft_warp *warp)
{
    return warp->shared;
}

WEFT_FN const void **weft_warp_pointers(struct weft_warp *warp)
{
    return warp->pointers;
}

WEFT_FN uint32_t weft_add_acq_rel(uint32_t *word, uint32_t value)
{
    uint32_t old;
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(value)
                 : "memory");
    return old;
}

WEFT_FN int32_t weft_add_relaxed(int32_t *word, int32_t value)
{
    return atomicAdd(word, value);
}

WEFT_FN void weft_signal(struct weft_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    (void)warp;
    (void)rank; /* spins, needs no waking */
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

WEFT_FN uint64_t weft__cuda_load_acquire(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

WEFT_FN uint64_t weft__cuda_now_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

WEFT_FN enum weft_status weft_fail(struct weft_warp *warp, const struct weft_failure *failure)
{
    if (atomicExch(warp->launch->failure_is_taken, 1u) == 0)
        *warp->launch->failure = *failure;
    return WEFT_STATUS_FAILED;
}

WEFT_FN enum weft_status weft_wait(struct weft_warp *warp, const uint64_t *word, uint64_t at_least,
                                   const struct weft_wait_site *site)
{
    enum { POLLS_PER_CHECK = 256 };
    const uint64_t start_ns = weft__cuda_now_ns();
    for (uint32_t polls = 1;; polls++) {
        const uint64_t seen = weft__cuda_load_acquire(word);
        if (seen >= at_least)
            return WEFT_STATUS_OK;
        if (polls % POLLS_PER_CHECK != 0)
            continue;
        const int comm_failed = *(const volatile uint32_t *)warp->launch->comm_failed != 0;
        if (!comm_failed && weft__cuda_now_ns() - start_ns < warp->launch->timeout_ns)
            continue;
        const struct weft_failure failure = {comm_failed ? WEFT_FAILURE_COMM : WEFT_FAILURE_TIMEOUT,
                                             *site, 0, at_least, seen};
        return weft_fail(warp, &failure);
    }
}

/* ------------------------------------------------------------------ rows */

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

/* Copies [begin, row_bytes) byte by byte: what the 16-byte path leaves. */
WEFT_FN void weft__cuda_copy_bytes(struct weft_warp *warp, const void *const *dsts,
                                   int32_t num_dsts, const void *src, uint64_t begin,
                                   uint64_t row_bytes)
{
    for (uint64_t i = begin + (uint64_t)weft_lane_idx(warp); i < row_bytes; i += WEFT_WARP_SIZE) {
        const char byte = ((const char *)src)[i];
        for (int32_t d = 0; d < num_dsts; d++) {
            if (dsts[d] != NULL)
                ((char *)dsts[d])[i] = byte;
        }
    }
}

WEFT_FN void weft_row_copy(struct weft_warp *warp, const void *const *dsts, int32_t num_dsts,
                           const void *src, uint64_t row_bytes)
{
    enum { UNROLL = WEFT__CUDA_ROW_UNROLL, STEP = WEFT_WARP_SIZE * UNROLL };
    if (!weft__cuda_all_aligned(dsts, num_dsts, src)) {
        weft__cuda_copy_bytes(warp, dsts, num_dsts, src, 0, row_bytes);
        return;
    }
    const uint64_t num_chunks = row_bytes / 16;
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
    weft__cuda_copy_bytes(warp, dsts, num_dsts, src, num_chunks * 16, row_bytes);
}

/* Elements are loaded and stored by byte-wise copies where rows are not aligned to them. */
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

/* The 16-bit conversions give the canonical NaN by themselves. */
WEFT_FN void weft__cuda_from_float(float value, float *out)
{
    *out = isnan(value) ? __int_as_float(0x7fffffff) : value;
}
WEFT_FN void weft__cuda_from_float(float value, __half *out)
{
    *out = __float2half_rn(value);
}
WEFT_FN void weft__cuda_from_float(float value, __nv_bfloat16 *out)
{
    *out = __float2bfloat16_rn(value);
}

template <typename T>
WEFT_FN void weft__cuda_sum_elements(struct weft_warp *warp, void *dst, const void *const *srcs,
                                     int32_t num_srcs, int64_t begin, int64_t num_elements)
{
    for (int64_t i = begin + weft_lane_idx(warp); i < num_elements; i += WEFT_WARP_SIZE) {
        float sum = 0.0f;
        for (int32_t s = 0; s < num_srcs; s++) {
            if (srcs[s] != NULL)
                sum = __fadd_rn(sum, weft__cuda_to_float(weft__cuda_load_element<T>(srcs[s], i)));
        }
        T value;
        weft__cuda_from_float(sum, &value);
        memcpy((char *)dst + i * (int64_t)sizeof(T), &value, sizeof(T));
    }
}

template <typename T>
WEFT_FN void weft__cuda_sum_rows(struct weft_warp *warp, void *dst, const void *const *srcs,
                                 int32_t num_srcs, int64_t num_elements)
{
    enum { PER_CHUNK = 16 / sizeof(T) };
    int64_t num_chunks = num_elements / PER_CHUNK;
    if (!weft__cuda_all_aligned(srcs, num_srcs, dst))
        num_chunks = 0;
    for (int64_t i = weft_lane_idx(warp); i < num_chunks; i += WEFT_WARP_SIZE) {
        float sum[PER_CHUNK] = {};
        for (int32_t s = 0; s < num_srcs; s++) {
            if (srcs[s] == NULL)
                continue;
            const int4 v = weft__cuda_load16((const int4 *)srcs[s] + i);
            const T *values = (const T *)&v;
#pragma unroll
            for (int e = 0; e < PER_CHUNK; e++)
                sum[e] = __fadd_rn(sum[e], weft__cuda_to_float(values[e]));
        }
        int4 v;
#pragma unroll
        for (int e = 0; e < PER_CHUNK; e++)
            weft__cuda_from_float(sum[e], (T *)&v + e);
        weft__cuda_store16((int4 *)dst + i, v);
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
