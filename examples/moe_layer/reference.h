/* SPDX-License-Identifier: MIT */
/* The same layer, computed by one process for the tokens of all ranks with plain loops: nothing is
 * sent, and no function of weft takes part. */
#pragma once

#include "shape.h"
#include "weft.h"

struct reference {
    uint16_t *y, *dx;   /* [all tokens][hidden] */
    float *dweights;    /* [all tokens][num_topk] */
    float *dparameters; /* [num_experts][expert_num_parameters] */
};

weft_result reference_compute(struct reference *reference, const struct shape *shape);
void reference_destroy(struct reference *reference);

/* The first expert of rank `rank` (of rank num_ranks: their number). */
int32_t reference_first_expert(const struct shape *shape, int32_t rank);
