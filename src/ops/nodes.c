/* SPDX-License-Identifier: MIT */
#include "ops/nodes.h"

#include <stdlib.h>

#include "machine/host.h"

int weft__nodes_are_alike(const weft_comm *comm)
{
    const struct weft__topology *topology = &comm->topology;
    const int32_t num_local = comm->num_ranks / topology->num_nodes;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        if (num_local * topology->num_nodes != comm->num_ranks ||
            topology->local_of_rank[rank] >= num_local)
            return 0;
    return 1;
}

weft_result weft__nodes_check(const weft_comm *comm, const char *what)
{
    return weft__nodes_are_alike(comm)
               ? WEFT_OK
               : weft__error(WEFT_ERROR_UNSUPPORTED,
                             "the %d nodes have different numbers of ranks: there is no %s "
                             "between such",
                             comm->topology.num_nodes, what);
}

/* By node and index in it. */
static weft_result list_ranks(const weft_comm *comm, const char *what, int32_t *ranks)
{
    const struct weft__topology *topology = &comm->topology;
    const int32_t num_local = comm->num_ranks / topology->num_nodes;
    WEFT__TRY(weft__nodes_check(comm, what));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        ranks[topology->node_of_rank[rank] * num_local + topology->local_of_rank[rank]] = rank;
    return WEFT_OK;
}

static weft_result upload_ranks(weft_comm *comm, const char *what, void **uploaded)
{
    const size_t bytes = (size_t)comm->num_ranks * sizeof(int32_t);
    int32_t *ranks = malloc(bytes);
    if (ranks == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    weft_result result = list_ranks(comm, what, ranks);
    if (result == WEFT_OK)
        result = weft__machine_duplicate(comm, ranks, bytes, uploaded);
    free(ranks);
    return result;
}

weft_result weft__nodes_create(weft_comm *comm, const char *what, struct weft__nodes *nodes)
{
    const struct weft__topology *topology = &comm->topology;
    WEFT__TRY(weft__comm_agree(comm, upload_ranks(comm, what, &nodes->ranks), "have its nodes"));
    nodes->device = (struct wp_nodes){
        .node = topology->node_of_rank[comm->rank],
        .num_nodes = topology->num_nodes,
        .local_idx = topology->local_of_rank[comm->rank],
        .num_local = comm->num_ranks / topology->num_nodes,
        .ranks = nodes->ranks,
    };
    return WEFT_OK;
}

void weft__nodes_destroy(weft_comm *comm, struct weft__nodes *nodes)
{
    weft__machine_of(comm)->free(comm, nodes->ranks);
    nodes->ranks = NULL;
}
