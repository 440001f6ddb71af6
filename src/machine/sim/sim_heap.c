/* SPDX-License-Identifier: MIT */
/* Heaps of the sim: takes the place of shared memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine/sim/sim_comm.h"

/* Behind each allocation are bytes that are nobody's, so that accesses just behind it are
 * reported. */
enum {
    HEAP_BYTES = 64 << 20,
    HEADER_BYTES = 256,
    GUARD_BYTES = 256,
    NUM_REGIONS = 2 * SIM_MAX_RANKS
};

/* A heap's memory lasts as long as the run, since peers keep it mapped after its owner has gone; it
 * is used again in the next. */
struct region {
    const struct weft__link *link;
    int32_t rank; /* of the owner in it */
    uint64_t used_bytes;
};

static char *arena; /* the memory of all regions, one after another */
static struct region regions[NUM_REGIONS];
static int32_t num_regions; /* of this run */

static const struct region *region_of(const void *address, uint64_t *offset)
{
    const uint64_t in_arena = (uintptr_t)address - (uintptr_t)arena;
    *offset = in_arena % (uint64_t)HEAP_BYTES;
    return in_arena < (uint64_t)num_regions * (uint64_t)HEAP_BYTES
               ? &regions[in_arena / (uint64_t)HEAP_BYTES]
               : NULL;
}

static char *base_of(int32_t region)
{
    return arena + (uint64_t)region * (uint64_t)HEAP_BYTES;
}

static weft_result map_arena(void)
{
    if (arena != NULL)
        return WEFT_OK;
    void *memory = mmap(NULL, (size_t)NUM_REGIONS * (size_t)HEAP_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return weft__no_memory("no address space for %d heaps", NUM_REGIONS);
    arena = memory;
    return WEFT_OK;
}

void sim_heap_reset(void)
{
    for (int32_t i = 0; i < num_regions; i++) {
        memset(base_of(i), 0, regions[i].used_bytes);
        regions[i].used_bytes = 0;
    }
    num_regions = 0;
}

weft_result sim_heap_create(weft_comm *comm)
{
    WEFT__TRY(map_arena());
    struct weft__heap *heap = num_regions < NUM_REGIONS ? calloc(1, sizeof *heap) : NULL;
    WEFT__CHECK_MEMORY(heap, "no memory for a heap");
    heap->rank = comm->rank;
    heap->num_ranks = comm->num_ranks;
    heap->region = num_regions++;
    regions[heap->region].link = comm->link;
    regions[heap->region].rank = comm->rank;
    weft__ranges_init(&heap->ranges, HEAP_BYTES);
    uint64_t header;
    (void)weft__ranges_alloc(&heap->ranges, HEADER_BYTES, &header);
    heap->bases[comm->rank] = base_of(heap->region);
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

int weft__heap_contains(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                        uint64_t *offset)
{
    *offset = (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank];
    return *offset < (uint64_t)HEAP_BYTES && weft__ranges_contain(&heap->ranges, *offset, bytes);
}

weft_result weft__heap_offset(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                              const char *argument, uint64_t *offset)
{
    *offset = 0;
    if ((ptr == NULL && bytes == 0) || weft__heap_contains(heap, ptr, bytes, offset))
        return WEFT_OK;
    return weft__invalid("%s is not in the heap of this communicator", argument);
}

weft_result weft__heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    uint64_t all[SIM_MAX_RANKS] = {0}, offset;
    WEFT__TRY(weft__comm_all_gather(comm, &bytes, sizeof bytes, all));
    WEFT__TRY(
        weft__comm_compare(comm, all, sizeof bytes, &(struct weft__term){"bytes", 0, NULL}, 1));
    *ptr = NULL;
    if (bytes == 0)
        return WEFT_OK;
    if (bytes > (uint64_t)HEAP_BYTES ||
        weft__ranges_alloc(&comm->heap->ranges, bytes + GUARD_BYTES, &offset) != WEFT__RANGES_OK)
        return weft__no_memory("the heap has no %llu bytes free", (unsigned long long)bytes);
    *ptr = comm->heap->bases[comm->rank] + offset;
    struct region *region = &regions[comm->heap->region];
    if (region->used_bytes < offset + bytes + GUARD_BYTES)
        region->used_bytes = offset + bytes + GUARD_BYTES;
    sim_shadow_set(*ptr, bytes, SIM_CONTENT_UNWRITTEN);
    sim_words_forget(*ptr, bytes);
    return WEFT_OK;
}

weft_result weft__heap_alloc_to_zero(weft_comm *comm, uint64_t bytes, void **ptr,
                                     uint64_t *dirty_bytes)
{
    *dirty_bytes = bytes;
    return weft__heap_alloc(comm, bytes, ptr);
}

weft_result weft__heap_free(struct weft__heap *heap, void *ptr)
{
    if (ptr == NULL)
        return WEFT_OK;
    const uint64_t bytes =
        weft__ranges_free(&heap->ranges, (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank]);
    if (bytes == 0)
        return weft__invalid("ptr is not an allocation of the heap");
    const weft_comm *comm = regions[heap->region].link->comms[heap->rank];
    /* After a failure nothing is allocated any more. So what is freed then is nobody's, but still
     * mapped by peers, which may not have learned of the failure: their writes harm nobody. */
    if (atomic_load(&comm->status.result) == WEFT_OK) {
        sim_shadow_set(ptr, bytes, SIM_CONTENT_FREED);
        if (!sim_world->result->fault_struck)
            sim_slots_check_taken(ptr, bytes);
    }
    sim_slots_forget(ptr, bytes);
    sim_tagged_forget(ptr, bytes);
    return WEFT_OK;
}

weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes)
{
    (void)comm;
    if (bytes <= (uint64_t)HEAP_BYTES)
        return WEFT_OK;
    return weft__no_memory("the sim machine's heaps do not grow");
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
    const int is_mapped = rank >= 0 && rank < heap->num_ranks && heap->bases[rank] != NULL;
    return offset < (uint64_t)HEAP_BYTES && is_mapped ? heap->bases[rank] + offset : NULL;
}

int32_t sim_heap_rank(const void *address, uint64_t *offset)
{
    const struct region *region = region_of(address, offset);
    return region != NULL ? region->rank : -1;
}

int sim_heap_is_left(const weft_comm *comm, int32_t rank, const void *word)
{
    uint64_t offset;
    const weft_comm *target = comm->link->comms[rank];
    const int is_in_heap = region_of(word, &offset) != NULL;
    return target == NULL ||
           (is_in_heap && !weft__ranges_contain(&target->heap->ranges, offset, sizeof(uint64_t)) &&
            weft__ranges_contain(&comm->heap->ranges, offset, sizeof(uint64_t)));
}

int sim_heap_is_mapped(const void *address, int32_t world_rank)
{
    uint64_t offset;
    const struct region *region = region_of(address, &offset);
    return region == NULL || world_rank == SIM_NO_RANK || region->link->is_member[world_rank];
}
