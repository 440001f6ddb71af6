/* SPDX-License-Identifier: MIT */
/*
 * layout: from topk_idx, or from a table of ranks, the routes of every token and the counts per
 * rank, node and expert.
 *
 * Each warp takes one chunk of tokens, its lanes one token each: a lane finds the ranks that its
 * token goes to; then, rank by rank, a ballot over the lanes gives each token its slot. The last
 * block to finish sums the chunks up.
 */
#include "programs/ep/layout.h"

#include "programs/ep/chunks.h"
#include "programs/ep/order.h"

enum { RANKS_AT_ONCE = 64, CHOICES_AT_ONCE = 8 };

/* Choices are counted by each block for itself if there is room for it: on GPUs, counters that all
 * blocks share are some ten times slower. */
enum { MAX_BLOCK_COUNTERS = (WP_BLOCK_SHARED_BYTES - WP_BLOCK_WORDS_BYTES) / 4 };

WP_FN int counts_in_block(const struct wp_layout_args *args)
{
    return args->num_entries <= MAX_BLOCK_COUNTERS;
}

WP_FN int32_t *selection_counters(struct wp_warp *warp, const struct wp_layout_args *args)
{
    return counts_in_block(args) ? (int32_t *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES / 4
                                 : args->selections;
}

WP_FN void clear_block_counters(struct wp_warp *warp, const struct wp_layout_args *args)
{
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    if (!counts_in_block(args))
        return;
    for (int32_t entry = thread; entry < args->num_entries; entry += num_threads)
        selection_counters(warp, args)[entry] = 0;
    wp_block_sync(warp);
}

WP_FN void add_block_counters(struct wp_warp *warp, const struct wp_layout_args *args)
{
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    if (!counts_in_block(args))
        return;
    wp_block_sync(warp);
    for (int32_t entry = thread; entry < args->num_entries; entry += num_threads) {
        const int32_t num_selections = selection_counters(warp, args)[entry];
        if (num_selections > 0)
            wp_add_relaxed(&args->selections[entry], num_selections);
    }
}

/* Where the choices first .. first + CHOICES_AT_ONCE of a token go; -1 for those that go nowhere.
 * Step by step for all of them, so that their loads are under way together. */
WP_FN void find_entries(const struct wp_layout_args *args, int32_t token, int32_t first,
                        int32_t *entries)
{
    const struct wp_routing *routing = &args->routing;
    int64_t experts[CHOICES_AT_ONCE];
    for (int32_t i = 0; i < CHOICES_AT_ONCE; i++)
        experts[i] = first + i < routing->num_topk
                         ? wp_expert_id(args->topk_idx, args->index_type,
                                        (int64_t)token * routing->num_topk + first + i)
                         : -1;
    for (int32_t i = 0; i < CHOICES_AT_ONCE; i++)
        entries[i] = wp_placement_entry(&args->placement, experts[i], routing->rank, token);
}

/* Bit i: the token goes to rank first_rank + i. Counts the token's choices on the way, once. */
WP_FN uint64_t ranks_of_token(struct wp_warp *warp, const struct wp_layout_args *args,
                              int32_t token, int32_t first_rank)
{
    int32_t *counters = selection_counters(warp, args);
    uint64_t ranks = 0;
    for (int32_t first = 0; first < args->routing.num_topk; first += CHOICES_AT_ONCE) {
        int32_t entries[CHOICES_AT_ONCE], bits[CHOICES_AT_ONCE];
        find_entries(args, token, first, entries);
        for (int32_t i = 0; i < CHOICES_AT_ONCE; i++)
            bits[i] = entries[i] < 0 ? -1 : args->placement.entry_ranks[entries[i]] - first_rank;
        for (int32_t i = 0; i < CHOICES_AT_ONCE; i++) {
            if (bits[i] >= 0 && bits[i] < RANKS_AT_ONCE)
                ranks |= (uint64_t)1 << bits[i];
            if (entries[i] >= 0 && first_rank == 0)
                wp_add_relaxed(&counters[entries[i]], 1);
        }
    }
    return ranks;
}

/* The same by the caller's table, of which the first `most` count. */
WP_FN uint64_t ranks_of_table(const struct wp_layout_args *args, int32_t token, int32_t first_rank,
                              int32_t most)
{
    const int32_t num_ranks = args->routing.num_ranks;
    const uint8_t *goes = args->tokens_to_ranks + (int64_t)token * num_ranks + first_rank;
    uint64_t ranks = 0;
    for (int32_t i = 0; i < RANKS_AT_ONCE && first_rank + i < num_ranks && most > 0; i++) {
        if (goes[i] != 0) {
            ranks |= (uint64_t)1 << i;
            most--;
        }
    }
    return ranks;
}

/* num_routes: those of the token to lower ranks. */
WP_FN uint64_t find_ranks(struct wp_warp *warp, const struct wp_layout_args *args, int32_t token,
                          int32_t first_rank, int32_t num_routes)
{
    if (token < 0)
        return 0;
    return args->selections_per_entry == NULL
               ? ranks_of_token(warp, args, token, first_rank)
               : ranks_of_table(args, token, first_rank, args->routing.max_routes - num_routes);
}

WP_FN int goes_to_node(const struct wp_layout_args *args, const struct wp_route *routes,
                       int32_t num_routes, int32_t node)
{
    for (int32_t j = 0; j < num_routes; j++) {
        if (args->node_of_rank[routes[j].rank] == node)
            return 1;
    }
    return 0;
}

/* A token for each lane, or -1. Returns how many routes the lane's token has. rows[rank] counts the
 * chunk's tokens for the rank. */
WP_FN int32_t find_routes(struct wp_warp *warp, const struct wp_layout_args *args, int32_t token,
                          int32_t *rows)
{
    const struct wp_routing *routing = &args->routing;
    struct wp_route *routes = routing->routes + (int64_t)token * routing->max_routes;
    uint64_t ranks = 0;
    int32_t num_routes = 0;
    for (int32_t rank = 0; rank < routing->num_ranks; rank++) {
        if (rank % RANKS_AT_ONCE == 0)
            ranks = find_ranks(warp, args, token, rank, num_routes);
        const int goes = (int)(ranks >> (rank % RANKS_AT_ONCE) & 1);
        const uint32_t ballot = wp_ballot(warp, goes);
        const int32_t num_before = rows[rank];
        if (goes) {
            routes[num_routes].rank = rank;
            routes[num_routes++].slot = num_before + wp_lanes_below(warp, ballot);
        }
        if (args->is_token_in_rank != NULL && token >= 0)
            args->is_token_in_rank[(int64_t)token * routing->num_ranks + rank] = (uint8_t)goes;
        wp_warp_sync(warp); /* all have read rows[rank] */
        if (wp_lane_idx(warp) == 0)
            rows[rank] = num_before + wp_popcount(ballot);
    }
    wp_warp_sync(warp);
    if (token >= 0 && num_routes < routing->max_routes)
        routes[num_routes].rank = WP_NO_ROUTE;
    return num_routes;
}

/* A token for each lane, or -1. nodes[node] counts the chunk's tokens for the node. Before it is
 * called again, the lanes have met: in find_routes. */
WP_FN void find_nodes(struct wp_warp *warp, const struct wp_layout_args *args, int32_t token,
                      int32_t num_routes, int32_t *nodes)
{
    const struct wp_node_routing *routing = &args->routing.nodes;
    const struct wp_route *routes = wp_token_routes(&args->routing, token);
    int32_t num_node_routes = 0;
    for (int32_t node = 0; node < args->num_nodes; node++) {
        const int goes = goes_to_node(args, routes, num_routes, node);
        const uint32_t ballot = wp_ballot(warp, goes);
        const int32_t num_before = nodes[node];
        if (goes && routing->routes != NULL) {
            struct wp_route *route =
                routing->routes + (int64_t)token * routing->max_node_routes + num_node_routes++;
            route->rank = node;
            route->slot = num_before + wp_lanes_below(warp, ballot);
        }
        wp_warp_sync(warp); /* all have read nodes[node] */
        if (wp_lane_idx(warp) == 0)
            nodes[node] = num_before + wp_popcount(ballot);
    }
    if (token >= 0 && routing->routes != NULL && num_node_routes < routing->max_node_routes)
        routing->routes[(int64_t)token * routing->max_node_routes + num_node_routes].rank =
            WP_NO_ROUTE;
}

WP_FN int wants_nodes(const struct wp_layout_args *args)
{
    return args->num_tokens_per_node != NULL || args->routing.nodes.routes != NULL;
}

WP_FN void layout_chunk(struct wp_warp *warp, const struct wp_layout_args *args, int32_t chunk)
{
    const struct wp_routing *routing = &args->routing;
    int32_t *rows = routing->chunk_base + (int64_t)chunk * routing->num_ranks;
    int32_t *nodes = routing->nodes.chunk_base + (int64_t)chunk * args->num_nodes;
    for (int32_t rank = wp_lane_idx(warp); rank < routing->num_ranks; rank += WP_WARP_SIZE)
        rows[rank] = 0;
    for (int32_t node = wp_lane_idx(warp); node < args->num_nodes; node += WP_WARP_SIZE)
        nodes[node] = 0;
    wp_warp_sync(warp);

    const int32_t begin = chunk * routing->chunk_tokens;
    const int32_t end = begin + routing->chunk_tokens < routing->num_tokens
                            ? begin + routing->chunk_tokens
                            : routing->num_tokens;
    for (int32_t first = begin; first < end; first += WP_WARP_SIZE) {
        const int32_t token = first + wp_lane_idx(warp) < end ? first + wp_lane_idx(warp) : -1;
        const int32_t num_routes = find_routes(warp, args, token, rows);
        if (wants_nodes(args))
            find_nodes(warp, args, token, num_routes, nodes);
        wp_order_routes(args, token, num_routes);
    }
}

WP_FN void sum_chunks(struct wp_warp *warp, const struct wp_layout_args *args)
{
    const struct wp_routing *routing = &args->routing;
    const int is_first_lane = wp_lane_idx(warp) == 0;
    for (int32_t rank = wp_warp_idx(warp); rank < routing->num_ranks; rank += wp_num_warps(warp)) {
        const int32_t num_rows = wp_prefix_chunks(warp, routing->chunk_base, routing->num_chunks,
                                                  routing->num_ranks, rank, 0);
        if (is_first_lane)
            routing->send_rows[rank] = num_rows;
        if (is_first_lane && args->num_tokens_per_rank != NULL)
            args->num_tokens_per_rank[rank] = num_rows;
    }
    if (!wants_nodes(args))
        return;
    for (int32_t node = wp_warp_idx(warp); node < args->num_nodes; node += wp_num_warps(warp)) {
        const int32_t num_tokens = wp_prefix_chunks(warp, routing->nodes.chunk_base,
                                                    routing->num_chunks, args->num_nodes, node, 0);
        if (is_first_lane && routing->nodes.send_tokens != NULL)
            routing->nodes.send_tokens[node] = num_tokens;
        if (is_first_lane && args->num_tokens_per_node != NULL)
            args->num_tokens_per_node[node] = num_tokens;
    }
}

/* Takes the counts, or the caller's, and leaves zeroes for the next launch. */
WP_FN void take_selections(struct wp_warp *warp, const struct wp_layout_args *args)
{
    const struct wp_placement *placement = &args->placement;
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    const int32_t *selections =
        args->selections_per_entry == NULL ? args->selections : args->selections_per_entry;
    for (int32_t expert = thread; expert < placement->num_experts; expert += num_threads) {
        int32_t num_selections = 0;
        for (int32_t entry = placement->expert_offsets[expert];
             entry < placement->expert_offsets[expert + 1]; entry++) {
            args->routing.entry_selections[entry] = selections[entry];
            num_selections += selections[entry];
            args->selections[entry] = 0;
        }
        if (args->num_tokens_per_expert != NULL)
            args->num_tokens_per_expert[expert] = num_selections;
    }
}

WP_PROGRAM(layout, warp, args)
{
    const int32_t num_warps = wp_num_launch_warps(warp);
    wp_admit_next(warp); /* it waits for nobody */
    clear_block_counters(warp, args);
    for (int32_t chunk = wp_block_idx(warp) * wp_num_warps(warp) + wp_warp_idx(warp);
         chunk < args->routing.num_chunks; chunk += num_warps)
        layout_chunk(warp, args, chunk);
    add_block_counters(warp, args);
    if (wp_is_last_block(warp, args->num_blocks_done)) {
        sum_chunks(warp, args);
        take_selections(warp, args);
    }
    return WP_STATUS_OK;
}
