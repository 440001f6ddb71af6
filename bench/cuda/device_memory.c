/* SPDX-License-Identifier: MIT */
#include "device_memory.h"

#include "try.h"

int device_alloc(struct device_memory *memory, size_t bytes, void **block)
{
    if (memory->num_blocks == MAX_BLOCKS) {
        fprintf(stderr, "more than %d allocations\n", MAX_BLOCKS);
        return -1;
    }
    CUDA_TRY(cudaMalloc(block, bytes > 0 ? bytes : 1));
    memory->blocks[memory->num_blocks++] = *block;
    CUDA_TRY(cudaMemset(*block, 0, bytes));
    /* Streams that do not wait for the default stream may use it at once. */
    CUDA_TRY(cudaDeviceSynchronize());
    return 0;
}

int device_upload(struct device_memory *memory, const void *data, size_t bytes, void **block)
{
    TRY(device_alloc(memory, bytes, block));
    CUDA_TRY(cudaMemcpy(*block, data, bytes, cudaMemcpyHostToDevice));
    return 0;
}

void device_free_all(struct device_memory *memory)
{
    while (memory->num_blocks > 0)
        cudaFree(memory->blocks[--memory->num_blocks]);
}
