/* SPDX-License-Identifier: MIT */
/* The order of a token's routes, in which combine adds their rows. */
#pragma once

#include "programs/ep/layout.h"

/* The routes, to ranks or nodes, in the order of the last choice that each one has: the last one
 * first finds its place at the end. */
WP_FN void wp_order_by_choice(const struct wp_layout_args *args, int32_t token,
                              struct wp_route *routes, int32_t num_routes,
                              const int32_t *node_of_rank)
{
    const int32_t num_topk = args->routing.num_topk;
    for (int32_t k = num_topk - 1; k >= 0 && num_routes > 1; k--) {
        const int64_t expert =
            wp_expert_id(args->topk_idx, args->index_type, (int64_t)token * num_topk + k);
        const int32_t entry =
            wp_placement_entry(&args->placement, expert, args->routing.rank, token);
        int32_t place = entry < 0 ? WP_NO_ROUTE : args->placement.entry_ranks[entry];
        if (entry >= 0 && node_of_rank != NULL)
            place = node_of_rank[place];
        int32_t j = 0;
        while (j < num_routes && routes[j].rank != place)
            j++;
        if (j == num_routes)
            continue;
        const struct wp_route route = routes[j];
        for (num_routes--; j < num_routes; j++)
            routes[j] = routes[j + 1];
        routes[num_routes] = route;
    }
}

/* By one lane: the routes of a token, to ranks and to nodes. */
WP_FN void wp_order_routes(const struct wp_layout_args *args, int32_t token, int32_t num_routes)
{
    const struct wp_routing *routing = &args->routing;
    const struct wp_node_routing *nodes = &routing->nodes;
    if (token < 0 || args->order != WEFT_ORDER_BY_CHOICE)
        return;
    wp_order_by_choice(args, token, routing->routes + (int64_t)token * routing->max_routes,
                       num_routes, NULL);
    if (nodes->routes == NULL)
        return;
    struct wp_route *node_routes = nodes->routes + (int64_t)token * nodes->max_node_routes;
    wp_order_by_choice(args, token, node_routes,
                       wp_count_routes(node_routes, nodes->max_node_routes), args->node_of_rank);
}
