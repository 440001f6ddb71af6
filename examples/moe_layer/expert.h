/* SPDX-License-Identifier: MIT */
/* One expert: y = W2 relu(W1 x), in fp32. Its parameters are one array, W1 [ffn][hidden] and then
 * W2 [hidden][ffn]; its gradients have the same layout. */
#pragma once

#include <stddef.h>

#include "shape.h"

size_t expert_num_parameters(const struct shape *shape);

/* The initial parameters of expert `expert_idx`. */
void expert_fill(const struct shape *shape, int32_t expert_idx, float *parameters);

/* activation[ffn] is kept for expert_backward. */
void expert_forward(const struct shape *shape, const float *parameters, const float *x,
                    float *activation, float *y);

struct expert_backward_args {
    const float *parameters;
    const float *x;          /* [hidden] the input */
    const float *activation; /* [ffn] of the forward pass */
    const float *dy;         /* [hidden] gradient of the expert's output */
    float *dactivation;      /* [ffn] scratch */
    float *dparameters;      /* the gradients are added to these two */
    float *dx;               /* [hidden] */
};

void expert_backward(const struct shape *shape, const struct expert_backward_args *args);
