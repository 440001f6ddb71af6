/* SPDX-License-Identifier: MIT */
/* The primitives on the cuda machine: a warp is a GPU warp. Signals are released and waits acquire
 * at system scope, since peers are other GPUs. */
#pragma once

#include <cuda_fp16.h>
#include <string.h>

#define WP_WARP_SIZE 32
#define WP_FN        static __device__ __forceinline__
/* Kept once in a program, and called: what is long, is wanted in several places, and waits longer
 * than a call takes. */
#define WP_CALLED_FN static __device__ __noinline__

#include "machine/cuda/launch_params.h"
#include "machine/cuda/units.h"

/* The bulk copies of sm_90 and later: by a copy engine in each SM, through shared memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(WP_ROWS_GO_IN_PARTS)
#define WEFT__CUDA_BULK 1
#else
#define WEFT__CUDA_BULK 0
#endif

enum { WEFT__CUDA_ROW_UNROLL = 4 };

/* Where parts of rows are copied, those that are prefetched come to registers: the first units of a
 * lane. */
#if defined(WP_ROWS_GO_IN_PARTS) && defined(WP_ROWS_ARE_ALIGNED)
#define WEFT__CUDA_HOLDS 1
#else
#define WEFT__CUDA_HOLDS 0
#endif
enum { WEFT__CUDA_HELD_UNITS = WEFT__CUDA_HOLDS ? 8 : 1 };

struct weft__cuda_block { /* in shared memory */
    __align__(16) char shared[WP_BLOCK_SHARED_BYTES];
    uint64_t arrivals[WEFT__CUDA_MAX_WARPS]; /* mbarriers: a warp's bulk load has come */
};

/* Each warp's part of the dynamic shared memory. */
struct weft__cuda_warp_memory {
    const void *pointers[WP_WARP_POINTERS];
    __align__(16) char shared[WP_WARP_SHARED_BYTES];
    __align__(128) char slot[]; /* of bulk copies: launch->copy_slot_bytes */
};

static_assert(sizeof(struct weft__cuda_block) <= WEFT__CUDA_BLOCK_BYTES, "known to the host");
static_assert(sizeof(struct weft__cuda_warp_memory) == WEFT__CUDA_WARP_BYTES, "known to the host");

struct wp_warp {
    const struct weft__cuda_launch *launch;
    struct weft__cuda_block *block;
    struct weft__cuda_warp_memory *memory;
    uint32_t turn; /* wp_block_turn */
    /* Known to lane 0, which drives the bulk copies. */
    uint32_t num_loads;     /* that have come; their parity tells them apart */
    uint32_t has_stores;    /* some may be under way */
    uint32_t has_acquired;  /* since its last bulk copy */
    const void *prefetched; /* on its way to the slot, or there; NULL: nothing is */
    uint32_t prefetched_bytes;
    /* With WEFT__CUDA_HOLDS, where each lane knows these two, in place of the slot: */
    weft__cuda_unit<16> held[WEFT__CUDA_HELD_UNITS];
};

/* The build says how the kernels of the library's programs are called. */
#ifdef WEFT__CUDA_HAS_SYMBOLS
#define WEFT__CUDA_SYMBOL_OF(name) WEFT__CUDA_SYMBOL_##name
#else
#define WEFT__CUDA_SYMBOL_OF(name) weft__cuda_##name
#endif

#ifndef WP_LEAST_BLOCKS
#define WP_LEAST_BLOCKS 1
#endif

#define WP_PROGRAM(name, warp, args)                                                               \
    static __device__ __forceinline__ enum wp_status name##_body(                                  \
        struct wp_warp *warp, const struct wp_##name##_args *args);                                \
    extern "C" __global__ void __launch_bounds__(WP_WARP_SIZE *WEFT__CUDA_MAX_WARPS,               \
                                                 WP_LEAST_BLOCKS)                                  \
        WEFT__CUDA_SYMBOL_OF(name)(const __grid_constant__ struct weft__cuda_launch launch,        \
                                   const __grid_constant__ struct wp_##name##_args name_args)      \
    {                                                                                              \
        __shared__ struct weft__cuda_block block;                                                  \
        struct wp_warp this_warp;                                                                  \
        weft__cuda_begin(&this_warp, &launch, &block);                                             \
        const enum wp_status status = name##_body(&this_warp, &name_args);                         \
        weft__cuda_end(&this_warp);                                                                \
        weft__cuda_record_end(&this_warp, status);                                                 \
    }                                                                                              \
    static __device__ __forceinline__ enum wp_status name##_body(                                  \
        struct wp_warp *warp, const struct wp_##name##_args *args)

WP_FN int32_t wp_block_idx(const struct wp_warp *warp)
{
    (void)warp;
    return (int32_t)blockIdx.x;
}

WP_FN int32_t wp_num_blocks(const struct wp_warp *warp)
{
    (void)warp;
    return (int32_t)gridDim.x;
}

WP_FN int32_t wp_warp_idx(const struct wp_warp *warp)
{
    (void)warp;
    return (int32_t)(threadIdx.x / WP_WARP_SIZE);
}

WP_FN int32_t wp_num_warps(const struct wp_warp *warp)
{
    (void)warp;
    return (int32_t)(blockDim.x / WP_WARP_SIZE);
}

WP_FN int32_t wp_lane_idx(const struct wp_warp *warp)
{
    (void)warp;
    return (int32_t)(threadIdx.x % WP_WARP_SIZE);
}

WP_FN void wp_warp_sync(struct wp_warp *warp)
{
    (void)warp;
    __syncwarp();
}

#define wp_warp_join wp_warp_sync

/* This lane's bulk stores become visible to it as if it had stored the bytes itself. */
WP_FN void weft__cuda_complete_stores(struct wp_warp *warp)
{
#if WEFT__CUDA_BULK
    if (warp->has_stores)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    warp->has_stores = 0;
}

WP_FN void wp_block_sync(struct wp_warp *warp)
{
    weft__cuda_complete_stores(warp);
    __syncthreads();
    warp->has_acquired = 1;
    warp->turn ^= 1;
}

/* The barrier finds it out. */
#define WP_HAS_BLOCK_ANY 1
WP_FN int wp_block_any(struct wp_warp *warp, int predicate)
{
    weft__cuda_complete_stores(warp);
    const int any = __syncthreads_or(predicate);
    warp->has_acquired = 1;
    warp->turn ^= 1;
    return any;
}

WP_FN uint32_t wp_block_turn(const struct wp_warp *warp)
{
    return warp->turn;
}

WP_FN uint32_t wp_ballot(struct wp_warp *warp, int predicate)
{
    (void)warp;
    return __ballot_sync(0xffffffffu, predicate);
}

WP_FN int32_t wp_lanes_below(struct wp_warp *warp, uint32_t ballot)
{
    return __popc(ballot & ((1u << wp_lane_idx(warp)) - 1u));
}

WP_FN int32_t wp_popcount(uint32_t ballot)
{
    return __popc(ballot);
}

WP_FN int32_t wp_same_below(struct wp_warp *warp, uint32_t value)
{
    return wp_lanes_below(warp, __match_any_sync(0xffffffffu, value));
}

WP_FN uint32_t wp_max_u32(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    return __reduce_max_sync(0xffffffffu, value);
}

WP_FN uint32_t wp_sum_u32(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    return __reduce_add_sync(0xffffffffu, value);
}

WP_FN uint32_t wp_or_u32(struct wp_warp *warp, uint32_t value)
{
    (void)warp;
    return __reduce_or_sync(0xffffffffu, value);
}

WP_FN int32_t wp_prefix_sum(struct wp_warp *warp, int32_t value, int32_t *total)
{
    int32_t sum = value; /* of this lane and those below it */
    for (int32_t distance = 1; distance < WP_WARP_SIZE; distance *= 2) {
        const int32_t below = __shfl_up_sync(0xffffffffu, sum, distance);
        if (wp_lane_idx(warp) >= distance)
            sum += below;
    }
    *total = __shfl_sync(0xffffffffu, sum, WP_WARP_SIZE - 1);
    return sum - value;
}

#define WP_EACH_OWN(i, first, end, most)                                                           \
    _Pragma("unroll") for (int32_t i = 0; i < (most); i++) if (i >= (first) && i < (end))

WP_FN float wp_sqrt(float value)
{
    return __fsqrt_rn(value);
}

/* A division without its branch for operands that are far apart, which these are not. */
WP_FN float wp_ratio(float n, float d)
{
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(d));
    reciprocal = __fmaf_rn(reciprocal, __fmaf_rn(-d, reciprocal, 1.0f), reciprocal);
    float quotient = __fmul_rn(n, reciprocal);
    quotient = __fmaf_rn(reciprocal, __fmaf_rn(-d, quotient, n), quotient);
    return __fmaf_rn(reciprocal, __fmaf_rn(-d, quotient, n), quotient);
}

WP_FN void *wp_block_shared(struct wp_warp *warp)
{
    return warp->block->shared;
}

WP_FN void *wp_warp_shared(struct wp_warp *warp)
{
    return warp->memory->shared;
}

WP_FN const void **wp_warp_pointers(struct wp_warp *warp)
{
    return warp->memory->pointers;
}

/* Blocks of one launch share the word, hence one GPU. */
WP_FN uint32_t wp_add_acq_rel(uint32_t *word, uint32_t value)
{
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(value)
                 : "memory");
    return old;
}

/* Where it is not known whether the word is in memory of the block, atomicAdd is a loop that tries
 * until no other lane was faster: half of a low-latency dispatch of 128 tokens went into counting
 * so. */
WP_FN int32_t wp_add_relaxed(int32_t *word, int32_t value)
{
    int32_t before;
    if (!__isShared(word))
        return atomicAdd(word, value);
    asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"((uint32_t)__cvta_generic_to_shared(word)), "r"(value)
                 : "memory");
    return before;
}

WP_FN int32_t wp_or_relaxed(int32_t *word, int32_t bits)
{
    int32_t before;
    if (!__isShared(word))
        return atomicOr(word, bits);
    asm volatile("atom.shared.or.b32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"((uint32_t)__cvta_generic_to_shared(word)), "r"(bits)
                 : "memory");
    return before;
}

WP_FN int32_t wp_load_relaxed(const int32_t *word)
{
    int32_t value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(word));
    return value;
}

WP_FN void wp_store_relaxed(int32_t *word, int32_t value)
{
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

WP_FN uint64_t wp_load_now(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(word));
    return value;
}

WP_FN uint32_t wp_load_now_u32(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(word));
    return value;
}

WP_FN int32_t wp_compare_swap_relaxed(int32_t *word, int32_t expected, int32_t desired)
{
    return atomicCAS(word, expected, desired);
}

WP_FN void wp_signal(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    (void)rank; /* spins, needs no waking */
    weft__cuda_complete_stores(warp);
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

/* It tells that loads have been done, and who stores to where they came from waits for it. They
 * have been: their values have been used, before the block met. So nothing needs to be flushed,
 * which takes 0.8 us on H200. */
WP_FN void wp_credit(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value)
{
    (void)warp;
    (void)rank; /* as above */
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

#define wp_tell wp_credit

WP_FN void wp_clear(uint64_t *word)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"((uint64_t)0) : "memory");
}

WP_FN uint64_t wp_fetch_add(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t add)
{
    uint64_t before;
    (void)rank; /* as above */
    weft__cuda_complete_stores(warp);
    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(word), "l"(add)
                 : "memory");
    return before;
}

WP_FN uint64_t weft__cuda_load_acquire(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

WP_FN uint32_t weft__cuda_load_acquire_u32(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

WP_FN uint64_t wp_now_ns(const struct wp_warp *warp)
{
    uint64_t now;
    (void)warp;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* These three order nothing, and nobody waits for them. */
WP_FN void weft__cuda_add(uint64_t *word, uint64_t value)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

WP_FN void weft__cuda_add_u32(uint32_t *word, uint32_t value)
{
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

WP_FN void weft__cuda_raise(uint64_t *word, uint64_t at_least)
{
    asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;"
                 :
                 : "l"(word), "l"(at_least)
                 : "memory");
}

WP_FN enum wp_status wp_fail(struct wp_warp *warp, const struct wp_failure *failure)
{
    const struct weft__cuda_launch *launch = warp->launch;
    if (atomicExch(launch->failure_is_taken, 1u) != 0)
        return WP_STATUS_FAILED;
    launch->board->failure = *failure;
    launch->board->failed_program = launch->program_idx;
    launch->board->failed_record = launch->record.record_id;
    /* Pairs with the host's acquire. */
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :
                 : "l"(&launch->board->failure_is_told), "r"(1u)
                 : "memory");
    return WP_STATUS_FAILED;
}

#include "machine/cuda/cuda_waits.h"

/* From here on, what the launch before in the stream did is visible. */
WP_FN void weft__cuda_await_launch_before(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

/* A dependent launch is promised what the launches before did; this is the promise that whoever
 * hears of it sees it, too. */
WP_FN void wp_fence_launches(struct wp_warp *warp)
{
    weft__cuda_complete_stores(warp);
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

/* One thread of a block speaks for it; the next launch comes when all blocks have spoken or ended.
 * It may be anybody's, take all SMs that are left, and hold them until this one has ended
 * (launch.c). */
WP_FN void wp_admit_next(struct wp_warp *warp)
{
    (void)warp;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/* By one thread of the launch, in the middle: those at the ends have most to do. */
WP_FN void weft__cuda_record_start(const struct wp_warp *warp)
{
    const struct weft__cuda_record *record = &warp->launch->record;
    struct weft__record_slot *slot = record->slot;
    if (slot == NULL || blockIdx.x != 0 || threadIdx.x != blockDim.x / 2)
        return;
    weft__cuda_add_u32(&slot->num_running, gridDim.x);
    weft__cuda_add_u32(&slot->num_runs, 1);
    *(volatile uint64_t *)&slot->operation = record->operation;
    if (record->runs != NULL) {
        weft__cuda_add(&record->runs->num_runs, 1);
        weft__cuda_add(&record->runs->num_bytes, record->num_bytes);
    }
    asm volatile("st.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(slot), "l"(record->record_id), "l"(wp_now_ns(warp))
                 : "memory");
}

/* By the first thread of each block; failures by that of each warp. */
WP_FN void weft__cuda_record_end(const struct wp_warp *warp, enum wp_status status)
{
    struct weft__record_slot *slot = warp->launch->record.slot;
    if (slot == NULL)
        return;
    if (status == WP_STATUS_FAILED && threadIdx.x % WP_WARP_SIZE == 0)
        *(volatile uint64_t *)&slot->failed_id = warp->launch->record.record_id;
    if (threadIdx.x != 0)
        return;
    weft__cuda_raise(&slot->ended, wp_now_ns(warp));
    weft__cuda_add_u32(&slot->num_running, ~0u);
}

/* Touches nothing but the block's own shared memory, until the launch before has ended. */
WP_FN void weft__cuda_begin(struct wp_warp *warp, const struct weft__cuda_launch *launch,
                            struct weft__cuda_block *block)
{
    extern __shared__ __align__(128) char dynamic_shared[];
    const uint32_t warp_bytes =
        (uint32_t)sizeof(struct weft__cuda_warp_memory) + launch->copy_slot_bytes;
    warp->launch = launch;
    warp->block = block;
    warp->memory =
        (struct weft__cuda_warp_memory *)(dynamic_shared + threadIdx.x / WP_WARP_SIZE * warp_bytes);
    warp->turn = 0;
    warp->num_loads = 0;
    warp->has_stores = 0;
    warp->has_acquired = 0;
    warp->prefetched = NULL;
    warp->prefetched_bytes = 0;
#if WEFT__CUDA_BULK
    /* Without a slot no row is copied in bulk, and short operations are spared the fences. */
    if (launch->copy_slot_bytes > 0 && threadIdx.x % WP_WARP_SIZE == 0) {
        const uint32_t arrival =
            (uint32_t)__cvta_generic_to_shared(&block->arrivals[threadIdx.x / WP_WARP_SIZE]);
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(arrival) : "memory");
        /* The copy engine sees it from here on; other warps never touch it. */
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
#endif
    weft__cuda_await_launch_before();
    weft__cuda_record_start(warp);
}

#include "machine/cuda/cuda_packet_reduce.h"
#include "machine/cuda/cuda_packets.h"
#include "machine/cuda/cuda_quantise.h"
#include "machine/cuda/cuda_rows.h"
#include "machine/cuda/dequantise.h"
#include "machine/cuda/quantised_packets.h"
#include "machine/cuda/reduce.h"
#include "machine/cuda/remote.h"
#include "machine/cuda/sum_mixed.h"
#include "machine/cuda/tagged.h"
#include "machine/cuda/weighted_sum.h"
