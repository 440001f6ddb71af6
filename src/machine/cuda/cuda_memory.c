/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "machine/cuda/device.h"
#include "machine/cuda/kept.h"

#include <string.h>

/* On a stream of its own: the caller's may be under capture, and the legacy one would wait for
 * all. */
static weft_result finish_copies(const struct weft__cuda *cuda, CUresult enqueued, const char *what)
{
    const CUresult result =
        enqueued == CUDA_SUCCESS ? weft__cu.stream_synchronize(cuda->copies) : enqueued;
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "%s", what);
}

/* Allocates from the driver's pool: freeing in stream order waits for no other kernels. */
weft_result weft__cuda_alloc(weft_comm *comm, uint64_t bytes, void **memory)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    CUdeviceptr allocated = 0;
    WEFT__TRY(weft__cuda_enter(cuda));
    const uint64_t least_bytes = bytes > 0 ? bytes : 1;
    CUresult result = weft__cu.mem_alloc_async(&allocated, least_bytes, cuda->copies);
    if (result == CUDA_SUCCESS)
        result = weft__cu.memset_d8_async(allocated, 0, least_bytes, cuda->copies);
    if (result == CUDA_SUCCESS)
        result = weft__cu.stream_synchronize(cuda->copies);
    weft__cuda_leave();
    if (result != CUDA_SUCCESS)
        return weft__cuda_error(result, "no %" PRIu64 " bytes of memory on CUDA device %d", bytes,
                                cuda->ordinal);
    *memory = (void *)(uintptr_t)allocated;
    return WEFT_OK;
}

void weft__cuda_free(weft_comm *comm, void *memory)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    if (memory == NULL || weft__cuda_enter(cuda) != WEFT_OK)
        return;
    (void)weft__cu.mem_free_async((CUdeviceptr)(uintptr_t)memory, cuda->copies);
    weft__cuda_leave();
}

weft_result weft__cuda_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    WEFT__TRY(weft__cuda_enter(cuda));
    /* Another thread may capture meanwhile: this goes into no graph. */
    (void)weft__cu.thread_exchange_stream_capture_mode(&mode);
    const CUresult enqueued = weft__cu.memcpy_async(
        (CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes, cuda->copies);
    const weft_result result = finish_copies(cuda, enqueued, "cannot copy memory");
    (void)weft__cu.thread_exchange_stream_capture_mode(&mode);
    weft__cuda_leave();
    return result;
}

/* ---------------------------------------------------------------- memory that is kept */

static void give_back_pinned(void *memory, uint64_t bytes)
{
    (void)bytes;
    (void)weft__cu.mem_free_host(memory);
}

static uint64_t whole_pages(uint64_t bytes)
{
    enum { PAGE_BYTES = 4096 };
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

weft_result weft__cuda_pinned_alloc(const struct weft__cuda *cuda, uint64_t bytes, void **memory)
{
    const uint64_t rounded = whole_pages(bytes);
    CUresult result = CUDA_SUCCESS;
    WEFT__TRY(weft__cuda_enter(cuda));
    void *allocated = weft__cuda_take_kept(give_back_pinned, cuda->context, rounded, rounded);
    if (allocated == NULL)
        result = weft__cu.mem_host_alloc(&allocated, rounded,
                                         CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    weft__cuda_leave();
    if (result != CUDA_SUCCESS)
        return weft__cuda_error(result, "no %" PRIu64 " bytes of pinned memory", bytes);
    *memory = memset(allocated, 0, rounded);
    return WEFT_OK;
}

void weft__cuda_pinned_free(const struct weft__cuda *cuda, void *memory, uint64_t bytes)
{
    weft__cuda_keep(give_back_pinned, cuda->context, memory, whole_pages(bytes));
}

static void give_back_plain(void *memory, uint64_t bytes)
{
    (void)bytes;
    (void)weft__cu.mem_free((CUdeviceptr)(uintptr_t)memory);
}

/* Kept memory that is reused may be up to twice as large. */
weft_result weft__cuda_plain_alloc(const struct weft__cuda *cuda, uint64_t bytes,
                                   CUdeviceptr *memory)
{
    CUresult result = CUDA_SUCCESS;
    WEFT__TRY(weft__cuda_enter(cuda));
    CUdeviceptr allocated = (CUdeviceptr)(uintptr_t)weft__cuda_take_kept(
        give_back_plain, cuda->context, bytes, 2 * bytes);
    if (allocated == 0)
        result = weft__cu.mem_alloc(&allocated, bytes);
    if (result == CUDA_SUCCESS)
        result = weft__cu.memset_d8_async(allocated, 0, bytes, cuda->copies);
    if (result == CUDA_SUCCESS)
        result = weft__cu.stream_synchronize(cuda->copies);
    weft__cuda_leave();
    if (result == CUDA_SUCCESS) {
        *memory = allocated;
        return WEFT_OK;
    }
    if (allocated != 0)
        weft__cuda_plain_free(cuda, allocated);
    return weft__cuda_error(result, "no %" PRIu64 " bytes of memory on CUDA device %d", bytes,
                            cuda->ordinal);
}

void weft__cuda_plain_free(const struct weft__cuda *cuda, CUdeviceptr memory)
{
    size_t bytes = 0;
    if (weft__cuda_enter(cuda) != WEFT_OK)
        return;
    (void)weft__cu.mem_get_address_range(NULL, &bytes, memory);
    weft__cuda_leave();
    weft__cuda_keep(give_back_plain, cuda->context, (void *)(uintptr_t)memory, bytes);
}

/* ---------------------------------------------------------------- use */

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
    return weft__invalid("%s is %p, which CUDA device %d cannot access; it must be memory of a "
                         "device or pinned or managed memory of the host",
                         argument, ptr, cuda->ordinal);
}
