/* SPDX-License-Identifier: MIT */
/*
 * layout: from topk_idx, the routes of every token and the counts per rank, node and expert.
 *
 * Each warp takes one chunk of tokens, its lanes one token each: a lane writes its token's sorted
 * routes; then, rank by rank, a ballot over the lanes gives each token its slot. The last block to
 * finish sums the chunks up. Experts are counted by blocks, each its own range of experts over all
 * tokens, so that nothing must be zeroed by another block first.
 */
#include "programs/layout.h"

#include "programs/block.h"

/* Inserts `rank` into the ascending list `routes` of length num_routes unless it is there. */
WEFT_FN int32_t insert_route(struct weft_route *routes, int32_t num_routes, int32_t rank)
{
    int32_t i = num_routes;
    while (i > 0 && routes[i - 1].rank > rank)
        i--;
    if (i > 0 && routes[i - 1].rank == rank)
        return num_routes;
    for (int32_t j = num_routes; j > i; j--)
        routes[j] = routes[j - 1];
    routes[i].rank = rank;
    routes[i].slot = 0;
    return num_routes + 1;
}

WEFT_FN int32_t find_routes(const struct weft_layout_args *args, int32_t token)
{
    const struct weft_routing *routing = &args->routing;
    struct weft_route *routes = routing->routes + (int64_t)token * routing->max_routes;
    int32_t num_routes = 0;
    for (int32_t k = 0; k < routing->num_topk; k++) {
        const int64_t expert = weft_expert_id(args->topk_idx, args->index_type,
                                              (int64_t)token * routing->num_topk + k);
        const int32_t entry = weft_placement_entry(&args->placement, expert, routing->rank, token);
        if (entry >= 0)
            num_routes = insert_route(routes, num_routes, args->placement.entry_ranks[entry]);
    }
    for (int32_t j = num_routes; j < routing->max_routes; j++)
        routes[j].rank = WEFT_NO_ROUTE;
    return num_routes;
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

/* Lanes hold consecutive tokens; those past the chunk's end have no routes. */
WEFT_FN void assign_slots(struct weft_warp *warp, const struct weft_layout_args *args,
                          int32_t token, int32_t num_routes, int32_t *rows)
{
    const struct weft_routing *routing = &args->routing;
    struct weft_route *routes = routing->routes + (int64_t)token * routing->max_routes;
    int32_t j = 0; /* the next of this token's routes: ranks ascend in both */
    for (int32_t rank = 0; rank < routing->num_ranks; rank++) {
        const int goes = j < num_routes && routes[j].rank == rank;
        const uint32_t ballot = weft_ballot(warp, goes);
        const int32_t num_before = rows[rank];
        if (goes)
            routes[j++].slot = num_before + weft_lanes_below(warp, ballot);
        weft_warp_sync(warp); /* all have read rows[rank] */
        if (weft_lane_idx(warp) == 0)
            rows[rank] = num_before + weft_popcount(ballot);
    }
    weft_warp_sync(warp);
}

WEFT_FN void count_nodes(struct weft_warp *warp, const struct weft_layout_args *args, int32_t token,
                         int32_t num_routes, int32_t *nodes)
{
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    for (int32_t node = 0; node < args->num_nodes; node++) {
        const uint32_t ballot = weft_ballot(warp, goes_to_node(args, routes, num_routes, node));
        if (weft_lane_idx(warp) == 0)
            nodes[node] += weft_popcount(ballot);
    }
}

WEFT_FN void mark_ranks(const struct weft_layout_args *args, int32_t token, int32_t num_routes)
{
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    uint8_t *is_in_rank = args->is_token_in_rank + (int64_t)token * args->routing.num_ranks;
    for (int32_t rank = 0; rank < args->routing.num_ranks; rank++)
        is_in_rank[rank] = 0;
    for (int32_t j = 0; j < num_routes; j++)
        is_in_rank[routes[j].rank] = 1;
}

WEFT_FN void layout_chunk(struct weft_warp *warp, const struct weft_layout_args *args,
                          int32_t chunk)
{
    const struct weft_routing *routing = &args->routing;
    int32_t *rows = routing->chunk_base + (int64_t)chunk * routing->num_ranks;
    int32_t *nodes = args->chunk_nodes + (int64_t)chunk * args->num_nodes;
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
        const int32_t token = first + weft_lane_idx(warp);
        const int32_t num_routes = token < end ? find_routes(args, token) : 0;
        assign_slots(warp, args, token, num_routes, rows);
        if (args->num_tokens_per_node != NULL)
            count_nodes(warp, args, token, num_routes, nodes);
        if (args->is_token_in_rank != NULL && token < end)
            mark_ranks(args, token, num_routes);
    }
}

/* Block b counts the choices of the experts [E*b/B, E*(b+1)/B). */
WEFT_FN void count_selections(struct weft_warp *warp, const struct weft_layout_args *args)
{
    const struct weft_routing *routing = &args->routing;
    const struct weft_placement *placement = &args->placement;
    const int64_t num_experts = placement->num_experts;
    const int32_t first = (int32_t)(num_experts * weft_block_idx(warp) / weft_num_blocks(warp));
    const int32_t last =
        (int32_t)(num_experts * (weft_block_idx(warp) + 1) / weft_num_blocks(warp));
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_threads = weft_num_warps(warp) * WEFT_WARP_SIZE;

    for (int32_t entry = placement->expert_offsets[first] + thread;
         entry < placement->expert_offsets[last]; entry += num_threads)
        routing->entry_selections[entry] = 0;
    weft_block_sync(warp);
    const int64_t num_choices = (int64_t)routing->num_tokens * routing->num_topk;
    for (int64_t i = thread; i < num_choices; i += num_threads) {
        const int64_t expert = weft_expert_id(args->topk_idx, args->index_type, i);
        if (expert < first || expert >= last)
            continue;
        const int32_t entry = weft_placement_entry(placement, expert, routing->rank,
                                                   (int32_t)(i / routing->num_topk));
        weft_add_relaxed(&routing->entry_selections[entry], 1);
    }
    weft_block_sync(warp);
    if (args->num_tokens_per_expert == NULL)
        return;
    for (int32_t expert = first + thread; expert < last; expert += num_threads) {
        int32_t num_selections = 0;
        for (int32_t entry = placement->expert_offsets[expert];
             entry < placement->expert_offsets[expert + 1]; entry++)
            num_selections += routing->entry_selections[entry];
        args->num_tokens_per_expert[expert] = num_selections;
    }
}

/* Turns counts[chunk][column] into the sum of the lower chunks and returns the total. */
WEFT_FN int32_t prefix_chunks(int32_t *counts, int32_t num_chunks, int32_t num_columns,
                              int32_t column)
{
    int32_t total = 0;
    for (int32_t chunk = 0; chunk < num_chunks; chunk++) {
        const int32_t count = counts[(int64_t)chunk * num_columns + column];
        counts[(int64_t)chunk * num_columns + column] = total;
        total += count;
    }
    return total;
}

WEFT_FN void sum_chunks(struct weft_warp *warp, const struct weft_layout_args *args)
{
    const struct weft_routing *routing = &args->routing;
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_threads = weft_num_warps(warp) * WEFT_WARP_SIZE;
    for (int32_t rank = thread; rank < routing->num_ranks; rank += num_threads) {
        const int32_t num_rows =
            prefix_chunks(routing->chunk_base, routing->num_chunks, routing->num_ranks, rank);
        routing->send_rows[rank] = num_rows;
        if (args->num_tokens_per_rank != NULL)
            args->num_tokens_per_rank[rank] = num_rows;
    }
    if (args->num_tokens_per_node == NULL)
        return;
    for (int32_t node = thread; node < args->num_nodes; node += num_threads)
        args->num_tokens_per_node[node] =
            prefix_chunks(args->chunk_nodes, routing->num_chunks, args->num_nodes, node);
}

WEFT_PROGRAM(layout, warp, args)
{
    const int32_t num_warps = weft_num_blocks(warp) * weft_num_warps(warp);
    for (int32_t chunk = weft_block_idx(warp) * weft_num_warps(warp) + weft_warp_idx(warp);
         chunk < args->routing.num_chunks; chunk += num_warps)
        layout_chunk(warp, args, chunk);
    count_selections(warp, args);
    if (weft_is_last_block(warp, args->num_blocks_done))
        sum_chunks(warp, args);
    return WEFT_STATUS_OK;
}
