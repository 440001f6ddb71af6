/* SPDX-License-Identifier: MIT */
/* The input of the layer: a pure function of the seed and the global token index, so that any rank
 * can recompute that of any other. */
#pragma once

#include "shape.h"
#include "weft.h"

struct batch {
    int32_t num_tokens;  /* N */
    uint16_t *x;         /* [N][hidden] bf16 */
    uint16_t *dy;        /* [N][hidden] bf16: the gradient that comes back */
    int32_t *topk_idx;   /* [N][num_topk] */
    float *topk_weights; /* [N][num_topk] */
};

/* Tokens first_token .. first_token + num_tokens - 1. */
weft_result batch_init(struct batch *batch, const struct shape *shape, int64_t first_token,
                       int32_t num_tokens);
void batch_destroy(struct batch *batch);
