/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/notify.h"
#include "programs/ring.h"

/* The counts that a rank sends to its partner in another node. */
struct wp_told_counts {
    struct wp_call call;
    int32_t num_tokens; /* for the node */
    int32_t tag;
    /* Rows for each rank of all nodes, then selections of the experts there, rank by rank. */
    int32_t counts[];
};

struct wp_internode_notify_args {
    /* The exchange is of the node. Written in the routing: what notify counts, and of nodes the
     * like. */
    struct wp_notify_args notify;
    struct wp_rings rings;
    const int32_t *node_of_rank;
    /* In memory of the network, at the place `told_place`: for each half (parity.h) [num_nodes]
     * words, which count what the partners have told, then as many buffers that come from the
     * partners, and as many that go to them. */
    char *told;
    uint64_t told_place;
    uint64_t told_bytes;    /* of one buffer */
    uint64_t *num_notifies; /* before this one */
};

/* num_experts: the most that a node has. */
WP_FN uint64_t wp_told_bytes(int32_t num_ranks, int32_t num_experts)
{
    return wp_wire_round_up(offsetof(struct wp_told_counts, counts) +
                            ((uint64_t)num_ranks + (uint64_t)num_experts) * sizeof(int32_t));
}

enum wp_told_direction { WP_TOLD_IN, WP_TOLD_OUT };

/* One word for both would not do: the next notify's put may overtake this one's. */
WP_FN uint64_t wp_told_word(int32_t num_nodes, uint64_t notify, int32_t node)
{
    return (wp_parity(notify) * (uint64_t)num_nodes + (uint64_t)node) * sizeof(uint64_t);
}

WP_FN uint64_t wp_told_offset(int32_t num_nodes, uint64_t told_bytes,
                              enum wp_told_direction direction, uint64_t notify, int32_t node)
{
    const uint64_t nodes = (uint64_t)num_nodes;
    const uint64_t buffer =
        ((uint64_t)direction * WP_NUM_BUFFERS + wp_parity(notify)) * nodes + (uint64_t)node;
    return wp_wire_round_up(WP_NUM_BUFFERS * nodes * sizeof(uint64_t)) + buffer * told_bytes;
}

/* The bytes of the whole area. */
WP_FN uint64_t wp_told_area_bytes(int32_t num_nodes, uint64_t told_bytes)
{
    return wp_told_offset(num_nodes, told_bytes, WP_TOLD_OUT, 1, num_nodes);
}
