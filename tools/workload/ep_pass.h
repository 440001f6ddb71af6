/* SPDX-License-Identifier: MIT */
/* One pass through the layer, with experts, whose results the host gets to see. */
#pragma once

#include "workload/ep_layer.h"

/* The host's copies of the outputs of this rank, as struct ep_layer names them. */
struct ep_results {
    const struct ep_received *received; /* that are expected to arrive */
    int32_t *tokens_per_rank, *tokens_per_node, *tokens_per_expert;
    uint8_t *is_token_in_rank;
    weft_ep_counts counts;                /* whose pointers are the handle's */
    unsigned char *recv_x[EP_MAX_PLANES]; /* [num_rows][plane_bytes] */
    int32_t *recv_topk_idx;               /* [capacity][num_topk], as the next two with
                                             EP_CARRY_ALL */
    float *recv_topk_weights;             /* [num_rows][num_topk] */
    int32_t *recv_src_token;              /* [num_rows] */
    unsigned char *out;                   /* [N][row_bytes] */
};

/* `received` must be at most layer->capacity rows, and lie beyond ep_results_close, which is
 * called whatever the result. */
weft_result ep_results_open(struct ep_results *results, const struct ep_layer *layer,
                            const struct ep_received *received);
void ep_results_close(struct ep_results *results, const struct ep_layer *layer);

/* Collective. Spoils what earlier passes left in the layer's buffers, runs all operations that
 * exist, and fills the results. */
weft_result ep_pass(struct ep_layer *layer, struct ep_results *results);

/* The work of the experts: each multiplies a row by a factor of its own, and what a rank answers is
 * the sum over its experts, weighted by the gate. */

/* Exact in fp32, and different for experts that are close to each other. */
static inline float ep_expert_factor(int32_t expert)
{
    return 1 + (float)(expert % 16) / 16;
}

/* The sum over the rank's experts of a token of gate weight times factor. */
float ep_answer_scale(const struct ep_problem *problem, struct ep_token token, int32_t rank);

/* y = x * scale, rounded as the rows of `kind` are; these go to `row`. x and y may be the same. */
void ep_scale_row(weft_dtype kind, size_t hidden, float scale, const float *x, float *y, void *row);
