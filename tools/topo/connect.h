/* SPDX-License-Identifier: MIT */
/* Rings and trees over all ranks, of the channels that were found on each node. */
#pragma once

#include "topo/search.h"

enum { WEFT__TREE_MAX_CHILDREN = 3 };

/* The neighbours of a rank in one channel; -1: none. */
struct weft__rank_links {
    int32_t ring_prev, ring_next;
    int32_t tree_up, tree_down[WEFT__TREE_MAX_CHILDREN];
};

struct weft__connections {
    int32_t num_ranks, num_nodes, num_channels;
    struct weft__rank_links *links; /* [channel][rank] */
    int32_t num_heads;              /* of NVLS, the least of the nodes */
    int32_t *heads;                 /* [head][node] the rank */
};

/* What the nodes agree on. */
struct weft__nodes {
    const struct weft__channel_sets *sets; /* [num_nodes], with the ranks of all nodes together */
    int32_t num_nodes, num_ranks;
    int32_t oldest_sm;
};

/* Ring channels of a node end where those of the next begin; trees of channels c and c + half are the two of a double
 * tree over the nodes. A ring that does not visit all ranks is an error. */
weft_result weft__channels_connect(const struct weft__nodes *nodes,
                                   struct weft__connections *connections);
void weft__connections_free(struct weft__connections *connections);

static inline struct weft__rank_links *weft__links_of(const struct weft__connections *connections,
                                                      int32_t channel, int32_t rank)
{
    return &connections->links[(int64_t)channel * connections->num_ranks + rank];
}

/* The channels of node `node_idx` of equal ones, whose ranks follow each other. */
weft_result weft__channels_of_node(const struct weft__channels *first, int32_t node_idx,
                                   struct weft__channels **channels);
