/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

static void place_rows(struct plan *plan)
{
    const struct ep_problem *problem = &plan->routing.problem;
    for (int32_t source = 0; source < plan->num_ranks; source++)
        for (int32_t i = 0; i < plan->num_tokens; i++) {
            const struct ep_token token = {source, i};
            int32_t *rows = plan->rows + ep_oracle_number(problem, token) * plan->num_ranks;
            for (int32_t rank = 0; rank < plan->num_ranks; rank++)
                rows[rank] =
                    ep_oracle_goes_to(problem, token, rank) ? plan->num_recv[rank]++ : PLAN_NO_ROW;
        }
}

int plan_init(struct plan *plan, const struct bench_options *options, int32_t num_ranks)
{
    const struct ep_layer_options layer = bench_layer_options(options);
    const size_t num_rows = (size_t)num_ranks * (size_t)num_ranks * (size_t)options->num_tokens;
    int32_t *nodes = calloc((size_t)num_ranks, sizeof *nodes);
    const struct ep_ranks ranks = {.num_ranks = num_ranks, .rank = -1, .nodes = nodes};
    *plan = (struct plan){.num_ranks = num_ranks,
                          .num_tokens = options->num_tokens,
                          .row_bytes = layer.row_bytes,
                          .payload = {.seed = options->seed, .dtype = WEFT_BF16},
                          .rows = malloc((num_rows + 1) * sizeof(int32_t)),
                          .num_recv = calloc((size_t)num_ranks, sizeof(int32_t))};
    const int is_ready = nodes && plan->rows && plan->num_recv &&
                         ep_routing_open(&plan->routing, &layer, &ranks, EP_ROUTING_ALL) == 0;
    free(nodes);
    if (!is_ready) {
        plan_destroy(plan);
        return -1;
    }
    place_rows(plan);
    return 0;
}

void plan_destroy(struct plan *plan)
{
    ep_routing_close(&plan->routing);
    free(plan->rows);
    free(plan->num_recv);
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

int64_t plan_check_combined(const struct plan *plan, int32_t rank, const void *combined)
{
    const size_t hidden = plan->row_bytes / sizeof(uint16_t);
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
        ep_oracle_combine(&plan->routing.problem, &answers, (struct ep_token){rank, token}, sum,
                          scratch);
        elements_from_fp32(WEFT_BF16, sum, hidden, row);
        const char *seen = (const char *)combined + (size_t)token * plan->row_bytes;
        num_wrong += memcmp(seen, row, plan->row_bytes) != 0;
    }
    free(x);
    free(row);
    return num_wrong;
}
