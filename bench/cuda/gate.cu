/* SPDX-License-Identifier: MIT */
/* The common start: after it, no GPU's measurement waits for the host's next launch, nor starts
 * while another GPU is not there. */
#include "kernels.h"

static __device__ uint32_t load_acquire(const uint32_t *address)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

static __device__ void store_release(uint32_t *address, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

static __device__ uint64_t clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ void wait_until_at_least(const uint32_t *address, uint32_t round,
                                           uint32_t *num_faults)
{
    const uint64_t start = clock_ns();
    while ((int32_t)(load_acquire(address) - round) < 0) {
        if (clock_ns() - start > WAITED_S_MAX * 1000000000ull) {
            atomicAdd(num_faults, 1);
            return;
        }
    }
}

/* One lane per rank. */
static __global__ void gate_kernel(const __grid_constant__ gate gate)
{
    const int other = (int)threadIdx.x;
    if (other == 0)
        wait_until_at_least(gate.released, gate.round, gate.num_faults);
    __syncwarp();
    if (other < gate.num_ranks) {
        store_release(gate.arrivals[other] + gate.rank, gate.round);
        wait_until_at_least(gate.arrivals[gate.rank] + other, gate.round, gate.num_faults);
    }
}

cudaError_t gate_wait(const struct gate *gate, cudaStream_t stream)
{
    gate_kernel<<<1, 32, 0, stream>>>(*gate);
    return cudaGetLastError();
}
