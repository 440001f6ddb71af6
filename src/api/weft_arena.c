/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>

#include "api/check.h"
#include "api/destroy.h"
#include "comm/comm.h"
#include "comm/heap/ranges.h"
#include "machine/host.h"

struct weft_arena {
    weft_comm *comm;
    char *base; /* NULL: an arena of 0 bytes */
    struct weft__ranges ranges;
};

/* The ranks' blocks of the heap are alike, so they have the size of the largest. */
static weft_result largest_of_ranks(weft_comm *comm, uint64_t bytes, uint64_t *largest)
{
    weft_result result;
    uint64_t *all = weft__comm_gather_new(comm, WEFT_OK, &bytes, sizeof(bytes), &result);
    *largest = 0;
    for (int32_t rank = 0; all != NULL && rank < comm->num_ranks; rank++)
        *largest = all[rank] > *largest ? all[rank] : *largest;
    free(all);
    return result;
}

weft_result weft_arena_create(weft_comm *comm, uint64_t bytes, weft_arena **created)
{
    void *base;
    uint64_t largest_bytes = 0;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(created, "arena"));
    weft__comm_enter(comm, WEFT__CALL_ARENA_CREATE);
    WEFT__TRY(largest_of_ranks(comm, bytes, &largest_bytes));
    weft_result result;
    weft_arena *arena = weft__comm_calloc(comm, sizeof(*arena), "have an arena", &result);
    if (arena == NULL)
        return result;
    result = weft__heap_alloc(comm, largest_bytes, &base);
    if (result != WEFT_OK) {
        free(arena);
        return result;
    }
    arena->comm = comm;
    arena->base = base;
    weft__ranges_init(&arena->ranges, bytes);
    return weft__give_on_all(comm, WEFT__KIND_ARENA, arena, comm, created);
}

void weft__arena_end(weft_arena *arena)
{
    if (arena->base != NULL)
        (void)weft__heap_free(arena->comm->heap, arena->base);
    weft__ranges_destroy(&arena->ranges);
    free(arena);
}

weft_result weft_arena_destroy(weft_arena *arena)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_ARENA, arena, "arena"));
    return weft__destroy(WEFT__KIND_ARENA, arena);
}

weft_result weft_arena_alloc(weft_arena *arena, uint64_t bytes, void **ptr)
{
    uint64_t offset;
    WEFT__TRY(weft__object_check(WEFT__KIND_ARENA, arena, "arena"));
    WEFT__TRY(weft__check_not_null(ptr, "ptr"));
    if (bytes == 0) {
        *ptr = NULL;
        return WEFT_OK;
    }
    switch (weft__ranges_alloc(&arena->ranges, bytes, &offset)) {
    case WEFT__RANGES_OK:
        *ptr = arena->base + offset;
        return WEFT_OK;
    case WEFT__RANGES_FULL:
        return weft__no_memory("bytes is %" PRIu64 "; the arena has %" PRIu64 " of its %" PRIu64
                               " bytes free, the largest piece has %" PRIu64,
                               bytes, arena->ranges.capacity - arena->ranges.used_bytes,
                               arena->ranges.capacity, weft__ranges_largest_free(&arena->ranges));
    case WEFT__RANGES_NO_MEMORY:
        break;
    }
    return weft__no_memory("no memory for the arena's list of ranges");
}

weft_result weft_arena_free(weft_arena *arena, void *ptr)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_ARENA, arena, "arena"));
    if (ptr == NULL)
        return WEFT_OK;
    uint64_t offset = (uintptr_t)ptr - (uintptr_t)arena->base;
    if (weft__ranges_free(&arena->ranges, offset) > 0)
        return WEFT_OK;
    return weft__invalid(
        "ptr is %p; it must come from weft_arena_alloc of this arena and not have been freed", ptr);
}

weft_result weft_arena_reset(weft_arena *arena)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_ARENA, arena, "arena"));
    weft__ranges_free_all(&arena->ranges);
    return WEFT_OK;
}
