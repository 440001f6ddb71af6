/* SPDX-License-Identifier: MIT */
/*
 * The gate of a mixture-of-experts layer: a softmax top-k router over seeded random tokens.
 *
 * Token vectors depend on the seed and the GLOBAL token index alone, so that any rank can recompute
 * the routing of any token. Chosen experts and weights are the same on every machine with IEEE
 * arithmetic (nothing here calls the C library's exp).
 *
 *   logit[e] = dot(token, gate[e]) / sqrt(gate_dim) + skew * bias[e]
 *
 * with token and bias entries of mean 0 and variance 1, and gate rows of norm sqrt(gate_dim): the
 * first term has variance 1 for every expert. With skew 0 the experts are therefore loaded evenly,
 * but for chance; with skew > 0 experts of high bias are hot. Measured, 8192 tokens, seed 1: the
 * load of the hottest expert, and of the hottest of 8 ranks with consecutive experts, over the
 * mean:
 *
 *   skew                        0     0.25  0.5   0.75  1     1.5   2     3
 *   top-6 of 64    expert       1.11  2.13  3.50  4.82  6.00  7.81  9.05  10.2
 *                  rank         1.03  1.16  1.30  1.46  1.58  1.81  2.00  2.28
 *   top-8 of 256   expert       1.18  3.32  6.88  10.9  14.7  21.2  25.8  30.2
 *                  rank         1.02  1.24  1.44  1.61  1.73  1.91  2.01  2.19
 *
 * The layers of DeepSeek-V2-Lite (top-6 of 64) on real text have expert loads of 2 to 8, by domain
 * 3.4 to 5.6 in the median, and weights that add up to 0.39 per token: skew 0.5 (which gives 0.41)
 * to 0.75.
 */
#pragma once

#include <stdint.h>

struct router;

struct router_config {
    uint64_t seed;
    int32_t num_experts; /* 1 or more */
    int32_t num_topk;    /* 1..min(num_experts, WEFT_MAX_TOPK) */
    int32_t gate_dim;    /* width of the token vectors; 0: 64 */
    float skew;          /* 0 or more */
};

/* NULL with errno EINVAL (a value out of its range) or ENOMEM. */
struct router *router_create(const struct router_config *config);
void router_destroy(struct router *router); /* may be NULL */

/* Routes tokens first_token .. first_token + num_tokens - 1 (global indices).
 * topk_idx[num_tokens][num_topk]: distinct experts, most probable first, ties to the lower id.
 * topk_weights[num_tokens][num_topk]: their softmax probabilities over all experts, not
 * renormalised; may be NULL. One call at a time per router. */
void router_route(struct router *router, int64_t first_token, int64_t num_tokens, int32_t *topk_idx,
                  float *topk_weights);
