/* SPDX-License-Identifier: MIT */
#include "memory/node_table.h"

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

/* Ranks by node and index in it, how many ranks each node has, and each rank's index. */
static void list_ranks(const weft_comm *comm, const struct wp_nodes *nodes, int32_t *ranks)
{
    const struct weft__topology *topology = &comm->topology;
    int32_t *sizes = ranks + (int64_t)nodes->num_nodes * nodes->most_local;
    int32_t *local_idxs = sizes + nodes->num_nodes;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const int32_t node = topology->node_of_rank[rank];
        ranks[(int64_t)node * nodes->most_local + topology->local_of_rank[rank]] = rank;
        sizes[node]++;
        local_idxs[rank] = topology->local_of_rank[rank];
    }
}

static weft_result upload_ranks(weft_comm *comm, const struct wp_nodes *nodes, void **uploaded)
{
    const size_t num_words =
        (size_t)nodes->num_nodes * ((size_t)nodes->most_local + 1) + (size_t)comm->num_ranks;
    int32_t *ranks = calloc(num_words, sizeof *ranks);
    WEFT__CHECK_MEMORY(ranks, "no memory for %d ranks", comm->num_ranks);
    list_ranks(comm, nodes, ranks);
    const weft_result result =
        weft__machine_duplicate(comm, ranks, num_words * sizeof *ranks, uploaded);
    free(ranks);
    return result;
}

static int32_t node_size(const struct weft__topology *topology, int32_t num_ranks, int32_t node)
{
    int32_t size = 0;
    for (int32_t rank = 0; rank < num_ranks; rank++)
        size += topology->node_of_rank[rank] == node;
    return size;
}

static void find_sizes(const weft_comm *comm, struct wp_nodes *nodes)
{
    nodes->num_rails = INT32_MAX;
    for (int32_t node = 0; node < nodes->num_nodes; node++) {
        const int32_t size = node_size(&comm->topology, comm->num_ranks, node);
        if (node == nodes->node)
            nodes->num_local = size;
        if (size < nodes->num_rails)
            nodes->num_rails = size;
        if (size > nodes->most_local)
            nodes->most_local = size;
    }
}

weft_result weft__nodes_create(weft_comm *comm, struct weft__nodes *nodes)
{
    const struct weft__topology *topology = &comm->topology;
    nodes->device = (struct wp_nodes){
        .node = topology->node_of_rank[comm->rank],
        .num_nodes = topology->num_nodes,
        .local_idx = topology->local_of_rank[comm->rank],
    };
    find_sizes(comm, &nodes->device);
    WEFT__TRY(weft__comm_agree(comm, upload_ranks(comm, &nodes->device, &nodes->ranks),
                               "have its nodes"));
    nodes->device.ranks = nodes->ranks;
    nodes->device.sizes =
        nodes->device.ranks + (int64_t)nodes->device.num_nodes * nodes->device.most_local;
    nodes->device.local_idxs = nodes->device.sizes + nodes->device.num_nodes;
    return WEFT_OK;
}

void weft__nodes_destroy(weft_comm *comm, struct weft__nodes *nodes)
{
    weft__machine_of(comm)->free(comm, nodes->ranks);
    nodes->ranks = NULL;
}
