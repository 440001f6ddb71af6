/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/relay.h"

/* A tree of the nodes, and where this one is in it. */
struct wp_node_tree {
    struct wp_rings rings; /* to its neighbours there */
    int32_t num_levels;    /* below the highest node; 0: the nodes go around a ring */
    int32_t depth;         /* of this node */
    int32_t child;         /* which of its parent's it is, 0 or 1 */
    int32_t nodes[WP_TREE_NUM_NEIGHBOURS]; /* WP_NO_RANK: none */
    int32_t toward_root;  /* the neighbour behind which the root's node is, or it; _NUM_NEIGHBOURS:
                        this one is */
    int32_t hops_to_root; /* of the node of the root */
};

struct wp_internode_collective_args {
    struct wp_exchange exchange; /* of the node */
    struct wp_message message;
    struct wp_rings rings; /* to the next node, of at least two slots; of one node: no memory */
    struct wp_node_tree tree;
    weft_collective collective;
    struct wp_reduction reduction;
    int32_t root;      /* if there is one: its rank, */
    int32_t root_node; /* and where that is */
    uint64_t row_bytes;
    uint64_t chunk_bytes; /* of a row that a warp copies within the node at a time */
    char *own_sums;       /* [num_channels][slot_bytes] */
};
