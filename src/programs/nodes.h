/* SPDX-License-Identifier: MIT */
/* The nodes of a communicator, all with as many ranks. A rank's partners are the ranks of the other nodes with the
 * same index in theirs: what crosses the network goes between partners. */
#ifndef WEFT_PROGRAMS_NODES_H
#define WEFT_PROGRAMS_NODES_H

#include "machine/machine.h"

struct wp_nodes {
    int32_t node; /* this rank's */
    int32_t num_nodes;
    int32_t local_idx;    /* of this rank in its node */
    int32_t num_local;    /* ranks of each node */
    const int32_t *ranks; /* [num_nodes][num_local] */
};

WP_FN int32_t wp_partner(const struct wp_nodes *nodes, int32_t node)
{
    return nodes->ranks[(int64_t)node * nodes->num_local + nodes->local_idx];
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

#endif
