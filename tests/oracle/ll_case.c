/* SPDX-License-Identifier: MIT */
#include "oracle/ll_case.h"

#include <stdlib.h>

#include "harness/memory.h"
#include "workload/elements.h"
#include "workload/rng.h"

enum draw { DRAW_TOKENS, DRAW_EXPERT, DRAW_WEIGHT, DRAW_ELEMENTS };

static uint64_t draw(const struct ll_case *problem, enum draw what, int32_t step, int32_t rank,
                     int64_t idx)
{
    uint64_t key = rng_key(problem->seed, (uint64_t)what);
    key = rng_key(key, (uint64_t)step);
    key = rng_key(key, (uint64_t)rank);
    return rng_key(key, (uint64_t)idx);
}

static int64_t routing_idx(const struct ll_case *problem, int32_t rank, int32_t token, int32_t k)
{
    return ((int64_t)rank * problem->max_tokens + token) * problem->num_topk + k;
}

int32_t ll_num_tokens(const struct ll_case *problem, int32_t step, int32_t rank)
{
    if (problem->routing != NULL)
        return problem->routing->num_tokens[rank];
    if (problem->without_tokens || (rank % 4 == 1 && step % 3 == 1))
        return 0;
    if (step == 0)
        return problem->max_tokens;
    return (int32_t)(draw(problem, DRAW_TOKENS, step, rank, 0) %
                     (uint64_t)(problem->max_tokens + 1));
}

int64_t ll_expert(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                  int32_t k)
{
    if (problem->routing != NULL)
        return problem->routing->experts[routing_idx(problem, rank, token, k)];
    const int64_t idx = (int64_t)token * problem->num_topk + k;
    const uint64_t bits = draw(problem, DRAW_EXPERT, step, rank, idx);
    if (bits % 11 == 0)
        return -1;
    /* Few experts are popular, so that capacities overflow. */
    const uint64_t among =
        bits % 5 == 0 ? (uint64_t)(problem->num_experts + 3) / 4 : (uint64_t)problem->num_experts;
    return (int64_t)((bits >> 20) % among);
}

float ll_weight(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token, int32_t k)
{
    if (problem->routing != NULL)
        return problem->routing->weights[routing_idx(problem, rank, token, k)];
    struct rng rng = {
        draw(problem, DRAW_WEIGHT, step, rank, (int64_t)token * problem->num_topk + k)};
    return problem->without_weights ? 1.0f : rng_uniform(&rng) - 0.25f;
}

void ll_fill_token(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                   void *elements)
{
    const struct element_source source = {draw(problem, DRAW_ELEMENTS, step, rank, 0),
                                          problem->dtype, ELEMENTS_NUMBERS, NULL};
    elements_fill(&source, token, 0, (uint64_t)problem->hidden, elements);
    for (int32_t i = 0; i < problem->hidden && problem->quantisation.group_elements > 0; i++)
        element_store(problem->dtype, elements, i,
                      element_load(problem->dtype, elements, i) /
                          (float)(1 << i / problem->quantisation.group_elements % 3));
}

static int32_t most_local(const struct ll_case *problem)
{
    int32_t most = 0;
    for (int32_t rank = 0; rank < problem->num_ranks; rank++)
        if (ll_num_local(problem, rank) > most)
            most = ll_num_local(problem, rank);
    return most;
}

int ll_suits(const struct ll_case *problem, weft_ll_carrier carrier)
{
    const weft_ll_config config = ll_config(problem);
    return problem->node_ranks == 0 &&
           ll_suits_packets(&config, carrier, problem->num_ranks, most_local(problem));
}

weft_ll_config ll_config(const struct ll_case *problem)
{
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    config.hidden = problem->hidden;
    config.max_tokens = problem->max_tokens;
    config.num_topk = problem->num_topk;
    config.dtype = problem->dtype;
    config.layout = problem->layout;
    config.expert_capacity = problem->expert_capacity;
    /* Drawn tokens choose experts twice. Rows beyond a capacity that is given are dropped. */
    if (problem->layout == WEFT_LL_BY_EXPERT && problem->routing == NULL)
        config.expert_capacity = ll_capacity(problem);
    config.num_results = problem->num_results;
    config.answer = problem->answer;
    config.answer_dtype = problem->answer_dtype;
    config.quantisation = problem->quantisation;
    config.num_blocks = problem->num_blocks;
    config.num_warps = problem->num_warps;
    config.route = problem->route;
    config.carrier = problem->carrier;
    config.on_missing = problem->on_missing;
    config.missing_ms = problem->missing_ms;
    return config;
}

/* ---------------------------------------------------------------- placement */

static int32_t rank_of_replica(const struct ll_case *problem, int32_t expert, int32_t replica)
{
    return (expert + replica) % problem->num_ranks;
}

static int has_expert(const struct ll_case *problem, int32_t rank, int32_t expert)
{
    const int64_t num_experts = problem->num_experts, num_ranks = problem->num_ranks;
    if (problem->num_replicas == 0)
        return expert >= num_experts * rank / num_ranks &&
               expert < num_experts * (rank + 1) / num_ranks;
    for (int32_t replica = 0; replica < problem->num_replicas; replica++)
        if (rank_of_replica(problem, expert, replica) == rank)
            return 1;
    return 0;
}

int ll_are_cut(const struct ll_case *problem, int32_t a, int32_t b)
{
    return problem->cuts != NULL && (problem->cuts[a] >> b & 1) != 0;
}

static int32_t node_of(const struct ll_case *problem, int32_t rank)
{
    return problem->node_ranks > 0 ? (rank + problem->cut_ranks) / problem->node_ranks : 0;
}

static int32_t local_expert(const struct ll_case *problem, int32_t rank, int32_t expert)
{
    int32_t num_before = 0;
    for (int32_t other = 0; other < expert; other++)
        num_before += has_expert(problem, rank, other);
    return num_before;
}

int32_t ll_num_local(const struct ll_case *problem, int32_t rank)
{
    return local_expert(problem, rank, problem->num_experts);
}

/* A choice that is nowhere has rank -1. */
static struct ll_choice find_choice(const struct ll_case *problem, int32_t step, int32_t rank,
                                    int32_t token, int32_t k)
{
    const int64_t expert = ll_expert(problem, step, rank, token, k);
    struct ll_choice choice = {-1, -1, ll_weight(problem, step, rank, token, k)};
    if (expert < 0)
        return choice;
    if (problem->num_replicas > 0)
        choice.rank =
            rank_of_replica(problem, (int32_t)expert, (rank + token) % problem->num_replicas);
    for (int32_t owner = 0; problem->num_replicas == 0 && owner < problem->num_ranks; owner++)
        if (has_expert(problem, owner, (int32_t)expert))
            choice.rank = owner;
    if (ll_are_cut(problem, rank, choice.rank))
        choice.rank = -1;
    else
        choice.local_expert = local_expert(problem, choice.rank, (int32_t)expert);
    return choice;
}

int32_t ll_capacity(const struct ll_case *problem)
{
    return problem->expert_capacity > 0 ? problem->expert_capacity
                                        : problem->num_ranks * problem->max_tokens;
}

int32_t *ll_expert_offsets(const struct ll_case *problem)
{
    if (problem->num_replicas == 0)
        return NULL;
    int32_t *offsets = tests_alloc((size_t)(problem->num_experts + 1) * sizeof *offsets);
    for (int32_t expert = 0; expert <= problem->num_experts; expert++)
        offsets[expert] = expert * problem->num_replicas;
    return offsets;
}

int32_t *ll_expert_ranks(const struct ll_case *problem)
{
    if (problem->num_replicas == 0)
        return NULL;
    int32_t *ranks =
        tests_alloc((size_t)(problem->num_experts * problem->num_replicas) * sizeof *ranks);
    for (int32_t i = 0; i < problem->num_experts * problem->num_replicas; i++)
        ranks[i] = rank_of_replica(problem, i / problem->num_replicas, i % problem->num_replicas);
    return ranks;
}

/* ---------------------------------------------------------------- what must come of a step */

static void fill_token(const void *of, int64_t token, void *elements)
{
    const struct ll_step_oracle *oracle = of;
    int32_t rank = 0;
    while (token >= oracle->oracle.first_tokens[rank + 1])
        rank++;
    ll_fill_token(oracle->problem, oracle->step, rank,
                  (int32_t)(token - oracle->oracle.first_tokens[rank]), elements);
}

static void run_expert(const void *of, int32_t rank, int32_t local_expert, float *values,
                       int64_t num_values)
{
    (void)of;
    const float factor = 0.5f + (float)((7 * rank + 3 * local_expert) % 16) / 8;
    for (int64_t i = 0; i < num_values; i++)
        values[i] *= factor;
}

void ll_open_oracle(struct ll_step_oracle *oracle, const struct ll_case *problem, int32_t step,
                    int32_t rank)
{
    const weft_ll_config config = ll_config(problem);
    const struct ll_content content = {fill_token, run_expert, oracle};
    int32_t *num_tokens = tests_alloc((size_t)problem->num_ranks * sizeof *num_tokens);
    struct ll_world world = {rank, problem->num_ranks, 0, num_tokens};
    for (int32_t source = 0; source < problem->num_ranks; source++) {
        const int32_t num_local = ll_num_local(problem, source);
        num_tokens[source] = ll_num_tokens(problem, step, source);
        world.most_local = num_local > world.most_local ? num_local : world.most_local;
    }
    oracle->problem = problem;
    oracle->step = step;
    if (ll_oracle_open(&oracle->oracle, &config, &world, &content) != 0)
        abort(); /* as tests_alloc */
    for (int32_t i = 0; i < problem->num_ranks; i++)
        oracle->oracle.nodes[i] = node_of(problem, i);
    for (int32_t source = 0; source < problem->num_ranks; source++)
        for (int32_t i = 0; i < num_tokens[source] * problem->num_topk; i++)
            ll_oracle_choices(&oracle->oracle, oracle->oracle.first_tokens[source])[i] =
                find_choice(problem, step, source, i / problem->num_topk, i % problem->num_topk);
    ll_oracle_settle(&oracle->oracle);
    tests_free(num_tokens);
}
