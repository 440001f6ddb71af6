/* SPDX-License-Identifier: MIT */
/*
 * gate_backward: the gradient of a gate's logits. With the scores s of the chosen experts and the
 * gradients g of their weights, the gradients of s are
 *
 *     scale * g                                                        as scored
 *     scale / divisor * (g - sum of g * s / divisor)                   normalised
 *
 * and each becomes that of its logit by the score's derivative. Softmax adds to every expert p the
 * sum of gradient * score, times -p; with normalised weights that sum is zero.
 */
#include "programs/gate/gate_backward.h"

#include "programs/block.h"
#include "programs/placement.h"

/* In memory of the warp. */
struct chosen {
    int32_t expert; /* -1: none */
    float score;
};

WP_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(struct chosen) <= WP_WARP_SHARED_BYTES, "they fit");

/* The gradient of a score is factor * (the weight's gradient - mean). */
struct gradients {
    float factor, mean;
    float sum; /* of score_gradient * score; 0 where softmax needs none */
};

WP_FN struct chosen *load_chosen(struct wp_warp *warp, const struct wp_gate_backward_args *args,
                                 const struct wp_gate_row *row, int32_t token)
{
    struct chosen *chosen = (struct chosen *)wp_warp_shared(warp);
    for (int32_t i = wp_lane_idx(warp); i < args->num_topk; i += WP_WARP_SIZE) {
        const int64_t expert =
            wp_expert_id(args->topk_idx, args->index_type, (int64_t)token * args->num_topk + i);
        const int is_one = expert >= 0 && expert < args->logits.num_experts;
        chosen[i].expert = is_one ? (int32_t)expert : -1;
        chosen[i].score =
            is_one ? wp_gate_score_of(row, wp_gate_logit(row, (int32_t)expert)) : 0.0f;
    }
    wp_warp_sync(warp);
    return chosen;
}

WP_FN struct gradients gradients_of(const struct wp_gate_backward_args *args,
                                    const struct chosen *chosen, const float *grad_weights)
{
    float sum = 0.0f, dot = 0.0f;
    for (int32_t i = 0; i < args->num_topk; i++) {
        sum += chosen[i].score;
        dot += chosen[i].expert >= 0 ? grad_weights[i] * chosen[i].score : 0.0f;
    }
    const float divisor = wp_gate_divisor(sum);
    const int is_normalised = args->weights == WEFT_GATE_WEIGHTS_NORMALISED;
    const struct gradients gradients = {is_normalised ? args->scale / divisor : args->scale,
                                        is_normalised ? dot / divisor : 0.0f,
                                        is_normalised ? 0.0f : args->scale * dot};
    return gradients;
}

/* The gradient of a chosen expert's logit. */
WP_FN float logit_gradient(const struct wp_gate_row *row, struct chosen chosen, float gradient,
                           float sum)
{
    if (row->logits->score == WEFT_GATE_SOFTMAX)
        return chosen.score * (gradient - sum);
    const float logit = wp_gate_logit(row, chosen.expert);
    const float e = wp_exp_negative(-wp_magnitude(logit));
    if (row->logits->score == WEFT_GATE_SIGMOID)
        return gradient * (e / ((1.0f + e) * (1.0f + e)));
    return gradient * (logit < WP_SOFTPLUS_TAIL
                           ? chosen.score * 0.5f
                           : wp_sigmoid(logit) / (chosen.score + chosen.score));
}

/* Those of all experts, as if none were chosen. */
WP_FN void fill_row(struct wp_warp *warp, const struct wp_gate_row *row, float sum,
                    float *grad_logits)
{
    const int is_zero = row->logits->score != WEFT_GATE_SOFTMAX || sum == 0.0f;
    if (is_zero) {
        for (int32_t e = wp_lane_idx(warp); e < row->logits->num_experts; e += WP_WARP_SIZE)
            grad_logits[e] = 0.0f;
        return;
    }
    for (int32_t first = 0; first < row->logits->num_experts; first += WP_GATE_TILE) {
        const int32_t tile_experts = wp_gate_tile_experts(row, first);
        float *gradients = grad_logits + wp_gate_own_first(warp, first);
        float values[WP_GATE_OWN] = {0};
        wp_gate_load_tile(warp, row, first, values);
        wp_gate_score_tile(row, wp_gate_own(tile_experts), values);
        WP_EACH_OWN (i, 0, wp_gate_own_before(warp, tile_experts), WP_GATE_OWN)
            gradients[i] = values[i] == values[i] ? wp_canonical(-(values[i] * sum)) : 0.0f;
    }
}

WP_FN void backward_token(struct wp_warp *warp, const struct wp_gate_backward_args *args,
                          int32_t token)
{
    const float *grad_weights = args->grad_weights + (int64_t)token * args->num_topk;
    float *grad_logits = args->grad_logits + (int64_t)token * args->logits.num_experts;
    const struct wp_gate_row row = wp_gate_row_of(warp, &args->logits, token);
    const struct chosen *chosen = load_chosen(warp, args, &row, token);
    const struct gradients gradients = gradients_of(args, chosen, grad_weights);
    fill_row(warp, &row, gradients.sum, grad_logits);
    wp_warp_sync(warp); /* the rows are filled: the chosen experts' gradients come over them */
    for (int32_t i = wp_lane_idx(warp); i < args->num_topk; i += WP_WARP_SIZE) {
        const float gradient = gradients.factor * (grad_weights[i] - gradients.mean);
        if (chosen[i].expert >= 0)
            grad_logits[chosen[i].expert] =
                wp_canonical(logit_gradient(&row, chosen[i], gradient, gradients.sum));
    }
    wp_warp_sync(warp); /* the choices have been read: the next token's come there */
}

WP_PROGRAM(gate_backward, warp, args)
{
    const int32_t num_warps = wp_num_launch_warps(warp);
    wp_admit_next(warp); /* it waits for nobody */
    for (int64_t token = wp_launch_warp_idx(warp); token < args->num_tokens; token += num_warps)
        backward_token(warp, args, (int32_t)token);
    return WP_STATUS_OK;
}
