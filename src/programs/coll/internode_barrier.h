/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/exchange.h"
#include "programs/nodes.h"

struct wp_internode_barrier_args {
    struct wp_exchange exchange; /* of the node */
    struct wp_message message;
    struct wp_nodes nodes;
    /* [rounds] in memory of the network, zero at first: in how many barriers this rank has been
     * told in the round. */
    const uint64_t *words;
    uint64_t words_place;
};
