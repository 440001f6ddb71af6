/* SPDX-License-Identifier: MIT */
#include "workload/router.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "workload/rng.h"

enum { DEFAULT_GATE_DIM = 64, MAX_GATE_DIM = 1 << 16 };

/* Which of the seed's independent sequences a value comes from. */
enum sequence { SEQUENCE_GATE = 1, SEQUENCE_BIAS = 2, SEQUENCE_TOKENS = 3 };

struct router {
    struct router_config config;
    float *bias;   /* [num_experts], scaled by skew */
    float *logits; /* [num_experts] */
    float *token;  /* [gate_dim] */
    /* [gate_dim][num_experts]: summing over the outer index vectorises without reordering any sum.
     * The arrays above follow. */
    float gate[];
};

static int is_valid(const struct router_config *config)
{
    return config->num_experts >= 1 && config->num_topk >= 1 &&
           config->num_topk <= config->num_experts && config->num_topk <= WEFT_MAX_TOPK &&
           config->gate_dim >= 0 && config->gate_dim <= MAX_GATE_DIM && config->skew >= 0 &&
           isfinite(config->skew);
}

static void fill_gate_column(struct router *router, int32_t expert)
{
    int32_t gate_dim = router->config.gate_dim, num_experts = router->config.num_experts;
    struct rng rng = {
        rng_key(rng_key(router->config.seed, SEQUENCE_GATE), (uint64_t)(uint32_t)expert)};
    float square_sum = 0;
    for (int32_t d = 0; d < gate_dim; d++) {
        float weight = rng_normal(&rng);
        router->gate[(int64_t)d * num_experts + expert] = weight;
        square_sum += weight * weight;
    }
    /* Norm 1: the norm sqrt(gate_dim) and the division of logits by sqrt(gate_dim) at once. */
    float norm = sqrtf(square_sum);
    for (int32_t d = 0; norm > 0 && d < gate_dim; d++)
        router->gate[(int64_t)d * num_experts + expert] /= norm;
}

struct router *router_create(const struct router_config *config)
{
    if (!is_valid(config)) {
        errno = EINVAL;
        return NULL;
    }
    const int32_t given_dim = config->gate_dim;
    const size_t num_experts = (size_t)config->num_experts;
    const size_t gate_dim = given_dim == 0 ? DEFAULT_GATE_DIM : (size_t)given_dim;
    struct router *router =
        calloc(1, sizeof *router + ((gate_dim + 2) * num_experts + gate_dim) * sizeof(float));
    if (!router)
        return NULL;
    router->config = *config;
    router->config.gate_dim = (int32_t)gate_dim;
    router->bias = router->gate + gate_dim * num_experts;
    router->logits = router->bias + num_experts;
    router->token = router->logits + num_experts;
    struct rng rng = {rng_key(config->seed, SEQUENCE_BIAS)};
    for (int32_t e = 0; e < config->num_experts; e++) {
        fill_gate_column(router, e);
        router->bias[e] = config->skew * rng_normal(&rng);
    }
    return router;
}

void router_destroy(struct router *router)
{
    free(router);
}

static void compute_logits(struct router *router, int64_t token)
{
    int32_t num_experts = router->config.num_experts;
    struct rng rng = {rng_key(rng_key(router->config.seed, SEQUENCE_TOKENS), (uint64_t)token)};
    memcpy(router->logits, router->bias, (size_t)num_experts * sizeof(float));
    for (int32_t d = 0; d < router->config.gate_dim; d++) {
        float activation = rng_normal(&rng);
        const float *restrict weights = router->gate + (int64_t)d * num_experts;
        float *restrict logits = router->logits;
        for (int32_t e = 0; e < num_experts; e++)
            logits[e] += activation * weights[e];
    }
}

/* Insertion into a list kept in falling order; an equal logit goes behind the lower id. */
static void choose_topk(const struct router *router, int32_t *topk_idx)
{
    const float *logits = router->logits;
    int32_t num_topk = router->config.num_topk, num_chosen = 0;
    for (int32_t e = 0; e < router->config.num_experts; e++) {
        if (num_chosen == num_topk && logits[e] <= logits[topk_idx[num_topk - 1]])
            continue;
        int32_t position = num_chosen < num_topk ? num_chosen++ : num_topk - 1;
        for (; position > 0 && logits[e] > logits[topk_idx[position - 1]]; position--)
            topk_idx[position] = topk_idx[position - 1];
        topk_idx[position] = e;
    }
}

/* exp(x) for x <= 0, to about 1e-16: Taylor's series after taking out powers of two. */
static double exp_nonpositive(double x)
{
    static const double inverse_factorials[] = {1.0,
                                                1.0,
                                                1.0 / 2,
                                                1.0 / 6,
                                                1.0 / 24,
                                                1.0 / 120,
                                                1.0 / 720,
                                                1.0 / 5040,
                                                1.0 / 40320,
                                                1.0 / 362880,
                                                1.0 / 3628800,
                                                1.0 / 39916800,
                                                1.0 / 479001600,
                                                1.0 / 6227020800};
    const double ln2 = 0x1.62e42fefa39efp-1;
    if (x < -700)
        return 0;
    int power = (int)(x / ln2 - 0.5);
    double remainder = x - power * ln2, sum = 0;
    for (int n = 13; n >= 0; n--)
        sum = sum * remainder + inverse_factorials[n];
    return ldexp(sum, power);
}

static void compute_weights(const struct router *router, const int32_t *topk_idx,
                            float *topk_weights)
{
    const float *logits = router->logits;
    float largest = logits[topk_idx[0]];
    double sum = 0;
    for (int32_t e = 0; e < router->config.num_experts; e++)
        sum += exp_nonpositive((double)logits[e] - largest);
    for (int32_t k = 0; k < router->config.num_topk; k++)
        topk_weights[k] = (float)(exp_nonpositive((double)logits[topk_idx[k]] - largest) / sum);
}

void router_route(struct router *router, int64_t first_token, int64_t num_tokens, int32_t *topk_idx,
                  float *topk_weights)
{
    int32_t num_topk = router->config.num_topk;
    for (int64_t t = 0; t < num_tokens; t++) {
        compute_logits(router, first_token + t);
        choose_topk(router, topk_idx + t * num_topk);
        if (topk_weights)
            compute_weights(router, topk_idx + t * num_topk, topk_weights + t * num_topk);
    }
}
