/* SPDX-License-Identifier: MIT */
/*
 * layout: from topk_idx, or from a table of ranks, the routes of every token and the counts per rank, node and expert.
 *
 * Each warp takes one chunk of tokens, its lanes one token each: a lane finds the ranks that its token
 * goes to; then, rank by rank, a ballot over the lanes gives each token its slot. The last block to
 * finish sums the chunks up.
 */
#include "programs/layout.h"

#include "programs/block.h"

enum { RANKS_AT_ONCE = 64, CHOICES_AT_ONCE = 8 };

/* Choices are counted by each block for itself if there is room for it: on GPUs, counters that all
 * blocks share are some ten times slower. */
enum { MAX_BLOCK_COUNTERS = WEFT_BLOCK_SHARED_BYTES / 4 - 4 };

WEFT_FN int counts_in_block(const struct weft_layout_args *args)
{
    return args->num_entries <= MAX_BLOCK_COUNTERS;
}

WEFT_FN int32_t *selection_counters(struct weft_warp *warp, const struct weft_layout_args *args)
{
    return counts_in_block(args) ? (int32_t *)weft_block_shared(warp) + 4 : args->selections;
}

WEFT_FN void clear_block_counters(struct weft_warp *warp, const struct weft_layout_args *args)
{
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_threads = weft_num_warps(warp) * WEFT_WARP_SIZE;
    if (!counts_in_block(args))
        return;
    for (int32_t entry = thread; entry < args->num_entries; entry += num_threads)
        selection_counters(warp, args)[entry] = 0;
    weft_block_sync(warp);
}

WEFT_FN void add_block_counters(struct weft_warp *warp, const struct weft_layout_args *args)
{
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_threads = weft_num_warps(warp) * WEFT_WARP_SIZE;
    if (!counts_in_block(args))
        return;
    weft_block_sync(warp);
    for (int32_t entry = thread; entry < args->num_entries; entry += num_threads) {
        const int32_t num_selections = selection_counters(warp, args)[entry];
        if (num_selections > 0)
            weft_add_relaxed(&args->selections[entry], num_selections);
    }
}

/* Where the choices first .. first + CHOICES_AT_ONCE of a token go; -1 for those that go nowhere. Step
 * by step for all of them, so that their loads are under way together. */
WEFT_FN void find_entries(const struct weft_layout_args *args, int32_t token, int32_t first,
                          int32_t *entries)
{
    const struct weft_routing *routing = &args->routing;
    int64_t experts[CHOICES_AT_ONCE];
    for (int32_t i = 0; i < CHOICES_AT_ONCE; i++)
        experts[i] = first + i < routing->num_topk
                         ? weft_expert_id(args->topk_idx, args->index_type,
                                          (int64_t)token * routing->num_topk + first + i)
                         : -1;
    for (int32_t i = 0; i < CHOICES_AT_ONCE; i++)
        entries[i] = weft_placement_entry(&args->placement, experts[i], routing->rank, token);
}

/* Bit i: the token goes to rank first_rank + i. Counts the token's choices on the way, once. */
WEFT_FN uint64_t ranks_of_token(struct weft_warp *warp, const struct weft_layout_args *args,
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
                weft_add_relaxed(&counters[entries[i]], 1);
        }
    }
    return ranks;
}

/* The same by the caller's table, of which the first `most` count. */
WEFT_FN uint64_t ranks_of_table(const struct weft_layout_args *args, int32_t token,
                                int32_t first_rank, int32_t most)
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
WEFT_FN uint64_t find_ranks(struct weft_warp *warp, const struct weft_layout_args *args,
                            int32_t token, int32_t first_rank, int32_t num_routes)
{
    if (token < 0)
        return 0;
    return args->selections_per_entry == NULL
               ? ranks_of_token(warp, args, token, first_rank)
               : ranks_of_table(args, token, first_rank, args->routing.max_routes - num_routes);
}

WEFT_FN int goes_to_node(const struct weft_layout_args *args, const struct weft_route *routes,
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
WEFT_FN int32_t find_routes(struct weft_warp *warp, const struct weft_layout_args *args,
                            int32_t token, int32_t *rows)
{
    const struct weft_routing *routing = &args->routing;
    struct weft_route *routes = routing->routes + (int64_t)token * routing->max_routes;
    uint64_t ranks = 0;
    int32_t num_routes = 0;
    for (int32_t rank = 0; rank < routing->num_ranks; rank++) {
        if (rank % RANKS_AT_ONCE == 0)
            ranks = find_ranks(warp, args, token, rank, num_routes);
        const int goes = (int)(ranks >> (rank % RANKS_AT_ONCE) & 1);
        const uint32_t ballot = weft_ballot(warp, goes);
        const int32_t num_before = rows[rank];
        if (goes) {
            routes[num_routes].rank = rank;
            routes[num_routes++].slot = num_before + weft_lanes_below(warp, ballot);
        }
        if (args->is_token_in_rank != NULL && token >= 0)
            args->is_token_in_rank[(int64_t)token * routing->num_ranks + rank] = (uint8_t)goes;
        weft_warp_sync(warp); /* all have read rows[rank] */
        if (weft_lane_idx(warp) == 0)
            rows[rank] = num_before + weft_popcount(ballot);
    }
    weft_warp_sync(warp);
    if (token >= 0 && num_routes < routing->max_routes)
        routes[num_routes].rank = WEFT_NO_ROUTE;
    return num_routes;
}

/* A token for each lane, or -1. nodes[node] counts the chunk's tokens for the node. Before it is called again, the lanes
 * have met: in find_routes. */
WEFT_FN void find_nodes(struct weft_warp *warp, const struct weft_layout_args *args, int32_t token,
                        int32_t num_routes, int32_t *nodes)
{
    const struct weft_node_routing *routing = &args->routing.nodes;
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    int32_t num_node_routes = 0;
    for (int32_t node = 0; node < args->num_nodes; node++) {
        const int goes = goes_to_node(args, routes, num_routes, node);
        const uint32_t ballot = weft_ballot(warp, goes);
        const int32_t num_before = nodes[node];
        if (goes && routing->routes != NULL) {
            struct weft_route *route =
                routing->routes + (int64_t)token * routing->max_node_routes + num_node_routes++;
            route->rank = node;
            route->slot = num_before + weft_lanes_below(warp, ballot);
        }
        weft_warp_sync(warp); /* all have read nodes[node] */
        if (weft_lane_idx(warp) == 0)
            nodes[node] = num_before + weft_popcount(ballot);
    }
    if (token >= 0 && routing->routes != NULL && num_node_routes < routing->max_node_routes)
        routing->routes[(int64_t)token * routing->max_node_routes + num_node_routes].rank =
            WEFT_NO_ROUTE;
}

WEFT_FN int wants_nodes(const struct weft_layout_args *args)
{
    return args->num_tokens_per_node != NULL || args->routing.nodes.routes != NULL;
}

WEFT_FN void layout_chunk(struct weft_warp *warp, const struct weft_layout_args *args,
                          int32_t chunk)
{
    const struct weft_routing *routing = &args->routing;
    int32_t *rows = routing->chunk_base + (int64_t)chunk * routing->num_ranks;
    int32_t *nodes = routing->nodes.chunk_base + (int64_t)chunk * args->num_nodes;
    for (int32_t rank = weft_lane_idx(warp); rank < routing->num_ranks; rank += WEFT_WARP_SIZE)
        rows[rank] = 0;
    for (int32_t node = weft_lane_idx(warp); node < args->num_nodes; node += WEFT_WARP_SIZE)
        nodes[node] = 0;
    weft_warp_sync(warp);

    const int32_t begin = chunk * routing->chunk_tokens;
    const int32_t end = begin + routing->chunk_tokens < routing->num_tokens
                            ? begin + routing->chunk_tokens
                            : routing->num_tokens;
    for (int32_t first = begin; first < end; first += WEFT_WARP_SIZE) {
        const int32_t token = first + weft_lane_idx(warp) < end ? first + weft_lane_idx(warp) : -1;
        const int32_t num_routes = find_routes(warp, args, token, rows);
        if (wants_nodes(args))
            find_nodes(warp, args, token, num_routes, nodes);
    }
}

/* Warp-wide: turns counts[chunk][column] into the sum of the lower chunks and returns the total. */
WEFT_FN int32_t prefix_chunks(struct weft_warp *warp, int32_t *counts, int32_t num_chunks,
                              int32_t num_columns, int32_t column)
{
    int32_t total = 0;
    for (int32_t first = 0; first < num_chunks; first += WEFT_WARP_SIZE) {
        const int32_t chunk = first + weft_lane_idx(warp);
        int32_t *count = counts + (int64_t)chunk * num_columns + column;
        int32_t sum_of_lanes;
        const int32_t num_before =
            weft_prefix_sum(warp, chunk < num_chunks ? *count : 0, &sum_of_lanes);
        if (chunk < num_chunks)
            *count = total + num_before;
        total += sum_of_lanes;
    }
    return total;
}

WEFT_FN void sum_chunks(struct weft_warp *warp, const struct weft_layout_args *args)
{
    const struct weft_routing *routing = &args->routing;
    const int is_first_lane = weft_lane_idx(warp) == 0;
    for (int32_t rank = weft_warp_idx(warp); rank < routing->num_ranks;
         rank += weft_num_warps(warp)) {
        const int32_t num_rows =
            prefix_chunks(warp, routing->chunk_base, routing->num_chunks, routing->num_ranks, rank);
        if (is_first_lane)
            routing->send_rows[rank] = num_rows;
        if (is_first_lane && args->num_tokens_per_rank != NULL)
            args->num_tokens_per_rank[rank] = num_rows;
    }
    if (!wants_nodes(args))
        return;
    for (int32_t node = weft_warp_idx(warp); node < args->num_nodes; node += weft_num_warps(warp)) {
        const int32_t num_tokens = prefix_chunks(warp, routing->nodes.chunk_base,
                                                 routing->num_chunks, args->num_nodes, node);
        if (is_first_lane && routing->nodes.send_tokens != NULL)
            routing->nodes.send_tokens[node] = num_tokens;
        if (is_first_lane && args->num_tokens_per_node != NULL)
            args->num_tokens_per_node[node] = num_tokens;
    }
}

/* Takes the counts, or the caller's, and leaves zeroes for the next launch. */
WEFT_FN void take_selections(struct weft_warp *warp, const struct weft_layout_args *args)
{
    const struct weft_placement *placement = &args->placement;
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_threads = weft_num_warps(warp) * WEFT_WARP_SIZE;
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

WEFT_PROGRAM(layout, warp, args)
{
    const int32_t num_warps = weft_num_launch_warps(warp);
    weft_admit_next(warp); /* it waits for nobody */
    clear_block_counters(warp, args);
    for (int32_t chunk = weft_block_idx(warp) * weft_num_warps(warp) + weft_warp_idx(warp);
         chunk < args->routing.num_chunks; chunk += num_warps)
        layout_chunk(warp, args, chunk);
    add_block_counters(warp, args);
    if (weft_is_last_block(warp, args->num_blocks_done)) {
        sum_chunks(warp, args);
        take_selections(warp, args);
    }
    return WEFT_STATUS_OK;
}
