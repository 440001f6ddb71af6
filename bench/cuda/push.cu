/* SPDX-License-Identifier: MIT */
/* Rows pushed by ordinary stores. A warp takes a piece of a row, not a row, so that few tokens also
 * occupy many warps: it loads 8 units per lane, then stores them at each rank that gets the row. */
#include "units.cuh"

enum { NUM_WARPS = 32, UNROLL = 8, PIECE_UNITS = LANES * UNROLL };

/* Addresses of a lane's units in one row: unit number `first`, and others LANES units apart. */
template <int NUM_PLANES> struct lane_units {
    char *planes[NUM_PLANES]; /* where unit `first` would be if all units were in that plane */
    int num_in_plane_0;       /* units from `first` on */

    /* base(plane): where the rows of a plane are. */
    template <typename base_fn>
    __device__ __forceinline__ lane_units(const token_rows &rows, int row, int first, base_fn base)
    {
        const int units_0 = rows.planes[0].row_bytes / UNIT_BYTES;
        num_in_plane_0 = units_0 - first;
#pragma unroll
        for (int plane = 0; plane < NUM_PLANES; plane++) {
            const ptrdiff_t unit = first - (plane == 0 ? 0 : units_0);
            planes[plane] = const_cast<char *>(base(plane)) +
                            (size_t)row * rows.planes[plane].row_bytes + unit * UNIT_BYTES;
        }
    }

    __device__ __forceinline__ char *operator[](int u) const
    {
        const bool in_plane_0 = NUM_PLANES == 1 || u * LANES < num_in_plane_0;
        return (in_plane_0 ? planes[0] : planes[NUM_PLANES - 1]) + u * LANES * UNIT_BYTES;
    }
};

template <int NUM_PLANES>
static __global__ void __launch_bounds__(LANES *NUM_WARPS, 1)
    push_kernel(const __grid_constant__ token_rows rows)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int num_units = units_per_row(rows);
    const int num_pieces = (num_units + PIECE_UNITS - 1) / PIECE_UNITS;
    const int num_items = rows.num_tokens * num_pieces;
    for (int item = blockIdx.x + gridDim.x * warp; item < num_items;
         item += gridDim.x * NUM_WARPS) {
        const int token = item / num_pieces;
        const int first = item % num_pieces * PIECE_UNITS + lane;
        const int row_of_lane =
            lane < rows.num_ranks ? rows.rows[(size_t)token * rows.num_ranks + lane] : -1;
        const lane_units<NUM_PLANES> src(rows, token, first,
                                         [&](int plane) { return rows.planes[plane].x; });
        int4 units[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (first + u * LANES < num_units)
                units[u] = load_unit(src[u]);
        }
        for (int i = 1; i <= rows.num_ranks; i++) { /* each rank begins with its neighbour */
            const int rank = (rows.rank + i) % rows.num_ranks;
            const int row = __shfl_sync(~0u, row_of_lane, rank);
            if (row < 0)
                continue;
            const lane_units<NUM_PLANES> dst(
                rows, row, first, [&](int plane) { return rows.planes[plane].recv[rank]; });
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                if (first + u * LANES < num_units)
                    store_unit(dst[u], units[u]);
            }
        }
    }
}

cudaError_t push_ldst(const token_rows *rows, int num_blocks, cudaStream_t stream)
{
    if (rows->num_planes == 1)
        push_kernel<1><<<num_blocks, LANES * NUM_WARPS, 0, stream>>>(*rows);
    else
        push_kernel<2><<<num_blocks, LANES * NUM_WARPS, 0, stream>>>(*rows);
    return cudaGetLastError();
}
