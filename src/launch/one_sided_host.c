/* SPDX-License-Identifier: MIT */
#include "launch/one_sided_host.h"

#include "memory/windows.h"
#include "net/attach.h"
#include "programs/one_sided/mapped_access.h"
#include "programs/one_sided/remote_access.h"
#include "programs/one_sided/wait_until.h"

static const struct weft__grid one_warp = {.num_blocks = 1, .num_warps = 1};

/* On all machines a rank that is gone takes nothing any more, also where its memory is still
 * mapped. */
static weft_result check_rank(weft_comm *comm, int32_t rank)
{
    WEFT__TRY(weft__status_check(&comm->status));
    if (!weft__status_rank_is_gone(&comm->status, rank))
        return WEFT_OK;
    const int has_left = atomic_load(&comm->status.rank_states[rank]) == WEFT__RANK_LEFT;
    return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d %s", rank,
                       has_left ? "has left the communicator" : "has died");
}

/* Without an exchange. */
static weft_result launch(weft_comm *comm, weft_stream *stream, enum wp_program program,
                          struct weft__grid grid, const void *args, size_t args_bytes)
{
    const struct weft__program_run run = {program, grid, args, args_bytes, 0, NULL};
    return weft__program_launch(comm, stream, &run);
}

/* ---------------------------------------------------------------- accesses */

static struct weft__grid mapped_grid(const weft_comm *comm, const struct wp_access *access)
{
    const struct weft__work work = {.kind = WEFT__WORK_PUSH_TENSOR,
                                    .row_bytes = WP_ONE_SIDED_CHUNK_BYTES};
    struct weft__grid grid = weft__machine_of(comm)->choose_grid(comm, &work);
    const uint64_t num_chunks =
        (access->num_bytes + WP_ONE_SIDED_CHUNK_BYTES - 1) / WP_ONE_SIDED_CHUNK_BYTES;
    const uint64_t num_blocks =
        (num_chunks + (uint64_t)grid.num_warps - 1) / (uint64_t)grid.num_warps;
    if (num_chunks <= 1)
        grid.num_warps = 1;
    if (wp_access_has_add(access) || num_blocks <= 1)
        grid.num_blocks = 1;
    else if (num_blocks < (uint64_t)grid.num_blocks)
        grid.num_blocks = (int32_t)num_blocks;
    return grid;
}

static weft_result launch_mapped(weft_comm *comm, const struct wp_access *access,
                                 weft_stream *stream)
{
    char *const *bases = weft__heap_bases(comm->heap);
    const struct wp_mapped_access_args args = {
        .access = *access,
        .mapped = {bases[comm->rank], bases[access->rank], WP_ONE_SIDED_CHUNK_BYTES}};
    return launch(comm, stream, WP_PROGRAM_mapped_access, mapped_grid(comm, access), &args,
                  sizeof args);
}

static weft_result launch_remote(weft_comm *comm, const struct wp_access *access,
                                 weft_stream *stream)
{
    const struct wp_remote_access_args args = {
        .heaps = {.rank = comm->rank, .num_ranks = comm->num_ranks, .bases = comm->windows->table},
        .access = *access};
    return launch(comm, stream, WP_PROGRAM_remote_access, one_warp, &args, sizeof args);
}

/* True if NICs alone add to words of the rank: no rank of its node has its heap mapped, and the
 * rank adds by its own NIC, too. */
static int is_added_to_by_nics(const weft_comm *comm, int32_t rank)
{
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    int32_t num_there = 0;
    if (comm->network == NULL || comm->network->nic == NULL)
        return 0;
    for (int32_t other = 0; other < comm->num_ranks; other++)
        num_there += node_of_rank[other] == node_of_rank[rank];
    return num_there == 1;
}

weft_result weft__one_sided_access(weft_comm *comm, const struct wp_access *asked,
                                   weft_stream *stream)
{
    struct wp_access access = *asked;
    const int has_add = wp_access_has_add(&access);
    WEFT__TRY(check_rank(comm, access.rank));
    if (access.num_bytes == 0 && !has_add)
        return WEFT_OK;
    access.adders = is_added_to_by_nics(comm, access.rank) ? WP_ACCESS_ADDED_BY_NETWORK
                                                           : WP_ACCESS_ADDED_BY_ALL;
    const int is_mapped = weft__heap_bases(comm->heap)[access.rank] != NULL;
    return is_mapped && !(has_add && access.adders == WP_ACCESS_ADDED_BY_NETWORK)
               ? launch_mapped(comm, &access, stream)
               : launch_remote(comm, &access, stream);
}

/* ---------------------------------------------------------------- waits */

/* Stores of launches are visible when they have ended. */
weft_result weft__one_sided_quiet(weft_comm *comm, weft_stream *stream)
{
    char *const *bases = weft__heap_bases(comm->heap);
    struct wp_access flush = {.operation = WP_ACCESS_FLUSH};
    WEFT__TRY(weft__status_check(&comm->status));
    while (flush.rank < comm->num_ranks && bases[flush.rank] != NULL)
        flush.rank++;
    return flush.rank < comm->num_ranks ? launch_remote(comm, &flush, stream) : WEFT_OK;
}

weft_result weft__one_sided_wait(weft_comm *comm, uint64_t place, uint64_t at_least,
                                 weft_stream *stream)
{
    const char *base = weft__heap_bases(comm->heap)[comm->rank];
    const struct wp_wait_until_args args = {.word = (const uint64_t *)(const void *)(base + place),
                                            .place = place,
                                            .at_least = at_least};
    WEFT__TRY(weft__status_check(&comm->status));
    return launch(comm, stream, WP_PROGRAM_wait_until, one_warp, &args, sizeof args);
}
