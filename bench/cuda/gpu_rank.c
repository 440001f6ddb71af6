/* SPDX-License-Identifier: MIT */
#include "gpu_rank.h"

#include <stdlib.h>

#include "kernels.h"
#include "try.h"

int gpu_rank_open(struct gpu_rank *rank)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int num_gpus;
    config.machine = WEFT_MACHINE_CUDA;
    unsetenv("WEFT_CUDA_DEVICE"); /* the ranks take the GPUs in turn */
    WEFT_TRY(weft_comm_create_from_env(&config, &rank->comm));
    rank->rank = weft_comm_rank(rank->comm);
    rank->num_ranks = weft_comm_num_ranks(rank->comm);
    CUDA_TRY(cudaGetDeviceCount(&num_gpus));
    if (rank->num_ranks > num_gpus || rank->num_ranks > MAX_RANKS) {
        fprintf(stderr,
                "%d ranks: each is measured on a GPU of its own, there are %d; at most %d\n",
                rank->num_ranks, num_gpus, MAX_RANKS);
        return -1;
    }
    CUDA_TRY(cudaSetDevice(rank->rank)); /* where weft is */
    CUDA_TRY(cudaStreamCreateWithFlags(&rank->cuda_stream, cudaStreamNonBlocking));
    WEFT_TRY(weft_stream_wrap(rank->comm, rank->cuda_stream, &rank->stream));
    return 0;
}

void gpu_rank_close(struct gpu_rank *rank)
{
    if (rank->stream != NULL)
        weft_stream_destroy(rank->stream);
    if (rank->cuda_stream != NULL)
        cudaStreamDestroy(rank->cuda_stream);
    weft_comm_destroy(rank->comm);
}

int gpu_rank_meet(void *rank)
{
    const struct gpu_rank *here = rank;
    WEFT_TRY(weft_comm_barrier(here->comm, here->stream));
    return 0;
}

int gpu_rank_wait(void *rank)
{
    const struct gpu_rank *here = rank;
    WEFT_TRY(weft_stream_synchronize(here->stream));
    WEFT_TRY(weft_comm_status(here->comm, NULL)); /* also of what was captured */
    return 0;
}
