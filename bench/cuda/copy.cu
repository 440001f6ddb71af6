/* SPDX-License-Identifier: MIT */
/* Large copies by the multiprocessors, all copies at the same pace. */
#include "bulk.cuh"

enum { NUM_WARPS = 32, UNROLL = 8, PIECE_BYTES = LANES * UNROLL * UNIT_BYTES };

static __global__ void __launch_bounds__(LANES *NUM_WARPS, 1)
    copy_kernel_ldst(const __grid_constant__ copies copies)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int num_items = (int)(copies.bytes / PIECE_BYTES) * copies.num_copies;
    for (int item = blockIdx.x * NUM_WARPS + warp; item < num_items;
         item += gridDim.x * NUM_WARPS) {
        const int copy = item % copies.num_copies;
        const size_t offset =
            (size_t)(item / copies.num_copies) * PIECE_BYTES + (size_t)lane * UNIT_BYTES;
        int4 units[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            units[u] = load_unit(copies.src[copy] + offset + u * LANES * UNIT_BYTES);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            store_unit(copies.dst[copy] + offset + u * LANES * UNIT_BYTES, units[u]);
    }
}

enum { NUM_STAGES = 6, NUM_STORING = 3, NUM_LOADING = NUM_STAGES - NUM_STORING };

static __global__ void copy_kernel_ring(const __grid_constant__ copies copies)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ __align__(BULK_ALIGNMENT) char stages[];
    __shared__ uint64_t barriers[NUM_STAGES];
    for (int stage = 0; stage < NUM_STAGES; stage++)
        bulk_barrier_init(&barriers[stage]);
    const int num_items = (int)(copies.bytes / STAGE_BYTES) * copies.num_copies;
    const int first = blockIdx.x;
    const int num_steps = first < num_items ? (num_items - first - 1) / (int)gridDim.x + 1 : 0;

    for (int step = -NUM_LOADING; step < num_steps; step++) {
        if (step >= 0) {
            const int stage = step % NUM_STAGES, item = first + step * gridDim.x;
            if (!bulk_wait_loaded(&barriers[stage], step / NUM_STAGES % 2, copies.num_faults))
                break;
            bulk_store(copies.dst[item % copies.num_copies] +
                           (size_t)(item / copies.num_copies) * STAGE_BYTES,
                       stages + stage * STAGE_BYTES, STAGE_BYTES);
            bulk_commit();
        }
        const int next = step + NUM_LOADING;
        if (next < num_steps) {
            const int stage = next % NUM_STAGES, item = first + next * gridDim.x;
            bulk_wait_read<NUM_STORING>(); /* the stage held step next - NUM_STAGES */
            bulk_expect(&barriers[stage], STAGE_BYTES);
            bulk_load(stages + stage * STAGE_BYTES,
                      copies.src[item % copies.num_copies] +
                          (size_t)(item / copies.num_copies) * STAGE_BYTES,
                      STAGE_BYTES, &barriers[stage]);
        }
    }
    bulk_wait_stored();
#endif
}

cudaError_t copy_ldst(const struct copies *copies, int num_blocks, cudaStream_t stream)
{
    copy_kernel_ldst<<<num_blocks, LANES * NUM_WARPS, 0, stream>>>(*copies);
    return cudaGetLastError();
}

cudaError_t copy_ring(const struct copies *copies, int num_blocks, cudaStream_t stream)
{
    const int shared_bytes = NUM_STAGES * STAGE_BYTES;
    const cudaError_t error = cudaFuncSetAttribute(
        copy_kernel_ring, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess)
        return error;
    copy_kernel_ring<<<num_blocks, 1, shared_bytes, stream>>>(*copies);
    return cudaGetLastError();
}
