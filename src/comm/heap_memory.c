/* SPDX-License-Identifier: MIT */
#include "comm/heap_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/fd_exchange.h"
#include "comm/host_memory.h"
#include "comm/shared_memory.h"

#define DEFAULT_HEAP_BYTES        (UINT64_C(1) << 20)
#define LARGEST_DEFAULT_MAX_BYTES (UINT64_C(64) << 30)

/* What the ranks must agree on before they make their memory. */
struct terms {
    uint64_t heap_bytes, heap_max_bytes; /* as configured: 0 for the default */
    uint64_t default_max_bytes;          /* of this host */
    uint64_t page_bytes;
    uint64_t spare_bytes; /* for each rank of this host */
};

/* The host's memory, or what fits into the addresses: every rank that lives in this process maps the
 * heaps of all neighbours. */
static uint64_t default_max_bytes(const struct weft__heap_memory *memory,
                                  const struct weft__identity *table)
{
    uint64_t total_bytes = weft__host_memory_total_bytes(), bytes = DEFAULT_HEAP_BYTES;
    uint64_t num_ranks_here = 0;
    for (int32_t rank = 0; rank < memory->num_ranks; rank++)
        num_ranks_here += table[rank].pid == table[memory->rank].pid &&
                          table[rank].host_key == table[memory->rank].host_key;
    while (bytes < total_bytes && bytes < LARGEST_DEFAULT_MAX_BYTES)
        bytes *= 2;
    return weft__shared_memory_fit(bytes, DEFAULT_HEAP_BYTES,
                                   num_ranks_here * (uint64_t)memory->num_neighbours);
}

static weft_result check_same(const struct terms *terms, int32_t num_ranks)
{
    for (int32_t rank = 1; rank < num_ranks; rank++) {
        if (terms[rank].heap_bytes != terms[0].heap_bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree: heap_bytes is %" PRIu64 " on rank 0 and %" PRIu64
                               " on rank %d",
                               terms[0].heap_bytes, terms[rank].heap_bytes, rank);
        if (terms[rank].heap_max_bytes != terms[0].heap_max_bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree: heap_max_bytes is %" PRIu64
                               " on rank 0 and %" PRIu64 " on rank %d",
                               terms[0].heap_max_bytes, terms[rank].heap_max_bytes, rank);
    }
    return WEFT_OK;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Hosts may differ: the largest pages and the smallest default serve all. */
static weft_result agree(struct weft__heap_memory *memory, weft_comm *comm,
                         const weft_comm_config *config, const struct weft__identity *table,
                         uint64_t *heap_bytes)
{
    const struct terms mine = {.heap_bytes = config->heap_bytes,
                               .heap_max_bytes = config->heap_max_bytes,
                               .default_max_bytes = default_max_bytes(memory, table),
                               .page_bytes = weft__shared_memory_page_bytes(),
                               .spare_bytes = weft__heap_memory_spare_bytes(memory)};
    struct terms *terms = malloc((size_t)comm->num_ranks * sizeof(*terms));
    if (terms == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    weft_result result = weft__comm_all_gather(comm, &mine, sizeof(mine), terms);
    if (result == WEFT_OK)
        result = check_same(terms, comm->num_ranks);
    uint64_t max_bytes = UINT64_MAX, spare_bytes = UINT64_MAX;
    for (int32_t rank = 0; result == WEFT_OK && rank < comm->num_ranks; rank++) {
        if (terms[rank].page_bytes > memory->page_bytes)
            memory->page_bytes = terms[rank].page_bytes;
        if (terms[rank].default_max_bytes < max_bytes)
            max_bytes = terms[rank].default_max_bytes;
        if (terms[rank].spare_bytes < spare_bytes)
            spare_bytes = terms[rank].spare_bytes;
    }
    free(terms);
    if (result != WEFT_OK)
        return result;
    *heap_bytes = mine.heap_bytes > 0 ? mine.heap_bytes : DEFAULT_HEAP_BYTES;
    if (*heap_bytes > spare_bytes)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY,
                           "heap_bytes is %" PRIu64 "; a host has only %" PRIu64
                           " bytes left for each of its ranks",
                           *heap_bytes, spare_bytes);
    if (mine.heap_max_bytes > 0)
        max_bytes = mine.heap_max_bytes;
    else if (max_bytes < *heap_bytes)
        max_bytes = *heap_bytes;
    memory->max_bytes = round_up(max_bytes, memory->page_bytes);
    if (mine.heap_bytes == 0 && *heap_bytes > memory->max_bytes)
        *heap_bytes = memory->max_bytes;
    return WEFT_OK;
}

static weft_result commit(struct weft__heap_memory *memory, uint64_t bytes)
{
    uint64_t new_bytes = round_up(bytes, memory->page_bytes);
    weft_result result = weft__shared_memory_commit(memory->fd, memory->bases[memory->rank],
                                                    memory->committed_bytes, new_bytes);
    if (result == WEFT_OK)
        memory->committed_bytes = new_bytes;
    return result;
}

static weft_result make_own(struct weft__heap_memory *memory, uint64_t heap_bytes)
{
    weft_result result = weft__shared_memory_create(&memory->fd);
    if (result == WEFT_OK)
        result =
            weft__shared_memory_map(memory->fd, memory->max_bytes, &memory->bases[memory->rank]);
    return result == WEFT_OK ? commit(memory, heap_bytes) : result;
}

static weft_result map_neighbours(struct weft__heap_memory *memory, weft_comm *comm,
                                  const struct weft__identity *table, int socket_fd)
{
    const struct weft__fd_exchange exchange = {.socket_fd = socket_fd,
                                               .rank = memory->rank,
                                               .num_ranks = memory->num_ranks,
                                               .timeout_ms = comm->timeout_ms,
                                               .key = comm->key,
                                               .table = table,
                                               .status = &comm->status};
    int *fds = malloc((size_t)memory->num_ranks * sizeof(*fds));
    if (fds == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", memory->num_ranks);
    weft_result result = weft__fd_exchange(&exchange, memory->fd, fds);
    for (int32_t rank = 0; rank < memory->num_ranks; rank++) {
        if (fds[rank] < 0)
            continue;
        if (result == WEFT_OK)
            result = weft__shared_memory_map(fds[rank], memory->max_bytes, &memory->bases[rank]);
        close(fds[rank]);
    }
    free(fds);
    return result;
}

/* All ranks get through a step, or none. */
static weft_result agree_on_success(weft_comm *comm, weft_result mine)
{
    int32_t *results = malloc((size_t)comm->num_ranks * sizeof(*results));
    if (results == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    const int32_t my_result = mine;
    weft_result result = weft__comm_all_gather(comm, &my_result, sizeof(my_result), results);
    if (mine != WEFT_OK)
        result = mine;
    for (int32_t rank = 0; result == WEFT_OK && rank < comm->num_ranks; rank++)
        if (results[rank] != WEFT_OK)
            result = weft__error((weft_result)results[rank], "rank %d cannot have its heap: %s",
                                 rank, weft_result_string((weft_result)results[rank]));
    free(results);
    return result;
}

weft_result weft__heap_memory_create(struct weft__heap_memory *memory, weft_comm *comm,
                                     const weft_comm_config *config,
                                     const struct weft__identity *table, int socket_fd)
{
    uint64_t heap_bytes = 0;
    *memory =
        (struct weft__heap_memory){.rank = comm->rank, .num_ranks = comm->num_ranks, .fd = -1};
    memory->bases = calloc((size_t)comm->num_ranks, sizeof(*memory->bases));
    if (memory->bases == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        memory->num_neighbours += table[rank].host_key == table[comm->rank].host_key;
    weft_result result = agree(memory, comm, config, table, &heap_bytes);
    if (result == WEFT_OK)
        result = agree_on_success(comm, make_own(memory, heap_bytes));
    if (result == WEFT_OK)
        result = agree_on_success(comm, map_neighbours(memory, comm, table, socket_fd));
    if (result != WEFT_OK)
        weft__heap_memory_destroy(memory);
    return result;
}

void weft__heap_memory_destroy(struct weft__heap_memory *memory)
{
    for (int32_t rank = 0; memory->bases != NULL && rank < memory->num_ranks; rank++)
        if (memory->bases[rank] != NULL)
            weft__shared_memory_unmap(memory->bases[rank], memory->max_bytes);
    free(memory->bases);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct weft__heap_memory){.fd = -1};
}

uint64_t weft__heap_memory_spare_bytes(const struct weft__heap_memory *memory)
{
    return weft__host_memory_available_bytes() / (uint64_t)memory->num_neighbours;
}

weft_result weft__heap_memory_grow(struct weft__heap_memory *memory, weft_comm *comm,
                                   uint64_t bytes)
{
    uint64_t old_bytes = memory->committed_bytes;
    weft_result mine = commit(memory, bytes);
    weft_result result = agree_on_success(comm, mine);
    if (result != WEFT_OK && mine == WEFT_OK) {
        weft__shared_memory_release(memory->fd, old_bytes);
        memory->committed_bytes = old_bytes;
    }
    return result;
}
