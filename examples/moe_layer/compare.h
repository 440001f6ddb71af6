/* SPDX-License-Identifier: MIT */
/* Compares what all ranks computed with what one process computes alone. */
#pragma once

#include "shape.h"
#include "weft.h"

/* One rank's results, in the heap, so that another rank can read them. */
struct results {
    uint16_t *y, *dx;   /* [N][hidden] bf16 */
    float *dweights;    /* [N][num_topk] */
    float *dparameters; /* [local experts][expert_num_parameters] */
    int32_t *num_rows;  /* [1] that the rank received */
};

enum verdict { VERDICT_IDENTICAL = 0, VERDICT_DIFFERENT = 1 };

/* Called by one rank when the results of all are complete; prints what it compares. */
weft_result compare_with_reference(weft_comm *comm, const struct shape *shape,
                                   const struct results *results, enum verdict *verdict);
