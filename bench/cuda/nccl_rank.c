/* SPDX-License-Identifier: MIT */
#include "nccl_rank.h"

#include <stdlib.h>
#include <unistd.h>

#include "kernels.h"
#include "try.h"
#include "workload/clock.h"

enum { TIMEOUT_S = 30 }; /* of all iterations of one figure */

static int connect_ranks(struct nccl_rank *rank)
{
    ncclUniqueId id = {{0}}, ids[MAX_RANKS];
    int num_gpus;
    CUDA_TRY(cudaGetDeviceCount(&num_gpus));
    if (rank->num_ranks > num_gpus || rank->num_ranks > MAX_RANKS) {
        fprintf(stderr, "%d ranks: NCCL needs a GPU for each, there are %d; at most %d\n",
                rank->num_ranks, num_gpus, MAX_RANKS);
        return -1;
    }
    CUDA_TRY(cudaSetDevice(rank->rank));
    CUDA_TRY(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
    if (rank->rank == 0)
        NCCL_TRY(ncclGetUniqueId(&id));
    WEFT_TRY(weft_comm_host_all_gather(rank->comm, &id, sizeof(id), ids));
    NCCL_TRY(ncclCommInitRank(&rank->nccl, rank->num_ranks, ids[0], rank->rank));
    return 0;
}

int nccl_rank_open(struct nccl_rank *rank)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.machine = WEFT_MACHINE_CPU; /* the GPUs are NCCL's alone */
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    WEFT_TRY(weft_comm_create_from_env(&config, &rank->comm));
    rank->rank = weft_comm_rank(rank->comm);
    rank->num_ranks = weft_comm_num_ranks(rank->comm);
    TRY(connect_ranks(rank));
    CUDA_TRY(cudaMalloc((void **)&rank->barrier, sizeof(float)));
    CUDA_TRY(cudaMemset(rank->barrier, 0, sizeof(float)));
    return 0;
}

/* After a failure, NCCL's connections cannot be closed in order: other ranks may be gone. */
void nccl_rank_close(struct nccl_rank *rank, int result)
{
    if (rank->nccl != NULL) {
        if (result == 0)
            ncclCommDestroy(rank->nccl);
        else
            ncclCommAbort(rank->nccl);
    }
    cudaFree(rank->barrier);
    if (rank->stream != NULL)
        cudaStreamDestroy(rank->stream);
    weft_comm_destroy(rank->comm);
}

int nccl_rank_meet(const struct nccl_rank *rank)
{
    NCCL_TRY(ncclAllReduce(rank->barrier, rank->barrier, 1, ncclFloat, ncclSum, rank->nccl,
                           rank->stream));
    return 0;
}

/* NCCL itself waits without end when a rank is missing. */
int nccl_rank_wait(const struct nccl_rank *rank)
{
    const double start_us = clock_us();
    cudaError_t state;
    while ((state = cudaStreamQuery(rank->stream)) == cudaErrorNotReady) {
        WEFT_TRY(weft_comm_status(rank->comm, NULL));
        if (clock_us() - start_us > TIMEOUT_S * 1e6) {
            fprintf(stderr, "rank %d: still waiting after %d s\n", rank->rank, TIMEOUT_S);
            return -1;
        }
        usleep(20);
    }
    CUDA_TRY(state);
    return 0;
}
