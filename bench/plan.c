/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "workload/router.h"

static int32_t owner_of(int32_t expert, int32_t num_experts, int32_t num_ranks)
{
    int32_t rank = 0;
    while ((int64_t)num_experts * (rank + 1) / num_ranks <= expert)
        rank++;
    return rank;
}

static void place_rows(struct plan *plan)
{
    const int32_t num_tokens = plan->num_ranks * plan->num_tokens;
    for (int32_t token = 0; token < num_tokens; token++) {
        int32_t *rows = plan->rows + (int64_t)token * plan->num_ranks;
        for (int32_t rank = 0; rank < plan->num_ranks; rank++)
            rows[rank] = PLAN_NO_ROW;
        for (int32_t k = 0; k < plan->num_topk; k++) {
            const int32_t expert = plan->topk_idx[(int64_t)token * plan->num_topk + k];
            if (expert == PLAN_NO_EXPERT)
                continue;
            const int32_t rank = owner_of(expert, plan->num_experts, plan->num_ranks);
            if (rows[rank] == PLAN_NO_ROW)
                rows[rank] = plan->num_recv[rank]++;
        }
    }
}

/* 0, or -1 when memory is short; on success plan->rows are still to be placed. */
static int alloc_tables(struct plan *plan)
{
    const size_t num_tokens = (size_t)plan->num_ranks * (size_t)plan->num_tokens + 1;
    const size_t topk = (size_t)plan->num_topk;
    plan->topk_idx = calloc(num_tokens * topk, sizeof(int32_t));
    plan->topk_weights = malloc(num_tokens * topk * sizeof(float));
    plan->rows = malloc(num_tokens * (size_t)plan->num_ranks * sizeof(int32_t));
    plan->num_recv = calloc((size_t)plan->num_ranks, sizeof(int32_t));
    if (plan->topk_idx != NULL && plan->topk_weights != NULL && plan->rows != NULL &&
        plan->num_recv != NULL)
        return 0;
    plan_destroy(plan);
    return -1;
}

static int alloc_plan(struct plan *plan, const struct bench_options *options, int32_t num_ranks)
{
    *plan = (struct plan){.num_ranks = num_ranks,
                          .num_tokens = options->num_tokens,
                          .num_topk = options->num_topk,
                          .num_experts = options->num_experts,
                          .row_bytes = (size_t)options->hidden * sizeof(uint16_t),
                          .payload = {.seed = options->seed, .dtype = WEFT_BF16}};
    return alloc_tables(plan);
}

int plan_init(struct plan *plan, const struct bench_options *options, int32_t num_ranks)
{
    if (alloc_plan(plan, options, num_ranks) != 0)
        return -1;
    struct router *router = router_create(&(struct router_config){
        .seed = options->seed, .num_experts = plan->num_experts, .num_topk = plan->num_topk});
    if (router == NULL) {
        plan_destroy(plan);
        return -1;
    }
    router_route(router, 0, (int64_t)num_ranks * plan->num_tokens, plan->topk_idx,
                 plan->topk_weights);
    router_destroy(router);
    place_rows(plan);
    return 0;
}

int plan_init_for_partners(struct plan *plan, const struct bench_options *options,
                           int32_t num_ranks, int32_t ranks_per_node)
{
    if (alloc_plan(plan, options, num_ranks) != 0)
        return -1;
    for (int64_t i = 0; i < (int64_t)num_ranks * plan->num_tokens * plan->num_topk; i++) {
        const int64_t rank = i / ((int64_t)plan->num_tokens * plan->num_topk);
        const int64_t partner = (rank + ranks_per_node) % num_ranks;
        const int64_t first_expert = (plan->num_experts * partner + num_ranks - 1) / num_ranks;
        const int is_chosen = i % plan->num_topk == 0;
        plan->topk_idx[i] = is_chosen ? (int32_t)first_expert : PLAN_NO_EXPERT;
        plan->topk_weights[i] = is_chosen ? 1 : 0;
    }
    place_rows(plan);
    return 0;
}

static const int32_t *choices_of(const struct plan *plan, int32_t source, int32_t token)
{
    return plan->topk_idx + ((int64_t)source * plan->num_tokens + token) * plan->num_topk;
}

int plan_chooses(const struct plan *plan, int32_t source, int32_t token, int32_t expert)
{
    const int32_t *choices = choices_of(plan, source, token);
    for (int32_t k = 0; k < plan->num_topk; k++)
        if (choices[k] == expert)
            return 1;
    return 0;
}

static void split_weights(const struct plan *plan, const int32_t *choices, int32_t rank,
                          float *weights)
{
    float left = 1.0f, *last = NULL;
    for (int32_t k = 0; k < plan->num_topk; k++) {
        if (choices[k] < plan_first_expert(plan, rank) ||
            choices[k] >= plan_first_expert(plan, rank + 1))
            continue;
        left /= 2;
        weights[k] = left;
        last = &weights[k];
    }
    if (last != NULL)
        *last *= 2;
}

void plan_split_weights(const struct plan *plan, int32_t source, float *weights)
{
    for (int32_t token = 0; token < plan->num_tokens; token++)
        for (int32_t rank = 0; rank < plan->num_ranks; rank++)
            split_weights(plan, choices_of(plan, source, token), rank,
                          weights + (int64_t)token * plan->num_topk);
}

/* What rank `rank` has; a token more than it has is there, without experts, when others have one. */
static void read_tokens(struct plan *plan, const struct trace *trace, int32_t layer, int32_t rank)
{
    const int32_t first = trace_first_token(trace, rank, plan->num_ranks);
    const int32_t num_tokens = trace_first_token(trace, rank + 1, plan->num_ranks) - first;
    const int64_t begin = (int64_t)rank * plan->num_tokens * plan->num_topk;
    for (int64_t i = 0; i < (int64_t)plan->num_tokens * plan->num_topk; i++) {
        plan->topk_idx[begin + i] = PLAN_NO_EXPERT;
        plan->topk_weights[begin + i] = 0;
    }
    trace_read(trace, layer, first, num_tokens, plan->topk_idx + begin, plan->topk_weights + begin);
}

int plan_init_from_trace(struct plan *plan, const struct trace *trace, int32_t layer,
                         int32_t num_ranks)
{
    *plan = (struct plan){.num_ranks = num_ranks,
                          .num_tokens = (trace->num_tokens + num_ranks - 1) / num_ranks,
                          .num_topk = trace->num_topk,
                          .num_experts = trace->num_experts};
    if (alloc_tables(plan) != 0)
        return -1;
    for (int32_t rank = 0; rank < num_ranks; rank++)
        read_tokens(plan, trace, layer, rank);
    place_rows(plan);
    return 0;
}

void plan_destroy(struct plan *plan)
{
    free(plan->topk_idx);
    free(plan->topk_weights);
    free(plan->rows);
    free(plan->num_recv);
    *plan = (struct plan){0};
}

static void fill_row(const struct plan *plan, int32_t source, int32_t token, void *row)
{
    payload_fill_row(&plan->payload, (int64_t)source * plan->num_tokens + token, 0, row,
                     plan->row_bytes);
}

int plan_row_is(const struct plan *plan, int32_t source, int32_t token, const void *row)
{
    char *expected = malloc(plan->row_bytes);
    if (expected == NULL)
        return 0;
    fill_row(plan, source, token, expected);
    const int is_equal = memcmp(row, expected, plan->row_bytes) == 0;
    free(expected);
    return is_equal;
}

void plan_fill(const struct plan *plan, int32_t source, void *x)
{
    for (int32_t token = 0; token < plan->num_tokens; token++)
        fill_row(plan, source, token, (char *)x + (size_t)token * plan->row_bytes);
}

int64_t plan_check_received(const struct plan *plan, int32_t rank, const void *received)
{
    char *expected = malloc(plan->row_bytes);
    if (expected == NULL)
        return -1;
    int64_t num_wrong = 0;
    for (int32_t source = 0; source < plan->num_ranks; source++) {
        for (int32_t token = 0; token < plan->num_tokens; token++) {
            const int32_t row = plan_row(plan, source, token, rank);
            if (row == PLAN_NO_ROW)
                continue;
            fill_row(plan, source, token, expected);
            const char *seen = (const char *)received + (size_t)row * plan->row_bytes;
            num_wrong += memcmp(seen, expected, plan->row_bytes) != 0;
        }
    }
    free(expected);
    return num_wrong;
}

struct sums { /* of a row's elements */
    float *total, *node;
    void *row; /* rounded */
};

/* The row x of a token's owner comes back from every rank that had the token. A node without any
 * adds nothing; that the sum of the only node is rounded twice changes nothing. */
static void add_nodes(const struct plan *plan, int32_t source, int32_t token, int32_t num_nodes,
                      const float *x, struct sums *sums)
{
    const size_t hidden = plan->row_bytes / sizeof(uint16_t);
    const int32_t node_size = plan->num_ranks / num_nodes;
    memset(sums->total, 0, hidden * sizeof(float));
    for (int32_t first = 0; first < plan->num_ranks; first += node_size) {
        int32_t num_rows = 0;
        for (int32_t rank = first; rank < first + node_size; rank++)
            num_rows += plan_row(plan, source, token, rank) != PLAN_NO_ROW;
        if (num_rows == 0)
            continue;
        memset(sums->node, 0, hidden * sizeof(float));
        for (int32_t row = 0; row < num_rows; row++)
            for (size_t h = 0; h < hidden; h++)
                sums->node[h] += x[h];
        elements_from_fp32(WEFT_BF16, sums->node, hidden, sums->row);
        elements_to_fp32(WEFT_BF16, sums->row, hidden, sums->node);
        for (size_t h = 0; h < hidden; h++)
            sums->total[h] += sums->node[h];
    }
    elements_from_fp32(WEFT_BF16, sums->total, hidden, sums->row);
}

int64_t plan_check_combined(const struct plan *plan, int32_t rank, int32_t num_nodes,
                            const void *combined)
{
    const size_t hidden = plan->row_bytes / sizeof(uint16_t);
    float *x = malloc(3 * hidden * sizeof(float));
    struct sums sums = {.row = malloc(plan->row_bytes)};
    int64_t num_wrong = x == NULL || sums.row == NULL ? -1 : 0;
    for (int32_t token = 0; token < plan->num_tokens && num_wrong >= 0; token++) {
        sums.total = x + hidden;
        sums.node = x + 2 * hidden;
        fill_row(plan, rank, token, sums.row);
        elements_to_fp32(WEFT_BF16, sums.row, hidden, x);
        add_nodes(plan, rank, token, num_nodes, x, &sums);
        const char *seen = (const char *)combined + (size_t)token * plan->row_bytes;
        num_wrong += memcmp(seen, sums.row, plan->row_bytes) != 0;
    }
    free(x);
    free(sums.row);
    return num_wrong;
}
