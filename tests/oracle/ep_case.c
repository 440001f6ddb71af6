/* SPDX-License-Identifier: MIT */
#include "oracle/ep_case.h"

#include <limits.h>

#include "harness/memory.h"
#include "workload/rng.h"

static int32_t num_tokens_of_rank(const struct ep_case *spec, int32_t rank)
{
    struct rng rng = {rng_key(spec->seed, 1000 + (uint64_t)rank)};
    switch (spec->tokens) {
    case EP_TOKENS_RAGGED:
        return (int32_t)rng_below(&rng, (uint32_t)spec->max_tokens + 1);
    case EP_TOKENS_SOME_EMPTY:
        return rank % 2 == 0 ? spec->max_tokens : 0;
    case EP_TOKENS_ONLY_LAST:
        return rank == spec->num_ranks - 1 ? spec->max_tokens : 0;
    case EP_TOKENS_ALL_EMPTY:
        return 0;
    default:
        return spec->max_tokens;
    }
}

/* Ids to be ignored: among them some that look valid once cut to 32 bits. */
static int64_t invalid_expert(const struct ep_case *spec, struct rng *rng)
{
    const int64_t of_32_bits[] = {-1, -1, -2, spec->num_experts, INT32_MAX, INT32_MIN, -99};
    const int64_t of_64_bits[] = {-1,
                                  INT64_MAX,
                                  INT64_MIN,
                                  (int64_t)1 << 32,
                                  ((int64_t)1 << 40) + spec->num_experts - 1,
                                  -((int64_t)1 << 32)};
    return spec->index_type == WEFT_INT32 ? of_32_bits[rng_below(rng, 7)]
                                          : of_64_bits[rng_below(rng, 6)];
}

static int64_t any_expert(const struct ep_case *spec, struct rng *rng)
{
    const uint32_t num_experts = (uint32_t)spec->num_experts;
    uint32_t expert = rng_below(rng, num_experts);
    if (spec->routing == EP_ROUTING_SKEWED) /* the least of four */
        for (int i = 0; i < 3; i++) {
            const uint32_t other = rng_below(rng, num_experts);
            expert = other < expert ? other : expert;
        }
    return expert;
}

static int contains(const int64_t *values, int32_t num_values, int64_t value)
{
    for (int32_t i = 0; i < num_values; i++)
        if (values[i] == value)
            return 1;
    return 0;
}

static int64_t choose(const struct ep_case *spec, struct rng *rng, const int64_t *before, int32_t k)
{
    if (spec->routing == EP_ROUTING_NOWHERE)
        return -1;
    if (spec->routing == EP_ROUTING_ONE_EXPERT)
        return spec->num_experts / 2;
    if (spec->routing == EP_ROUTING_HOLES && rng_below(rng, 3) == 0)
        return invalid_expert(spec, rng);
    int64_t expert = any_expert(spec, rng);
    if (spec->routing == EP_ROUTING_DUPLICATES)
        return k > 0 && rng_below(rng, 2) == 0 ? before[0] : expert;
    for (int32_t i = 0; i < spec->num_experts && contains(before, k, expert); i++)
        expert = (expert + 1) % spec->num_experts;
    return contains(before, k, expert) ? -1 : expert; /* more choices than experts */
}

struct ep_chosen ep_case_tokens(const struct ep_case *spec, int32_t rank)
{
    const int32_t num_tokens = num_tokens_of_rank(spec, rank);
    const size_t num_choices = (size_t)num_tokens * (size_t)spec->num_topk;
    int64_t *topk_idx = tests_alloc(sizeof(int64_t) * num_choices);
    float *topk_weights = tests_alloc(sizeof(float) * num_choices);
    for (int32_t token = 0; token < num_tokens; token++) {
        struct rng rng = {rng_key(rng_key(spec->seed, (uint64_t)rank), (uint64_t)token)};
        int64_t *idx = topk_idx + (int64_t)token * spec->num_topk;
        for (int32_t k = 0; k < spec->num_topk; k++) {
            idx[k] = choose(spec, &rng, idx, k);
            topk_weights[(int64_t)token * spec->num_topk + k] = rng_uniform(&rng);
        }
    }
    return (struct ep_chosen){num_tokens, topk_idx, topk_weights};
}

struct ep_case ep_case_random(uint64_t seed, int32_t num_ranks, int32_t max_tokens)
{
    static const int32_t topk_choices[] = {1, 2, 3, 4, 6, 8, 16};
    struct rng rng = {rng_key(seed, 5)};
    struct ep_case spec = {
        .index_type = WEFT_INT32, .seed = seed, .num_ranks = num_ranks, .max_tokens = max_tokens};
    spec.num_topk = topk_choices[rng_below(&rng, 7)];
    spec.num_experts = 1 + (int32_t)rng_below(&rng, 4 * (uint32_t)num_ranks + 3);
    spec.expert_alignment = (int32_t)rng_below(&rng, 3) * 4;
    spec.index_type = rng_below(&rng, 2) == 0 ? WEFT_INT32 : WEFT_INT64;
    spec.tokens = (enum ep_tokens)rng_below(&rng, EP_NUM_TOKENS);
    if (spec.tokens == EP_TOKENS_ALL_EMPTY && rng_below(&rng, 4) != 0)
        spec.tokens = EP_TOKENS_RAGGED; /* nothing happens there: once is enough */
    spec.routing = (enum ep_routing)rng_below(&rng, EP_NUM_ROUTINGS);
    spec.placement = (enum ep_placement)rng_below(&rng, EP_NUM_PLACEMENTS);
    spec.grid = rng_below(&rng, 3) == 0 ? EP_GRID_DIFFERS_BY_RANK : EP_GRID_AS_GIVEN;
    spec.num_blocks = (int32_t)rng_below(&rng, 4);
    spec.num_warps = (int32_t)rng_below(&rng, 6);
    spec.routed_by = (enum ep_routed_by)rng_below(&rng, EP_NUM_ROUTED_BY);
    if (spec.placement == EP_PLACEMENT_DEFAULT)
        spec.num_spare_experts = (int32_t)rng_below(&rng, 2) * 3;
    spec.room = (enum ep_room)rng_below(&rng, EP_NUM_ROOMS);
    spec.reach = (enum ep_reach)rng_below(&rng, EP_NUM_REACHES);
    if (spec.reach != EP_REACH_HEAP || rng_below(&rng, 2) == 0)
        spec.staging_bytes = rng_below(&rng, 2) == 0 ? EP_STAGING_OF_FEW : EP_STAGING_OF_ALL;
    spec.order = (weft_ep_order)rng_below(&rng, 2);
    return spec;
}
