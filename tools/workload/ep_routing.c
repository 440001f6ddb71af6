/* SPDX-License-Identifier: MIT */
#include "workload/ep_routing.h"

#include <stdio.h>
#include <stdlib.h>

#include "workload/progress.h"
#include "workload/router.h"

enum { PIECE_TOKENS = 1024 }; /* between two looks at the clock */

static int load_gate(struct ep_routing *routing, const struct ep_layer_options *options,
                     int32_t rank)
{
    const int64_t num_tokens = routing->loaded_end - routing->loaded_begin;
    struct router_config config = {
        .seed = options->seed,
        .num_experts = options->num_experts,
        .num_topk = options->num_topk,
        .skew = (float)options->skew,
    };
    struct router *router = router_create(&config);
    if (!router)
        return -1;
    struct progress progress;
    char label[64];
    snprintf(label, sizeof label, "%s, routing", options->program);
    progress_begin(&progress, rank == 0 ? options->progress : PROGRESS_HIDDEN, label, num_tokens);
    for (int64_t done = 0; done < num_tokens; done += PIECE_TOKENS) {
        const int64_t left = num_tokens - done, first = done * options->num_topk;
        const int64_t piece = left < PIECE_TOKENS ? left : PIECE_TOKENS;
        router_route(router, routing->loaded_begin + done, piece, routing->topk_idx + first,
                     routing->topk_weights + first);
        progress_update(&progress, done + piece);
    }
    progress_end(&progress);
    router_destroy(router);
    return 0;
}

/* The other choices are ignored. */
static void load_partners(struct ep_routing *routing, enum ep_gate gate)
{
    const int32_t num_ranks = routing->num_ranks, num_topk = routing->num_topk;
    const int32_t ranks_per_node = num_ranks / routing->problem.num_nodes;
    int32_t source = 0;
    for (int64_t token = routing->loaded_begin; token < routing->loaded_end; token++) {
        int32_t *topk_idx = routing->topk_idx + (token - routing->loaded_begin) * num_topk;
        while (token >= routing->first_tokens[source + 1])
            source++;
        for (int32_t k = 0; k < num_topk; k++)
            topk_idx[k] = routing->num_experts;
        topk_idx[0] = ep_routing_first_expert(routing, gate == EP_GATE_SENDER
                                                           ? num_ranks - 1 - source
                                                           : (source + ranks_per_node) % num_ranks);
        routing->topk_weights[(token - routing->loaded_begin) * num_topk] = 1;
    }
}

static void place(struct ep_routing *routing, const struct ep_layer_options *options)
{
    for (int32_t r = 0; r <= routing->num_ranks; r++) {
        const int64_t num_before = options->gate == EP_GATE_SENDER ? r > options->sender : r;
        routing->first_tokens[r] = options->trace
                                       ? trace_first_token(options->trace, r, routing->num_ranks)
                                       : num_before * options->num_tokens;
    }
    for (int32_t r = 0; r < routing->num_ranks; r++)
        for (int32_t e = ep_routing_first_expert(routing, r);
             e < ep_routing_first_expert(routing, r + 1); e++)
            routing->expert_rank[e] = r;
    routing->expert_rank[routing->num_experts] = -1;
}

static struct ep_choice choose(const void *of, struct ep_token token, int32_t k)
{
    const struct ep_routing *routing = of;
    const int64_t number = routing->first_tokens[token.source] + token.idx;
    const int32_t expert = ep_routing_topk_idx(routing, number)[k];
    const int32_t rank = routing->expert_rank[expert];
    return (struct ep_choice){rank, expert,
                              rank < 0 ? -1 : expert - ep_routing_first_expert(routing, rank),
                              ep_routing_topk_weights(routing, number)[k]};
}

static void pose_problem(struct ep_routing *routing, const struct ep_ranks *ranks)
{
    int32_t last_node = 0;
    for (int32_t r = 0; r < routing->num_ranks; r++) {
        routing->nodes[r] = ranks->nodes[r];
        routing->num_local_experts[r] =
            ep_routing_first_expert(routing, r + 1) - ep_routing_first_expert(routing, r);
        last_node = routing->nodes[r] > last_node ? routing->nodes[r] : last_node;
    }
    routing->problem = (struct ep_problem){.num_ranks = routing->num_ranks,
                                           .num_nodes = last_node + 1,
                                           .num_experts = routing->num_experts,
                                           .num_topk = routing->num_topk,
                                           .expert_alignment = 1,
                                           .nodes = routing->nodes,
                                           .num_local_experts = routing->num_local_experts,
                                           .first_tokens = routing->first_tokens,
                                           .choose = choose,
                                           .of = routing};
}

int ep_routing_open(struct ep_routing *routing, const struct ep_layer_options *options,
                    const struct ep_ranks *ranks, enum ep_routing_extent extent)
{
    const int32_t rank = ranks->rank;
    const size_t num_ranks = (size_t)ranks->num_ranks;
    *routing = (struct ep_routing){
        .num_ranks = ranks->num_ranks,
        .num_topk = options->num_topk,
        .num_experts = options->num_experts,
        .first_tokens = calloc(num_ranks + 1, sizeof(int64_t)),
        .expert_rank = calloc((size_t)options->num_experts + 1, sizeof(int32_t)),
        .nodes = calloc(num_ranks, sizeof(int32_t)),
        .num_local_experts = calloc(num_ranks, sizeof(int32_t)),
    };
    if (!routing->first_tokens || !routing->expert_rank || !routing->nodes ||
        !routing->num_local_experts)
        return -1;
    place(routing, options);
    pose_problem(routing, ranks);
    int is_own = extent == EP_ROUTING_OWN;
    routing->loaded_begin = is_own ? routing->first_tokens[rank] : 0;
    routing->loaded_end = routing->first_tokens[is_own ? rank + 1 : routing->num_ranks];
    /* One more selection than there are, so that no tokens do not look like no memory. */
    size_t num_tokens = (size_t)(routing->loaded_end - routing->loaded_begin);
    size_t num_selections = num_tokens * (size_t)options->num_topk + 1;
    routing->topk_idx = calloc(num_selections, sizeof(int32_t));
    routing->topk_weights = calloc(num_selections, sizeof(float));
    if (!routing->topk_idx || !routing->topk_weights)
        return -1;
    if (options->gate != EP_GATE_SEEDED)
        load_partners(routing, options->gate);
    else if (!options->trace)
        return load_gate(routing, options, rank);
    else
        trace_read(options->trace, options->trace_layer, (int32_t)routing->loaded_begin,
                   (int32_t)num_tokens, routing->topk_idx, routing->topk_weights);
    return 0;
}

void ep_routing_mask(struct ep_routing *routing, const struct ep_layer_options *options)
{
    int32_t source = 0;
    for (int64_t token = routing->loaded_begin; token < routing->loaded_end; token++) {
        int32_t *topk_idx = routing->topk_idx + (token - routing->loaded_begin) * routing->num_topk;
        while (token >= routing->first_tokens[source + 1])
            source++;
        for (int32_t k = 0; k < routing->num_topk; k++)
            if (ep_ll_are_cut(options, source, routing->expert_rank[topk_idx[k]]))
                topk_idx[k] = routing->num_experts;
    }
}

void ep_routing_close(struct ep_routing *routing)
{
    free(routing->first_tokens);
    free(routing->topk_idx);
    free(routing->topk_weights);
    free(routing->expert_rank);
    free(routing->nodes);
    free(routing->num_local_experts);
}
