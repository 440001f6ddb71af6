/* SPDX-License-Identifier: MIT */
/* Heaps of the sim: takes the place of shared memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine/sim/comm.h"

enum { HEAP_BYTES = 64 << 20, HEADER_BYTES = 256 };

/* A heap's memory lasts as long as the run, since peers keep it mapped after its owner has gone; it is
 * used again in the next. */
struct sim_region {
    struct sim_region *next;
    char *base;
    uint64_t used_bytes;
};

static struct sim_region *used_regions, *free_regions;

static struct sim_region *take_region(void)
{
    struct sim_region *region = free_regions;
    if (region != NULL) {
        free_regions = region->next;
    } else {
        region = calloc(1, sizeof *region);
        char *base = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region == NULL || base == MAP_FAILED) {
            free(region);
            return NULL;
        }
        region->base = base;
    }
    region->next = used_regions;
    used_regions = region;
    return region;
}

void sim_heap_reset(void)
{
    while (used_regions != NULL) {
        struct sim_region *region = used_regions;
        used_regions = region->next;
        memset(region->base, 0, region->used_bytes);
        region->used_bytes = 0;
        region->next = free_regions;
        free_regions = region;
    }
}

weft_result sim_heap_create(weft_comm *comm)
{
    struct weft__heap *heap = calloc(1, sizeof *heap);
    struct sim_region *region = take_region();
    if (heap == NULL || region == NULL) {
        free(heap);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a heap");
    }
    heap->rank = comm->rank;
    heap->num_ranks = comm->num_ranks;
    heap->region = region;
    weft__ranges_init(&heap->ranges, HEAP_BYTES);
    uint64_t header;
    (void)weft__ranges_alloc(&heap->ranges, HEADER_BYTES, &header);
    heap->bases[comm->rank] = region->base;
    comm->heap = heap;
    return WEFT_OK;
}

char *const *weft__heap_bases(const struct weft__heap *heap)
{
    return heap->bases;
}

void weft__heap_destroy(struct weft__heap *heap)
{
    if (heap == NULL)
        return;
    weft__ranges_destroy(&heap->ranges);
    free(heap);
}

weft_result weft__heap_offset(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                              const char *argument, uint64_t *offset)
{
    *offset = 0;
    if (ptr == NULL && bytes == 0)
        return WEFT_OK;
    *offset = (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank];
    if (*offset < (uint64_t)HEAP_BYTES && weft__ranges_contain(&heap->ranges, *offset, bytes))
        return WEFT_OK;
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%s is not in the heap of this communicator",
                       argument);
}

weft_result weft__heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    uint64_t all[SIM_MAX_RANKS] = {0}, offset;
    WEFT__TRY(weft__comm_all_gather(comm, &bytes, sizeof bytes, all));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (all[rank] != bytes)
            return weft__error(WEFT_ERROR_MISMATCH, "ranks disagree on bytes: rank %d differs",
                               rank);
    }
    *ptr = NULL;
    if (bytes == 0)
        return WEFT_OK;
    if (weft__ranges_alloc(&comm->heap->ranges, bytes, &offset) != WEFT__RANGES_OK)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "the heap has no %llu bytes free",
                           (unsigned long long)bytes);
    *ptr = comm->heap->bases[comm->rank] + offset;
    if (comm->heap->region->used_bytes < offset + bytes)
        comm->heap->region->used_bytes = offset + bytes;
    sim_shadow_set(*ptr, bytes, SIM_CONTENT_UNWRITTEN);
    return WEFT_OK;
}

/* Whether the heap's communicator has: then nobody can allocate again what is freed, and a rank that
 * has not learned of the failure yet may still write there. */
static int has_failed(const struct weft__heap *heap)
{
    for (struct weft__link *link = sim_links; link != NULL; link = link->next) {
        const weft_comm *comm = link->comms[heap->rank];
        if (comm != NULL && comm->heap == heap)
            return atomic_load(&comm->status.result) != WEFT_OK;
    }
    return 0;
}

weft_result weft__heap_free(struct weft__heap *heap, void *ptr)
{
    if (ptr == NULL)
        return WEFT_OK;
    const uint64_t bytes =
        weft__ranges_free(&heap->ranges, (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank]);
    if (bytes == 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "ptr is not an allocation of the heap");
    if (!has_failed(heap))
        sim_shadow_set(ptr, bytes, SIM_CONTENT_FREED);
    return WEFT_OK;
}

weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes)
{
    (void)comm;
    if (bytes <= (uint64_t)HEAP_BYTES)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "the sim machine's heaps do not grow");
}

void weft__heap_query(struct weft__heap *heap, weft_heap_info *info)
{
    *info = (weft_heap_info){.committed_bytes = (uint64_t)HEAP_BYTES,
                             .used_bytes = heap->ranges.used_bytes,
                             .largest_free_bytes = weft__ranges_largest_free(&heap->ranges),
                             .max_bytes = (uint64_t)HEAP_BYTES,
                             .page_bytes = 4096};
}

void *weft__heap_peer(const struct weft__heap *heap, const void *ptr, int32_t rank)
{
    const uint64_t offset = (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank];
    return offset < (uint64_t)HEAP_BYTES && rank >= 0 && rank < heap->num_ranks
               ? heap->bases[rank] + offset
               : NULL;
}

int32_t sim_heap_rank(const void *address, uint64_t *offset)
{
    for (struct weft__link *link = sim_links; link != NULL; link = link->next) {
        for (int32_t rank = 0; rank < link->num_ranks; rank++) {
            if (link->heap_bases[rank] == NULL)
                continue;
            *offset = (uintptr_t)address - (uintptr_t)link->heap_bases[rank];
            if (*offset < (uint64_t)HEAP_BYTES)
                return rank;
        }
    }
    return -1;
}
