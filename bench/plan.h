/* SPDX-License-Identifier: MIT */
/* The routing of all ranks and where it puts every row, computed by plain loops: input of the
 * measured operations, what plain memcpy follows, and what results are checked against. */
#pragma once

#include "options.h"
#include "workload/ep_oracle.h"
#include "workload/payload.h"

struct plan {
    int32_t num_ranks;
    int32_t num_tokens; /* per rank; all ranks' tokens are numbered rank after rank */
    int32_t num_topk;
    int32_t num_experts;
    size_t row_bytes;
    struct payload payload;
    int32_t *topk_idx;   /* [all tokens][num_topk] or PLAN_NO_EXPERT */
    float *topk_weights; /* [all tokens][num_topk] */
    int32_t *rows;     /* [all tokens][num_ranks] row at that rank, in (source, token) order; -1 */
    int32_t *num_recv; /* [num_ranks] rows */
    int64_t *first_tokens; /* [num_ranks + 1] */
};

enum { PLAN_NO_ROW = -1, PLAN_NO_EXPERT = -1 };

/* 0, or -1 when memory is short. */
int plan_init(struct plan *plan, const struct bench_options *options, int32_t num_ranks);
void plan_destroy(struct plan *plan);

static inline int32_t plan_row(const struct plan *plan, int32_t source, int32_t token, int32_t rank)
{
    const int64_t global = (int64_t)source * plan->num_tokens + token;
    return plan->rows[global * plan->num_ranks + rank];
}

/* A rank has the experts from its first one up to that of rank + 1. */
static inline int32_t plan_first_expert(const struct plan *plan, int32_t rank)
{
    return ep_first_expert(plan->num_experts, plan->num_ranks, rank);
}
/* x[num_tokens] of rank `source`. */
void plan_fill(const struct plan *plan, int32_t source, void *x);

/* How many rows are wrong: received ones, and sums of a token's received rows at its owner, which
 * are sums of the rounded sums of each of num_nodes nodes. -1 when memory is short. */
int64_t plan_check_received(const struct plan *plan, int32_t rank, const void *received);
int64_t plan_check_combined(const struct plan *plan, int32_t rank, int32_t num_nodes,
                            const void *combined);
