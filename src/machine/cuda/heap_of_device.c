/* SPDX-License-Identifier: MIT */
/* Heaps of device memory: a reserved range of addresses per rank, backed part by part. Each part is an
 * allocation of its own, which the neighbours import by a file descriptor. */
#include <inttypes.h>

#include "comm/heap_kind.h"
#include "machine/cuda/device.h"

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

/* Makes an allocation appear at the part's place. */
static weft_result map_allocation(const struct weft__cuda *cuda, const struct weft__heap_part *part,
                                  CUmemGenericAllocationHandle allocation)
{
    const size_t bytes = part->end_bytes - part->begin_bytes;
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, cuda->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    WEFT__CUDA_TRY(weft__cu.mem_map(begin_of(part), bytes, 0, allocation, 0),
                   "cannot map %zu bytes of a heap", bytes);
    const CUresult result = weft__cu.mem_set_access(begin_of(part), bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        return WEFT_OK;
    (void)weft__cu.mem_unmap(begin_of(part), bytes);
    return weft__cuda_error(result, "CUDA device %d cannot access the heap of another GPU",
                            cuda->ordinal);
}

static void release(weft_comm *comm, const struct weft__heap_part *part)
{
    if (weft__cuda_enter(weft__cuda_of(comm)) != WEFT_OK)
        return;
    (void)weft__cu.mem_unmap(begin_of(part), part->end_bytes - part->begin_bytes);
    weft__cuda_leave();
}

static weft_result map_and_export(const struct weft__cuda *cuda, struct weft__heap_part *part,
                                  CUmemGenericAllocationHandle allocation)
{
    WEFT__TRY(map_allocation(cuda, part, allocation));
    const CUresult result = weft__cu.mem_export_to_shareable_handle(
        &part->handle.fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS)
        return WEFT_OK;
    (void)weft__cu.mem_unmap(begin_of(part), part->end_bytes - part->begin_bytes);
    return weft__cuda_error(result, "cannot share a heap");
}

static weft_result commit(weft_comm *comm, struct weft__heap_part *part)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const CUmemAllocationProp wanted = properties(cuda);
    const uint64_t bytes = part->end_bytes - part->begin_bytes;
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
    CUmemGenericAllocationHandle allocation;
    WEFT__TRY(weft__cuda_enter(cuda));
    const CUresult imported = weft__cu.mem_import_from_shareable_handle(
        &allocation, (void *)(uintptr_t)part->handle.fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    weft_result result;
    if (imported == CUDA_SUCCESS) {
        result = map_allocation(cuda, part, allocation);
        (void)weft__cu.mem_release(allocation);
    } else {
        result = weft__cuda_error(imported, "cannot import the heap of rank %d", rank);
    }
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
