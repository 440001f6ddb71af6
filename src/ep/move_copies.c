/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "launch/one_sided_host.h"

#include "ep/move_experts.h"
#include "programs/ep/add_copies.h"

static int is_copy(const struct weft__copies *copies, int32_t replica)
{
    return copies->experts[replica] >= 0 && copies->experts[replica] != copies->base[replica];
}

/* True if the replica has the row of the expert before the step and in the step. */
static int stays(const struct weft__copies *copies, int32_t replica, int32_t expert)
{
    return copies->base[replica] == expert && copies->experts[replica] == expert;
}

static int32_t find_owner(const struct weft__copies *copies, int32_t expert)
{
    for (int32_t i = 0; i < copies->num_replicas; i++)
        if (stays(copies, i, expert))
            return i;
    return -1;
}

/* Also of other replicas that are no copies. */
static int32_t count_beside(const struct weft__copies *copies, int32_t owner)
{
    int32_t count = 0;
    for (int32_t i = 0; i < copies->num_replicas; i++)
        count += i != owner && copies->experts[i] == copies->experts[owner];
    return count;
}

weft_result weft__copies_survey(const struct weft__copies *copies, int32_t *most_beside,
                                int32_t *orphan)
{
    int32_t num_experts = 0;
    *most_beside = 0;
    *orphan = -1;
    for (int32_t i = 0; i < copies->num_replicas; i++)
        if (copies->experts[i] >= num_experts)
            num_experts = copies->experts[i] + 1;
    struct {
        int32_t has_owner, num_replicas;
    } *of_expert = calloc((size_t)num_experts + 1, sizeof *of_expert);
    WEFT__CHECK_MEMORY(of_expert, "no memory for %d experts", num_experts);
    for (int32_t i = 0; i < copies->num_replicas; i++) {
        const int32_t expert = copies->experts[i];
        if (expert < 0)
            continue;
        of_expert[expert].has_owner |= stays(copies, i, expert);
        of_expert[expert].num_replicas++;
    }
    for (int32_t i = 0; i < copies->num_replicas; i++) {
        const int32_t expert = copies->experts[i];
        if (expert < 0)
            continue;
        if (!of_expert[expert].has_owner && *orphan < 0)
            *orphan = i;
        if (of_expert[expert].num_replicas - 1 > *most_beside)
            *most_beside = of_expert[expert].num_replicas - 1;
    }
    free(of_expert);
    return WEFT_OK;
}

static struct wp_access access_to(const weft_comm *comm, const struct weft__copies *copies,
                                  int32_t replica, const struct weft__expert_weights *array)
{
    const int32_t count = copies->num_replicas / comm->num_ranks;
    return (struct wp_access){.operation = WP_ACCESS_GET,
                              .rank = replica / count,
                              .source =
                                  array->from + (uint64_t)(replica % count) * array->row_bytes,
                              .num_bytes = array->row_bytes};
}

/* ---------------------------------------------------------------- weights */

/* Ranks begin their search at their own replicas, so that those that are as near give in turn. */
static int32_t find_source(const weft_comm *comm, const struct weft__copies *copies, int32_t expert)
{
    const int32_t count = copies->num_replicas / comm->num_ranks;
    int32_t nearest = -1;
    for (int32_t k = 0; k < copies->num_replicas; k++) {
        const int32_t i = (int32_t)(((int64_t)comm->rank * count + k) % copies->num_replicas);
        if (stays(copies, i, expert) &&
            (nearest < 0 ||
             weft__distance_of(comm, i / count) < weft__distance_of(comm, nearest / count)))
            nearest = i;
    }
    return nearest;
}

weft_result weft__ep_fetch_copies(weft_comm *comm, const struct weft__copies *copies,
                                  const struct weft__expert_weights *arrays, int32_t num_arrays,
                                  weft_stream *stream)
{
    const int32_t count = copies->num_replicas / comm->num_ranks;
    for (int32_t local = 0; local < count; local++) {
        const int32_t replica = comm->rank * count + local;
        if (!is_copy(copies, replica))
            continue;
        const int32_t source = find_source(comm, copies, copies->experts[replica]);
        for (int32_t i = 0; i < num_arrays; i++) {
            struct wp_access access = access_to(comm, copies, source, &arrays[i]);
            access.target = arrays[i].to + (uint64_t)local * arrays[i].row_bytes;
            WEFT__TRY(weft__one_sided_access(comm, &access, stream));
        }
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------- gradients */

/* Bytes of a row, from `begin` on, and of the same part of the others. */
struct part {
    uint64_t begin, bytes;
};

static weft_result add_staged(weft_comm *comm, char *row, const char *staged, int32_t num_copies,
                              weft_dtype dtype, uint64_t bytes, weft_stream *stream)
{
    enum { CHUNK_BYTES = 4096 };
    const int64_t element_bytes = (int64_t)wp_dtype_bytes(dtype);
    const struct wp_add_copies_args args = {.row = row,
                                            .copies = staged,
                                            .num_copies = num_copies,
                                            .dtype = dtype,
                                            .num_elements = (int64_t)bytes / element_bytes,
                                            .chunk_elements = CHUNK_BYTES / element_bytes};
    const struct weft__work work = {.kind = WEFT__WORK_PULL_TENSOR};
    const struct weft__program_run run = {.program = WP_PROGRAM_add_copies,
                                          .grid = weft__machine_of(comm)->choose_grid(comm, &work),
                                          .args = &args,
                                          .args_bytes = sizeof args};
    return weft__program_launch(comm, stream, &run);
}

static weft_result add_part(weft_comm *comm, const struct weft__copies *copies, int32_t owner,
                            const struct weft__expert_weights *array, struct part part,
                            weft_dtype dtype, uint64_t staging, weft_stream *stream)
{
    char *heap = weft__heap_bases(comm->heap)[comm->rank];
    const struct wp_access own = access_to(comm, copies, owner, array);
    int32_t num_staged = 0;
    for (int32_t i = 0; i < copies->num_replicas; i++) {
        if (i == owner || copies->experts[i] != copies->experts[owner])
            continue;
        struct wp_access access = access_to(comm, copies, i, array);
        access.source += part.begin;
        access.target = staging + (uint64_t)num_staged++ * part.bytes;
        access.num_bytes = part.bytes;
        WEFT__TRY(weft__one_sided_access(comm, &access, stream));
    }
    return add_staged(comm, heap + own.source + part.begin, heap + staging, num_staged, dtype,
                      part.bytes, stream);
}

weft_result weft__ep_reduce_copies(weft_comm *comm, const struct weft__copies *copies,
                                   const struct weft__expert_weights *arrays, int32_t num_arrays,
                                   weft_dtype dtype, struct weft__copies_staging staging,
                                   weft_stream *stream)
{
    const int32_t count = copies->num_replicas / comm->num_ranks;
    for (int32_t owner = comm->rank * count; owner < (comm->rank + 1) * count; owner++) {
        const int32_t expert = copies->experts[owner];
        const int is_owner = expert >= 0 && find_owner(copies, expert) == owner;
        const int32_t num_copies = is_owner ? count_beside(copies, owner) : 0;
        for (int32_t i = 0; num_copies > 0 && i < num_arrays; i++) {
            const uint64_t fitting =
                staging.bytes / (uint64_t)num_copies / WP_ALIGNED_BYTES * WP_ALIGNED_BYTES;
            struct part part = {.begin = 0};
            for (; part.begin < arrays[i].row_bytes; part.begin += part.bytes) {
                const uint64_t rest = arrays[i].row_bytes - part.begin;
                part.bytes = rest < fitting ? rest : fitting;
                WEFT__TRY(
                    add_part(comm, copies, owner, &arrays[i], part, dtype, staging.place, stream));
            }
        }
    }
    return WEFT_OK;
}
