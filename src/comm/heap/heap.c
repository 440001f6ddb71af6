/* SPDX-License-Identifier: MIT */
#include "comm/heap/heap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/heap/heap_kind.h"
#include "comm/heap/heap_memory.h"
#include "comm/heap/host_memory.h"
#include "comm/heap/ranges.h"

struct weft__heap {
    struct weft__heap_memory memory;
    /* Operations of several weft_ep may look up offsets while the communicator allocates. */
    pthread_mutex_t mutex; /* of ranges */
    struct weft__ranges ranges;
    uint64_t dirty_end; /* what lies behind has never been allocated, and is zero */
};

static char *own_base(const struct weft__heap *heap)
{
    return heap->memory.bases[heap->memory.comm->rank];
}

/* A rank's next step: all ranks must be about to do the same. */
struct request {
    uint64_t bytes;           /* asked for */
    uint64_t committed_bytes; /* so far */
    uint64_t offset;          /* of the allocation if there is room for it already */
    uint64_t spare_bytes;     /* if there is not: by how much the heap could grow here */
    int32_t found;            /* enum weft__ranges_result */
    int32_t unused;
};

/* The header comes first, in any heap. */
static weft_result begin_ranges(struct weft__heap *heap)
{
    uint64_t offset;
    weft__ranges_init(&heap->ranges, UINT64_MAX);
    return weft__ranges_alloc(&heap->ranges, sizeof(struct weft__heap_header), &offset) ==
                   WEFT__RANGES_OK
               ? WEFT_OK
               : weft__no_memory("no memory for the list of allocations");
}

weft_result weft__heap_create(weft_comm *comm, const weft_comm_config *config,
                              struct weft__heap **created)
{
    weft_result result;
    struct weft__heap *heap = weft__comm_calloc(comm, sizeof(*heap), "have a heap", &result);
    if (heap == NULL)
        return result;
    pthread_mutex_init(&heap->mutex, NULL);
    result = weft__comm_agree(comm, begin_ranges(heap), "have a heap");
    if (result == WEFT_OK)
        result = weft__heap_memory_create(&heap->memory, comm, config);
    if (result != WEFT_OK) {
        weft__heap_destroy(heap);
        return result;
    }
    heap->ranges.capacity = heap->memory.committed_bytes;
    /* Drivers of devices do not promise zeroes. */
    heap->dirty_end =
        comm->heap_kind->host_can_access ? sizeof(struct weft__heap_header) : UINT64_MAX;
    *created = heap;
    return WEFT_OK;
}

void weft__heap_destroy(struct weft__heap *heap)
{
    weft__ranges_destroy(&heap->ranges);
    pthread_mutex_destroy(&heap->mutex);
    if (heap->memory.comm != NULL)
        weft__heap_memory_destroy(&heap->memory);
    free(heap);
}

char *const *weft__heap_bases(const struct weft__heap *heap)
{
    return heap->memory.bases;
}

const _Atomic uint64_t *weft__heap_backed_bytes(const struct weft__heap *heap)
{
    return &heap->memory.backed_bytes;
}

/* ---------------------------------------------------------------- alloc and grow */

static const struct weft__term terms[] = {{WEFT__TERM(struct request, bytes)}};

static weft_result check_requests(const weft_comm *comm, const struct request *requests,
                                  uint64_t *spare_bytes)
{
    const struct request *first = &requests[0];
    WEFT__TRY(weft__comm_compare(comm, requests, sizeof *requests, terms, 1));
    *spare_bytes = UINT64_MAX;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (requests[rank].found == WEFT__RANGES_NO_MEMORY)
            return weft__no_memory("rank %d has no memory for its list of allocations", rank);
        if (requests[rank].found != first->found || requests[rank].offset != first->offset ||
            requests[rank].committed_bytes != first->committed_bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "the heaps of rank 0 and rank %d differ: did they free the same "
                               "allocations in the same order?",
                               rank);
        if (requests[rank].spare_bytes < *spare_bytes)
            *spare_bytes = requests[rank].spare_bytes;
    }
    return WEFT_OK;
}

/* *spare_bytes gets the least of all ranks. */
static weft_result agree(weft_comm *comm, const struct request *mine, uint64_t *spare_bytes)
{
    weft_result result;
    struct request *requests = weft__comm_gather_new(comm, WEFT_OK, mine, sizeof(*mine), &result);
    if (requests != NULL)
        result = check_requests(comm, requests, spare_bytes);
    free(requests);
    return result;
}

/* Collective: commits wanted_bytes, or at least needed_bytes if memory is short. */
static weft_result commit(weft_comm *comm, uint64_t needed_bytes, uint64_t wanted_bytes,
                          uint64_t spare_bytes)
{
    struct weft__heap *heap = comm->heap;
    uint64_t committed_bytes = heap->memory.committed_bytes, max_bytes = heap->memory.max_bytes;
    if (needed_bytes > max_bytes) {
        weft__no_memory("the heap needs %" PRIu64 " bytes; heap_max_bytes is %" PRIu64,
                        needed_bytes, max_bytes);
        return weft__lacks_addresses(weft__last_error()); /* addresses limit its default */
    }
    if (needed_bytes > committed_bytes && needed_bytes - committed_bytes > spare_bytes)
        return weft__no_memory("the heap needs %" PRIu64 " bytes more; only %" PRIu64
                               " are left for each rank",
                               needed_bytes - committed_bytes, spare_bytes);
    if (wanted_bytes < needed_bytes || wanted_bytes > max_bytes ||
        wanted_bytes - committed_bytes > spare_bytes)
        wanted_bytes = needed_bytes;
    /* There may be memory already that the network has not learned of. */
    if (needed_bytes > committed_bytes)
        WEFT__TRY(weft__heap_memory_grow(&heap->memory, wanted_bytes));
    if (comm->heap_has_grown != NULL)
        WEFT__TRY(comm->heap_has_grown(comm));
    pthread_mutex_lock(&heap->mutex);
    heap->ranges.capacity = heap->memory.committed_bytes;
    pthread_mutex_unlock(&heap->mutex);
    return WEFT_OK;
}

static enum weft__ranges_result alloc_range(struct weft__heap *heap, uint64_t bytes,
                                            uint64_t *offset)
{
    *offset = 0;
    if (bytes == 0)
        return WEFT__RANGES_OK;
    pthread_mutex_lock(&heap->mutex);
    enum weft__ranges_result found = weft__ranges_alloc(&heap->ranges, bytes, offset);
    pthread_mutex_unlock(&heap->mutex);
    return found;
}

/* Growth at least doubles the heap, so that it is rare. */
static weft_result grow_and_alloc(weft_comm *comm, struct request *request, uint64_t spare_bytes)
{
    struct weft__heap *heap = comm->heap;
    uint64_t needed_bytes = weft__ranges_needed_capacity(&heap->ranges, request->bytes);
    weft_result result = commit(comm, needed_bytes, 2 * request->committed_bytes, spare_bytes);
    if (result != WEFT_OK)
        return result;
    request->found = alloc_range(heap, request->bytes, &request->offset);
    if (request->found != WEFT__RANGES_OK)
        result = weft__no_memory("no memory for the list of allocations");
    return weft__comm_agree(comm, result, "allocate from its heap");
}

/* The allocation is this rank's: how much of it may have been written to? */
static uint64_t take_dirty(struct weft__heap *heap, uint64_t offset, uint64_t bytes)
{
    const uint64_t dirty_bytes = offset < heap->dirty_end ? heap->dirty_end - offset : 0;
    if (heap->dirty_end < offset + bytes)
        heap->dirty_end = offset + bytes;
    return dirty_bytes < bytes ? dirty_bytes : bytes;
}

weft_result weft__heap_alloc_to_zero(weft_comm *comm, uint64_t bytes, void **ptr,
                                     uint64_t *dirty_bytes)
{
    struct weft__heap *heap = comm->heap;
    struct request request = {.bytes = bytes, .committed_bytes = heap->memory.committed_bytes};
    uint64_t spare_bytes = 0;
    request.found = alloc_range(heap, bytes, &request.offset);
    if (request.found == WEFT__RANGES_FULL)
        request.spare_bytes = weft__heap_memory_spare_bytes(&heap->memory);
    weft_result result = agree(comm, &request, &spare_bytes);
    if (result == WEFT_OK && request.found == WEFT__RANGES_FULL)
        result = grow_and_alloc(comm, &request, spare_bytes);
    if (result == WEFT_OK) {
        *ptr = bytes > 0 ? own_base(heap) + request.offset : NULL;
        *dirty_bytes = take_dirty(heap, request.offset, bytes);
        return WEFT_OK;
    }
    /* All ranks go back to what they had, which was the same. */
    if (request.found == WEFT__RANGES_OK && bytes > 0) {
        pthread_mutex_lock(&heap->mutex);
        weft__ranges_free(&heap->ranges, request.offset);
        pthread_mutex_unlock(&heap->mutex);
    }
    return result;
}

weft_result weft__heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    uint64_t dirty_bytes;
    return weft__heap_alloc_to_zero(comm, bytes, ptr, &dirty_bytes);
}

weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes)
{
    struct weft__heap *heap = comm->heap;
    uint64_t spare_bytes = 0;
    const struct request request = {.bytes = bytes,
                                    .committed_bytes = heap->memory.committed_bytes,
                                    .spare_bytes = weft__heap_memory_spare_bytes(&heap->memory)};
    weft_result result = agree(comm, &request, &spare_bytes);
    if (result != WEFT_OK || bytes <= heap->ranges.capacity)
        return result;
    return commit(comm, bytes, bytes, spare_bytes);
}

weft_result weft__heap_free(struct weft__heap *heap, void *ptr)
{
    uintptr_t offset = (uintptr_t)ptr - (uintptr_t)own_base(heap);
    pthread_mutex_lock(&heap->mutex);
    /* Offset 0 is the header, which is not the caller's. */
    uint64_t freed_bytes = offset > 0 ? weft__ranges_free(&heap->ranges, offset) : 0;
    pthread_mutex_unlock(&heap->mutex);
    return freed_bytes > 0 ? WEFT_OK
                           : weft__invalid("ptr is %p; it must come from weft_heap_alloc of this "
                                           "communicator and not have been freed",
                                           ptr);
}

/* ---------------------------------------------------------------- questions */

void weft__heap_query(struct weft__heap *heap, weft_heap_info *info)
{
    pthread_mutex_lock(&heap->mutex);
    *info = (weft_heap_info){.committed_bytes = heap->ranges.capacity,
                             .used_bytes = heap->ranges.used_bytes,
                             .largest_free_bytes = weft__ranges_largest_free(&heap->ranges),
                             .max_bytes = heap->memory.max_bytes,
                             .page_bytes = heap->memory.page_bytes};
    pthread_mutex_unlock(&heap->mutex);
}

int weft__heap_contains(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                        uint64_t *offset)
{
    uint64_t distance = (uintptr_t)ptr - (uintptr_t)own_base(heap);
    /* The lock is the only thing that changes. */
    pthread_mutex_t *mutex = (pthread_mutex_t *)&heap->mutex;
    pthread_mutex_lock(mutex);
    int contained = distance >= sizeof(struct weft__heap_header) &&
                    weft__ranges_contain(&heap->ranges, distance, bytes);
    pthread_mutex_unlock(mutex);
    *offset = distance;
    return contained;
}

weft_result weft__heap_offset(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                              const char *argument, uint64_t *offset)
{
    uint64_t distance = 0;
    if ((ptr != NULL || bytes > 0) && !weft__heap_contains(heap, ptr, bytes, &distance))
        return weft__invalid("%s is %p; its %" PRIu64
                             " bytes must lie in one allocation of the communicator's heap",
                             argument, ptr, bytes);
    *offset = distance;
    return WEFT_OK;
}

void *weft__heap_peer(const struct weft__heap *heap, const void *ptr, int32_t rank)
{
    const struct weft__heap_memory *memory = &heap->memory;
    if (rank < 0 || rank >= memory->comm->num_ranks || memory->bases[rank] == NULL)
        return NULL;
    uint64_t offset = (uintptr_t)ptr - (uintptr_t)own_base(heap);
    return ptr != NULL && offset < memory->committed_bytes ? memory->bases[rank] + offset : NULL;
}
