/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_BARRIER_H
#define WEFT_PROGRAMS_INTERNODE_BARRIER_H

#include "programs/exchange.h"
#include "programs/nodes.h"

struct weft_internode_barrier_args {
    struct weft_exchange exchange; /* of the node */
    struct weft_message message;
    struct weft_nodes nodes;
    /* [num_nodes] in memory of the network, zero at first: how many barriers this rank's partner in each node has
     * started with its node. */
    const uint64_t *words;
    uint64_t words_place;
};

#endif
