/* SPDX-License-Identifier: MIT */
#include "machine/cuda/network_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "machine/cuda/kept.h"

static void give_back(void *kept, uint64_t bytes)
{
    struct weft__cuda_network_memory *memory = kept;
    (void)bytes;
    for (int32_t i = 0; i < memory->num_pieces; i++)
        (void)weft__cu.mem_host_unregister(memory->base + (i > 0 ? memory->ends[i - 1] : 0));
    (void)munmap(memory->base, WEFT__CUDA_NETWORK_BYTES);
    free(memory->ends);
    free(memory);
}

weft_result weft__cuda_network_memory_open(const struct weft__cuda *cuda,
                                           struct weft__cuda_network_memory **memory)
{
    *memory = weft__cuda_take_kept(give_back, cuda->context, 0, UINT64_MAX);
    if (*memory != NULL)
        return WEFT_OK;
    struct weft__cuda_network_memory *made = calloc(1, sizeof *made);
    WEFT__CHECK_MEMORY(made, "no memory for a network");
    void *base = mmap(NULL, WEFT__CUDA_NETWORK_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(made);
        return weft__system_error("mmap");
    }
    made->base = base;
    *memory = made;
    return WEFT_OK;
}

void weft__cuda_network_memory_close(const struct weft__cuda *cuda,
                                     struct weft__cuda_network_memory *memory)
{
    weft__cuda_keep(give_back, cuda->context, memory, 0);
}

static weft_result have_room_for_a_piece(struct weft__cuda_network_memory *memory)
{
    if (memory->num_pieces < memory->max_pieces)
        return WEFT_OK;
    const int32_t max_pieces = 2 * memory->max_pieces + 1;
    uint64_t *ends = realloc(memory->ends, (size_t)max_pieces * sizeof *ends);
    WEFT__CHECK_MEMORY(ends, "no memory for a network");
    memory->ends = ends;
    memory->max_pieces = max_pieces;
    return WEFT_OK;
}

/* The programs use the host's addresses: a GPU that has such memory elsewhere is refused. */
static weft_result pin(const struct weft__cuda *cuda, char *begin, uint64_t bytes)
{
    CUdeviceptr on_device = 0;
    WEFT__TRY(weft__cuda_enter(cuda));
    CUresult result = weft__cu.mem_host_register(
        begin, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    const int is_pinned = result == CUDA_SUCCESS;
    if (is_pinned)
        result = weft__cu.mem_host_get_device_pointer(&on_device, begin, 0);
    const int is_same = on_device == (CUdeviceptr)(uintptr_t)begin;
    if (is_pinned && (result != CUDA_SUCCESS || !is_same))
        (void)weft__cu.mem_host_unregister(begin);
    weft__cuda_leave();
    if (result != CUDA_SUCCESS)
        return weft__cuda_error(result, "cannot pin %" PRIu64 " bytes for the network", bytes);
    return is_same ? WEFT_OK
                   : weft__error(WEFT_ERROR_UNSUPPORTED,
                                 "CUDA device %d has memory of the host at other addresses than "
                                 "the host",
                                 cuda->ordinal);
}

weft_result weft__cuda_network_memory_pin(const struct weft__cuda *cuda,
                                          struct weft__cuda_network_memory *memory, uint64_t end)
{
    const uint64_t begin = memory->num_pieces > 0 ? memory->ends[memory->num_pieces - 1] : 0;
    if (end <= begin)
        return WEFT_OK;
    WEFT__TRY(have_room_for_a_piece(memory));
    if (mprotect(memory->base + begin, end - begin, PROT_READ | PROT_WRITE) != 0)
        return weft__system_error("mprotect");
    WEFT__TRY(pin(cuda, memory->base + begin, end - begin));
    memory->ends[memory->num_pieces++] = end;
    return WEFT_OK;
}
