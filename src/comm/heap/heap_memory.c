/* SPDX-License-Identifier: MIT */
#include "comm/heap/heap_memory.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/heap/heap.h"
#include "comm/heap/heap_kind.h"
#include "comm/host/error.h"

#define DEFAULT_HEAP_BYTES (UINT64_C(1) << 20)

struct contribution {
    int64_t heap_bytes, heap_max_bytes; /* as configured: 0 for the default */
    struct weft__heap_limits limits;    /* may differ */
};
static const struct weft__term terms[] = {
    {WEFT__TERM(struct contribution, heap_bytes)},
    {WEFT__TERM(struct contribution, heap_max_bytes)},
};

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Hosts may differ: the largest pages and the smallest default serve all. */
static void merge(struct weft__heap_limits *limits, const struct contribution *all,
                  int32_t num_ranks)
{
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        const struct weft__heap_limits *other = &all[rank].limits;
        if (other->page_bytes > limits->page_bytes)
            limits->page_bytes = other->page_bytes;
        if (other->default_max_bytes < limits->default_max_bytes)
            limits->default_max_bytes = other->default_max_bytes;
        if (other->spare_bytes < limits->spare_bytes)
            limits->spare_bytes = other->spare_bytes;
    }
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* How much is committed at first, and how much there can ever be. */
static weft_result choose_sizes(struct weft__heap_memory *memory, const weft_comm_config *config,
                                const struct weft__heap_limits *limits, uint64_t *heap_bytes)
{
    uint64_t max_bytes =
        config->heap_max_bytes > 0 ? config->heap_max_bytes : limits->default_max_bytes;
    *heap_bytes = config->heap_bytes > 0 ? config->heap_bytes : DEFAULT_HEAP_BYTES;
    /* In any heap there is room for the header. */
    *heap_bytes = larger(*heap_bytes, sizeof(struct weft__heap_header));
    max_bytes = larger(max_bytes, sizeof(struct weft__heap_header));
    if (config->heap_max_bytes == 0 && max_bytes < *heap_bytes)
        max_bytes = *heap_bytes;
    memory->page_bytes = limits->page_bytes;
    memory->max_bytes = round_up(max_bytes, memory->page_bytes);
    /* A heap that cannot grow has all its memory from the start. */
    if (memory->comm->heap_kind->sharing == WEFT__HEAP_SHARED_BY_NAME)
        *heap_bytes = memory->max_bytes;
    if (config->heap_bytes == 0 && *heap_bytes > memory->max_bytes)
        *heap_bytes = memory->max_bytes;
    if (*heap_bytes > limits->spare_bytes)
        return weft__no_memory("heap_bytes is %" PRIu64 "; only %" PRIu64
                               " bytes are left for each rank",
                               *heap_bytes, limits->spare_bytes);
    return WEFT_OK;
}

static weft_result agree(struct weft__heap_memory *memory, const weft_comm_config *config,
                         uint64_t *heap_bytes)
{
    weft_comm *comm = memory->comm;
    struct contribution mine = {.heap_bytes = (int64_t)config->heap_bytes,
                                .heap_max_bytes = (int64_t)config->heap_max_bytes};
    comm->heap_kind->limits(comm, &mine.limits);
    weft_result result;
    struct contribution *all = weft__comm_gather_new(comm, WEFT_OK, &mine, sizeof(mine), &result);
    if (all == NULL)
        return result;
    result = weft__comm_compare(comm, all, sizeof *all, terms, sizeof terms / sizeof *terms);
    if (result == WEFT_OK)
        merge(&mine.limits, all, comm->num_ranks);
    free(all);
    return result == WEFT_OK ? choose_sizes(memory, config, &mine.limits, heap_bytes) : result;
}

/* ---------------------------------------------------------------- sharing */

/* Whether `rank` is another rank of this node; a host may have several nodes. */
static int is_neighbour(const weft_comm *comm, int32_t rank)
{
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    return rank != comm->rank && node_of_rank[rank] == node_of_rank[comm->rank];
}

static weft_result exchange_handles(struct weft__heap_memory *memory,
                                    const struct weft__heap_part *own)
{
    weft_comm *comm = memory->comm;
    if (comm->heap_kind->sharing == WEFT__HEAP_SHARED_BY_NAME)
        return weft__comm_all_gather(comm, &own->handle, sizeof(own->handle), memory->handles);
    const weft_result result = weft__comm_exchange_fd(comm, own->handle.fd, memory->fds);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        memory->handles[rank].fd = memory->fds[rank];
    return result;
}

/* Launches read the table while the heap grows: an address that is there is not written again. */
static void keep_base(struct weft__heap_memory *memory, int32_t rank, void *base)
{
    if (memory->bases[rank] != base)
        memory->bases[rank] = base;
}

static weft_result map_neighbour(struct weft__heap_memory *memory, int32_t rank,
                                 struct weft__heap_part *part)
{
    weft_comm *comm = memory->comm;
    part->base = memory->bases[rank];
    if (part->base == NULL)
        WEFT__TRY(comm->heap_kind->reserve(comm, part->max_bytes, &part->base));
    keep_base(memory, rank, part->base);
    const weft_result result = comm->heap_kind->map(comm, rank, part);
    keep_base(memory, rank, part->base); /* that of memory shared by name is known only now */
    return result;
}

/* Collective: makes the new part of every neighbour's heap appear here. */
static weft_result map_neighbours(struct weft__heap_memory *memory,
                                  const struct weft__heap_part *own)
{
    weft_comm *comm = memory->comm;
    struct weft__heap_handle *handles = memory->handles;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        handles[rank] = (struct weft__heap_handle){.fd = -1};
    weft_result result = comm->num_ranks > 1 ? exchange_handles(memory, own) : WEFT_OK;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        struct weft__heap_part part = *own;
        part.handle = handles[rank];
        if (result == WEFT_OK && is_neighbour(comm, rank))
            result = map_neighbour(memory, rank, &part);
        if (comm->heap_kind->sharing != WEFT__HEAP_SHARED_BY_NAME && handles[rank].fd >= 0)
            close(handles[rank].fd);
    }
    return result;
}

/* ---------------------------------------------------------------- life */

static struct weft__heap_part own_part(const struct weft__heap_memory *memory, uint64_t bytes)
{
    return (struct weft__heap_part){.base = memory->bases[memory->comm->rank],
                                    .max_bytes = memory->max_bytes,
                                    .begin_bytes = memory->committed_bytes,
                                    .end_bytes = round_up(bytes, memory->page_bytes),
                                    .handle = {.fd = memory->fd}};
}

/* Undoes what add_part did before it failed. */
static void take_back(struct weft__heap_memory *memory, const struct weft__heap_part *own,
                      weft_result own_result)
{
    weft_comm *comm = memory->comm;
    atomic_store(&memory->backed_bytes, own->begin_bytes);
    if (own_result == WEFT_OK)
        comm->heap_kind->release(comm, own);
    if (comm->heap_kind->sharing == WEFT__HEAP_SHARED_BY_NAME)
        memory->bases[comm->rank] = NULL; /* that was all there is of it */
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        struct weft__heap_part part = *own;
        part.base = memory->bases[rank];
        if (comm->heap_kind->sharing == WEFT__HEAP_SHARED_BY_PART && rank != comm->rank &&
            part.base != NULL)
            comm->heap_kind->release(comm, &part);
    }
}

/* Collective: all ranks get the part and map each other's, or none. */
static weft_result add_part(struct weft__heap_memory *memory, uint64_t bytes)
{
    weft_comm *comm = memory->comm;
    const enum weft__heap_sharing sharing = comm->heap_kind->sharing;
    struct weft__heap_part part = own_part(memory, bytes);
    const weft_result mine = comm->heap_kind->commit(comm, &part);
    if (mine == WEFT_OK)
        atomic_store(&memory->backed_bytes, part.end_bytes);
    weft_result result = weft__comm_agree(comm, mine, "have its heap");
    if (mine == WEFT_OK && sharing == WEFT__HEAP_SHARED_ONCE)
        memory->fd = part.handle.fd;
    if (result == WEFT_OK)
        keep_base(memory, comm->rank, part.base);
    if (result == WEFT_OK && (part.begin_bytes == 0 || sharing != WEFT__HEAP_SHARED_ONCE))
        result = weft__comm_agree(comm, map_neighbours(memory, &part), "map the heaps of others");
    if (mine == WEFT_OK && sharing == WEFT__HEAP_SHARED_BY_PART)
        close(part.handle.fd);
    if (result == WEFT_OK)
        memory->committed_bytes = part.end_bytes;
    else
        take_back(memory, &part, mine);
    return result;
}

static weft_result make_tables(struct weft__heap_memory *memory)
{
    const size_t num_ranks = (size_t)memory->comm->num_ranks;
    memory->bases = calloc(num_ranks, sizeof(*memory->bases));
    memory->handles = calloc(num_ranks, sizeof(*memory->handles));
    memory->fds = calloc(num_ranks, sizeof(*memory->fds));
    return memory->bases != NULL && memory->handles != NULL && memory->fds != NULL
               ? WEFT_OK
               : weft__no_memory("no memory for %zu ranks", num_ranks);
}

weft_result weft__heap_memory_create(struct weft__heap_memory *memory, weft_comm *comm,
                                     const weft_comm_config *config)
{
    uint64_t heap_bytes = 0;
    *memory = (struct weft__heap_memory){.comm = comm, .fd = -1};
    WEFT__TRY(weft__comm_agree(comm, make_tables(memory), "have a heap"));
    WEFT__TRY(agree(memory, config, &heap_bytes));
    WEFT__TRY(weft__comm_agree(
        comm, comm->heap_kind->reserve(comm, memory->max_bytes, &memory->bases[comm->rank]),
        "reserve addresses for its heap"));
    return add_part(memory, heap_bytes);
}

void weft__heap_memory_destroy(struct weft__heap_memory *memory)
{
    weft_comm *comm = memory->comm;
    struct weft__heap_part part = {.max_bytes = memory->max_bytes,
                                   .end_bytes = memory->committed_bytes};
    for (int32_t rank = 0; memory->bases != NULL && rank < comm->num_ranks; rank++) {
        part.base = memory->bases[rank];
        if (part.base != NULL)
            comm->heap_kind->unmap(comm, rank, &part);
    }
    free(memory->bases);
    free(memory->handles);
    free(memory->fds);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct weft__heap_memory){.fd = -1};
}

uint64_t weft__heap_memory_spare_bytes(const struct weft__heap_memory *memory)
{
    struct weft__heap_limits limits;
    memory->comm->heap_kind->limits(memory->comm, &limits);
    return limits.spare_bytes;
}

weft_result weft__heap_memory_grow(struct weft__heap_memory *memory, uint64_t bytes)
{
    return add_part(memory, bytes);
}
