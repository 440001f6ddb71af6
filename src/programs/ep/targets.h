/* SPDX-License-Identifier: MIT */
/* Where the rows of a token are at the ranks that get it: first as integers, which a warp finds
 * while it waits for others, then as addresses, once these have told where their arrays are. */
#pragma once

#include "programs/ep/routing.h"
#include "programs/exchange.h"

/* The targets of the warp's token. */
WP_FN struct wp_target *wp_warp_targets(struct wp_warp *warp)
{
    return (struct wp_target *)wp_warp_shared(warp);
}
WP_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(struct wp_target) <= WP_WARP_SHARED_BYTES,
                 "a token has a target for each choice at most");

enum wp_route_order {
    WP_ROUTES_IN_ORDER, /* as they are summed */
    WP_ROUTES_ROTATED /* tokens begin with different ranks, lest all write to the same one first */
};

/* Finds the targets of a token at the ranks of its routes; returns how many. `bases` tells which
 * ranks are mapped, the others' are none; NULL: all are. The warp's pointers may be written
 * again. */
WP_FN int32_t wp_find_targets(struct wp_warp *warp, const struct wp_routing *routing, int32_t token,
                              enum wp_route_order order, char *const *bases)
{
    const struct wp_route *routes = wp_token_routes(routing, token);
    const int32_t num_routes = wp_num_routes(routing, routes);
    const int32_t first = order == WP_ROUTES_ROTATED && num_routes > 0 ? token % num_routes : 0;
    struct wp_target *targets = wp_warp_targets(warp);
    wp_warp_sync(warp); /* the targets and pointers before have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_routes; i += WP_WARP_SIZE) {
        const struct wp_route route =
            routes[first + i < num_routes ? first + i : first + i - num_routes];
        const int is_mapped = bases == NULL || bases[route.rank] != NULL;
        targets[i].rank = is_mapped ? route.rank : WP_NO_ROUTE;
        targets[i].row = wp_route_row(routing, token, route);
    }
    return num_routes;
}

/* In place of a row: a slot of a rank that stages in rounds (rounds.h). */
WP_FN int32_t wp_slot_row(int32_t slot)
{
    return -1 - slot;
}

/* The target's row, or slot, in array `array` of its rank; NULL if the rank has no such row. */
WP_FN char *wp_target_row(const struct wp_operation *op, struct wp_target target, int array,
                          uint64_t row_bytes)
{
    if (target.rank == WP_NO_ROUTE || target.row >= wp_operation_capacity(op, target.rank))
        return NULL;
    char *rows = wp_operation_array(op, target.rank, array);
    const int32_t row = target.row < 0 ? wp_slot_row(target.row) : target.row;
    return rows == NULL ? NULL : rows + (uint64_t)row * row_bytes;
}
