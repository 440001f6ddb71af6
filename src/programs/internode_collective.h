/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_COLLECTIVE_H
#define WEFT_PROGRAMS_INTERNODE_COLLECTIVE_H

#include "programs/relay.h"
#include "programs/window.h"

struct wp_internode_collective_args {
    struct wp_exchange exchange; /* of the node */
    struct wp_message message;
    struct wp_rings rings; /* to the next node, of at least two slots; of one node: no memory */
    weft_collective collective;
    struct wp_reduction reduction;
    int32_t root;      /* if there is one: its rank, */
    int32_t root_node; /* and where that is */
    uint64_t row_bytes;
    uint64_t chunk_bytes; /* of a row that a warp copies within the node at a time */
    char *own_sums;       /* [num_channels][slot_bytes] */
};

#endif
