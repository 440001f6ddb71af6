/* SPDX-License-Identifier: MIT */
#include "row_tables.h"

#include <stdio.h>

int routing_init(struct plan *plan, const struct cuda_options *options, int32_t num_tokens,
                 int32_t num_ranks)
{
    const struct bench_options bench_options = {.num_tokens = num_tokens,
                                                .num_topk = options->num_topk,
                                                .num_experts = options->num_experts,
                                                .seed = options->seed};
    if (plan_init(plan, &bench_options, num_ranks) == 0)
        return 0;
    perror("routing");
    return -1;
}

const int32_t *routing_rows(const struct plan *plan, int32_t rank)
{
    return plan->rows + (int64_t)rank * plan->num_tokens * plan->num_ranks;
}

void routing_received(const struct plan *plan, int32_t rank, int32_t *numbers)
{
    for (int32_t number = 0; number < plan->num_ranks * plan->num_tokens; number++) {
        const int32_t row = plan->rows[(int64_t)number * plan->num_ranks + rank];
        if (row != PLAN_NO_ROW)
            numbers[row] = number;
    }
}

void routing_sent(const struct plan *plan, int32_t rank, int32_t *numbers)
{
    for (int32_t token = 0; token < plan->num_tokens; token++)
        numbers[token] = rank * plan->num_tokens + token;
}

int32_t routing_count(const struct plan *plan, int32_t source, int32_t destination)
{
    int32_t count = 0;
    for (int32_t token = 0; token < plan->num_tokens; token++)
        count += plan_row(plan, source, token, destination) != PLAN_NO_ROW;
    return count;
}
