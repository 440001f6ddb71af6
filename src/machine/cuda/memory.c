/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "machine/cuda/device.h"

/* On a stream of its own: the caller's may be under capture, and the legacy one would wait for all. */
static weft_result finish_copies(const struct weft__cuda *cuda, CUresult enqueued, const char *what)
{
    const CUresult result =
        enqueued == CUDA_SUCCESS ? weft__cu.stream_synchronize(cuda->copies) : enqueued;
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "%s", what);
}

static weft_result alloc_zeroed(const struct weft__cuda *cuda, uint64_t bytes, CUdeviceptr *memory)
{
    WEFT__CUDA_TRY(weft__cu.mem_alloc(memory, bytes > 0 ? bytes : 1),
                   "no %" PRIu64 " bytes of memory on CUDA device %d", bytes, cuda->ordinal);
    const weft_result result = finish_copies(
        cuda, weft__cu.memset_d8_async(*memory, 0, bytes, cuda->copies), "cannot zero memory");
    if (result != WEFT_OK)
        (void)weft__cu.mem_free(*memory);
    return result;
}

weft_result weft__cuda_alloc(weft_comm *comm, uint64_t bytes, void **memory)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    CUdeviceptr allocated = 0;
    WEFT__TRY(weft__cuda_enter(cuda));
    const weft_result result = alloc_zeroed(cuda, bytes, &allocated);
    weft__cuda_leave();
    if (result == WEFT_OK)
        *memory = (void *)(uintptr_t)allocated;
    return result;
}

void weft__cuda_free(weft_comm *comm, void *memory)
{
    if (memory == NULL || weft__cuda_enter(weft__cuda_of(comm)) != WEFT_OK)
        return;
    (void)weft__cu.mem_free((CUdeviceptr)(uintptr_t)memory);
    weft__cuda_leave();
}

weft_result weft__cuda_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    WEFT__TRY(weft__cuda_enter(cuda));
    const CUresult enqueued = weft__cu.memcpy_async(
        (CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes, cuda->copies);
    const weft_result result = finish_copies(cuda, enqueued, "cannot copy memory");
    weft__cuda_leave();
    return result;
}

/* A program that touched pageable memory of the host would end the context of the whole process. */
weft_result weft__cuda_check_pointer(weft_comm *comm, const void *ptr, const char *argument)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    CUdeviceptr on_device = 0;
    WEFT__TRY(weft__cuda_enter(cuda));
    const CUresult result = weft__cu.pointer_get_attribute(
        &on_device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)(uintptr_t)ptr);
    weft__cuda_leave();
    if (result == CUDA_SUCCESS && on_device == (CUdeviceptr)(uintptr_t)ptr)
        return WEFT_OK;
    return weft__error(
        WEFT_ERROR_INVALID_ARGUMENT,
        "%s is %p, which CUDA device %d cannot access; it must be memory of a device "
        "or pinned or managed memory of the host",
        argument, ptr, cuda->ordinal);
}
