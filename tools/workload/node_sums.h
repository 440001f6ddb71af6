/* SPDX-License-Identifier: MIT */
/* The order in which combine sums what ranks answer to a token, and what is rounded on the way, as weft.h has it:
 * each node's in the order of its ranks, then those of the nodes. */
#pragma once

#include <stdint.h>

#include "weft.h"

/* What combine_wire may be. */
enum { NUM_WIRES = 5 };
extern const weft_dtype wire_dtypes[NUM_WIRES];

/* Whether rows of a type become shorter by the wire's. */
static inline int wire_is_narrower(weft_dtype wire, weft_dtype dtype)
{
    return wire == WEFT_LOG_10BIT ||
           (dtype == WEFT_FP32 && (wire == WEFT_BF16 || wire == WEFT_FP16));
}

struct node_sums {
    int32_t num_ranks, num_nodes;
    const int32_t *node_of_rank; /* [num_ranks], with num_nodes 1: NULL */
    int64_t num_values;
    weft_dtype dtype; /* of the rows that ranks answer */
    weft_dtype wire;  /* combine_wire */
    /* What a rank answers; 0: nothing. */
    int (*read)(void *of, int32_t rank, float *values);
    void *of;
};

/* Adds to sum[num_values]; scratch has twice as many. */
void node_sums_add(const struct node_sums *sums, float *sum, float *scratch);
