/* SPDX-License-Identifier: MIT */
/* Heaps of device memory: a reserved range of addresses per rank, backed part by part. Each part is
 * an allocation of its own, which the neighbours import by a file descriptor. */
#include <inttypes.h>

#include "comm/heap/heap_kind.h"
#include "machine/cuda/sharing.h"

static CUmemAllocationProp properties(const struct weft__cuda *cuda)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device}};
}

static void get_limits(const weft_comm *comm, struct weft__heap_limits *limits)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const CUmemAllocationProp wanted = properties(cuda);
    size_t granularity = 0, free_bytes = 0, total_bytes = 0;
    *limits = (struct weft__heap_limits){.page_bytes = 2 << 20};
    if (weft__cuda_enter(cuda) != WEFT_OK)
        return;
    (void)weft__cu.mem_get_allocation_granularity(&granularity, &wanted,
                                                  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    (void)weft__cu.mem_get_info(&free_bytes, &total_bytes);
    weft__cuda_leave();
    if (granularity > 0)
        limits->page_bytes = granularity;
    limits->default_max_bytes = total_bytes;
    limits->spare_bytes = free_bytes / (uint64_t)cuda->num_ranks_here;
}

static weft_result reserve(weft_comm *comm, uint64_t max_bytes, char **base)
{
    CUdeviceptr address = 0;
    (void)comm;
    WEFT__CUDA_TRY(weft__cu.mem_address_reserve(&address, max_bytes, 0, 0, 0),
                   "cannot reserve %" PRIu64 " bytes of addresses for a heap", max_bytes);
    *base = (char *)(uintptr_t)address;
    return WEFT_OK;
}

static CUdeviceptr begin_of(const struct weft__heap_part *part)
{
    return (CUdeviceptr)(uintptr_t)(part->base + part->begin_bytes);
}

static size_t bytes_of(const struct weft__heap_part *part)
{
    return part->end_bytes - part->begin_bytes;
}

static void release(weft_comm *comm, const struct weft__heap_part *part)
{
    if (weft__cuda_enter(weft__cuda_of(comm)) != WEFT_OK)
        return;
    (void)weft__cu.mem_unmap(begin_of(part), bytes_of(part));
    weft__cuda_leave();
}

static weft_result map_and_export(const struct weft__cuda *cuda, struct weft__heap_part *part,
                                  CUmemGenericAllocationHandle allocation)
{
    WEFT__TRY(weft__cuda_map(cuda, begin_of(part), bytes_of(part), allocation));
    const weft_result result = weft__cuda_export(allocation, &part->handle.fd);
    if (result != WEFT_OK)
        (void)weft__cu.mem_unmap(begin_of(part), bytes_of(part));
    return result;
}

static weft_result commit(weft_comm *comm, struct weft__heap_part *part)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const CUmemAllocationProp wanted = properties(cuda);
    const uint64_t bytes = bytes_of(part);
    CUmemGenericAllocationHandle allocation;
    WEFT__TRY(weft__cuda_enter(cuda));
    const CUresult created = weft__cu.mem_create(&allocation, bytes, &wanted, 0);
    weft_result result;
    if (created == CUDA_SUCCESS) {
        result = map_and_export(cuda, part, allocation);
        (void)weft__cu.mem_release(allocation); /* it lives as long as it is mapped somewhere */
    } else {
        result = weft__cuda_error(created, "cannot commit %" PRIu64 " bytes on CUDA device %d",
                                  bytes, cuda->ordinal);
    }
    weft__cuda_leave();
    return result;
}

static weft_result map(weft_comm *comm, int32_t rank, struct weft__heap_part *part)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    WEFT__TRY(weft__cuda_enter(cuda));
    const weft_result result =
        weft__cuda_import(cuda, rank, part->handle.fd, begin_of(part), bytes_of(part));
    weft__cuda_leave();
    return result;
}

static void unmap(weft_comm *comm, int32_t rank, const struct weft__heap_part *part)
{
    const CUdeviceptr base = (CUdeviceptr)(uintptr_t)part->base;
    (void)rank;
    if (weft__cuda_enter(weft__cuda_of(comm)) != WEFT_OK)
        return;
    if (part->end_bytes > 0)
        (void)weft__cu.mem_unmap(base, part->end_bytes);
    (void)weft__cu.mem_address_free(base, part->max_bytes);
    weft__cuda_leave();
}

const struct weft__heap_kind weft__heap_of_device = {
    .name = "virtual memory management",
    .sharing = WEFT__HEAP_SHARED_BY_PART,
    .limits = get_limits,
    .reserve = reserve,
    .commit = commit,
    .release = release,
    .map = map,
    .unmap = unmap,
};
