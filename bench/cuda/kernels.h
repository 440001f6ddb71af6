/* SPDX-License-Identifier: MIT */
/* The kernels of these measurements and what they are given; for C and for CUDA C++. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MAX_RANKS = 8,
    MAX_PLANES = 2,
    UNIT_BYTES = 16,           /* all sizes here are multiples of it */
    MAX_ROW_BYTES = 32 * 1024, /* of all planes together */
    WAITED_S_MAX = 2           /* every wait inside a kernel gives up after it */
};

/* Rows of one rank's tokens and their places at all ranks. */
struct row_plane {
    const char *x;         /* [num_tokens] rows */
    char *recv[MAX_RANKS]; /* rows at each rank, as mapped here */
    int32_t row_bytes;
};

struct token_rows {
    int32_t rank, num_ranks, num_tokens, num_planes;
    const int32_t *rows; /* [num_tokens][num_ranks] row at that rank; negative: none */
    struct row_plane planes[MAX_PLANES];
    char *out;            /* [num_tokens] rows: sums over the ranks, of plane 0 as bf16 */
    uint32_t *num_faults; /* waits that gave up */
};

/* A launch of num_blocks blocks, each of which fills a multiprocessor. */
typedef cudaError_t row_kernel(const struct token_rows *rows, int num_blocks, cudaStream_t stream);
row_kernel push_ldst; /* by loads and stores of 16 bytes */
row_kernel pull_ldst; /* pull and sum */
row_kernel
    pull_bulk; /* the same, by bulk copies to shared memory: a warp and a slot for each row */

/* Tells if this device has bulk copies, and this build their kernel for it. */
int bulk_is_there(void);

/* Holds the stream until the host has released the round and all GPUs have come this far. */
struct gate {
    int32_t rank, num_ranks;
    uint32_t round;
    const uint32_t *released;      /* in host memory: the newest round that may go */
    uint32_t *arrivals[MAX_RANKS]; /* at each rank: [num_ranks] newest round of each */
    uint32_t *num_faults;
};
cudaError_t gate_wait(const struct gate *gate, cudaStream_t stream);

/* Rows whose content follows from a number of their own, to tell whether they have arrived. */
struct pattern {
    int32_t num_rows, num_planes;
    const int32_t *numbers; /* [num_rows] */
    int32_t tag;            /* rows of different tags differ; 0..MAX_RANKS */
    char *planes[MAX_PLANES];
    int32_t row_bytes[MAX_PLANES];
    uint32_t *num_wrong; /* 16-byte units that differ */
};
cudaError_t pattern_fill(const struct pattern *pattern, cudaStream_t stream);
cudaError_t pattern_check(const struct pattern *pattern, cudaStream_t stream);
/* rows->out must be the sums of rows of the ranks' tags, a rank's tag being its number plus 1. */
cudaError_t pattern_check_sums(const struct token_rows *rows, const int32_t *numbers,
                               uint32_t *num_wrong, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
