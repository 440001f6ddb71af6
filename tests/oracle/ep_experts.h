/* SPDX-License-Identifier: MIT */
/* Where experts are, with replicas, as weft.h has it, and the choices that follow from it: what the
 * oracle of expert parallelism (workload/ep_oracle.h) asks for. */
#pragma once

#include <stdint.h>

#include "workload/ep_oracle.h"

struct ep_experts {
    int32_t num_ranks, num_experts;
    const int32_t *offsets; /* [num_experts + 1] */
    const int32_t *ranks;
};

/* The placement that both tables NULL stand for: offsets[num_experts + 1], ranks[num_experts]. */
void ep_experts_default(int32_t num_ranks, int32_t num_experts, int32_t *offsets, int32_t *ranks);
/* The next expert of a rank behind `expert`, which is -1 for the first; -1 if there is none. */
int32_t ep_experts_next(const struct ep_experts *experts, int32_t rank, int32_t expert);
/* Rows that `rank` can get if every rank has `max_tokens` tokens and chooses against it. */
int64_t ep_experts_max_recv_tokens(const struct ep_experts *experts, int32_t rank,
                                   int32_t max_tokens);

/* Of one rank. */
struct ep_chosen {
    int32_t num_tokens;
    const int64_t *topk_idx;   /* [num_tokens][num_topk], any values */
    const float *topk_weights; /* [num_tokens][num_topk] */
};

/* A problem on one node, without alignment; until ep_problem_destroy. Does not keep
 * chosen[num_ranks]. */
struct ep_problem ep_problem_create(const struct ep_experts *experts,
                                    const struct ep_chosen *chosen, int32_t num_topk);
void ep_problem_destroy(const struct ep_problem *problem);

/* What layout takes in place of topk_idx. */
struct ep_table {
    uint8_t *tokens_to_ranks; /* [num_tokens][num_ranks] */
    int32_t *selections;      /* [offsets[num_experts]] */
};
/* Fills the caller's zeroed arrays. */
void ep_experts_fill_table(const struct ep_experts *experts, const struct ep_problem *problem,
                           int32_t rank, const struct ep_table *table);
