/* SPDX-License-Identifier: MIT */
#include "ops/multicast.h"

#include "ops/windows.h"

static weft_result allocate_in_heap(weft_comm *comm, uint64_t num_bytes,
                                    struct weft__multicast *object)
{
    void *memory;
    WEFT__TRY(weft__heap_alloc(comm, num_bytes, &memory));
    object->memory = memory;
    WEFT__TRY(weft__heap_offset(comm->heap, memory, num_bytes, "multicast object",
                                &object->device.offset));
    /* Nobody may write before everybody has zeroed. */
    return weft__comm_agree(comm, weft__machine_zero(comm, memory, num_bytes),
                            "zero its part of a multicast object");
}

weft_result weft__multicast_create(weft_comm *comm, uint64_t num_bytes,
                                   struct weft__multicast *object)
{
    *object = (struct weft__multicast){.device = {.rank = comm->rank,
                                                  .num_ranks = comm->num_ranks,
                                                  .bases = comm->windows->table}};
    const weft_result result = allocate_in_heap(comm, num_bytes, object);
    if (result != WEFT_OK)
        weft__multicast_destroy(comm, object);
    return result;
}

void weft__multicast_destroy(weft_comm *comm, struct weft__multicast *object)
{
    if (object->memory != NULL)
        (void)weft__heap_free(comm->heap, object->memory);
    *object = (struct weft__multicast){0};
}
