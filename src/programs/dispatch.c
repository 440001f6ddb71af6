/* SPDX-License-Identifier: MIT */
/*
 * dispatch: a warp reads a token's row once and writes it to all ranks of the token's routes,
 * straight into the final rows, at the places that the ranks named when they started.
 */
#include "programs/dispatch.h"

#include "programs/share.h"

enum { NO_ROOM = -1 };

struct sending {
    const struct weft_dispatch_args *args;
    uint64_t sequence;
    struct weft_share share;
};

/* Array `array` of the rank of a route. */
WEFT_FN char *target_array(struct weft_warp *warp, const struct sending *sending,
                           struct weft_route route, int array)
{
    return weft_exchange_array(warp, &sending->args->exchange, sending->sequence, route.rank,
                               array);
}

/* The row at the rank of a route, or NO_ROOM if the rank's outputs end before it. */
WEFT_FN int32_t target_row(struct weft_warp *warp, const struct sending *sending, int32_t token,
                           struct weft_route route)
{
    const struct weft_dispatch_args *args = sending->args;
    const int32_t row = weft_route_row(&args->routing, token, route);
    return row < weft_exchange_capacity(warp, &args->exchange, sending->sequence, route.rank)
               ? row
               : NO_ROOM;
}

/* The rows that the token goes to, in the warp's pointers. Returns how many. */
WEFT_FN int32_t find_targets(struct weft_warp *warp, const struct weft_dispatch_args *args,
                             int32_t token)
{
    return weft_find_targets(warp, &args->routing, token, WEFT_ROUTES_ROTATED,
                             weft_warp_pointers(warp));
}

/* Where a target's row is, or null if the rank's outputs end before it. */
WEFT_FN char *target_address(struct weft_warp *warp, const struct sending *sending,
                             const void *target, int32_t plane)
{
    const struct weft_exchange *exchange = &sending->args->exchange;
    const int32_t rank = weft_target_rank(target), row = weft_target_row(target);
    if (row >= weft_exchange_capacity(warp, exchange, sending->sequence, rank))
        return NULL;
    return weft_exchange_array(warp, exchange, sending->sequence, rank, WEFT_ARRAY_PLANE + plane) +
           (uint64_t)row * sending->args->message.call[WEFT_CALL_ROW_BYTES + plane];
}

/* To the targets that find_targets has found. */
WEFT_FN void send_plane(struct weft_warp *warp, const struct sending *sending,
                        struct weft_part part, int32_t num_routes, int32_t plane)
{
    const struct weft_dispatch_args *args = sending->args;
    const uint64_t row_bytes = args->message.call[WEFT_CALL_ROW_BYTES + plane];
    const struct weft_span span = weft_part_span(&sending->share, part.part, row_bytes);
    if (span.bytes == 0 || num_routes == 0)
        return;
    const void **dsts = weft_warp_pointers(warp);
    for (int32_t i = weft_lane_idx(warp); i < num_routes; i += WEFT_WARP_SIZE) {
        char *row = target_address(warp, sending, dsts[i], plane);
        dsts[i] = row == NULL ? NULL : row + span.begin;
    }
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, num_routes,
                  args->planes[plane].rows +
                      (uint64_t)part.token * args->planes[plane].stride_bytes + span.begin,
                  span.bytes);
}

WEFT_FN void store_expert_id(const struct weft_dispatch_args *args, char *ids, int64_t i,
                             int32_t local_expert)
{
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
WEFT_FN void send_choice(struct weft_warp *warp, const struct sending *sending, int32_t token,
                         struct weft_route route, int32_t k)
{
    const struct weft_dispatch_args *args = sending->args;
    const int32_t row = target_row(warp, sending, token, route);
    if (row == NO_ROOM)
        return;
    const int32_t num_topk = args->routing.num_topk;
    const int64_t choice = (int64_t)token * num_topk + k;
    const int32_t entry = weft_placement_entry(
        &args->placement, weft_expert_id(args->topk_idx, index_type_of(args), choice),
        args->routing.rank, token);
    const int is_there = entry >= 0 && args->placement.entry_ranks[entry] == route.rank;
    const int64_t target = (int64_t)row * num_topk + k;
    store_expert_id(args, target_array(warp, sending, route, WEFT_ARRAY_TOPK_IDX), target,
                    is_there ? args->placement.entry_local[entry] : -1);
    if (args->topk_weights != NULL)
        ((float *)(void *)target_array(warp, sending, route, WEFT_ARRAY_TOPK_WEIGHTS))[target] =
            is_there ? args->topk_weights[choice] : 0.0f;
}

WEFT_FN void send_src_token(struct weft_warp *warp, const struct sending *sending, int32_t token,
                            struct weft_route route)
{
    const int32_t row = target_row(warp, sending, token, route);
    char *src_tokens = target_array(warp, sending, route, WEFT_ARRAY_SRC_TOKEN);
    if (src_tokens != NULL && row != NO_ROOM)
        ((int32_t *)(void *)src_tokens)[row] = token;
}

WEFT_FN void send_topk(struct weft_warp *warp, const struct sending *sending, int32_t token,
                       int32_t num_routes)
{
    const struct weft_dispatch_args *args = sending->args;
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    const int32_t num_topk = args->routing.num_topk;
    if (args->message.call[WEFT_CALL_OPTIONS] & WEFT_OPTION_TOPK_IDX) {
        for (int32_t i = weft_lane_idx(warp); i < num_routes * num_topk; i += WEFT_WARP_SIZE)
            send_choice(warp, sending, token, routes[i / num_topk], i % num_topk);
    }
    for (int32_t j = weft_lane_idx(warp); j < num_routes; j += WEFT_WARP_SIZE)
        send_src_token(warp, sending, token, routes[j]);
}

/* The targets of the token have been found. */
WEFT_FN void send_part(struct weft_warp *warp, const struct sending *sending, struct weft_part part,
                       int32_t num_routes)
{
    const int32_t num_planes = (int32_t)sending->args->message.call[WEFT_CALL_NUM_PLANES];
    for (int32_t plane = 0; plane < num_planes; plane++) {
        if (plane > 0)
            find_targets(warp, sending->args, part.token);
        send_plane(warp, sending, part, num_routes, plane);
    }
    if (part.part == 0)
        send_topk(warp, sending, part.token, num_routes);
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
    char *ids =
        args->exchange.bases[args->routing.rank] + args->message.array_offsets[WEFT_ARRAY_TOPK_IDX];
    for (int64_t i =
             num_rows * num_topk + (int64_t)global_warp * WEFT_WARP_SIZE + weft_lane_idx(warp);
         i < capacity * num_topk; i += (int64_t)num_global_warps * WEFT_WARP_SIZE)
        store_expert_id(args, ids, i, -1);
}

/* What the warp sends first comes, and where it goes is found, while the messages are under way. Returns how many
 * targets it has. */
WEFT_FN int32_t prepare_first(struct weft_warp *warp, const struct sending *sending)
{
    const struct weft_dispatch_args *args = sending->args;
    const int32_t unit = weft_first_unit(warp);
    if (unit >= sending->share.num_units)
        return 0;
    const struct weft_part part = weft_unit_part(&sending->share, unit);
    const struct weft_span span =
        weft_part_span(&sending->share, part.part, args->message.call[WEFT_CALL_ROW_BYTES]);
    if (span.bytes > 0)
        weft_row_prefetch(warp,
                          args->planes[0].rows +
                              (uint64_t)part.token * args->planes[0].stride_bytes + span.begin,
                          span.bytes);
    return find_targets(warp, args, part.token);
}

WEFT_PROGRAM(dispatch, warp, args)
{
    const uint64_t sequence = weft_exchange_begin(warp, &args->exchange);
    if (sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_exchange_tell(warp, &args->exchange, sequence, &args->message);
    const struct sending sending = {
        args, sequence,
        weft_share_rows(warp, args->routing.num_tokens,
                        &args->exchange.state->num_units_taken[sequence % 2])};
    const int32_t first = weft_first_unit(warp);
    int32_t num_routes = prepare_first(warp, &sending);
    const enum weft_status status =
        weft_exchange_meet(warp, &args->exchange, sequence, &args->message);
    if (status != WEFT_STATUS_OK)
        return weft_exchange_end(warp, &args->exchange, sequence, status);
    for (int32_t unit = first; unit < sending.share.num_units;) {
        const struct weft_part part = weft_unit_part(&sending.share, unit);
        const int32_t next = weft_take_unit(warp, &sending.share);
        if (unit != first)
            num_routes = find_targets(warp, args, part.token);
        send_part(warp, &sending, part, num_routes);
        unit = weft_taken_unit(warp, next);
    }
    complete_outputs(warp, args, first, sending.share.num_warps);
    return weft_exchange_finish(warp, &args->exchange, sequence, WEFT_BLOCKS_AS_TOLD);
}
