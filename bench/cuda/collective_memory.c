/* SPDX-License-Identifier: MIT */
#include "collective_memory.h"

#include "try.h"
#include "workload/of_ranks.h"

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
    uint64_t first_wrong;
    CUDA_TRY(cudaMemcpy(memory->received, memory->recv, bytes, cudaMemcpyDeviceToHost));
    int64_t sum = (int64_t)elements_count_wrong(dtype, memory->received, memory->expected,
                                                bytes / dtype_bytes(dtype), &first_wrong);
    WEFT_TRY(sum_of_ranks(memory->comm, &sum, 1));
    *num_wrong = (uint64_t)sum;
    return 0;
}
