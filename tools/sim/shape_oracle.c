/* SPDX-License-Identifier: MIT */
#include "shape_oracle.h"

static struct ep_choice choose(const void *of, struct ep_token token, int32_t k)
{
    const struct shape_oracle *oracle = of;
    const struct shape *shape = oracle->shape;
    const int32_t expert = shape->experts[oracle->round][token.source][token.idx][k];
    if (expert == SHAPE_NO_CHOICE)
        return (struct ep_choice){.rank = -1};
    const int32_t rank = ep_rank_of_expert(shape->num_experts, shape->num_ranks, expert);
    return (struct ep_choice){rank, expert, expert - shape_first_expert(shape, rank),
                              shape_weight(oracle->round, token.source, token.idx, k)};
}

void shape_oracle_open(struct shape_oracle *oracle, const struct shape *shape, int32_t round)
{
    oracle->shape = shape;
    oracle->round = round;
    oracle->first_tokens[0] = 0;
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        oracle->first_tokens[rank + 1] =
            oracle->first_tokens[rank] + shape->num_tokens[round][rank];
        oracle->num_local_experts[rank] =
            shape_first_expert(shape, rank + 1) - shape_first_expert(shape, rank);
    }
    oracle->problem =
        (struct ep_problem){.num_ranks = shape->num_ranks,
                            .num_nodes = shape->num_nodes,
                            .num_experts = shape->num_experts,
                            .num_topk = shape->num_topk,
                            .expert_alignment = shape->expert_alignment,
                            .order = shape->routes_by_table ? WEFT_ORDER_BY_RANK : shape->order,
                            .num_local_experts = oracle->num_local_experts,
                            .first_tokens = oracle->first_tokens,
                            .choose = choose,
                            .of = oracle};
}
