/* SPDX-License-Identifier: MIT */
/* The nodes of a communicator. A rank's partners are the ranks of the other nodes with the same
 * index in theirs: what crosses the network goes between partners. Where nodes differ in their
 * number of ranks, those with an index that the smallest node has too are its rails; the others
 * have no partners. */
#pragma once

#include "machine/machine.h"

struct wp_nodes {
    int32_t node; /* this rank's */
    int32_t num_nodes;
    int32_t local_idx;         /* of this rank in its node */
    int32_t num_local;         /* ranks of this node */
    int32_t num_rails;         /* ranks of the smallest node */
    int32_t most_local;        /* ranks of the largest node */
    const int32_t *ranks;      /* [num_nodes][most_local] */
    const int32_t *sizes;      /* [num_nodes] how many ranks each has */
    const int32_t *local_idxs; /* [ranks of all nodes] in theirs */
};

WP_FN int32_t wp_node_rank(const struct wp_nodes *nodes, int32_t node, int32_t local_idx)
{
    return nodes->ranks[(int64_t)node * nodes->most_local + local_idx];
}

WP_FN int32_t wp_partner(const struct wp_nodes *nodes, int32_t node)
{
    return wp_node_rank(nodes, node, nodes->local_idx);
}

/* The i-th node after the own one. */
WP_FN int32_t wp_node_after(const struct wp_nodes *nodes, int32_t i)
{
    return (nodes->node + i) % nodes->num_nodes;
}

/* The node that the own one is the i-th after. */
WP_FN int32_t wp_node_before(const struct wp_nodes *nodes, int32_t i)
{
    return (nodes->node + nodes->num_nodes - i) % nodes->num_nodes;
}
