/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_NOTIFY_H
#define WEFT_PROGRAMS_INTERNODE_NOTIFY_H

#include "programs/exchange.h"
#include "programs/nodes.h"
#include "programs/ring.h"
#include "programs/routing.h"

/* What a rank tells its partner in another node: a header, how many rows it has for each rank there, then its
 * selections of their experts, rank by rank. */
struct weft_told_counts {
    uint32_t call[WEFT_NUM_CALL_FIELDS];
    int32_t num_tokens; /* for the node */
};

struct weft_internode_notify_args {
    struct weft_exchange exchange; /* of the node */
    struct weft_message message;
    struct weft_routing routing; /* written: what notify counts, and of nodes the like */
    struct weft_placement placement;
    struct weft_rings rings;
    /* In every heap, for every source rank two buffers, used in turn: the source's rows for each rank of this node,
     * then its selections of the owner's experts. */
    uint64_t counts_offset;
    int32_t counts_stride; /* numbers in one buffer */
    int32_t expert_alignment;
    /* In memory of the network, at the place `told_place`: [num_nodes] words, then twice [num_nodes] buffers that come
     * from the partners, and twice as many that go to them. */
    char *told;
    uint64_t told_place;
    uint64_t told_bytes;    /* of one buffer */
    uint64_t *num_notifies; /* before this one */
};

/* num_experts: the most that a node has. */
WEFT_FN uint64_t weft_told_bytes(int32_t num_local, int32_t num_experts)
{
    return weft_wire_round_up(sizeof(struct weft_told_counts) +
                              ((uint64_t)num_local + (uint64_t)num_experts) * sizeof(int32_t));
}

enum weft_told_direction { WEFT_TOLD_IN, WEFT_TOLD_OUT };

WEFT_FN uint64_t weft_told_offset(int32_t num_nodes, uint64_t told_bytes,
                                  enum weft_told_direction direction, uint64_t notify, int32_t node)
{
    const uint64_t nodes = (uint64_t)num_nodes;
    const uint64_t buffer = ((uint64_t)direction * 2 + notify % 2) * nodes + (uint64_t)node;
    return weft_wire_round_up(nodes * sizeof(uint64_t)) + buffer * told_bytes;
}

/* Of all. */
WEFT_FN uint64_t weft_told_area_bytes(int32_t num_nodes, uint64_t told_bytes)
{
    return weft_told_offset(num_nodes, told_bytes, WEFT_TOLD_OUT, 1, num_nodes);
}

#endif
