/* SPDX-License-Identifier: MIT */
#include "row.h"

#include <stdlib.h>
#include <string.h>

#include "workload/payload.h"

weft_result row_workspace_init(struct row_workspace *workspace, const struct shape *shape)
{
    const size_t hidden = (size_t)shape->hidden;
    float *memory = calloc(6 * hidden + 2 * (size_t)shape->ffn, sizeof(float));
    if (memory == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    *workspace = (struct row_workspace){.x = memory,
                                        .y = memory + hidden,
                                        .dy = memory + 2 * hidden,
                                        .dx = memory + 3 * hidden,
                                        .expert_y = memory + 4 * hidden,
                                        .expert_dy = memory + 5 * hidden,
                                        .activation = memory + 6 * hidden,
                                        .dactivation = memory + 6 * hidden + shape->ffn};
    return WEFT_OK;
}

void row_workspace_destroy(struct row_workspace *workspace)
{
    free(workspace->x);
}

void row_forward(const struct shape *shape, const struct row_choices *choices,
                 struct row_workspace *workspace, const uint16_t *x, uint16_t *y)
{
    const size_t hidden = (size_t)shape->hidden;
    elements_to_fp32(WEFT_BF16, x, hidden, workspace->x);
    memset(workspace->y, 0, hidden * sizeof(float));
    for (int32_t i = 0; i < choices->num_choices; i++) {
        const struct row_choice *choice = &choices->choices[i];
        expert_forward(shape, choice->parameters, workspace->x, workspace->activation,
                       workspace->expert_y);
        for (size_t h = 0; h < hidden; h++)
            workspace->y[h] += choice->weight * workspace->expert_y[h];
    }
    elements_from_fp32(WEFT_BF16, workspace->y, hidden, y);
}

/* One expert's part; the activations are computed once more rather than kept from the forward
 * pass. Returns the gradient of the choice's weight. */
static float choice_backward(const struct shape *shape, const struct row_choice *choice,
                             struct row_workspace *workspace)
{
    expert_forward(shape, choice->parameters, workspace->x, workspace->activation,
                   workspace->expert_y);
    float dweight = 0.0f;
    for (int32_t h = 0; h < shape->hidden; h++) {
        dweight += workspace->dy[h] * workspace->expert_y[h];
        workspace->expert_dy[h] = choice->weight * workspace->dy[h];
    }
    expert_backward(shape, &(struct expert_backward_args){.parameters = choice->parameters,
                                                          .x = workspace->x,
                                                          .activation = workspace->activation,
                                                          .dy = workspace->expert_dy,
                                                          .dactivation = workspace->dactivation,
                                                          .dparameters = choice->dparameters,
                                                          .dx = workspace->dx});
    return dweight;
}

void row_backward(const struct shape *shape, const struct row_choices *choices,
                  struct row_workspace *workspace, const uint16_t *x, const uint16_t *dy,
                  uint16_t *dx, float *dweights)
{
    const size_t hidden = (size_t)shape->hidden;
    elements_to_fp32(WEFT_BF16, x, hidden, workspace->x);
    elements_to_fp32(WEFT_BF16, dy, hidden, workspace->dy);
    memset(workspace->dx, 0, hidden * sizeof(float));
    memset(dweights, 0, (size_t)shape->num_topk * sizeof(float));
    for (int32_t i = 0; i < choices->num_choices; i++) {
        const struct row_choice *choice = &choices->choices[i];
        dweights[choice->k] = choice_backward(shape, choice, workspace);
    }
    elements_from_fp32(WEFT_BF16, workspace->dx, hidden, dx);
}
