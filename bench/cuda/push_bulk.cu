/* SPDX-License-Identifier: MIT */
/* Rows pushed by bulk copies: into shared memory once, from there to every rank. Warps drive them:
 * lane 0 loads rows into a slot, then each lane stores one row of it at one rank. */
#include "bulk.cuh"

enum { MAX_SLOT_ROWS = LANES / MAX_RANKS };

/* The stores of NUM_STORING stages of a ring may be under way while the rest are loaded. */
enum { NUM_STAGES = 6, NUM_STORING = 3, NUM_LOADING = NUM_STAGES - NUM_STORING };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/* The row of the slot that this lane stores, and at which rank. */
static __device__ __forceinline__ int slot_row_of_lane(void)
{
    return threadIdx.x % LANES / MAX_RANKS;
}

static __device__ __forceinline__ int rank_of_lane(const token_rows &rows)
{
    return (rows.rank + 1 + (int)threadIdx.x % MAX_RANKS) % rows.num_ranks;
}

/* Where this lane's row goes when the slot holds num_rows tokens from `token` on; negative: there
 * is nothing for it to do. Read a step ahead, so that nothing waits for it. */
static __device__ __forceinline__ int place_of_lane(const token_rows &rows, int token, int num_rows)
{
    const int own_token = token + slot_row_of_lane();
    if (slot_row_of_lane() >= num_rows || own_token >= rows.num_tokens ||
        (int)threadIdx.x % MAX_RANKS >= rows.num_ranks)
        return -1;
    return rows.rows[(size_t)own_token * rows.num_ranks + rank_of_lane(rows)];
}

/* A slot holds num_rows rows of the first plane, behind them those of the second. */
static __device__ void load_rows(const token_rows &rows, int token, int num_rows, char *slot,
                                 uint64_t *barrier)
{
    bulk_expect(barrier, (uint32_t)(num_rows * units_per_row(rows) * UNIT_BYTES));
    for (int plane = 0; plane < rows.num_planes; plane++) {
        const int row_bytes = rows.planes[plane].row_bytes;
        bulk_load(slot, rows.planes[plane].x + (size_t)token * row_bytes,
                  (uint32_t)(num_rows * row_bytes), barrier);
        slot += num_rows * row_bytes;
    }
}

static __device__ void store_row(const token_rows &rows, int place, int num_rows, const char *slot)
{
    for (int plane = 0; plane < rows.num_planes && place >= 0; plane++) {
        const int row_bytes = rows.planes[plane].row_bytes;
        bulk_store(rows.planes[plane].recv[rank_of_lane(rows)] + (size_t)place * row_bytes,
                   slot + slot_row_of_lane() * row_bytes, (uint32_t)row_bytes);
        slot += num_rows * row_bytes;
    }
    bulk_commit();
}

#endif

/* A row in each warp's slot: other warps' copies are under way while one waits. */
static __global__ void __launch_bounds__(LANES *MAX_BULK_WARPS, 1)
    push_bulk_kernel(const __grid_constant__ token_rows rows, int slot_bytes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ __align__(BULK_ALIGNMENT) char slots[];
    __shared__ uint64_t barriers[MAX_BULK_WARPS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int stride = gridDim.x * (blockDim.x / LANES);
    const int first = blockIdx.x + gridDim.x * warp;
    char *slot = slots + warp * slot_bytes;
    uint32_t parity = 0;
    if (lane == 0)
        bulk_barrier_init(&barriers[warp]);
    __syncwarp();
    int next_place = place_of_lane(rows, first, 1);
    for (int token = first; token < rows.num_tokens; token += stride) {
        const int place = next_place;
        bulk_wait_read<0>();
        __syncwarp(); /* all lanes' stores have read the slot */
        if (lane == 0)
            load_rows(rows, token, 1, slot, &barriers[warp]);
        next_place = place_of_lane(rows, token + stride, 1);
        if (!__all_sync(~0u, bulk_wait_loaded(&barriers[warp], parity, rows.num_faults)))
            break;
        parity ^= 1;
        store_row(rows, place, 1, slot);
    }
    bulk_wait_stored();
#endif
}

/* One warp, and rows_per_stage rows in each stage of its ring. */
static __global__ void push_ring_kernel(const __grid_constant__ token_rows rows, int rows_per_stage)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ __align__(BULK_ALIGNMENT) char stages[];
    __shared__ uint64_t barriers[NUM_STAGES];
    const int lane = threadIdx.x % LANES;
    const int stride = gridDim.x * rows_per_stage;
    const int first = blockIdx.x * rows_per_stage;
    const int num_steps = first < rows.num_tokens ? (rows.num_tokens - first - 1) / stride + 1 : 0;
    if (lane < NUM_STAGES)
        bulk_barrier_init(&barriers[lane]);
    __syncwarp();

    int next_place = place_of_lane(rows, first, rows_per_stage);
    for (int step = -NUM_LOADING; step < num_steps; step++) {
        if (step >= 0) {
            const int stage = step % NUM_STAGES, token = first + step * stride;
            const int place = next_place;
            next_place = place_of_lane(rows, token + stride, rows_per_stage);
            if (!__all_sync(~0u, bulk_wait_loaded(&barriers[stage], step / NUM_STAGES % 2,
                                                  rows.num_faults)))
                break;
            store_row(rows, place, min(rows_per_stage, rows.num_tokens - token),
                      stages + stage * STAGE_BYTES);
        }
        const int next = step + NUM_LOADING;
        if (next < num_steps) {
            const int stage = next % NUM_STAGES, token = first + next * stride;
            bulk_wait_read<NUM_STORING>();
            __syncwarp(); /* all lanes' stores have read what step next - NUM_STAGES left there */
            if (lane == 0)
                load_rows(rows, token, min(rows_per_stage, rows.num_tokens - token),
                          stages + stage * STAGE_BYTES, &barriers[stage]);
        }
    }
    bulk_wait_stored();
#endif
}

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

static int row_bytes_of(const token_rows *rows)
{
    int row_bytes = 0;
    for (int plane = 0; plane < rows->num_planes; plane++)
        row_bytes += rows->planes[plane].row_bytes;
    return row_bytes;
}

cudaError_t push_bulk(const token_rows *rows, int num_blocks, cudaStream_t stream)
{
    const int row_bytes = row_bytes_of(rows);
    const int slot_bytes = (row_bytes + BULK_ALIGNMENT - 1) / BULK_ALIGNMENT * BULK_ALIGNMENT;
    int shared_bytes;
    cudaError_t error = shared_bytes_max(&shared_bytes);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(push_bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shared_bytes);
    if (error != cudaSuccess)
        return error;
    const int num_warps = min_of(shared_bytes / slot_bytes, MAX_BULK_WARPS);
    push_bulk_kernel<<<num_blocks, LANES * num_warps, num_warps * slot_bytes, stream>>>(*rows,
                                                                                        slot_bytes);
    return cudaGetLastError();
}

cudaError_t push_ring(const token_rows *rows, int num_blocks, cudaStream_t stream)
{
    const int shared_bytes = NUM_STAGES * STAGE_BYTES;
    const cudaError_t error = cudaFuncSetAttribute(
        push_ring_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess)
        return error;
    /* Not so many to a stage that blocks have nothing to do. */
    const int fitting = min_of(STAGE_BYTES / row_bytes_of(rows), MAX_SLOT_ROWS);
    const int share = (rows->num_tokens + num_blocks - 1) / num_blocks;
    push_ring_kernel<<<num_blocks, LANES, shared_bytes, stream>>>(*rows, min_of(share, fitting));
    return cudaGetLastError();
}

int bulk_is_there(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, push_bulk_kernel) == cudaSuccess &&
           attributes.ptxVersion >= 90;
}
