/* SPDX-License-Identifier: MIT */
/* One MoE layer spread over the ranks of a communicator: its forward and its backward pass. */
#pragma once

#include "batch.h"
#include "weft.h"

struct layer;

/* All collective. The gradients of this rank's experts, [local experts][expert_num_parameters],
 * are added to dparameters. */
weft_result layer_create(weft_comm *comm, const struct shape *shape, float *dparameters,
                         struct layer **layer);
void layer_destroy(struct layer *layer); /* may be NULL */

/* From batch->x to y[N][hidden] bf16. */
weft_result layer_forward(struct layer *layer, const struct batch *batch, uint16_t *y);
/* Of the last forward pass: from the gradient dy[N][hidden] of y to
 * those of x and of the weights, dx[N][hidden] bf16 and dweights[N][num_topk]. */
weft_result layer_backward(struct layer *layer, const uint16_t *dy, uint16_t *dx, float *dweights);

/* Rows that the last forward pass brought to this rank. */
int32_t layer_num_rows(const struct layer *layer);
