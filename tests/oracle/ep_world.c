/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
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
    ep_oracle_default_placement(spec->num_ranks, spec->num_experts, offsets, ranks);
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
    world->problem.expert_offsets = offsets;
    world->problem.expert_ranks = ranks;
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
static void *typed_topk_idx(const struct ep_case *spec, const struct ep_oracle_tokens *tokens)
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

/* Takes over the ids and weights of `tokens`. */
static struct ep_world *world_of(const struct ep_case *spec, const struct ep_oracle_tokens *tokens)
{
    struct ep_world *world = tests_alloc(sizeof *world);
    const size_t num_ranks = (size_t)spec->num_ranks;
    world->spec = *spec;
    world->problem = (struct ep_oracle_problem){
        .num_ranks = spec->num_ranks,
        .num_nodes = spec->num_nodes == 0 ? 1 : spec->num_nodes,
        .num_experts = spec->num_experts,
        .num_topk = spec->num_topk,
        .expert_alignment = spec->expert_alignment == 0 ? 1 : spec->expert_alignment,
        .tokens =
            memcpy(tests_alloc(sizeof *tokens * num_ranks), tokens, sizeof *tokens * num_ranks)};
    make_placement(world);
    make_placement_of_ep(world);
    world->received = tests_alloc(sizeof *world->received * num_ranks);
    world->topk_idx = tests_alloc(sizeof(void *) * num_ranks);
    world->first_token = tests_alloc(sizeof(int64_t) * num_ranks);
    for (int32_t rank = 0; rank < spec->num_ranks; rank++) {
        ep_oracle_receive(&world->problem, rank, &world->received[rank]);
        world->topk_idx[rank] = typed_topk_idx(spec, &tokens[rank]);
        if (rank > 0)
            world->first_token[rank] = world->first_token[rank - 1] + tokens[rank - 1].num_tokens;
    }
    return world;
}

struct ep_world *ep_world_create(const struct ep_case *spec)
{
    struct ep_oracle_tokens *tokens = tests_alloc(sizeof *tokens * (size_t)spec->num_ranks);
    for (int32_t rank = 0; rank < spec->num_ranks; rank++)
        tokens[rank] = ep_case_tokens(spec, rank);
    struct ep_world *world = world_of(spec, tokens);
    tests_free(tokens);
    return world;
}

struct ep_world *ep_world_create_from(const struct ep_case *spec,
                                      const struct ep_oracle_tokens *tokens)
{
    struct ep_oracle_tokens *copies = tests_alloc(sizeof *copies * (size_t)spec->num_ranks);
    for (int32_t rank = 0; rank < spec->num_ranks; rank++) {
        const size_t num_choices = (size_t)tokens[rank].num_tokens * (size_t)spec->num_topk;
        copies[rank] = (struct ep_oracle_tokens){
            tokens[rank].num_tokens,
            memcpy(tests_alloc(sizeof(int64_t) * num_choices), tokens[rank].topk_idx,
                   sizeof(int64_t) * num_choices),
            memcpy(tests_alloc(sizeof(float) * num_choices), tokens[rank].topk_weights,
                   sizeof(float) * num_choices)};
    }
    struct ep_world *world = world_of(spec, copies);
    tests_free(copies);
    return world;
}

static void free_const(const void *memory)
{
    tests_free((void *)(uintptr_t)memory);
}

void ep_world_destroy(struct ep_world *world)
{
    for (int32_t rank = 0; rank < world->spec.num_ranks; rank++) {
        ep_oracle_received_free(&world->problem, &world->received[rank]);
        tests_free(world->topk_idx[rank]);
        free_const(world->problem.tokens[rank].topk_idx);
        free_const(world->problem.tokens[rank].topk_weights);
    }
    free_const(world->problem.tokens);
    free_const(world->problem.expert_offsets);
    free_const(world->problem.expert_ranks);
    tests_free(world->received);
    tests_free(world->topk_idx);
    tests_free(world->first_token);
    tests_free(world->ep_offsets);
    tests_free(world->ep_ranks);
    tests_free(world);
}
