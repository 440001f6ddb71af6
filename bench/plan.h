/* SPDX-License-Identifier: MIT */
/* The routing of all ranks of one node and where it puts every row: plain memcpy, GPUs without weft
 * and Open MPI follow it, and results are checked against it. */
#pragma once

#include "options.h"
#include "workload/ep_routing.h"
#include "workload/payload.h"

struct plan {
    int32_t num_ranks;
    int32_t num_tokens; /* per rank; all ranks' tokens are numbered rank after rank */
    size_t row_bytes;
    struct payload payload;
    struct ep_routing routing;
    int32_t *rows;     /* [all tokens][num_ranks] row at that rank, in (source, token) order, or
                      PLAN_NO_ROW */
    int32_t *num_recv; /* [num_ranks] rows */
};

enum { PLAN_NO_ROW = -1 };

/* 0, or -1 when memory is short. */
int plan_init(struct plan *plan, const struct bench_options *options, int32_t num_ranks);
void plan_destroy(struct plan *plan);

static inline int32_t plan_row(const struct plan *plan, int32_t source, int32_t token, int32_t rank)
{
    const int64_t global = (int64_t)source * plan->num_tokens + token;
    return plan->rows[global * plan->num_ranks + rank];
}

/* x[num_tokens] of rank `source`. */
void plan_fill(const struct plan *plan, int32_t source, void *x);

/* How many rows are wrong: received ones, and sums of a token's received rows at its owner. -1 when
 * memory is short. */
int64_t plan_check_received(const struct plan *plan, int32_t rank, const void *received);
int64_t plan_check_combined(const struct plan *plan, int32_t rank, const void *combined);
