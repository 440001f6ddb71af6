/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/combine.h"
#include "programs/ring.h"

struct wp_internode_combine_args {
    struct wp_combine_args combine; /* its exchange is of the node */
    struct wp_rings rings;
    weft_dtype wire_dtype; /* of the sum of a node's rows: bf16, fp16, fp32 or WEFT_LOG_10BIT */
    /* own_sum_bytes for every warp of the launch: a slot for the sum of this node, and for
     * logarithms behind it room for the sum that they are made of, in fp32. NULL: this node's goes
     * into the output meanwhile, which needs the same dtypes. */
    char *own_sums;
    uint64_t own_sum_bytes;
};

/* 128 elements of WEFT_LOG_10BIT have 164 bytes on the wire and 512 in fp32. */
enum { WP_OWN_SLOTS_OF_LOGS = 5 };
WP_STATIC_ASSERT((WP_OWN_SLOTS_OF_LOGS - 1) * WP_LOG_GROUP_BYTES >= WP_LOG_GROUP_ELEMENTS * 4,
                 "a row that fits a slot fits the others in fp32");

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
