/* SPDX-License-Identifier: MIT */
#include "row_tables.h"

#include <stdio.h>
#include <stdlib.h>

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

static void list_received(const struct plan *plan, int32_t rank, int32_t *numbers)
{
    for (int32_t number = 0; number < plan->num_ranks * plan->num_tokens; number++) {
        const int32_t row = plan->rows[(int64_t)number * plan->num_ranks + rank];
        if (row != PLAN_NO_ROW)
            numbers[row] = number;
    }
}

static void list_sent(const struct plan *plan, int32_t rank, int32_t *numbers)
{
    for (int32_t token = 0; token < plan->num_tokens; token++)
        numbers[token] = rank * plan->num_tokens + token;
}

static int upload(struct device_memory *memory, const int32_t *numbers, size_t num_numbers,
                  const int32_t **table)
{
    return device_upload(memory, numbers, num_numbers * sizeof(int32_t), (void **)table);
}

int row_tables_upload(struct row_tables *tables, struct device_memory *memory,
                      const struct plan *plan, int32_t rank)
{
    const size_t num_tokens = (size_t)plan->num_tokens, num_recv = (size_t)plan->num_recv[rank];
    const size_t num_rows = num_tokens * (size_t)plan->num_ranks;
    int32_t *sent = malloc((num_tokens + num_recv + 1) * sizeof(int32_t));
    if (sent == NULL) {
        perror("malloc");
        return -1;
    }
    int32_t *received = sent + num_tokens;
    list_sent(plan, rank, sent);
    list_received(plan, rank, received);
    int result = upload(memory, sent, num_tokens, &tables->sent);
    if (result == 0)
        result = upload(memory, received, num_recv, &tables->received);
    if (result == 0)
        result = upload(memory, plan->rows + (size_t)rank * num_rows, num_rows, &tables->rows);
    free(sent);
    return result;
}

int32_t routing_count(const struct plan *plan, int32_t source, int32_t destination)
{
    int32_t count = 0;
    for (int32_t token = 0; token < plan->num_tokens; token++)
        count += plan_row(plan, source, token, destination) != PLAN_NO_ROW;
    return count;
}

struct routed_bytes routing_bytes(const struct plan *plan, int32_t row_bytes)
{
    int64_t num_rows = 0, num_own_rows = 0;
    for (int32_t rank = 0; rank < plan->num_ranks; rank++) {
        num_rows += plan->num_recv[rank];
        num_own_rows += routing_count(plan, rank, rank);
    }
    const double bytes = (double)row_bytes / plan->num_ranks;
    return (struct routed_bytes){(double)num_rows * bytes,
                                 (double)(num_rows - num_own_rows) * bytes};
}
