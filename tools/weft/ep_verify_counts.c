/* SPDX-License-Identifier: MIT */
/* What layout and notify must find. */
#include <stdlib.h>

#include "ep_verify.h"

static void compare_counts(struct ep_verifier *verifier, enum ep_op op, const char *name,
                           const int32_t *counts, const int32_t *expected, int32_t num_counts)
{
    for (int32_t i = 0; i < num_counts; i++)
        ep_tally_row(verifier, op, counts[i] == expected[i], "%s %d: %d, expected %d", name, i,
                     counts[i], expected[i]);
}

struct layout_counts {
    int32_t *per_rank, *per_node, *per_expert;
    int64_t *last_token; /* [num_nodes] that was counted, for each node */
};

static void count_own_token(struct ep_verifier *verifier, int64_t token,
                            struct layout_counts *counts)
{
    const struct ep_layer *layer = verifier->layer;
    const int32_t *topk_idx = ep_routing_topk_idx(layer->routing, token);
    int64_t own_token = token - layer->routing->first_tokens[layer->rank];
    const uint8_t *is_in_rank = verifier->results.is_token_in_rank + own_token * layer->num_ranks;
    int is_equal = 1;
    for (int32_t r = 0; r < layer->num_ranks; r++) {
        int goes_there = ep_routing_goes_to(layer->routing, token, r);
        int32_t node = weft_comm_node(layer->comm, r);
        is_equal &= is_in_rank[r] == goes_there;
        counts->per_rank[r] += goes_there;
        counts->per_node[node] += goes_there && counts->last_token[node] != token;
        if (goes_there)
            counts->last_token[node] = token;
    }
    for (int32_t k = 0; k < layer->options->num_topk; k++)
        counts->per_expert[topk_idx[k]]++;
    ep_tally_row(verifier, EP_LAYOUT, is_equal, "is_token_in_rank of token %lld",
                 (long long)own_token);
}

static void compare_layout(struct ep_verifier *verifier, struct layout_counts *counts)
{
    const struct ep_layer *layer = verifier->layer;
    const int64_t *first_tokens = layer->routing->first_tokens;
    for (int32_t node = 0; node < layer->num_nodes; node++)
        counts->last_token[node] = -1;
    for (int64_t token = first_tokens[layer->rank]; token < first_tokens[layer->rank + 1]; token++)
        count_own_token(verifier, token, counts);
    compare_counts(verifier, EP_LAYOUT, "tokens for rank", verifier->results.tokens_per_rank,
                   counts->per_rank, layer->num_ranks);
    compare_counts(verifier, EP_LAYOUT, "tokens for node", verifier->results.tokens_per_node,
                   counts->per_node, layer->num_nodes);
    compare_counts(verifier, EP_LAYOUT, "selections of expert", verifier->results.tokens_per_expert,
                   counts->per_expert, layer->options->num_experts);
}

int ep_verify_layout(struct ep_verifier *verifier)
{
    const struct ep_layer *layer = verifier->layer;
    struct layout_counts counts = {
        .per_rank = calloc((size_t)layer->num_ranks, sizeof(int32_t)),
        .per_node = calloc((size_t)layer->num_nodes, sizeof(int32_t)),
        .per_expert = calloc((size_t)layer->options->num_experts, sizeof(int32_t)),
        .last_token = calloc((size_t)layer->num_nodes, sizeof(int64_t)),
    };
    int is_ready = counts.per_rank && counts.per_node && counts.per_expert && counts.last_token;
    if (is_ready)
        compare_layout(verifier, &counts);
    free(counts.per_rank);
    free(counts.per_node);
    free(counts.per_expert);
    free(counts.last_token);
    return is_ready ? 0 : -1;
}

/* Counts this rank's rows per source rank, and per local expert. */
static void count_recv_tokens(const struct ep_verifier *verifier, int32_t *per_rank,
                              int32_t *per_expert)
{
    const struct ep_routing *routing = verifier->layer->routing;
    int32_t rank = verifier->layer->rank, source = 0;
    int32_t first_expert = ep_routing_first_expert(routing, rank);
    for (int64_t i = 0; i < verifier->num_recv; i++) {
        int64_t token = verifier->recv_tokens[i];
        const int32_t *topk_idx = ep_routing_topk_idx(routing, token);
        while (token >= routing->first_tokens[source + 1])
            source++;
        per_rank[source]++;
        for (int32_t k = 0; k < routing->num_topk; k++)
            if (routing->expert_rank[topk_idx[k]] == rank)
                per_expert[topk_idx[k] - first_expert]++;
    }
}

static int goes_to_own_node(const struct ep_layer *layer, int64_t token)
{
    for (int32_t rank = 0; rank < layer->num_ranks; rank++)
        if (weft_comm_node(layer->comm, rank) == layer->node &&
            ep_routing_goes_to(layer->routing, token, rank))
            return 1;
    return 0;
}

/* One for each token of a rank with this one's local index elsewhere that some rank of this node needs. */
static int32_t count_relayed_tokens(const struct ep_layer *layer)
{
    const int64_t *first_tokens = layer->routing->first_tokens;
    int32_t num_tokens = 0;
    for (int32_t node = 0; node < layer->num_nodes; node++) {
        int32_t source = weft_team_world_rank(layer->comm, WEFT_TEAM_RAIL, node);
        if (node == layer->node)
            continue;
        for (int64_t token = first_tokens[source]; token < first_tokens[source + 1]; token++)
            num_tokens += goes_to_own_node(layer, token);
    }
    return num_tokens;
}

int ep_verify_notify(struct ep_verifier *verifier)
{
    const struct ep_layer *layer = verifier->layer;
    const struct ep_results *results = &verifier->results;
    int32_t num_local = ep_routing_first_expert(layer->routing, layer->rank + 1) -
                        ep_routing_first_expert(layer->routing, layer->rank);
    int32_t num_recv = (int32_t)verifier->num_recv;
    int32_t num_relayed = count_relayed_tokens(layer);
    int32_t *per_rank = calloc((size_t)layer->num_ranks, sizeof(int32_t));
    int32_t *per_expert = calloc((size_t)num_local + 1, sizeof(int32_t));
    int is_ready = per_rank && per_expert;
    if (is_ready) {
        count_recv_tokens(verifier, per_rank, per_expert);
        compare_counts(verifier, EP_NOTIFY, "num_recv_tokens", &results->num_recv_tokens, &num_recv,
                       1);
        compare_counts(verifier, EP_NOTIFY, "num_local_experts", &results->num_local_experts,
                       &num_local, 1);
        compare_counts(verifier, EP_NOTIFY, "num_relayed_tokens", &results->num_relayed_tokens,
                       &num_relayed, 1);
        compare_counts(verifier, EP_NOTIFY, "num_recv_per_rank", results->recv_per_rank, per_rank,
                       layer->num_ranks);
        if (results->num_local_experts == num_local)
            compare_counts(verifier, EP_NOTIFY, "num_recv_per_expert", results->recv_per_expert,
                           per_expert, num_local);
    }
    free(per_rank);
    free(per_expert);
    return is_ready ? 0 : -1;
}
