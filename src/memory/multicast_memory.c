/* SPDX-License-Identifier: MIT */
#include "memory/multicast_memory.h"

#include "memory/windows.h"

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

static weft_result allocate(weft_comm *comm, uint64_t num_bytes, struct weft__multicast *object)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    WEFT__TRY(allocate_in_heap(comm, num_bytes, object));
    return machine->multicast_create != NULL
               ? machine->multicast_create(comm, num_bytes, &object->switched)
               : WEFT_OK;
}

weft_result weft__multicast_create(weft_comm *comm, uint64_t num_bytes,
                                   struct weft__multicast *object)
{
    *object = (struct weft__multicast){.device = {.rank = comm->rank,
                                                  .num_ranks = comm->num_ranks,
                                                  .bases = comm->windows->table}};
    const weft_result result = allocate(comm, num_bytes, object);
    if (result != WEFT_OK)
        weft__multicast_destroy(comm, object);
    return result;
}

/* Those whose bits may depend on the order are promised to be the same on all ranks, no more
 * (weft.h). */
static int switch_reduces(struct wp_reduction reduction)
{
    return reduction.op == WP_REDUCTION_SUM &&
           (reduction.dtype == WEFT_FP32 || reduction.dtype == WEFT_BF16 ||
            reduction.dtype == WEFT_FP16);
}

struct wp_multicast weft__multicast_for(const struct weft__multicast *object,
                                        struct wp_reduction reduction)
{
    struct wp_multicast device = object->device;
    if (reduction.dtype == WEFT_DTYPE_NONE || switch_reduces(reduction)) {
        device.own_rows = object->switched.own;
        device.all_rows = object->switched.all;
    }
    return device;
}

void weft__multicast_destroy(weft_comm *comm, struct weft__multicast *object)
{
    if (object->switched.own != NULL)
        weft__machine_of(comm)->multicast_destroy(comm, &object->switched);
    if (object->memory != NULL)
        (void)weft__heap_free(comm->heap, object->memory);
    *object = (struct weft__multicast){0};
}
