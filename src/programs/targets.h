/* SPDX-License-Identifier: MIT */
/* Where the rows of a token are at the ranks that get it: first as integers, which a warp finds
 * while it waits for others, then as addresses, once these have told where their arrays are. */
#ifndef WEFT_PROGRAMS_TARGETS_H
#define WEFT_PROGRAMS_TARGETS_H

#include "programs/exchange.h"
#include "programs/routing.h"

/* The targets of the warp's token. */
WEFT_FN struct weft_target *weft_warp_targets(struct weft_warp *warp)
{
    return (struct weft_target *)weft_warp_shared(warp);
}
WEFT_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(struct weft_target) <= WEFT_WARP_SHARED_BYTES,
                   "a token has a target for each choice at most");

enum weft_route_order {
    WEFT_ROUTES_ASCENDING,
    WEFT_ROUTES_ROTATED /* tokens begin with different ranks, lest all write to the same one first */
};

/* Finds the targets of a token at the ranks of its routes; returns how many. `bases` tells which
 * ranks are mapped, the others' are none; NULL: all are. The warp's pointers may be written
 * again. */
WEFT_FN int32_t weft_find_targets(struct weft_warp *warp, const struct weft_routing *routing,
                                  int32_t token, enum weft_route_order order, char *const *bases)
{
    const struct weft_route *routes = weft_token_routes(routing, token);
    const int32_t num_routes = weft_num_routes(routing, routes);
    const int32_t first = order == WEFT_ROUTES_ROTATED && num_routes > 0 ? token % num_routes : 0;
    struct weft_target *targets = weft_warp_targets(warp);
    weft_warp_sync(warp); /* the targets and pointers before have been used */
    for (int32_t i = weft_lane_idx(warp); i < num_routes; i += WEFT_WARP_SIZE) {
        const struct weft_route route =
            routes[first + i < num_routes ? first + i : first + i - num_routes];
        const int is_mapped = bases == NULL || bases[route.rank] != NULL;
        targets[i].rank = is_mapped ? route.rank : WEFT_NO_ROUTE;
        targets[i].row = weft_route_row(routing, token, route);
    }
    return num_routes;
}

/* The target's row in array `array` of its rank; NULL if the rank has no such row. */
WEFT_FN char *weft_target_row(const struct weft_operation *op, struct weft_target target, int array,
                              uint64_t row_bytes)
{
    if (target.rank == WEFT_NO_ROUTE || target.row >= weft_operation_capacity(op, target.rank))
        return NULL;
    char *rows = weft_operation_array(op, target.rank, array);
    return rows == NULL ? NULL : rows + (uint64_t)target.row * row_bytes;
}

#endif
