/* SPDX-License-Identifier: MIT */
#include "workload/gate_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload/elements.h"
#include "workload/rng.h"

/* ------------------------------------------------------------------ cases */

static const struct shape {
    int32_t num_experts, num_topk, num_groups, num_kept_groups;
} shapes[GATE_NUM_SHAPES] = {
    {1, 1, 0, 0},     {5, 5, 1, 1},      {8, 2, 0, 0},      {33, 4, 3, 2},    {64, 6, 8, 3},
    {64, 6, 64, 6},   {128, 4, 0, 0},    {160, 6, 8, 3},    {256, 8, 8, 4},   {384, 8, 1, 1},
    {512, 9, 4, 1},   {513, 8, 27, 5},   {1000, 22, 10, 5}, {1536, 64, 3, 2}, {2048, 16, 2, 1},
    {1100, 1, 22, 3}, {4096, 64, 64, 9}, {4096, 8, 0, 0}};

enum content { NORMAL, GRID, EXTREME, SAME, NUM_CONTENTS };

static float draw_logit(enum content content, struct rng *rng)
{
    static const float extremes[] = {INFINITY, -INFINITY, NAN,  0.0f, -0.0f, 88.0f,
                                     -88.0f,   -104.0f,   1e4f, 3.0f, -3.0f, 1e-5f};
    const float normal = 2.5f * rng_normal(rng);
    switch (content) {
    case GRID:
        return floorf(normal * 4.0f) / 4.0f;
    case EXTREME:
        return rng_below(rng, 4) == 0 ? extremes[rng_below(rng, 12)] : normal;
    case SAME:
        return 0.25f;
    default:
        return normal;
    }
}

static size_t place(size_t *end, size_t bytes)
{
    const size_t at = (*end + 15) / 16 * 16;
    *end = at + bytes;
    return at;
}

static void place_all(struct gate_case *drawn, size_t row_bytes)
{
    const weft_gate_args *args = &drawn->args;
    const size_t tokens = (size_t)args->num_tokens, experts = (size_t)args->num_experts;
    const size_t choices = tokens * (size_t)args->num_topk;
    size_t end = 0;
    drawn->logits = place(&end, tokens * row_bytes);
    drawn->bias = place(&end, experts * sizeof(float));
    drawn->expert_mask = place(&end, experts);
    drawn->token_mask = place(&end, tokens);
    drawn->grad_weights = place(&end, choices * sizeof(float));
    drawn->topk_idx = place(&end, choices * dtype_bytes(args->index_type));
    drawn->topk_weights = place(&end, choices * sizeof(float));
    drawn->counts = place(&end, experts * sizeof(int32_t));
    drawn->grad_logits = place(&end, tokens * experts * sizeof(float));
    drawn->end = end;
}

static void draw_args(int32_t number, int32_t max_tokens, struct gate_case *drawn, struct rng *rng)
{
    const struct shape *shape = &shapes[number / GATE_CASES_PER_SHAPE];
    weft_gate_args *args = &drawn->args;
    const int32_t fitting = 24000 / shape->num_experts + 1;
    memset(drawn, 0, sizeof *drawn);
    args->size = sizeof *args;
    args->num_tokens = 1 + (int32_t)rng_below(rng, (uint32_t)(fitting < 40 ? fitting : 40));
    if (args->num_tokens > max_tokens)
        args->num_tokens = max_tokens;
    args->num_experts = shape->num_experts;
    args->num_topk = shape->num_topk;
    args->num_groups = shape->num_groups;
    args->num_kept_groups = shape->num_kept_groups;
    args->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    args->index_type = rng_below(rng, 2) == 0 ? WEFT_INT32 : WEFT_INT64;
    args->score = (weft_gate_score)(number % 3);
    args->weights = (weft_gate_weights)rng_below(rng, 2);
    args->group_score = (weft_gate_group_score)rng_below(rng, 2);
    args->scale = rng_below(rng, 2) == 0 ? 0.0f : 2.5f;
    drawn->has_bias = rng_below(rng, 2) == 0;
    drawn->has_expert_mask = rng_below(rng, 3) == 0;
    drawn->has_token_mask = rng_below(rng, 3) == 0;
    drawn->has_counts = rng_below(rng, 4) != 0;
}

void gate_case_draw(int32_t number, int32_t max_tokens, struct gate_case *drawn, char *block)
{
    struct rng rng = {.state = rng_key(52, (uint64_t)number)};
    weft_gate_args *args = &drawn->args;
    draw_args(number, max_tokens, drawn, &rng);
    const enum content content = (enum content)rng_below(&rng, NUM_CONTENTS);
    const size_t gap = rng_below(&rng, 2) == 0 ? 0 : 3;
    const size_t row_elements = (size_t)args->num_experts + gap;
    const size_t row_bytes = row_elements * dtype_bytes(args->dtype);
    args->logits_stride_bytes = gap == 0 ? 0 : row_bytes;
    place_all(drawn, row_bytes);
    memset(block, 0x5a, drawn->end);
    for (size_t i = 0; i < (size_t)args->num_tokens * row_elements; i++)
        element_store(args->dtype, block + drawn->logits, (int64_t)i, draw_logit(content, &rng));
    for (int32_t e = 0; e < args->num_experts; e++) {
        const float bias =
            content == GRID ? (float)rng_below(&rng, 3) * 0.25f : 0.25f * rng_normal(&rng);
        ((float *)(block + drawn->bias))[e] = bias;
        block[drawn->expert_mask + (size_t)e] = (char)(rng_below(&rng, 5) != 0);
        ((int32_t *)(block + drawn->counts))[e] = (int32_t)rng_below(&rng, 100);
    }
    for (int32_t t = 0; t < args->num_tokens; t++)
        block[drawn->token_mask + (size_t)t] = (char)rng_below(&rng, 4);
    for (int32_t i = 0; i < args->num_tokens * args->num_topk; i++)
        ((float *)(block + drawn->grad_weights))[i] = rng_normal(&rng);
}

struct gate_calls gate_case_calls(const struct gate_case *drawn, char *block)
{
    weft_gate_args args = drawn->args;
    args.logits = block + drawn->logits;
    args.bias = drawn->has_bias ? (float *)(block + drawn->bias) : NULL;
    args.expert_mask = drawn->has_expert_mask ? (uint8_t *)block + drawn->expert_mask : NULL;
    args.token_mask = drawn->has_token_mask ? (uint8_t *)block + drawn->token_mask : NULL;
    args.topk_idx = block + drawn->topk_idx;
    args.topk_weights = (float *)(block + drawn->topk_weights);
    args.num_tokens_per_expert = drawn->has_counts ? (int32_t *)(block + drawn->counts) : NULL;
    const weft_gate_backward_args backward = {.size = sizeof backward,
                                              .logits = args.logits,
                                              .expert_mask = args.expert_mask,
                                              .topk_idx = args.topk_idx,
                                              .grad_weights =
                                                  (float *)(block + drawn->grad_weights),
                                              .grad_logits = (float *)(block + drawn->grad_logits),
                                              .logits_stride_bytes = args.logits_stride_bytes,
                                              .num_tokens = args.num_tokens,
                                              .num_experts = args.num_experts,
                                              .num_topk = args.num_topk,
                                              .dtype = args.dtype,
                                              .index_type = args.index_type,
                                              .score = args.score,
                                              .weights = args.weights,
                                              .scale = args.scale};
    return (struct gate_calls){args, backward};
}

uint64_t gate_case_digest(const struct gate_case *drawn, const char *after, uint64_t digest)
{
    for (size_t at = drawn->topk_idx; at < drawn->end; at++)
        digest = rng_hash(digest ^ (unsigned char)after[at]);
    return digest;
}

/* ------------------------------------------------------------------ the definition */

/* A value, and how far fp32 may be from it. */
struct value {
    double value, error;
    int32_t idx;
};

struct token {
    const struct gate_case *drawn;
    const float *bias;
    double logits[WEFT_GATE_MAX_EXPERTS]; /* NAN: cannot be chosen */
    double greatest, sum;                 /* of softmax */
};

static char mistake[300];
#define MISTAKE(...) (snprintf(mistake, sizeof mistake, __VA_ARGS__), mistake)

static void load_token(const struct gate_case *drawn, const char *before, int32_t t,
                       struct token *token)
{
    const weft_gate_args *args = &drawn->args;
    const size_t stride = args->logits_stride_bytes != 0
                              ? args->logits_stride_bytes
                              : (size_t)args->num_experts * dtype_bytes(args->dtype);
    const char *row = before + drawn->logits + (size_t)t * stride;
    token->drawn = drawn;
    token->bias = drawn->has_bias ? (const float *)(before + drawn->bias) : NULL;
    token->greatest = NAN;
    token->sum = 0;
    for (int32_t e = 0; e < args->num_experts; e++) {
        const int is_left_out =
            drawn->has_expert_mask && before[drawn->expert_mask + (size_t)e] == 0;
        token->logits[e] = is_left_out ? NAN : (double)element_load(args->dtype, row, e);
        token->greatest = fmax(token->greatest, token->logits[e]);
    }
    for (int32_t e = 0; e < args->num_experts; e++) {
        if (!isnan(token->logits[e]))
            token->sum +=
                token->logits[e] == token->greatest ? 1 : exp(token->logits[e] - token->greatest);
    }
}

/* With logit `x` in place of that of expert e. */
static double score_of(const struct token *token, int32_t e, double x)
{
    const double own = token->logits[e];
    switch (token->drawn->args.score) {
    case WEFT_GATE_SIGMOID:
        return 1 / (1 + exp(-x));
    case WEFT_GATE_SQRT_SOFTPLUS:
        return sqrt((x > 0 ? x : 0) + log1p(exp(-fabs(x))));
    default:
        if (x == token->greatest)
            return 1 / token->sum;
        return exp(x - token->greatest) /
               (token->sum +
                (x == own ? 0 : exp(x - token->greatest) - exp(own - token->greatest)));
    }
}

static int is_better(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->idx - y->idx;
}

/* 1 if fp32 might order two neighbours differently. */
static int is_close(const struct value *better, const struct value *worse)
{
    return better->value != worse->value &&
           better->value - worse->value <= better->error + worse->error;
}

/* The experts that can be chosen. */
static int32_t list_experts(const struct token *token, int32_t begin, int32_t end,
                            struct value *list)
{
    int32_t num = 0;
    for (int32_t e = begin; e < end; e++) {
        const double score = score_of(token, e, token->logits[e]);
        const double bias = token->bias == NULL ? 0 : (double)token->bias[e];
        if (!isnan(token->logits[e]))
            list[num++] =
                (struct value){score + bias, 1e-6 * (fabs(score) + fabs(bias)) + 1e-36, e};
    }
    qsort(list, (size_t)num, sizeof *list, is_better);
    return num;
}

/* The experts that are chosen, or -1 if it is too close. */
static int32_t choose(const struct token *token, int32_t *chosen)
{
    static struct value experts[WEFT_GATE_MAX_EXPERTS], groups[WEFT_GATE_MAX_GROUPS];
    static char is_kept[WEFT_GATE_MAX_GROUPS];
    const weft_gate_args *args = &token->drawn->args;
    const int32_t num_groups = args->num_groups == 0 ? 1 : args->num_groups;
    const int32_t num_kept = args->num_kept_groups == 0 ? num_groups : args->num_kept_groups;
    const int32_t size = args->num_experts / num_groups;
    int32_t num_alive = 0, num_chosen = 0;
    for (int32_t g = 0; g < num_groups; g++) {
        if (list_experts(token, g * size, (g + 1) * size, experts) == 0)
            continue;
        groups[num_alive] = experts[0];
        if (args->group_score == WEFT_GATE_GROUP_TOP2 &&
            list_experts(token, g * size, (g + 1) * size, experts) > 1) {
            groups[num_alive].value += experts[1].value;
            groups[num_alive].error += experts[1].error;
        }
        groups[num_alive++].idx = g;
    }
    qsort(groups, (size_t)num_alive, sizeof *groups, is_better);
    if (num_kept < num_alive && is_close(&groups[num_kept - 1], &groups[num_kept]))
        return -1;
    memset(is_kept, 0, sizeof is_kept);
    for (int32_t g = 0; g < num_alive && g < num_kept; g++)
        is_kept[groups[g].idx] = 1;
    const int32_t num = list_experts(token, 0, args->num_experts, experts);
    const struct value *last = NULL;
    for (int32_t i = 0; i < num; i++) {
        if (!is_kept[experts[i].idx / size])
            continue;
        if (last != NULL && is_close(last, &experts[i]))
            return -1;
        if (num_chosen == args->num_topk)
            break;
        last = &experts[i];
        chosen[num_chosen++] = last->idx;
    }
    return num_chosen;
}

/* The weight of choice i, if expert `moved` had logit x. */
static double weight_of(const struct token *token, const int32_t *chosen, int32_t num, int32_t i,
                        int32_t moved, double x)
{
    const weft_gate_args *args = &token->drawn->args;
    const double scale = args->scale == 0.0f ? 1 : (double)args->scale;
    double scores[WEFT_MAX_TOPK], sum = 0, rest = 1;
    /* Softmax's own share goes with the moved logit. */
    if (args->score == WEFT_GATE_SOFTMAX)
        rest = token->sum / (token->sum + exp(x - token->greatest) -
                             exp(token->logits[moved] - token->greatest));
    for (int32_t j = 0; j < num; j++) {
        const double here = token->logits[chosen[j]];
        scores[j] = chosen[j] == moved ? score_of(token, moved, x)
                                       : score_of(token, chosen[j], here) * rest;
        sum += scores[j];
    }
    return args->weights == WEFT_GATE_WEIGHTS_NORMALISED ? scores[i] / (sum + 1e-20) * scale
                                                         : scores[i] * scale;
}

/* ------------------------------------------------------------------ checks */

static int64_t idx_at(const struct gate_case *drawn, const char *after, int64_t i)
{
    return drawn->args.index_type == WEFT_INT64 ? ((const int64_t *)(after + drawn->topk_idx))[i]
                                                : ((const int32_t *)(after + drawn->topk_idx))[i];
}

static int is_near(double got, double expected, double relative, double absolute)
{
    return (isnan(got) && isnan(expected)) || got == expected ||
           fabs(got - expected) <= relative * fabs(expected) + absolute;
}

/* The weights of what was chosen. */
static const char *check_weights(const struct token *token, const int32_t *got, int32_t num,
                                 const float *weights, int32_t t)
{
    for (int32_t i = 0; i < num; i++) {
        const double own = token->logits[got[i]];
        double expected = weight_of(token, got, num, i, got[i], own);
        if (isinf(token->greatest) && token->drawn->args.score == WEFT_GATE_SOFTMAX)
            continue; /* infinities cancel: the digest has them */
        const int is_normalised = token->drawn->args.weights == WEFT_GATE_WEIGHTS_NORMALISED;
        if (!is_near((double)weights[i], expected, 3e-6, is_normalised ? 1e-17 : 1e-37))
            return MISTAKE("token %d, choice %d, expert %d: weight %.9g, not %.9g", t, i, got[i],
                           (double)weights[i], expected);
    }
    for (int32_t i = num; i < token->drawn->args.num_topk; i++) {
        if (weights[i] != 0.0f)
            return MISTAKE("token %d, choice %d: weight %g of no expert", t, i, (double)weights[i]);
    }
    return NULL;
}

/* By numeric differences, for the chosen experts and some others. */
static const char *check_gradient(const struct token *token, const int32_t *got, int32_t num,
                                  const float *grad_weights, const float *grad_logits, int32_t t)
{
    const weft_gate_args *args = &token->drawn->args;
    const int32_t step = args->num_experts > 40 ? args->num_experts / 7 : 1;
    const double h = 1e-4;
    for (int32_t n = 0; n < num + (args->num_experts + step - 1) / step; n++) {
        const int32_t e = n < num ? got[n] : (n - num) * step;
        double expected = 0, size = 0;
        if (isinf(token->greatest) || isinf(token->logits[e]) || fabs(token->logits[e]) > 80)
            continue;
        for (int32_t i = 0; i < num && !isnan(token->logits[e]); i++) {
            const double x = token->logits[e];
            const double more = weight_of(token, got, num, i, e, x + h);
            const double less = weight_of(token, got, num, i, e, x - h);
            expected += (double)grad_weights[i] * (more - less) / (2 * h);
            size += fabs((double)grad_weights[i]) * weight_of(token, got, num, i, e, x);
        }
        if (!is_near((double)grad_logits[e], expected, 1e-5, 4e-6 * size + 1e-36))
            return MISTAKE("token %d, expert %d: gradient %.9g, not %.9g", t, e,
                           (double)grad_logits[e], expected);
    }
    return NULL;
}

static const char *check_token(const struct token *token, const char *before, const char *after,
                               int32_t t, int32_t *counts, int32_t *num_close)
{
    const struct gate_case *drawn = token->drawn;
    const int64_t base = (int64_t)t * drawn->args.num_topk;
    int32_t got[WEFT_MAX_TOPK], expected[WEFT_MAX_TOPK], num = 0;
    const int is_left_out = drawn->has_token_mask && before[drawn->token_mask + (size_t)t] == 0;
    const int32_t num_expected = is_left_out ? 0 : choose(token, expected);
    for (int32_t i = 0; i < drawn->args.num_topk; i++) {
        const int64_t e = idx_at(drawn, after, base + i);
        if (num_expected >= 0 && e != (i < num_expected ? expected[i] : -1))
            return MISTAKE("token %d, choice %d: expert %lld, not %d", t, i, (long long)e,
                           i < num_expected ? expected[i] : -1);
        if (e < -1 || e >= drawn->args.num_experts || (e >= 0 && isnan(token->logits[e])))
            return MISTAKE("token %d, choice %d: expert %lld", t, i, (long long)e);
        if (e >= 0) {
            counts[e]++;
            got[num++] = (int32_t)e;
        }
    }
    *num_close += num_expected < 0;
    const char *wrong =
        check_weights(token, got, num, (const float *)(after + drawn->topk_weights) + base, t);
    if (wrong != NULL)
        return wrong;
    return check_gradient(
        token, got, num, (const float *)(before + drawn->grad_weights) + base,
        (const float *)(after + drawn->grad_logits) + (int64_t)t * drawn->args.num_experts, t);
}

const char *gate_case_check(const struct gate_case *drawn, const char *before, const char *after,
                            int32_t *num_close)
{
    static struct token token; /* large */
    static int32_t counts[WEFT_GATE_MAX_EXPERTS];
    memcpy(counts, before + drawn->counts, (size_t)drawn->args.num_experts * sizeof *counts);
    if (memcmp(before, after, drawn->topk_idx) != 0)
        return "an input has changed";
    for (int32_t t = 0; t < drawn->args.num_tokens; t++) {
        load_token(drawn, before, t, &token);
        const char *wrong = check_token(&token, before, after, t, counts, num_close);
        if (wrong != NULL)
            return wrong;
    }
    if (!drawn->has_counts)
        memcpy(counts, before + drawn->counts, (size_t)drawn->args.num_experts * sizeof *counts);
    for (int32_t e = 0; e < drawn->args.num_experts; e++) {
        const int32_t got = ((const int32_t *)(after + drawn->counts))[e];
        if (got != counts[e])
            return MISTAKE("expert %d: count %d, not %d", e, got, counts[e]);
    }
    return NULL;
}
