/* SPDX-License-Identifier: MIT */
/* Bulk copies between global and shared memory (Hopper and later), and the barrier in shared memory
 * that counts the bytes of the loads. Whoever uses loaded bytes waits for them; whoever issued
 * stores waits for these. */
#pragma once

#include "units.cuh"

enum { BULK_ALIGNMENT = 128, MAX_BULK_WARPS = 32 };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t shared_address(const void *address)
{
    return (uint32_t)__cvta_generic_to_shared(address);
}

/* Counts one arrival, that of bulk_expect, and its bytes. */
static __device__ __forceinline__ void bulk_barrier_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier))
                 : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void bulk_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

static __device__ __forceinline__ void bulk_load(void *shared, const char *global, uint32_t bytes,
                                                 uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ uint64_t clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ __forceinline__ bool bulk_has_loaded(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{ .reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return done;
}

/* Until the loads of the barrier's phase are there; false, and counted, if they do not come. */
static __device__ __forceinline__ bool bulk_wait_loaded(uint64_t *barrier, uint32_t parity,
                                                        uint32_t *num_faults)
{
    if (bulk_has_loaded(barrier, parity))
        return true;
    const uint64_t start = clock_ns();
    do {
        if (bulk_has_loaded(barrier, parity))
            return true;
    } while (clock_ns() - start < WAITED_S_MAX * 1000000000ull);
    atomicAdd(num_faults, 1);
    return false;
}

static __device__ __forceinline__ void bulk_store(char *global, const void *shared, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
}

/* The stores since the last one are a group. */
static __device__ __forceinline__ void bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all but the newest groups have read their shared memory, which may then be reused. */
template <int NUM_NEWEST> static __device__ __forceinline__ void bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(NUM_NEWEST) : "memory");
}

static __device__ __forceinline__ void bulk_wait_stored(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

/* A block's shared memory, less what the barriers take. */
static inline cudaError_t shared_bytes_max(int *bytes)
{
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    *bytes -= 1024;
    return error;
}
