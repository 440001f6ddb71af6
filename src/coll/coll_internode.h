/* SPDX-License-Identifier: MIT */
/* Collectives over several nodes, or on one of many ranks: what a weft_coll has for them, and how
 * they are launched. */
#pragma once

#include "coll/coll.h"
#include "memory/ring_memory.h"
#include "programs/coll/internode_collective.h"

/* A tree's: more goes around the ring, so each slot need not be long. */
enum { WEFT__COLL_TREE_SLOT_BYTES = (16 << 10) + WP_CHUNK_HEADER_BYTES };

struct weft__coll_internode {
    struct weft__nodes nodes;
    struct wp_rings rings;
    void *counters;           /* of the rings */
    void *own_sums;           /* a slot for each channel */
    struct wp_node_tree tree; /* without memory if nothing asks for it */
    void *tree_counters;
};

/* Rings as configured, or as suits. */
void weft__coll_internode_plan(const weft_comm *comm, const weft_coll_config *config,
                               struct wp_rings *rings);
/* Collective, once the ranks have agreed on coll->internode->rings, which have no memory yet; in
 * two steps, since the exchange comes between. After an error, too, it is destroyed with coll. */
weft_result weft__coll_internode_create_nodes(weft_coll *coll);
weft_result weft__coll_internode_create_rings(weft_coll *coll);
void weft__coll_internode_destroy(weft_coll *coll);

/* How many rails an operation has. */
int32_t weft__coll_num_rails(const weft_coll *coll, weft_collective collective, uint64_t row_bytes);
/* By RAILS, or between nodes TREE. */
weft_result weft__coll_internode_run(const struct weft__coll_call *call, weft_algorithm algorithm);

/* node_trees.c; collective. */
weft_result weft__coll_tree_create(weft_coll *coll);
void weft__coll_tree_destroy(weft_coll *coll);
/* With the ways to and from the node of a root. */
struct wp_node_tree weft__coll_tree_toward(const weft_coll *coll, int32_t root_node);
