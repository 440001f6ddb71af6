/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "workload/router.h"

static const int32_t *choices_of(const struct plan *plan, int32_t source, int32_t token)
{
    return plan->topk_idx + ((int64_t)source * plan->num_tokens + token) * plan->num_topk;
}

static struct ep_choice choose(const void *of, struct ep_token token, int32_t k)
{
    const struct plan *plan = of;
    const int32_t expert = choices_of(plan, token.source, token.idx)[k];
    if (expert == PLAN_NO_EXPERT)
        return (struct ep_choice){.rank = -1};
    const int32_t rank = ep_rank_of_expert(plan->num_experts, plan->num_ranks, expert);
    return (struct ep_choice){
        .rank = rank, .expert = expert, .local_expert = expert - plan_first_expert(plan, rank)};
}

static struct ep_problem problem_of(const struct plan *plan, int32_t num_nodes)
{
    return (struct ep_problem){.num_ranks = plan->num_ranks,
                               .num_nodes = num_nodes,
                               .num_experts = plan->num_experts,
                               .num_topk = plan->num_topk,
                               .expert_alignment = 1,
                               .first_tokens = plan->first_tokens,
                               .choose = choose,
                               .of = plan};
}

static void place_rows(struct plan *plan)
{
    const struct ep_problem problem = problem_of(plan, 1);
    for (int32_t source = 0; source < plan->num_ranks; source++)
        for (int32_t i = 0; i < plan->num_tokens; i++) {
            const struct ep_token token = {source, i};
            int32_t *rows = plan->rows + ep_oracle_number(&problem, token) * plan->num_ranks;
            for (int32_t rank = 0; rank < plan->num_ranks; rank++)
                rows[rank] =
                    ep_oracle_goes_to(&problem, token, rank) ? plan->num_recv[rank]++ : PLAN_NO_ROW;
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
    plan->first_tokens = calloc((size_t)plan->num_ranks + 1, sizeof(int64_t));
    if (plan->topk_idx == NULL || plan->topk_weights == NULL || plan->rows == NULL ||
        plan->num_recv == NULL || plan->first_tokens == NULL) {
        plan_destroy(plan);
        return -1;
    }
    for (int32_t rank = 0; rank <= plan->num_ranks; rank++)
        plan->first_tokens[rank] = (int64_t)rank * plan->num_tokens;
    return 0;
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

void plan_destroy(struct plan *plan)
{
    free(plan->topk_idx);
    free(plan->topk_weights);
    free(plan->rows);
    free(plan->num_recv);
    free(plan->first_tokens);
    *plan = (struct plan){0};
}

static void fill_row(const struct plan *plan, int32_t source, int32_t token, void *row)
{
    payload_fill_row(&plan->payload, (int64_t)source * plan->num_tokens + token, 0, row,
                     plan->row_bytes);
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

struct answering {
    size_t hidden;
    const float *x; /* what each rank that had the token answers: its row */
};

static int read_answer(void *of, struct ep_token token, int32_t rank, float *values)
{
    const struct answering *answering = of;
    (void)token;
    (void)rank;
    memcpy(values, answering->x, answering->hidden * sizeof *values);
    return 1;
}

int64_t plan_check_combined(const struct plan *plan, int32_t rank, int32_t num_nodes,
                            const void *combined)
{
    const size_t hidden = plan->row_bytes / sizeof(uint16_t);
    const struct ep_problem problem = problem_of(plan, num_nodes);
    float *x = malloc(4 * hidden * sizeof(float));
    void *row = malloc(plan->row_bytes);
    struct answering answering = {hidden, x};
    const struct ep_answers answers = {
        .num_values = (int64_t)hidden, .dtype = WEFT_BF16, .read = read_answer, .of = &answering};
    int64_t num_wrong = x == NULL || row == NULL ? -1 : 0;
    for (int32_t token = 0; token < plan->num_tokens && num_wrong >= 0; token++) {
        float *sum = x + hidden, *scratch = sum + hidden;
        fill_row(plan, rank, token, row);
        elements_to_fp32(WEFT_BF16, row, hidden, x);
        memset(sum, 0, hidden * sizeof(float));
        ep_oracle_combine(&problem, &answers, (struct ep_token){rank, token}, sum, scratch);
        elements_from_fp32(WEFT_BF16, sum, hidden, row);
        const char *seen = (const char *)combined + (size_t)token * plan->row_bytes;
        num_wrong += memcmp(seen, row, plan->row_bytes) != 0;
    }
    free(x);
    free(row);
    return num_wrong;
}
