/* SPDX-License-Identifier: MIT */
/* Rings and trees over all ranks, of the channels that were found on each node. */
#pragma once

#include "topo/search.h"

enum { TREE_MAX_CHILDREN = 3 };

/* The neighbours of a rank in one channel; -1: none. */
struct rank_links {
    int32_t ring_prev, ring_next;
    int32_t tree_up, tree_down[TREE_MAX_CHILDREN];
};

struct connections {
    int32_t num_ranks, num_nodes, num_channels;
    struct rank_links *links; /* [channel][rank] */
    int32_t num_heads;        /* of NVLS, the least of the nodes */
    int32_t *heads;           /* [head][node] the rank */
};

/* The nodes agree on this. */
struct topo_nodes {
    const struct channel_sets *sets; /* [num_nodes], with the ranks of all nodes together */
    int32_t num_nodes, num_ranks;
    int32_t oldest_sm;
};

/* Ring channels of a node end where those of the next begin; trees of channels c and c + half are
 * the two of a double tree over the nodes. A ring that does not visit all ranks is an error. */
weft_result channels_connect(const struct topo_nodes *nodes, struct connections *connections);
void connections_free(struct connections *connections);

static inline struct rank_links *links_of(const struct connections *connections, int32_t channel,
                                          int32_t rank)
{
    return &connections->links[(int64_t)channel * connections->num_ranks + rank];
}

/* The channels of node `node_idx` of equal ones, whose ranks follow each other. */
weft_result channels_of_node(const struct channels *first, int32_t node_idx,
                             struct channels **channels);
