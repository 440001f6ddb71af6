/* SPDX-License-Identifier: MIT */
/* Who chose which experts, and where those are: everything that results are checked against follows
 * from it and the global token index. Tokens here are global: rank s has those from
 * first_tokens[s] up to first_tokens[s + 1]. */
#pragma once

#include <stdint.h>

#include "workload/ep_layer_options.h"
#include "workload/ep_oracle.h"

struct ep_routing {
    int32_t num_ranks;
    int32_t num_topk;
    int32_t num_experts;
    int64_t *first_tokens; /* [num_ranks + 1] */
    int64_t loaded_begin;  /* tokens whose routing is in memory */
    int64_t loaded_end;
    int32_t *topk_idx;                  /* [loaded_end - loaded_begin][num_topk] */
    float *topk_weights;                /* the same */
    int32_t *expert_rank;               /* [num_experts + 1] the last is nowhere: -1 */
    int32_t *nodes, *num_local_experts; /* [num_ranks] */
    struct ep_problem problem;
};

enum ep_routing_extent { EP_ROUTING_OWN, EP_ROUTING_ALL };

struct ep_ranks {
    int32_t num_ranks;
    int32_t rank;         /* this one; progress is rank 0's to show */
    const int32_t *nodes; /* [num_ranks] */
};

/* 0, or -1 when out of memory. */
int ep_routing_open(struct ep_routing *routing, const struct ep_layer_options *options,
                    const struct ep_ranks *ranks, enum ep_routing_extent extent);
/* Takes away the choices of ranks that have masked each other, which count as nothing. */
void ep_routing_mask(struct ep_routing *routing, const struct ep_layer_options *options);
void ep_routing_close(struct ep_routing *routing);

static inline const int32_t *ep_routing_topk_idx(const struct ep_routing *routing, int64_t token)
{
    return routing->topk_idx + (token - routing->loaded_begin) * routing->num_topk;
}

static inline const float *ep_routing_topk_weights(const struct ep_routing *routing, int64_t token)
{
    return routing->topk_weights + (token - routing->loaded_begin) * routing->num_topk;
}

/* The first expert of a rank: it has those up to the first of rank + 1. */
static inline int32_t ep_routing_first_expert(const struct ep_routing *routing, int32_t rank)
{
    return ep_first_expert(routing->num_experts, routing->num_ranks, rank);
}
