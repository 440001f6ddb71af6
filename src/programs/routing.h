/* SPDX-License-Identifier: MIT */
/*
 * The plan of expert parallelism: which rank a token goes to, and to which row. Pure integers.
 *
 * A token's routes are the distinct ranks that have one of its experts, ascending. The tokens of a
 * rank are cut into num_chunks contiguous chunks that are counted independently. The row of a route
 * at its rank is the sum of
 *     rank_base[rank]               rows there from lower source ranks        (notify)
 *     chunk_base[chunk][rank]       rows there from this rank's lower chunks  (layout)
 *     slot                          rows there from lower tokens of the chunk (layout)
 * so rows are in (source rank, token) order, whatever the number of chunks.
 */
#pragma once

#include "programs/reciprocal.h"

struct wp_placement { /* where the experts are; entry: one replica of one expert */
    int32_t num_experts;
    int32_t num_ranks;
    /* Rank r has the experts [num_experts*r/R, num_experts*(r+1)/R), and num_experts * R times the larger of them is at
     * most 2^31: the tables say the same, but are far. */
    int32_t is_even;
    uint32_t experts_reciprocal, ranks_reciprocal; /* if so */
    const int32_t *expert_offsets; /* [num_experts + 1] entries of expert e: [e] .. [e + 1] */
    const int32_t *entry_ranks;    /* [num_entries] */
    const int32_t *entry_local;    /* [num_entries] local expert id at that rank */
    const int32_t *rank_offsets;   /* [num_ranks + 1] into rank_entries */
    const int32_t *rank_entries;   /* [num_entries] entries of rank r by local id */
};

struct wp_route {
    int32_t rank; /* WP_NO_ROUTE ends the list */
    int32_t slot;
};
enum { WP_NO_ROUTE = -1 };

/* A row of a token, at one of the ranks that get it. */
struct wp_target {
    int32_t rank; /* WP_NO_ROUTE: none */
    int32_t row;
};

/* Beyond that, of a communicator with several nodes (internode_dispatch.c). A token's node routes are the nodes of
 * its routes, with a slot among the source's tokens for that node, counted like rows. */
struct wp_node_routing {
    int32_t max_tokens;         /* of this rank */
    int32_t max_relayed_tokens; /* of each other node */
    int32_t max_node_routes;    /* of a token: min(num_topk, num_nodes) */
    int32_t max_relayed_rows;   /* of a token: min(num_topk, ranks of a node) */
    struct wp_route *routes;    /* [num_tokens][max_node_routes] `rank` is a node; ascending */
    int32_t *chunk_base;        /* [num_chunks][num_nodes] */
    int32_t *send_tokens;       /* [num_nodes] distinct tokens for each node */
    int32_t *tokens;            /* [num_nodes][max_tokens] which token has a slot      (notify) */
    int32_t *relay_tokens;      /* [num_nodes] that come from the partner in each node (notify) */
    int32_t *
        relay_base; /* [num_nodes][ranks of a node] first row of the partner's tokens there (notify) */
    /* [num_nodes][max_relayed_tokens][max_relayed_rows] at ranks of this node, of others' tokens
     * (dispatch) */
    struct wp_target *relayed_rows;
    /* [1] number of the dispatch that has filled relayed_rows; 0: none since notify */
    int32_t *relayed_by;
};

struct wp_routing { /* a handle's tables, in memory of this rank */
    int32_t rank;
    int32_t num_ranks;
    int32_t num_tokens;
    int32_t num_topk;
    int32_t max_routes; /* of a token: min(num_topk, num_ranks) */
    int32_t num_chunks;
    int32_t chunk_tokens;         /* tokens per chunk; the last may have fewer, or none */
    struct wp_route *routes;      /* [num_tokens][max_routes] */
    int32_t *chunk_base;          /* [num_chunks][num_ranks] */
    int32_t *rank_base;           /* [num_ranks] */
    int32_t *send_rows;           /* [num_ranks] distinct tokens for each rank */
    int32_t *entry_selections;    /* [num_entries] choices of each expert replica */
    int32_t *recv_rows;           /* [1] rows that arrive here */
    int32_t *recv_rank_rows;      /* [num_ranks] */
    int32_t *recv_rank_ends;      /* [num_ranks] the row after the last one of each source */
    int32_t *all_recv_rows;       /* [num_ranks] rows that arrive at each rank */
    int32_t *recv_expert_rows;    /* [local experts] selections, aligned */
    int64_t *dropped_rows;        /* [1] the most that a dispatch since notify had no room for */
    struct wp_node_routing nodes; /* of several nodes; else all null */
};

WP_FN int64_t wp_expert_id(const void *topk_idx, weft_dtype index_type, int64_t i)
{
    return index_type == WEFT_INT64 ? ((const int64_t *)topk_idx)[i]
                                    : (int64_t)((const int32_t *)topk_idx)[i];
}

/* The same, on its way from here on: no expert, if it is none. A negative one of 32 bits becomes a large one, since to find
 * its sign would be to wait for it. */
WP_FN int64_t wp_expert_id_now(const void *topk_idx, weft_dtype index_type, int32_t i)
{
    return index_type == WEFT_INT64
               ? (int64_t)wp_load_now((const uint64_t *)topk_idx + i)
               : (int64_t)(uint64_t)wp_load_now_u32((const uint32_t *)topk_idx + i);
}

/* The placement entry that serves `expert` for a token, or -1 if there is no such expert. A pure
 * function of the arguments, so every rank can tell where any token goes. */
WP_FN int32_t wp_placement_entry(const struct wp_placement *placement, int64_t expert,
                                 int32_t source_rank, int32_t token)
{
    if (expert < 0 || expert >= placement->num_experts)
        return -1;
    const int32_t begin = placement->expert_offsets[expert];
    const int32_t num_replicas = placement->expert_offsets[expert + 1] - begin;
    if (num_replicas == 1)
        return begin;
    return begin + (int32_t)(((int64_t)source_rank + token) % num_replicas);
}

/* Where an expert is. */
struct wp_place_of_expert {
    int32_t rank; /* -1: nowhere */
    int32_t local_expert;
};

/* The same as a place. Called: it is long, and mostly not needed. */
WP_CALLED_FN struct wp_place_of_expert wp_place_by_tables(struct wp_placement placement,
                                                          int64_t expert, int32_t source_rank,
                                                          int32_t token)
{
    struct wp_place_of_expert place = {-1, -1};
    const int32_t entry = wp_placement_entry(&placement, expert, source_rank, token);
    if (entry >= 0) {
        place.rank = placement.entry_ranks[entry];
        place.local_expert = placement.entry_local[entry];
    }
    return place;
}

/* Some programs know that experts lie evenly. */
#ifndef WP_PLACEMENT_IS_EVEN
#define WP_PLACEMENT_IS_EVEN 0
#endif
WP_FN int wp_placement_is_even(const struct wp_placement *placement)
{
    return WP_PLACEMENT_IS_EVEN || placement->is_even;
}

/* By arithmetic where that does. */
WP_FN struct wp_place_of_expert wp_place_expert(const struct wp_placement *placement,
                                                int64_t expert, int32_t source_rank, int32_t token)
{
    if (!wp_placement_is_even(placement))
        return wp_place_by_tables(*placement, expert, source_rank, token);
    const int is_one = (uint64_t)expert < (uint64_t)placement->num_experts;
    const uint32_t num_experts = (uint32_t)placement->num_experts, e = (uint32_t)expert;
    const uint32_t rank =
        wp_divide((e + 1) * (uint32_t)placement->num_ranks - 1, placement->experts_reciprocal);
    const uint32_t first = wp_divide(num_experts * rank, placement->ranks_reciprocal);
    const struct wp_place_of_expert place = {is_one ? (int32_t)rank : -1,
                                             is_one ? (int32_t)(e - first) : -1};
    return place;
}

/* Those of a rank. Whether an expert is one of them takes less than where it is. */
struct wp_experts_of_rank {
    int32_t rank;
    uint32_t first, num; /* of an even placement */
};

WP_FN struct wp_experts_of_rank wp_experts_of(const struct wp_placement *placement, int32_t rank)
{
    const uint32_t num_experts = (uint32_t)placement->num_experts, r = (uint32_t)rank;
    const uint32_t first = wp_divide(num_experts * r, placement->ranks_reciprocal);
    const uint32_t end = wp_divide(num_experts * (r + 1), placement->ranks_reciprocal);
    const struct wp_experts_of_rank experts = {rank, first, end - first};
    return experts;
}

/* Which of them serves `expert` for a token, as the rank counts them; -1: none. */
WP_FN int32_t wp_expert_among(const struct wp_placement *placement,
                              struct wp_experts_of_rank experts, int64_t expert,
                              int32_t source_rank, int32_t token)
{
    if (!wp_placement_is_even(placement)) {
        const struct wp_place_of_expert place =
            wp_place_by_tables(*placement, expert, source_rank, token);
        return place.rank == experts.rank ? place.local_expert : -1;
    }
    const uint64_t idx = (uint64_t)expert - experts.first; /* huge, if it is before */
    return idx < experts.num ? (int32_t)idx : -1;
}

WP_FN const struct wp_route *wp_token_routes(const struct wp_routing *routing, int32_t token)
{
    return routing->routes + (int64_t)token * routing->max_routes;
}

/* The length of a list of at most max_routes, to ranks or to nodes. */
WP_FN int32_t wp_count_routes(const struct wp_route *routes, int32_t max_routes)
{
    int32_t num_routes = 0;
    while (num_routes < max_routes && routes[num_routes].rank != WP_NO_ROUTE)
        num_routes++;
    return num_routes;
}

WP_FN int32_t wp_num_routes(const struct wp_routing *routing, const struct wp_route *routes)
{
    return wp_count_routes(routes, routing->max_routes);
}

/* The row of `token` at the rank of its route `route`. */
WP_FN int32_t wp_route_row(const struct wp_routing *routing, int32_t token, struct wp_route route)
{
    const int32_t chunk = token / routing->chunk_tokens;
    return routing->rank_base[route.rank] +
           routing->chunk_base[(int64_t)chunk * routing->num_ranks + route.rank] + route.slot;
}

/* Slot of a token among those for a node. */
WP_FN int32_t wp_node_slot(const struct wp_routing *routing, int32_t num_nodes, int32_t token,
                           struct wp_route route)
{
    const int32_t chunk = token / routing->chunk_tokens;
    return routing->nodes.chunk_base[(int64_t)chunk * num_nodes + route.rank] + route.slot;
}
