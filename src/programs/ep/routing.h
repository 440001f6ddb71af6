/* SPDX-License-Identifier: MIT */
/*
 * The plan of expert parallelism: which rank a token goes to, and to which row. Pure integers.
 *
 * A token's routes are the distinct ranks that have one of its experts, in the order in which
 * combine adds their rows: ascending, or that of the last choice of each. The tokens of a rank are
 * cut into num_chunks contiguous chunks that are counted independently. The row of a route at its
 * rank is the sum of
 *     rank_base[rank]               rows there from lower source ranks        (notify)
 *     chunk_base[chunk][rank]       rows there from this rank's lower chunks  (layout)
 *     slot                          rows there from lower tokens of the chunk (layout)
 * so rows are in (source rank, token) order, whatever the number of chunks.
 */
#pragma once

#include "programs/placement.h"

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

/* Beyond that, of a communicator with several nodes (internode_dispatch.c). A token's node routes
 * are the nodes of its routes, with a slot among the source's tokens for that node, counted like
 * rows. */
struct wp_node_routing {
    int32_t max_tokens;         /* of this rank */
    int32_t max_relayed_tokens; /* of each other node */
    int32_t max_node_routes;    /* of a token: min(num_topk, num_nodes) */
    int32_t max_relayed_rows;   /* of a token: min(num_topk, ranks of a node) */
    struct wp_route *routes;    /* [num_tokens][max_node_routes] `rank` is a node */
    int32_t *chunk_base;        /* [num_chunks][num_nodes] */
    int32_t *send_tokens;       /* [num_nodes] distinct tokens for each node */
    int32_t *tokens;            /* [num_nodes][max_tokens] which token has a slot      (notify) */
    int32_t *relay_tokens;      /* [num_nodes] that come from the partner in each node (notify) */
    /* [num_nodes][ranks of a node] first row of the partner's tokens there (notify). */
    int32_t *relay_base;
    /* [num_nodes][max_relayed_tokens][max_relayed_rows] at ranks of this node, of others' tokens
     * (dispatch). */
    struct wp_target *relayed_rows;
    /* [1] number of the dispatch that has filled relayed_rows; 0: none since notify. */
    int32_t *relayed_by;
};

/* The expanded layout of what arrives (place_choices.c): a block of rows for each local expert. */
struct wp_expansion {
    int32_t num_experts; /* local ones */
    int32_t num_chunks;  /* for which there is room; the choices of each are counted by a warp */
    int32_t *num_selections; /* [num_experts] of all ranks' tokens                       (notify) */
    int32_t *firsts;         /* [num_experts] first row of the block                     (notify) */
    int32_t *num_rows;       /* [1] of all blocks                                        (notify) */
    int32_t *num_placed;     /* [num_experts] first rows of the block which are a choice's */
    int32_t *chunk_firsts;   /* [num_chunks][num_experts] */
    int64_t *dropped_rows;   /* [1] the most that an expand since notify had no room for */
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
    int32_t *tags;                /* [num_ranks] the tag that each rank gave to layout */
    int64_t *dropped_rows;        /* [1] the most that a dispatch since notify had no room for */
    struct wp_node_routing nodes; /* of several nodes; else all null */
};

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
