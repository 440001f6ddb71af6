/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_BARRIER_H
#define WEFT_PROGRAMS_INTERNODE_BARRIER_H

#include "programs/exchange.h"

struct weft_internode_barrier_args {
    struct weft_exchange exchange; /* its messages are not used */
    int32_t node;
    int32_t num_nodes;
    int32_t local_idx;
    int32_t num_local;    /* ranks of each node */
    const int32_t *ranks; /* [num_nodes][num_local] */
    /* [num_nodes] in memory of the network, zero at first: how many barriers this rank's partner in each node has
     * started with its node. */
    const uint64_t *words;
    uint64_t words_offset; /* their place */
};

#endif
