/* SPDX-License-Identifier: MIT */
/*
 * The memory of a rank with a GPU that the network reaches: pinned memory of the host
 * (network_memory.c), and the heap, by functions (network_heap.c).
 */
#include "machine/cuda/network.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "comm/heap/ranges.h"
#include "machine/cuda/network_heap.h"
#include "machine/cuda/network_memory.h"
#include "net/attach.h"

enum {
    PAGE_BYTES = 1 << 16,
    NUM_SLOTS = 1024,
    QUEUE_BYTES = sizeof(struct weft__work_queue) + NUM_SLOTS * sizeof(struct wp_access)
};

struct weft__cuda_network {
    struct weft__cuda_network_memory *memory;
    struct weft__ranges ranges; /* of the memory */
    _Atomic uint64_t num_bytes; /* that may be written: up to the highest end of any part so far */
    struct weft__work_queue *queue; /* pinned */
    void *num_reserved;
    struct weft__cuda_network_heap heap;
    struct weft__cuda_gpudirect gpudirect;
};

/* ---------------------------------------------------------------- memory */

static weft_result alloc_part(const struct weft__cuda *cuda, uint64_t bytes, uint64_t *offset)
{
    struct weft__cuda_network *network = cuda->network;
    const uint64_t rounded = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (weft__ranges_alloc(&network->ranges, rounded, offset) != WEFT__RANGES_OK)
        return weft__no_memory("no room for %" PRIu64 " bytes for the network", bytes);
    const weft_result result =
        weft__cuda_network_memory_pin(cuda, network->memory, *offset + rounded);
    if (result != WEFT_OK) {
        weft__ranges_free(&network->ranges, *offset);
        return result;
    }
    memset(network->memory->base + *offset, 0, rounded);
    if (*offset + rounded > atomic_load(&network->num_bytes))
        atomic_store(&network->num_bytes, *offset + rounded);
    return WEFT_OK;
}

/* The pages stay pinned: late messages may still write to them. */
static void free_part(const struct weft__cuda *cuda, uint64_t offset)
{
    weft__ranges_free(&cuda->network->ranges, offset);
}

weft_result weft__cuda_network_alloc(weft_comm *comm, uint64_t bytes, void **memory,
                                     uint64_t *place)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    uint64_t offset;
    if (cuda->network == NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "the communicator has one node: no network");
    const weft_result own = alloc_part(cuda, bytes > 0 ? bytes : 1, &offset);
    const weft_result result = weft__comm_agree(comm, own, "have memory for the network");
    if (result == WEFT_OK) {
        *memory = cuda->network->memory->base + offset;
        *place = weft__net_place(WEFT__NET_PINNED_REGION, offset);
    } else if (own == WEFT_OK) {
        free_part(cuda, offset);
    }
    return result;
}

static weft_result alloc_staging_of_host(weft_comm *comm, uint64_t bytes, void **memory,
                                         uint64_t *place)
{
    WEFT__TRY(weft__cuda_network_alloc(comm, bytes, memory, place));
    const weft_result result = weft__net_add_staging(comm, *memory, bytes, place);
    if (result != WEFT_OK)
        weft__cuda_network_free(comm, *memory);
    return result;
}

weft_result weft__cuda_network_staging_alloc(weft_comm *comm, uint64_t bytes, void **memory,
                                             uint64_t *place)
{
    struct weft__cuda_gpudirect *gpudirect = &weft__cuda_of(comm)->network->gpudirect;
    const weft_result result = weft__cuda_gpudirect_alloc(comm, gpudirect, bytes, memory, place);
    return result == WEFT_ERROR_UNSUPPORTED ? alloc_staging_of_host(comm, bytes, memory, place)
                                            : result;
}

static int is_of_host(const struct weft__cuda_network *network, const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)network->memory->base < WEFT__CUDA_NETWORK_BYTES;
}

void weft__cuda_network_free(weft_comm *comm, void *memory)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    if (memory == NULL)
        return;
    weft__net_drain(comm);
    weft__net_remove_region(comm, memory);
    if (!is_of_host(cuda->network, memory)) {
        weft__cuda_gpudirect_free(comm, memory);
        return;
    }
    free_part(cuda, (uint64_t)((char *)memory - cuda->network->memory->base));
}

/* ---------------------------------------------------------------- life */

static weft_result make_queue(weft_comm *comm, struct weft__cuda_network *network)
{
    void *queue;
    WEFT__TRY(weft__cuda_pinned_alloc(weft__cuda_of(comm), QUEUE_BYTES, &queue));
    network->queue = queue;
    return weft__cuda_alloc(comm, sizeof(uint64_t), &network->num_reserved);
}

static weft_result open_memory(weft_comm *comm)
{
    struct weft__cuda_network *network = calloc(1, sizeof *network);
    WEFT__CHECK_MEMORY(network, "no memory for a network");
    weft__cuda_of(comm)->network = network;
    weft__ranges_init(&network->ranges, WEFT__CUDA_NETWORK_BYTES);
    WEFT__TRY(weft__cuda_network_memory_open(weft__cuda_of(comm), &network->memory));
    WEFT__TRY(make_queue(comm, network));
    return weft__cuda_network_heap_open(comm, &network->heap);
}

weft_result weft__cuda_network_start(weft_comm *comm)
{
    if (comm->topology.num_nodes == 1)
        return WEFT_OK;
    WEFT__TRY(weft__comm_agree(comm, open_memory(comm), "have memory for the network"));
    struct weft__cuda_network *network = weft__cuda_of(comm)->network;
    const struct weft__net_accessor accessor = weft__cuda_network_heap_accessor(&network->heap);
    return weft__net_attach_memory(
        comm, &(struct weft__net_memory){.heap = &accessor,
                                         .pinned = network->memory->base,
                                         .max_pinned_bytes = WEFT__CUDA_NETWORK_BYTES,
                                         .num_pinned_bytes = &network->num_bytes,
                                         .device_queue = network->queue,
                                         .num_device_slots = NUM_SLOTS});
}

void weft__cuda_network_stop(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    weft__net_detach(comm);
    if (cuda == NULL || cuda->network == NULL)
        return;
    struct weft__cuda_network *network = cuda->network;
    weft__cuda_network_heap_close(&network->heap);
    if (network->queue != NULL)
        weft__cuda_pinned_free(cuda, network->queue, QUEUE_BYTES);
    weft__cuda_free(comm, network->num_reserved);
    if (network->memory != NULL)
        weft__cuda_network_memory_close(cuda, network->memory);
    weft__ranges_destroy(&network->ranges);
    free(network);
    cuda->network = NULL;
}

const struct weft__cuda_gpudirect *weft__cuda_network_gpudirect(const struct weft__cuda *cuda)
{
    return &cuda->network->gpudirect;
}

struct weft__cuda_work_queue weft__cuda_network_queue(const struct weft__cuda *cuda)
{
    const struct weft__cuda_network *network = cuda->network;
    if (network == NULL)
        return (struct weft__cuda_work_queue){0};
    char *queue = (char *)network->queue;
    return (struct weft__cuda_work_queue){
        .slots = (void *)(queue + offsetof(struct weft__work_queue, slots)),
        .num_reserved = network->num_reserved,
        .num_taken = (void *)(queue + offsetof(struct weft__work_queue, num_taken)),
        .num_completed = (void *)(queue + offsetof(struct weft__work_queue, num_completed)),
        .comm_has_failed = (void *)(queue + offsetof(struct weft__work_queue, comm_has_failed)),
        .num_slots = NUM_SLOTS,
    };
}
