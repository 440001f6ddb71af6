/* SPDX-License-Identifier: MIT */
#include "comm/heap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/heap_memory.h"
#include "comm/ranges.h"

struct weft__heap {
    struct weft__heap_memory memory;
    /* Operations of several weft_ep may look up offsets while the communicator allocates. */
    pthread_mutex_t mutex; /* of ranges */
    struct weft__ranges ranges;
};

/* What a rank has done for an allocation or growth, before it knows whether all could. */
struct vote {
    uint64_t bytes;           /* asked for */
    uint64_t offset;          /* of the allocation */
    uint64_t committed_bytes; /* now */
    int32_t result;
    int32_t unused;
};

weft_result weft__heap_create(weft_comm *comm, const weft_comm_config *config,
                              const struct weft__identity *table, int socket_fd,
                              struct weft__heap **created)
{
    uint64_t header_offset;
    struct weft__heap *heap = calloc(1, sizeof(*heap));
    if (heap == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a heap");
    weft_result result = weft__heap_memory_create(&heap->memory, comm, config, table, socket_fd);
    if (result != WEFT_OK) {
        free(heap);
        return result;
    }
    pthread_mutex_init(&heap->mutex, NULL);
    weft__ranges_init(&heap->ranges, heap->memory.committed_bytes);
    if (weft__ranges_alloc(&heap->ranges, sizeof(struct weft__heap_header), &header_offset) !=
        WEFT__RANGES_OK) {
        weft__heap_destroy(heap);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a heap");
    }
    *created = heap;
    return WEFT_OK;
}

void weft__heap_destroy(struct weft__heap *heap)
{
    weft__ranges_destroy(&heap->ranges);
    pthread_mutex_destroy(&heap->mutex);
    weft__heap_memory_destroy(&heap->memory);
    free(heap);
}

char *const *weft__heap_bases(const struct weft__heap *heap)
{
    return heap->memory.bases;
}

/* ---------------------------------------------------------------- alloc and grow */

static weft_result commit(struct weft__heap *heap, uint64_t bytes)
{
    weft_result result = weft__heap_memory_grow(&heap->memory, bytes);
    if (result == WEFT_OK)
        heap->ranges.capacity = heap->memory.committed_bytes;
    return result;
}

/* At least doubles the heap if it may grow that far, so that growth is rare. */
static weft_result commit_for(struct weft__heap *heap, uint64_t bytes)
{
    uint64_t needed_bytes = weft__ranges_needed_capacity(&heap->ranges, bytes);
    uint64_t doubled_bytes = 2 * heap->memory.committed_bytes;
    if (doubled_bytes > heap->memory.max_bytes)
        doubled_bytes = heap->memory.max_bytes;
    return commit(heap, needed_bytes > doubled_bytes ? needed_bytes : doubled_bytes);
}

static weft_result alloc_here(struct weft__heap *heap, uint64_t bytes, uint64_t *offset)
{
    if (bytes == 0)
        return WEFT_OK;
    enum weft__ranges_result found = weft__ranges_alloc(&heap->ranges, bytes, offset);
    if (found == WEFT__RANGES_FULL) {
        weft_result result = commit_for(heap, bytes);
        if (result != WEFT_OK)
            return result;
        found = weft__ranges_alloc(&heap->ranges, bytes, offset);
    }
    return found == WEFT__RANGES_OK
               ? WEFT_OK
               : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for the heap's list of ranges");
}

static weft_result check_votes(const struct vote *votes, int32_t rank, int32_t num_ranks)
{
    int32_t failed = -1;
    for (int32_t other = 0; other < num_ranks; other++) {
        if (votes[other].bytes != votes[0].bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree: bytes is %" PRIu64 " on rank 0 and %" PRIu64
                               " on rank %d",
                               votes[0].bytes, votes[other].bytes, other);
        if (failed < 0 && votes[other].result != WEFT_OK)
            failed = other;
    }
    /* The own error has its message already. */
    if (votes[rank].result != WEFT_OK)
        return (weft_result)votes[rank].result;
    if (failed >= 0)
        return weft__error((weft_result)votes[failed].result,
                           "rank %d cannot give %" PRIu64 " bytes to the heap: %s", failed,
                           votes[failed].bytes,
                           weft_result_string((weft_result)votes[failed].result));
    for (int32_t other = 1; other < num_ranks; other++)
        if (votes[other].offset != votes[0].offset ||
            votes[other].committed_bytes != votes[0].committed_bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "the heaps of rank 0 and rank %d differ: did they free the same "
                               "allocations in the same order?",
                               other);
    return WEFT_OK;
}

static weft_result gather_votes(weft_comm *comm, const struct vote *mine)
{
    struct vote *votes = malloc((size_t)comm->num_ranks * sizeof(*votes));
    if (votes == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    weft_result result = weft__comm_all_gather(comm, mine, sizeof(*mine), votes);
    if (result == WEFT_OK)
        result = check_votes(votes, comm->rank, comm->num_ranks);
    free(votes);
    return result;
}

static void shrink(struct weft__heap *heap, uint64_t committed_bytes)
{
    weft__heap_memory_shrink(&heap->memory, committed_bytes);
    heap->ranges.capacity = heap->memory.committed_bytes;
}

weft_result weft__heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    struct weft__heap *heap = comm->heap;
    struct vote vote = {.bytes = bytes};
    pthread_mutex_lock(&heap->mutex);
    uint64_t committed_before = heap->memory.committed_bytes;
    weft_result mine = alloc_here(heap, bytes, &vote.offset);
    vote.committed_bytes = heap->memory.committed_bytes;
    vote.result = mine;
    pthread_mutex_unlock(&heap->mutex);
    weft_result result = gather_votes(comm, &vote);
    if (result == WEFT_OK) {
        *ptr = bytes > 0 ? heap->memory.bases[comm->rank] + vote.offset : NULL;
        return WEFT_OK;
    }
    /* All ranks go back to what they had, which was the same. */
    pthread_mutex_lock(&heap->mutex);
    if (mine == WEFT_OK && bytes > 0)
        weft__ranges_free(&heap->ranges, vote.offset);
    shrink(heap, committed_before);
    pthread_mutex_unlock(&heap->mutex);
    return result;
}

weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes)
{
    struct weft__heap *heap = comm->heap;
    struct vote vote = {.bytes = bytes};
    pthread_mutex_lock(&heap->mutex);
    uint64_t committed_before = heap->memory.committed_bytes;
    vote.result = bytes > committed_before ? commit(heap, bytes) : WEFT_OK;
    vote.committed_bytes = heap->memory.committed_bytes;
    pthread_mutex_unlock(&heap->mutex);
    weft_result result = gather_votes(comm, &vote);
    if (result == WEFT_OK)
        return WEFT_OK;
    pthread_mutex_lock(&heap->mutex);
    shrink(heap, committed_before);
    pthread_mutex_unlock(&heap->mutex);
    return result;
}

weft_result weft__heap_free(struct weft__heap *heap, void *ptr)
{
    uintptr_t offset = (uintptr_t)ptr - (uintptr_t)heap->memory.bases[heap->memory.rank];
    pthread_mutex_lock(&heap->mutex);
    /* Offset 0 is the header, which is not the caller's. */
    uint64_t freed_bytes = offset > 0 ? weft__ranges_free(&heap->ranges, offset) : 0;
    pthread_mutex_unlock(&heap->mutex);
    return freed_bytes > 0
               ? WEFT_OK
               : weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                             "ptr is %p; it must come from weft_heap_alloc of this communicator "
                             "and not have been freed",
                             ptr);
}

/* ---------------------------------------------------------------- questions */

void weft__heap_query(struct weft__heap *heap, weft_heap_info *info)
{
    pthread_mutex_lock(&heap->mutex);
    *info = (weft_heap_info){.committed_bytes = heap->memory.committed_bytes,
                             .used_bytes = heap->ranges.used_bytes,
                             .largest_free_bytes = weft__ranges_largest_free(&heap->ranges),
                             .max_bytes = heap->memory.max_bytes,
                             .page_bytes = heap->memory.page_bytes};
    pthread_mutex_unlock(&heap->mutex);
}

weft_result weft__heap_offset(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                              const char *argument, uint64_t *offset)
{
    if (ptr == NULL && bytes == 0) {
        *offset = 0;
        return WEFT_OK;
    }
    uint64_t distance = (uintptr_t)ptr - (uintptr_t)heap->memory.bases[heap->memory.rank];
    /* The lock is the only thing that changes. */
    pthread_mutex_t *mutex = (pthread_mutex_t *)&heap->mutex;
    pthread_mutex_lock(mutex);
    int contained = distance >= sizeof(struct weft__heap_header) &&
                    weft__ranges_contain(&heap->ranges, distance, bytes);
    pthread_mutex_unlock(mutex);
    if (!contained)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "%s is %p; its %" PRIu64
                           " bytes must lie in one allocation of the communicator's heap",
                           argument, ptr, bytes);
    *offset = distance;
    return WEFT_OK;
}

void *weft__heap_peer(const struct weft__heap *heap, const void *ptr, int32_t rank)
{
    const struct weft__heap_memory *memory = &heap->memory;
    if (rank < 0 || rank >= memory->num_ranks || memory->bases[rank] == NULL)
        return NULL;
    uint64_t offset = (uintptr_t)ptr - (uintptr_t)memory->bases[memory->rank];
    return ptr != NULL && offset < memory->committed_bytes ? memory->bases[rank] + offset : NULL;
}
