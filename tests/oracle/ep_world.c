/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "harness/memory.h"
#include "oracle/ep_case.h"
#include "workload/rng.h"

static void shuffle(int32_t *values, int32_t num_values, struct rng *rng)
{
    for (int32_t i = num_values - 1; i > 0; i--) {
        const uint32_t other = rng_below(rng, (uint32_t)i + 1);
        const int32_t value = values[i];
        values[i] = values[other];
        values[other] = value;
    }
}

static void make_placement(struct ep_world *world)
{
    const struct ep_case *spec = &world->spec;
    struct rng rng = {rng_key(spec->seed, 77)};
    const size_t num_slots = (size_t)spec->num_experts * (size_t)spec->num_ranks;
    int32_t *offsets = tests_alloc(sizeof(int32_t) * ((size_t)spec->num_experts + 1));
    int32_t *ranks = tests_alloc(sizeof(int32_t) * (num_slots + (size_t)spec->num_ranks));
    ep_experts_default(spec->num_ranks, spec->num_experts, offsets, ranks);
    for (int32_t expert = 0; expert < spec->num_experts; expert++) {
        if (spec->placement == EP_PLACEMENT_SCATTERED)
            ranks[expert] = (int32_t)rng_below(&rng, (uint32_t)spec->num_ranks);
        if (spec->placement == EP_PLACEMENT_LAST_RANK)
            ranks[expert] = spec->num_ranks - 1;
        if (spec->placement != EP_PLACEMENT_REPLICATED)
            continue;
        int32_t *replicas = ranks + offsets[expert];
        for (int32_t rank = 0; rank < spec->num_ranks; rank++)
            replicas[rank] = rank;
        shuffle(replicas, spec->num_ranks, &rng);
        offsets[expert + 1] =
            offsets[expert] + 1 + (int32_t)rng_below(&rng, (uint32_t)spec->num_ranks);
    }
    world->experts = (struct ep_experts){spec->num_ranks, spec->num_experts, offsets, ranks};
}

static void make_placement_of_ep(struct ep_world *world)
{
    const int32_t num_experts = world->spec.num_experts + world->spec.num_spare_experts;
    world->ep_offsets = tests_alloc(sizeof(int32_t) * ((size_t)num_experts + 1));
    world->ep_ranks = tests_alloc(sizeof(int32_t) * (size_t)num_experts);
    for (int32_t expert = 0; expert < num_experts; expert++) {
        world->ep_offsets[expert + 1] = expert + 1;
        world->ep_ranks[expert] = world->spec.num_ranks - 1;
    }
}

/* The ids of one rank in the type that the library is to read. */
static void *typed_topk_idx(const struct ep_case *spec, const struct ep_chosen *tokens)
{
    const size_t num_choices = (size_t)tokens->num_tokens * (size_t)spec->num_topk;
    const size_t index_bytes = spec->index_type == WEFT_INT32 ? 4 : 8;
    char *typed = tests_alloc(index_bytes * num_choices);
    for (size_t i = 0; i < num_choices; i++) {
        const int32_t narrow = (int32_t)tokens->topk_idx[i];
        memcpy(typed + i * index_bytes,
               index_bytes == 4 ? (const void *)&narrow : (const void *)&tokens->topk_idx[i],
               index_bytes);
    }
    return typed;
}

/* Takes over the ids and weights of `chosen`. */
static struct ep_world *world_of(const struct ep_case *spec, const struct ep_chosen *chosen)
{
    struct ep_world *world = tests_alloc(sizeof *world);
    const size_t num_ranks = (size_t)spec->num_ranks;
    world->spec = *spec;
    world->chosen =
        memcpy(tests_alloc(sizeof *chosen * num_ranks), chosen, sizeof *chosen * num_ranks);
    make_placement(world);
    make_placement_of_ep(world);
    world->problem = ep_problem_create(&world->experts, chosen, spec->num_topk);
    if (spec->num_nodes > 0)
        world->problem.num_nodes = spec->num_nodes;
    if (spec->expert_alignment > 0)
        world->problem.expert_alignment = spec->expert_alignment;
    if (spec->routed_by == EP_ROUTED_BY_EXPERTS) /* a table knows no choices */
        world->problem.order = spec->order;
    world->received = tests_alloc(sizeof *world->received * num_ranks);
    world->topk_idx = tests_alloc(sizeof(void *) * num_ranks);
    for (int32_t rank = 0; rank < spec->num_ranks; rank++) {
        ep_oracle_receive(&world->problem, rank, tests_alloc(ep_received_bytes(&world->problem)),
                          &world->received[rank]);
        world->topk_idx[rank] = typed_topk_idx(spec, &chosen[rank]);
    }
    return world;
}

struct ep_world *ep_world_create(const struct ep_case *given)
{
    struct ep_case spec = *given;
    if (spec.index_type == WEFT_DTYPE_NONE)
        spec.index_type = WEFT_INT32;
    struct ep_chosen *tokens = tests_alloc(sizeof *tokens * (size_t)spec.num_ranks);
    for (int32_t rank = 0; rank < spec.num_ranks; rank++)
        tokens[rank] = ep_case_tokens(&spec, rank);
    struct ep_world *world = world_of(&spec, tokens);
    tests_free(tokens);
    return world;
}

struct ep_world *ep_world_create_from(const struct ep_case *spec, const struct ep_chosen *tokens)
{
    struct ep_chosen *copies = tests_alloc(sizeof *copies * (size_t)spec->num_ranks);
    for (int32_t rank = 0; rank < spec->num_ranks; rank++) {
        const size_t num_choices = (size_t)tokens[rank].num_tokens * (size_t)spec->num_topk;
        copies[rank] =
            (struct ep_chosen){tokens[rank].num_tokens,
                               memcpy(tests_alloc(sizeof(int64_t) * num_choices),
                                      tokens[rank].topk_idx, sizeof(int64_t) * num_choices),
                               memcpy(tests_alloc(sizeof(float) * num_choices),
                                      tokens[rank].topk_weights, sizeof(float) * num_choices)};
    }
    struct ep_world *world = world_of(spec, copies);
    tests_free(copies);
    return world;
}

void ep_world_destroy(struct ep_world *world)
{
    for (int32_t rank = 0; rank < world->spec.num_ranks; rank++) {
        tests_free(world->received[rank].rows);
        tests_free(world->topk_idx[rank]);
        tests_free(world->chosen[rank].topk_idx);
        tests_free(world->chosen[rank].topk_weights);
    }
    ep_problem_destroy(&world->problem);
    tests_free(world->chosen);
    tests_free(world->experts.offsets);
    tests_free(world->experts.ranks);
    tests_free(world->received);
    tests_free(world->topk_idx);
    tests_free(world->ep_offsets);
    tests_free(world->ep_ranks);
    tests_free(world);
}
