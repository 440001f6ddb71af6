/* SPDX-License-Identifier: MIT */
/* One rank of a job that measures weft: one process per GPU. */
#pragma once

#include <cuda_runtime_api.h>

#include "weft.h"

struct gpu_rank {
    weft_comm *comm;
    int32_t rank, num_ranks;
    cudaStream_t cuda_stream;
    weft_stream *stream; /* the same, as weft knows it */
};

/* By what the launcher says. Close also after a failure. */
int gpu_rank_open(struct gpu_rank *rank);
void gpu_rank_close(struct gpu_rank *rank);

/* For struct timing; the argument is a rank. */
int gpu_rank_meet(void *rank);
int gpu_rank_wait(void *rank);
