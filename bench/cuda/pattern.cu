/* SPDX-License-Identifier: MIT */
/* Content of rows, as bf16: small integers, so that their sums are exact and known without fp32. */
#include <cuda_bf16.h>

#include "units.cuh"

enum { NUM_BLOCKS = 512, NUM_WARPS = 8, UNIT_VALUES = UNIT_BYTES / 2 };

/* The 8 values of a unit are the bytes of a hash. */
static __device__ uint64_t hash_of(int32_t number, int32_t tag, int unit)
{
    uint64_t z = ((uint64_t)tag << 56) ^ ((uint64_t)number << 24) ^ (uint64_t)unit;
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static __device__ int value_of(uint64_t hash, int i)
{
    return (int8_t)(hash >> (8 * i));
}

static __device__ int4 unit_of_values(const int *values)
{
    int4 unit;
    __nv_bfloat16 *out = reinterpret_cast<__nv_bfloat16 *>(&unit);
    for (int i = 0; i < UNIT_VALUES; i++)
        out[i] = __float2bfloat16_rn((float)values[i]);
    return unit;
}

static __device__ int4 unit_of(int32_t number, int32_t tag, int unit)
{
    const uint64_t hash = hash_of(number, tag, unit);
    int values[UNIT_VALUES];
    for (int i = 0; i < UNIT_VALUES; i++)
        values[i] = value_of(hash, i);
    return unit_of_values(values);
}

static __device__ bool is_equal(int4 a, int4 b)
{
    return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}

enum pattern_use { FILL, CHECK };

template <pattern_use USE>
static __global__ void pattern_kernel(const __grid_constant__ pattern pattern)
{
    const int lane = threadIdx.x % LANES;
    const int first_row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    for (int row = first_row; row < pattern.num_rows; row += NUM_BLOCKS * NUM_WARPS) {
        int first_unit = 0; /* of the plane */
        for (int plane = 0; plane < pattern.num_planes; plane++) {
            const int row_bytes = pattern.row_bytes[plane], num_units = row_bytes / UNIT_BYTES;
            int4 *units = reinterpret_cast<int4 *>(pattern.planes[plane] + (size_t)row * row_bytes);
            for (int unit = lane; unit < num_units; unit += LANES) {
                const int4 expected = unit_of(pattern.numbers[row], pattern.tag, first_unit + unit);
                if (USE == FILL)
                    units[unit] = expected;
                else if (!is_equal(units[unit], expected))
                    atomicAdd(pattern.num_wrong, 1);
            }
            first_unit += num_units;
        }
    }
}

static __global__ void check_sums_kernel(const __grid_constant__ token_rows rows,
                                         const int32_t *numbers, uint32_t *num_wrong)
{
    const int lane = threadIdx.x % LANES;
    const int first_token = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const int row_bytes = rows.planes[0].row_bytes;
    for (int token = first_token; token < rows.num_tokens; token += NUM_BLOCKS * NUM_WARPS) {
        const int4 *units = reinterpret_cast<int4 *>(rows.out + (size_t)token * row_bytes);
        for (int unit = lane; unit < row_bytes / UNIT_BYTES; unit += LANES) {
            int sums[UNIT_VALUES] = {0};
            for (int rank = 0; rank < rows.num_ranks; rank++) {
                if (rows.rows[(size_t)token * rows.num_ranks + rank] < 0)
                    continue;
                const uint64_t hash = hash_of(numbers[token], rank + 1, unit);
                for (int i = 0; i < UNIT_VALUES; i++)
                    sums[i] += value_of(hash, i);
            }
            if (!is_equal(units[unit], unit_of_values(sums)))
                atomicAdd(num_wrong, 1);
        }
    }
}

cudaError_t pattern_fill(const struct pattern *pattern, cudaStream_t stream)
{
    pattern_kernel<FILL><<<NUM_BLOCKS, LANES * NUM_WARPS, 0, stream>>>(*pattern);
    return cudaGetLastError();
}

cudaError_t pattern_check(const struct pattern *pattern, cudaStream_t stream)
{
    pattern_kernel<CHECK><<<NUM_BLOCKS, LANES * NUM_WARPS, 0, stream>>>(*pattern);
    return cudaGetLastError();
}

cudaError_t pattern_check_sums(const token_rows *rows, const int32_t *numbers, uint32_t *num_wrong,
                               cudaStream_t stream)
{
    check_sums_kernel<<<NUM_BLOCKS, LANES * NUM_WARPS, 0, stream>>>(*rows, numbers, num_wrong);
    return cudaGetLastError();
}
