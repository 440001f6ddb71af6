/* SPDX-License-Identifier: MIT */
#include "ep/move_experts.h"

#include "launch/one_sided_host.h"

enum weft__distance weft__distance_of(const weft_comm *comm, int32_t rank)
{
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    if (rank == comm->rank)
        return WEFT__HERE;
    return node_of_rank[rank] == node_of_rank[comm->rank] ? WEFT__SAME_NODE : WEFT__OTHER_NODE;
}

/* The placement's entry from which this rank gets the expert: the nearest. Ranks begin their search
 * at different entries, so that those that are equally near give in turn. */
static int32_t find_source(const weft_comm *comm, const struct weft__placement *placement,
                           int32_t expert)
{
    const int32_t begin = placement->expert_offsets[expert];
    const int32_t num_replicas = placement->expert_offsets[expert + 1] - begin; /* 1 or more */
    int32_t nearest = begin + comm->rank % num_replicas;
    for (int32_t i = 1; i < num_replicas; i++) {
        const int32_t entry = begin + (comm->rank + i) % num_replicas;
        if (weft__distance_of(comm, placement->entry_ranks[entry]) <
            weft__distance_of(comm, placement->entry_ranks[nearest]))
            nearest = entry;
    }
    return nearest;
}

weft_result weft__ep_fetch_experts(const weft_ep *from, const weft_ep *to,
                                   const struct weft__expert_weights *weights, int32_t num_arrays,
                                   weft_stream *stream)
{
    weft_comm *comm = to->comm;
    const struct weft__placement *source = &from->placement, *target = &to->placement;
    const int32_t *entries = target->rank_entries + target->rank_offsets[comm->rank];
    const int32_t num_local = weft__placement_num_local(target, comm->rank);
    for (int32_t local = 0; local < num_local; local++) {
        const int32_t entry = find_source(comm, source, target->entry_experts[entries[local]]);
        for (int32_t i = 0; i < num_arrays; i++) {
            const struct weft__expert_weights *array = &weights[i];
            const struct wp_access access = {
                .operation = WP_ACCESS_GET,
                .rank = source->entry_ranks[entry],
                .source = array->from + (uint64_t)source->entry_local[entry] * array->row_bytes,
                .target = array->to + (uint64_t)local * array->row_bytes,
                .num_bytes = array->row_bytes};
            WEFT__TRY(weft__one_sided_access(comm, &access, stream));
        }
    }
    return WEFT_OK;
}
