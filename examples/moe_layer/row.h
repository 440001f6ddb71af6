/* SPDX-License-Identifier: MIT */
/* What a rank does with one row that it received: the row goes through those of its chosen experts
 * that the rank has, and their weighted outputs are summed in the order of choice. Rows travel as
 * bf16; everything between is fp32. */
#pragma once

#include "expert.h"
#include "weft.h"

struct row_choice {
    int32_t k; /* which of the token's choices it is */
    float weight;
    const float *parameters;
    float *dparameters; /* for row_backward */
};

/* The choices of one row that one rank serves, in ascending order of k. */
struct row_choices {
    int32_t num_choices;
    struct row_choice choices[WEFT_MAX_TOPK];
};

/* Scratch memory for rows of one shape. */
struct row_workspace {
    float *x, *y, *dy, *dx, *expert_y, *expert_dy; /* [hidden] */
    float *activation, *dactivation;               /* [ffn] */
};

weft_result row_workspace_init(struct row_workspace *workspace, const struct shape *shape);
void row_workspace_destroy(struct row_workspace *workspace);

void row_forward(const struct shape *shape, const struct row_choices *choices,
                 struct row_workspace *workspace, const uint16_t *x, uint16_t *y);

/* Given the gradient dy of the row's output: the gradients of the row, of its weights (dweights
 * [num_topk], 0 where the rank has no such choice) and, added up, of the experts' parameters. */
void row_backward(const struct shape *shape, const struct row_choices *choices,
                  struct row_workspace *workspace, const uint16_t *x, const uint16_t *dy,
                  uint16_t *dx, float *dweights);
