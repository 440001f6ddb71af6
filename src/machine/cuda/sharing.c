/* SPDX-License-Identifier: MIT */
#include "machine/cuda/sharing.h"

#include "machine/cuda/kept.h"

weft_result weft__cuda_map(const struct weft__cuda *cuda, CUdeviceptr address, size_t bytes,
                           CUmemGenericAllocationHandle allocation)
{
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, cuda->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    WEFT__CUDA_TRY(weft__cu.mem_map(address, bytes, 0, allocation, 0),
                   "cannot map %zu bytes of device memory", bytes);
    const CUresult result = weft__cu.mem_set_access(address, bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        return WEFT_OK;
    (void)weft__cu.mem_unmap(address, bytes);
    return weft__cuda_error(result, "CUDA device %d cannot access memory of another GPU",
                            cuda->ordinal);
}

weft_result weft__cuda_import(const struct weft__cuda *cuda, int32_t rank, int fd,
                              CUdeviceptr address, size_t bytes)
{
    CUmemGenericAllocationHandle allocation;
    WEFT__CUDA_TRY(
        weft__cu.mem_import_from_shareable_handle(&allocation, (void *)(uintptr_t)fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cannot import memory of rank %d", rank);
    const weft_result result = weft__cuda_map(cuda, address, bytes, allocation);
    (void)weft__cu.mem_release(allocation); /* it lives as long as it is mapped somewhere */
    return result;
}

weft_result weft__cuda_export(CUmemGenericAllocationHandle allocation, int *fd)
{
    WEFT__CUDA_TRY(weft__cu.mem_export_to_shareable_handle(
                       fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "cannot share device memory");
    return WEFT_OK;
}

weft_result weft__cuda_name(const struct weft__cuda *cuda, CUdeviceptr address,
                            struct weft__cuda_name *name)
{
    *name = (struct weft__cuda_name){.address = address, .ordinal = cuda->ordinal};
    WEFT__CUDA_TRY(weft__cu.ipc_get_mem_handle(&name->handle, address),
                   "cannot share device memory");
    return WEFT_OK;
}

/* Needed for devices of this process; handles of other processes bring their access along. */
static weft_result reach_device(const struct weft__cuda *cuda, int32_t ordinal)
{
    if (ordinal == cuda->ordinal)
        return WEFT_OK;
    const CUresult result = weft__cu.ctx_enable_peer_access(weft__cuda_held(ordinal)->context, 0);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return WEFT_OK;
    return weft__cuda_error(result, "CUDA device %d cannot access device %d", cuda->ordinal,
                            ordinal);
}

weft_result weft__cuda_open_name(weft_comm *comm, int32_t rank, const struct weft__cuda_name *name,
                                 CUdeviceptr *address)
{
    *address = name->address;
    if (weft__comm_is_in_process(comm, rank))
        return reach_device(weft__cuda_of(comm), name->ordinal);
    WEFT__CUDA_TRY(
        weft__cu.ipc_open_mem_handle(address, name->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cannot open memory of rank %d", rank);
    return WEFT_OK;
}

static void close_name(void *memory, uint64_t bytes)
{
    (void)bytes;
    (void)weft__cu.ipc_close_mem_handle((CUdeviceptr)(uintptr_t)memory);
}

static int has_neighbour_in_process(const weft_comm *comm)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (rank != comm->rank && weft__comm_is_in_process(comm, rank))
            return 1;
    }
    return 0;
}

/* While the mapping is kept, the other process does not get its memory back. */
void weft__cuda_close_name(const weft_comm *comm, CUdeviceptr address)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    if (has_neighbour_in_process(comm)) {
        weft__cuda_keep(close_name, cuda->context, (void *)(uintptr_t)address, 0);
    } else if (weft__cuda_enter(cuda) == WEFT_OK) {
        (void)weft__cu.ipc_close_mem_handle(address);
        weft__cuda_leave();
    }
}
