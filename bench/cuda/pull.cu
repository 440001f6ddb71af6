/* SPDX-License-Identifier: MIT */
/* Rows pulled and summed: of each token, its rows at the ranks that have one, in ascending rank
 * order, in fp32, rounded to bf16 once. */
#include <cuda_bf16.h>

#include "units.cuh"

enum { UNIT_VALUES = UNIT_BYTES / 2 };

static __device__ __forceinline__ void add_unit(float *sums, int4 unit)
{
    const __nv_bfloat162 *pairs = reinterpret_cast<const __nv_bfloat162 *>(&unit);
#pragma unroll
    for (int i = 0; i < UNIT_VALUES / 2; i++) {
        const float2 pair = __bfloat1622float2(pairs[i]);
        sums[2 * i] += pair.x;
        sums[2 * i + 1] += pair.y;
    }
}

static __device__ __forceinline__ int4 rounded_unit(const float *sums)
{
    int4 unit;
    __nv_bfloat162 *pairs = reinterpret_cast<__nv_bfloat162 *>(&unit);
#pragma unroll
    for (int i = 0; i < UNIT_VALUES / 2; i++)
        pairs[i] = __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    return unit;
}

/* Returns the row of an item's token at rank `lane`. The caller reads it one item ahead, since the
 * loads of the row need it. */
static __device__ __forceinline__ int row_of_lane(const token_rows &rows, int item, int num_items,
                                                  int num_pieces)
{
    const int lane = threadIdx.x % LANES;
    return item < num_items && lane < rows.num_ranks
               ? rows.rows[(size_t)(item / num_pieces) * rows.num_ranks + lane]
               : -1;
}

enum { NUM_WARPS = 32 };

/* Eight units per lane are on their way whatever the number of ranks: as many as the registers of
 * 1024 threads hold beside the sums. */
template <int NUM_RANKS> struct pull_shape {
    enum { UNROLL = NUM_RANKS < 3 ? 4 : 8 / NUM_RANKS, PIECE_UNITS = LANES * UNROLL };
};

template <int NUM_RANKS>
static __global__ void __launch_bounds__(LANES *NUM_WARPS, 1)
    pull_kernel(const __grid_constant__ token_rows rows)
{
    constexpr int unroll = pull_shape<NUM_RANKS>::UNROLL;
    constexpr int piece_units = pull_shape<NUM_RANKS>::PIECE_UNITS;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int row_bytes = rows.planes[0].row_bytes, num_units = row_bytes / UNIT_BYTES;
    const int num_pieces = (num_units + piece_units - 1) / piece_units;
    const int num_items = rows.num_tokens * num_pieces;
    const int stride = gridDim.x * NUM_WARPS;
    const int first_item = blockIdx.x + gridDim.x * warp;
    int next_row = row_of_lane(rows, first_item, num_items, num_pieces);
    for (int item = first_item; item < num_items; item += stride) {
        const int token = item / num_pieces;
        const int first = item % num_pieces * piece_units + lane;
        const int own_row = next_row;
        next_row = row_of_lane(rows, item + stride, num_items, num_pieces);
        int4 units[NUM_RANKS][unroll];
#pragma unroll
        for (int rank = 0; rank < NUM_RANKS; rank++) {
            const int row = __shfl_sync(~0u, own_row, rank);
            const char *src = rows.planes[0].recv[rank] + (size_t)row * row_bytes;
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const int unit = first + u * LANES;
                units[rank][u] = row >= 0 && unit < num_units
                                     ? load_unit(src + (size_t)unit * UNIT_BYTES)
                                     : make_int4(0, 0, 0, 0); /* adds nothing */
            }
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const int unit = first + u * LANES;
            float sums[UNIT_VALUES] = {0};
#pragma unroll
            for (int rank = 0; rank < NUM_RANKS; rank++)
                add_unit(sums, units[rank][u]);
            if (unit < num_units)
                store_unit(rows.out + (size_t)token * row_bytes + (size_t)unit * UNIT_BYTES,
                           rounded_unit(sums));
        }
    }
}

cudaError_t pull_ldst(const token_rows *rows, int num_blocks, cudaStream_t stream)
{
    static void (*const kernels[])(token_rows) = {pull_kernel<1>, pull_kernel<2>, pull_kernel<3>,
                                                  pull_kernel<4>, pull_kernel<5>, pull_kernel<6>,
                                                  pull_kernel<7>, pull_kernel<8>};
    static_assert(sizeof(kernels) / sizeof(kernels[0]) == MAX_RANKS, "one for each number");
    kernels[rows->num_ranks - 1]<<<num_blocks, LANES * NUM_WARPS, 0, stream>>>(*rows);
    return cudaGetLastError();
}

/* ---------------------------------------------------------------- bulk copies */

/* From global to shared memory (Hopper and later); a barrier in shared memory counts the bytes of
 * the loads. */
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

/* A warp fetches its piece from all ranks into its slot, then sums it. */
enum { BULK_PIECE_BYTES = 4096 };

static __global__ void __launch_bounds__(LANES *MAX_BULK_WARPS, 1)
    pull_bulk_kernel(const __grid_constant__ token_rows rows)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ __align__(BULK_ALIGNMENT) char slots[];
    __shared__ uint64_t barriers[MAX_BULK_WARPS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int num_warps = blockDim.x / LANES;
    const int row_bytes = rows.planes[0].row_bytes;
    const int num_pieces = (row_bytes + BULK_PIECE_BYTES - 1) / BULK_PIECE_BYTES;
    const int num_items = rows.num_tokens * num_pieces;
    char *slot = slots + warp * rows.num_ranks * BULK_PIECE_BYTES;
    uint64_t *barrier = &barriers[warp];
    if (lane == 0)
        bulk_barrier_init(barrier);
    __syncwarp();
    uint32_t parity = 0;
    const int stride = gridDim.x * num_warps;
    const int first_item = blockIdx.x + gridDim.x * warp;
    int next_row = row_of_lane(rows, first_item, num_items, num_pieces);
    for (int item = first_item; item < num_items; item += stride) {
        const int token = item / num_pieces, offset = item % num_pieces * BULK_PIECE_BYTES;
        const int piece_bytes = min(BULK_PIECE_BYTES, row_bytes - offset);
        const int row = next_row;
        next_row = row_of_lane(rows, item + stride, num_items, num_pieces);
        const uint32_t ranks = __ballot_sync(~0u, row >= 0);
        if (lane == 0)
            bulk_expect(barrier, (uint32_t)(__popc(ranks) * piece_bytes));
        __syncwarp();
        if (row >= 0)
            bulk_load(slot + lane * BULK_PIECE_BYTES,
                      rows.planes[0].recv[lane] + (size_t)row * row_bytes + offset,
                      (uint32_t)piece_bytes, barrier);
        if (!__all_sync(~0u, bulk_wait_loaded(barrier, parity, rows.num_faults)))
            break;
        parity ^= 1;
        char *out = rows.out + (size_t)token * row_bytes + offset;
        for (int at = lane * UNIT_BYTES; at < piece_bytes; at += LANES * UNIT_BYTES) {
            float sums[UNIT_VALUES] = {0};
            for (int rank = 0; rank < rows.num_ranks; rank++) {
                if (ranks >> rank & 1)
                    add_unit(sums,
                             *reinterpret_cast<const int4 *>(slot + rank * BULK_PIECE_BYTES + at));
            }
            store_unit(out + at, rounded_unit(sums));
        }
        __syncwarp(); /* all have read the slot before it is loaded again */
    }
#endif
}

cudaError_t pull_bulk(const token_rows *rows, int num_blocks, cudaStream_t stream)
{
    int shared_bytes;
    cudaError_t error = shared_bytes_max(&shared_bytes);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(pull_bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shared_bytes);
    if (error != cudaSuccess)
        return error;
    const int slot_bytes = rows->num_ranks * BULK_PIECE_BYTES;
    const int num_slots = shared_bytes / slot_bytes;
    const int num_warps = num_slots < MAX_BULK_WARPS ? num_slots : MAX_BULK_WARPS;
    pull_bulk_kernel<<<num_blocks, LANES * num_warps, num_warps * slot_bytes, stream>>>(*rows);
    return cudaGetLastError();
}

int bulk_is_there(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, pull_bulk_kernel) == cudaSuccess &&
           attributes.ptxVersion >= 90;
}
