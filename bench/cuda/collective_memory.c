/* SPDX-License-Identifier: MIT */
#include "collective_memory.h"

#include "try.h"

enum { POISON = 0xff };

int collective_memory_init(struct collective_memory *memory, const struct element_source *source)
{
    const uint64_t count = memory->max_bytes / dtype_bytes(source->dtype);
    CUDA_TRY(cudaMallocHost((void **)&memory->received, memory->max_bytes));
    CUDA_TRY(cudaMallocHost((void **)&memory->expected, memory->max_bytes));
    elements_fill(source, weft_comm_rank(memory->comm), 0, count, memory->received);
    CUDA_TRY(cudaMemcpy(memory->send, memory->received, count * dtype_bytes(source->dtype),
                        cudaMemcpyHostToDevice));
    /* Streams that do not wait for the default stream may use it at once. */
    CUDA_TRY(cudaDeviceSynchronize());
    return 0;
}

void collective_memory_destroy(struct collective_memory *memory)
{
    cudaFreeHost(memory->received);
    cudaFreeHost(memory->expected);
}

static uint64_t recv_bytes(const struct collective_memory *memory,
                           const struct collective *collective)
{
    return collective_recv_bytes(collective, weft_comm_rank(memory->comm));
}

void collective_memory_expect(struct collective_memory *memory, const struct collective *collective)
{
    collective_expect(collective, weft_comm_rank(memory->comm), 0, recv_bytes(memory, collective),
                      memory->expected);
}

int collective_memory_wipe(struct collective_memory *memory, const struct collective *collective)
{
    CUDA_TRY(cudaMemsetAsync(memory->recv, POISON, recv_bytes(memory, collective), memory->stream));
    return 0;
}

int collective_memory_check(struct collective_memory *memory, const struct collective *collective,
                            uint64_t *num_wrong)
{
    const weft_dtype dtype = collective->source.dtype;
    const uint64_t bytes = recv_bytes(memory, collective);
    uint64_t first_wrong, num_wrong_at[WEFT_COLL_MAX_RANKS];
    CUDA_TRY(cudaMemcpy(memory->received, memory->recv, bytes, cudaMemcpyDeviceToHost));
    const uint64_t num_wrong_here = elements_count_wrong(dtype, memory->received, memory->expected,
                                                         bytes / dtype_bytes(dtype), &first_wrong);
    WEFT_TRY(
        weft_host_all_gather(memory->comm, &num_wrong_here, sizeof(num_wrong_here), num_wrong_at));
    *num_wrong = 0;
    for (int32_t rank = 0; rank < collective->num_ranks; rank++)
        *num_wrong += num_wrong_at[rank];
    return 0;
}
