/* SPDX-License-Identifier: MIT */
#include "workload/node_sums.h"

#include <string.h>

#include "workload/elements.h"

const weft_dtype wire_dtypes[NUM_WIRES] = {WEFT_DTYPE_NONE, WEFT_FP32, WEFT_BF16, WEFT_FP16,
                                           WEFT_LOG_10BIT};

static void add(const struct node_sums *sums, const float *values, float *sum)
{
    for (int64_t i = 0; i < sums->num_values; i++)
        sum[i] += values[i];
}

static void add_ranks(const struct node_sums *sums, int32_t node, float *sum, float *row)
{
    for (int32_t rank = 0; rank < sums->num_ranks; rank++) {
        if (sums->num_nodes > 1 && sums->node_of_rank[rank] != node)
            continue;
        if (!sums->read(sums->of, rank, row))
            continue;
        if (sums->num_nodes == 1 && wire_is_narrower(sums->wire, sums->dtype))
            elements_round(sums->wire, row, (size_t)sums->num_values);
        add(sums, row, sum);
    }
}

/* The sum of a node without answers is +0, which changes no sum that began with +0. */
void node_sums_add(const struct node_sums *sums, float *sum, float *scratch)
{
    float *row = scratch, *partial = scratch + sums->num_values;
    if (sums->num_nodes == 1) {
        add_ranks(sums, 0, sum, row);
        return;
    }
    for (int32_t node = 0; node < sums->num_nodes; node++) {
        memset(partial, 0, (size_t)sums->num_values * sizeof *partial);
        add_ranks(sums, node, partial, row);
        elements_round(sums->wire == WEFT_DTYPE_NONE ? sums->dtype : sums->wire, partial,
                       (size_t)sums->num_values);
        add(sums, partial, sum);
    }
}
