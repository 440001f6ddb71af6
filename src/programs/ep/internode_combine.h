/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/combine.h"
#include "programs/ring.h"

struct wp_internode_combine_args {
    struct wp_combine_args combine; /* its exchange is of the node */
    struct wp_rings rings;
    weft_dtype wire_dtype; /* of the sum of a node's rows: bf16, fp16 or fp32 */
    /* A slot for every warp of the launch: for the sum of this node. NULL: that goes into the
     * output meanwhile, which needs the same dtypes. */
    char *own_sums;
};

/* A partial sum on the wire: of the weights, then of the rows. */
WP_FN uint64_t wp_wire_weights_bytes(const struct wp_call *call)
{
    return wp_wire_round_up((uint64_t)wp_call_num_topk(call) * sizeof(float));
}

WP_FN uint64_t wp_wire_combine_bytes(const struct wp_call *call, weft_dtype wire_dtype)
{
    const uint64_t num_elements = call->row_bytes[0] / wp_dtype_bytes(wp_call_dtype(call));
    return wp_wire_weights_bytes(call) +
           wp_wire_round_up(wp_elements_bytes(wire_dtype, (int64_t)num_elements));
}
