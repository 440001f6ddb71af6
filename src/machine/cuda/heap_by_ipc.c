/* SPDX-License-Identifier: MIT */
/* Heaps of device memory where allocations have no file descriptors: shared by CUDA IPC handles.
 * Their addresses are CUDA's to choose, so a heap cannot grow. */
#include <string.h>

#include "comm/heap/heap_kind.h"
#include "machine/cuda/sharing.h"

_Static_assert(sizeof(struct weft__cuda_name) <= sizeof((struct weft__heap_handle *)0)->name,
               "a name fits its place");

static void get_limits(const weft_comm *comm, struct weft__heap_limits *limits)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    size_t free_bytes = 0, total_bytes = 0;
    *limits = (struct weft__heap_limits){.page_bytes = 2 << 20};
    if (weft__cuda_enter(cuda) != WEFT_OK)
        return;
    (void)weft__cu.mem_get_info(&free_bytes, &total_bytes);
    weft__cuda_leave();
    limits->spare_bytes = free_bytes / (uint64_t)cuda->num_ranks_here;
    /* All of it is taken at once, so it leaves most to others. */
    limits->default_max_bytes = total_bytes / 16;
}

static weft_result reserve(weft_comm *comm, uint64_t max_bytes, char **base)
{
    (void)comm;
    (void)max_bytes;
    (void)base;
    return WEFT_OK;
}

static weft_result commit_and_name(const struct weft__cuda *cuda, struct weft__heap_part *part)
{
    struct weft__cuda_name name;
    CUdeviceptr address = 0;
    WEFT__TRY(weft__cuda_plain_alloc(cuda, part->end_bytes, &address));
    const weft_result result = weft__cuda_name(cuda, address, &name);
    if (result != WEFT_OK) {
        weft__cuda_plain_free(cuda, address);
        return result;
    }
    memcpy(part->handle.name, &name, sizeof name);
    part->base = (char *)(uintptr_t)address;
    return WEFT_OK;
}

static weft_result commit(weft_comm *comm, struct weft__heap_part *part)
{
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(comm)));
    const weft_result result = commit_and_name(weft__cuda_of(comm), part);
    weft__cuda_leave();
    return result;
}

/* IPC shares plain allocations only. */
static void release(weft_comm *comm, const struct weft__heap_part *part)
{
    weft__cuda_plain_free(weft__cuda_of(comm), (CUdeviceptr)(uintptr_t)part->base);
}

static weft_result map(weft_comm *comm, int32_t rank, struct weft__heap_part *part)
{
    struct weft__cuda_name name;
    CUdeviceptr address = 0;
    memcpy(&name, part->handle.name, sizeof name);
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(comm)));
    const weft_result result = weft__cuda_open_name(comm, rank, &name, &address);
    weft__cuda_leave();
    if (result == WEFT_OK)
        part->base = (char *)(uintptr_t)address;
    return result;
}

static void unmap(weft_comm *comm, int32_t rank, const struct weft__heap_part *part)
{
    if (rank == comm->rank) {
        release(comm, part);
        return;
    }
    if (!weft__comm_is_in_process(comm, rank))
        weft__cuda_close_name(comm, (CUdeviceptr)(uintptr_t)part->base);
}

const struct weft__heap_kind weft__heap_of_device_by_ipc = {
    .name = "CUDA IPC",
    .sharing = WEFT__HEAP_SHARED_BY_NAME,
    .limits = get_limits,
    .reserve = reserve,
    .commit = commit,
    .release = release,
    .map = map,
    .unmap = unmap,
};
