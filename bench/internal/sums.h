/* SPDX-License-Identifier: MIT */
/* The kernels of sums.cu; for C and for CUDA C++. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SUMS_MAX_SRCS = 16 };

enum sums_kind {
    SUMS_OF_TOKENS, /* as combine makes them */
    SUMS_DIRECT,    /* as a direct reduction does */
    SUMS_AVERAGE,
    NUM_SUMS
};

/* dst = the reduction of the srcs, element by element: rows of bf16, one behind the other. */
struct sums {
    enum sums_kind kind;
    int32_t num_srcs;
    const char *srcs[SUMS_MAX_SRCS];
    char *dst;
    int64_t num_rows, row_bytes;
    int64_t span_bytes; /* that a warp does at a time: a part of a row */
};

cudaError_t sums_launch(const struct sums *sums, int num_blocks, int num_warps,
                        cudaStream_t stream);

#ifdef __cplusplus
}
#endif
