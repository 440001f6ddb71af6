/* SPDX-License-Identifier: MIT */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "row.h"
#include "workload/payload.h"

struct dense {
    const struct shape *shape;
    struct batch batch; /* all tokens */
    float *parameters;  /* all experts */
    struct reference *results;
    struct row_workspace workspace;
    uint16_t *partial_y, *partial_dx; /* [hidden] what one rank answers for a token */
    float *sum_y, *sum_dx;            /* [hidden] */
    float *partial_dweights;          /* [num_topk] */
};

int32_t reference_first_expert(const struct shape *shape, int32_t rank)
{
    return (int32_t)((int64_t)shape->num_experts * rank / shape->num_ranks);
}

static void find_choices(const struct dense *dense, int32_t token, int32_t rank,
                         struct row_choices *choices)
{
    const struct shape *shape = dense->shape;
    const int32_t first = reference_first_expert(shape, rank);
    const int32_t end = reference_first_expert(shape, rank + 1);
    choices->num_choices = 0;
    for (int32_t k = 0; k < shape->num_topk; k++) {
        const size_t i = (size_t)token * (size_t)shape->num_topk + (size_t)k;
        const int32_t expert = dense->batch.topk_idx[i];
        if (expert < first || expert >= end)
            continue;
        const size_t offset = (size_t)expert * expert_num_parameters(shape);
        choices->choices[choices->num_choices++] =
            (struct row_choice){.k = k,
                                .weight = dense->batch.topk_weights[i],
                                .parameters = dense->parameters + offset,
                                .dparameters = dense->results->dparameters + offset};
    }
}

static void add_row(float *sum, const uint16_t *row, int32_t hidden)
{
    for (int32_t h = 0; h < hidden; h++) {
        float value;
        elements_to_fp32(WEFT_BF16, row + h, 1, &value);
        sum[h] += value;
    }
}

/* Sums are rounded where the distributed layer rounds them: once per rank that has experts of the
 * token, when its row goes back, and once at the end. */
static void compute_token(struct dense *dense, int32_t token)
{
    const struct shape *shape = dense->shape;
    const size_t hidden = (size_t)shape->hidden;
    const size_t offset = (size_t)token * hidden;
    const uint16_t *x = dense->batch.x + offset;
    float *dweights = dense->results->dweights + (size_t)token * (size_t)shape->num_topk;
    memset(dense->sum_y, 0, hidden * sizeof(float));
    memset(dense->sum_dx, 0, hidden * sizeof(float));
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        struct row_choices choices;
        find_choices(dense, token, rank, &choices);
        if (choices.num_choices == 0)
            continue;
        row_forward(shape, &choices, &dense->workspace, x, dense->partial_y);
        row_backward(shape, &choices, &dense->workspace, x, dense->batch.dy + offset,
                     dense->partial_dx, dense->partial_dweights);
        add_row(dense->sum_y, dense->partial_y, shape->hidden);
        add_row(dense->sum_dx, dense->partial_dx, shape->hidden);
        for (int32_t k = 0; k < shape->num_topk; k++)
            dweights[k] += dense->partial_dweights[k];
    }
    elements_from_fp32(WEFT_BF16, dense->sum_y, hidden, dense->results->y + offset);
    elements_from_fp32(WEFT_BF16, dense->sum_dx, hidden, dense->results->dx + offset);
}

static weft_result dense_init(struct dense *dense, int32_t num_tokens)
{
    const struct shape *shape = dense->shape;
    const size_t hidden = (size_t)shape->hidden;
    const size_t num_parameters = expert_num_parameters(shape);
    const size_t rows = (size_t)num_tokens + 1; /* not 0 bytes, for which malloc may give NULL */
    struct reference *results = dense->results;
    results->y = malloc(rows * hidden * sizeof(*results->y));
    results->dx = malloc(rows * hidden * sizeof(*results->dx));
    results->dweights = calloc(rows * (size_t)shape->num_topk, sizeof(float));
    results->dparameters = calloc((size_t)shape->num_experts * num_parameters, sizeof(float));
    dense->parameters = malloc((size_t)shape->num_experts * num_parameters * sizeof(float));
    dense->partial_y = malloc(2 * hidden * sizeof(uint16_t));
    dense->sum_y = malloc((2 * hidden + (size_t)shape->num_topk) * sizeof(float));
    if (results->y == NULL || results->dx == NULL || results->dweights == NULL ||
        results->dparameters == NULL || dense->parameters == NULL || dense->partial_y == NULL ||
        dense->sum_y == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    dense->partial_dx = dense->partial_y + hidden;
    dense->sum_dx = dense->sum_y + hidden;
    dense->partial_dweights = dense->sum_dx + hidden;
    for (int32_t expert = 0; expert < shape->num_experts; expert++)
        expert_fill(shape, expert, dense->parameters + (size_t)expert * num_parameters);
    weft_result result = row_workspace_init(&dense->workspace, shape);
    return result != WEFT_OK ? result : batch_init(&dense->batch, shape, 0, num_tokens);
}

static void dense_destroy(struct dense *dense)
{
    batch_destroy(&dense->batch);
    row_workspace_destroy(&dense->workspace);
    free(dense->parameters);
    free(dense->partial_y);
    free(dense->sum_y);
}

weft_result reference_compute(struct reference *reference, const struct shape *shape)
{
    const int32_t num_tokens = (int32_t)shape_first_token(shape, shape->num_ranks);
    struct dense dense = {.shape = shape, .results = reference};
    const weft_result result = dense_init(&dense, num_tokens);
    if (result == WEFT_OK) {
        for (int32_t token = 0; token < num_tokens; token++)
            compute_token(&dense, token);
    }
    dense_destroy(&dense);
    return result;
}

void reference_destroy(struct reference *reference)
{
    free(reference->y);
    free(reference->dx);
    free(reference->dweights);
    free(reference->dparameters);
}
