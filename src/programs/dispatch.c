/* SPDX-License-Identifier: MIT */
/*
 * dispatch: a warp reads a token's row once and writes it to all ranks of the token's routes,
 * straight into the final rows, at the places that the ranks named when they started.
 */
#include "programs/dispatch.h"

#include "programs/share.h"

enum { NO_ROOM = -1 };

/* The row at the rank of route j, or NO_ROOM if the rank's outputs end before it. */
WEFT_FN int32_t target_row(const struct weft_dispatch_args *args, int32_t token,
                           struct weft_route route)
{
    const int32_t row = weft_route_row(&args->routing, token, route);
    return row < weft_exchange_message(&args->exchange, route.rank)->capacity ? row : NO_ROOM;
}

WEFT_FN void send_plane(struct weft_warp *warp, const struct weft_dispatch_args *args,
                        const struct weft_share *share, struct weft_part part, int32_t num_routes,
                        int32_t plane)
{
    const struct weft_route *routes = weft_token_routes(&args->routing, part.token);
    const uint64_t row_bytes = args->message.call[WEFT_CALL_ROW_BYTES + plane];
    const struct weft_span span = weft_part_span(share, part.part, row_bytes);
    if (span.bytes == 0 || num_routes == 0)
        return;
    const void **dsts = weft_warp_pointers(warp);
    weft_warp_sync(warp); /* the previous row's pointers have been used */
    for (int32_t j = weft_lane_idx(warp); j < num_routes; j += WEFT_WARP_SIZE) {
        const int32_t row = target_row(args, part.token, routes[j]);
        /* Tokens begin with different ranks, lest all ranks write to the same one first. */
        dsts[(j + part.token) % num_routes] =
            row == NO_ROOM
                ? NULL
                : weft_exchange_array(&args->exchange, routes[j].rank, WEFT_ARRAY_PLANE + plane) +
                      (uint64_t)row * row_bytes + span.begin;
    }
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, num_routes,
                  args->planes[plane].rows +
                      (uint64_t)part.token * args->planes[plane].stride_bytes + span.begin,
                  span.bytes);
}

WEFT_FN void store_expert_id(const struct weft_dispatch_args *args, int32_t rank, int64_t i,
                             int32_t local_expert)
{
    char *ids = weft_exchange_array(&args->exchange, rank, WEFT_ARRAY_TOPK_IDX);
    if (args->message.call[WEFT_CALL_OPTIONS] & WEFT_OPTION_INT64)
        ((int64_t *)(void *)ids)[i] = local_expert;
    else
        ((int32_t *)(void *)ids)[i] = local_expert;
}

WEFT_FN weft_dtype index_type_of(const struct weft_dispatch_args *args)
{
    return args->message.call[WEFT_CALL_OPTIONS] & WEFT_OPTION_INT64 ? WEFT_INT64 : WEFT_INT32;
}

/* Tells the rank of `route` which of the token's choices are experts of its own. */
WEFT_FN void send_choice(const struct weft_dispatch_args *args, int32_t token,
                         struct weft_route route, int32_t k)
{
    const int32_t row = target_row(args, token, route);
    if (row == NO_ROOM)
        return;
    const int32_t num_topk = args->routing.num_topk;
    const int64_t choice = (int64_t)token * num_topk + k;
    const int32_t entry = weft_placement_entry(
        &args->placement, weft_expert_id(args->topk_idx, index_type_of(args), choice),
        args->routing.rank, token);
    const int is_there = entry >= 0 && args->placement.entry_ranks[entry] == route.rank;
    const int64_t target = (int64_t)row * num_topk + k;
    store_expert_id(args, route.rank, target, is_there ? args->placement.entry_local[entry] : -1);
    if (args->topk_weights != NULL)
        ((float *)(void *)weft_exchange_array(&args->exchange, route.rank,
                                              WEFT_ARRAY_TOPK_WEIGHTS))[target] =
            is_there ? args->topk_weights[choice] : 0.0f;
}

WEFT_FN void send_src_token(const struct weft_dispatch_args *args, int32_t token,
                            struct weft_route route)
{
    const int32_t row = target_row(args, token, route);
    const struct weft_message *message = weft_exchange_message(&args->exchange, route.rank);
    if (message->array_offsets[WEFT_ARRAY_SRC_TOKEN] != 0 && row != NO_ROOM)
        ((int32_t *)(void *)weft_exchange_array(&args->exchange, route.rank,
                                                WEFT_ARRAY_SRC_TOKEN))[row] = token;
}

WEFT_FN void send_part(struct weft_warp *warp, const struct weft_dispatch_args *args,
                       const struct weft_share *share, struct weft_part part)
{
    const int32_t token = part.token;
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    const int32_t num_routes = weft_num_routes(&args->routing, routes);
    const uint32_t options = args->message.call[WEFT_CALL_OPTIONS];
    for (int32_t plane = 0; plane < (int32_t)args->message.call[WEFT_CALL_NUM_PLANES]; plane++)
        send_plane(warp, args, share, part, num_routes, plane);
    if (part.part != 0)
        return;
    if (options & WEFT_OPTION_TOPK_IDX) {
        for (int32_t i = weft_lane_idx(warp); i < num_routes * args->routing.num_topk;
             i += WEFT_WARP_SIZE)
            send_choice(args, token, routes[i / args->routing.num_topk],
                        i % args->routing.num_topk);
    }
    for (int32_t j = weft_lane_idx(warp); j < num_routes; j += WEFT_WARP_SIZE)
        send_src_token(args, token, routes[j]);
}

/* Own outputs that no rank writes: expert ids after the last row, and the count of drops. */
WEFT_FN void complete_outputs(struct weft_warp *warp, const struct weft_dispatch_args *args,
                              int32_t global_warp, int32_t num_global_warps)
{
    const int64_t num_rows = *args->routing.recv_rows;
    const int64_t capacity = args->message.capacity;
    if (global_warp == 0 && weft_lane_idx(warp) == 0 &&
        num_rows - capacity > *args->routing.dropped_rows)
        *args->routing.dropped_rows = num_rows - capacity;
    if (!(args->message.call[WEFT_CALL_OPTIONS] & WEFT_OPTION_TOPK_IDX))
        return;
    const int64_t num_topk = args->routing.num_topk;
    for (int64_t i =
             num_rows * num_topk + (int64_t)global_warp * WEFT_WARP_SIZE + weft_lane_idx(warp);
         i < capacity * num_topk; i += (int64_t)num_global_warps * WEFT_WARP_SIZE)
        store_expert_id(args, args->routing.rank, i, -1);
}

WEFT_PROGRAM(dispatch, warp, args)
{
    const enum weft_status status = weft_exchange_start(warp, &args->exchange, &args->message);
    if (status != WEFT_STATUS_OK)
        return status;
    const struct weft_share share =
        weft_share_rows(warp, args->routing.num_tokens, &args->exchange.state->num_units_taken);
    for (int32_t unit = weft_first_unit(warp); unit < share.num_units;) {
        const int32_t next = weft_take_unit(warp, &share);
        send_part(warp, args, &share, weft_unit_part(&share, unit));
        unit = weft_taken_unit(warp, next);
    }
    complete_outputs(warp, args, weft_first_unit(warp), share.num_warps);
    return weft_exchange_finish(warp, &args->exchange);
}
