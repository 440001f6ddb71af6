/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_COMBINE_H
#define WEFT_PROGRAMS_INTERNODE_COMBINE_H

#include "programs/combine.h"
#include "programs/ring.h"

struct weft_internode_combine_args {
    struct weft_combine_args combine; /* its exchange is of the node */
    struct weft_rings rings;
};

/* A partial sum on the wire: of the weights, then of the rows. */
WEFT_FN uint64_t weft_wire_weights_bytes(const uint32_t *call)
{
    return weft_wire_round_up((uint64_t)call[WEFT_CALL_NUM_TOPK] * sizeof(float));
}

WEFT_FN uint64_t weft_wire_combine_bytes(const uint32_t *call)
{
    return weft_wire_weights_bytes(call) + weft_wire_round_up(call[WEFT_CALL_ROW_BYTES]);
}

#endif
