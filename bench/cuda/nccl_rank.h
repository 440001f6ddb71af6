/* SPDX-License-Identifier: MIT */
/* One rank of a job that measures NCCL: one process per GPU. Weft lets the ranks find each other,
 * on the host. */
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>

#include "weft.h"

struct nccl_rank {
    weft_comm *comm;
    ncclComm_t nccl;
    cudaStream_t stream;
    int32_t rank, num_ranks;
    float *barrier; /* on the GPU */
};

#define NCCL_TRY(call)                                                                             \
    do {                                                                                           \
        const ncclResult_t result_ = (call);                                                       \
        if (result_ != ncclSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE_NAME__, __LINE__, #call,                     \
                    ncclGetErrorString(result_));                                                  \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

/* Without NVLink multicast. Close also after a failure, which `result` tells then. */
int nccl_rank_open(struct nccl_rank *rank);
void nccl_rank_close(struct nccl_rank *rank, int result);

/* Enqueues a small all-reduce, so that the ranks start together. */
int nccl_rank_meet(const struct nccl_rank *rank);
/* For the stream, but not without end. */
int nccl_rank_wait(const struct nccl_rank *rank);
