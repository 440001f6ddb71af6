/* SPDX-License-Identifier: MIT */
/*
 * internode_combine: as combine, over several nodes. For each token that a partner has relayed the
 * rows of, its partner sums those of its node, rounds the sum to the wire's type (unless it travels
 * in fp32), and sends it back the way that the token came. The owner adds the sums of all nodes,
 * its own among them, in the order of the token's node routes. A warp for every ring sends; the
 * other warps take the tokens of this rank one after the other, so that the chunks that they wait
 * for are freed in order.
 */
#include "programs/ep/internode_combine.h"

#include "programs/ep/targets.h"
#include "programs/relay.h"

/* The summands: the rows themselves, or the weights that come with them. */
struct summands {
    int array; /* of the messages */
    weft_dtype dtype;
    weft_dtype wire_dtype;
    uint64_t row_bytes;
    uint64_t wire_offset; /* in a row on the wire */
    const char *const *biases;
    int32_t num_biases;
    char *out;     /* [num_tokens] rows */
    char *own_sum; /* of this warp (struct wp_internode_combine_args), or NULL */
};

WP_FN struct summands summands_of_rows(struct wp_warp *warp,
                                       const struct wp_internode_combine_args *args)
{
    const struct wp_combine_args *combine = &args->combine;
    char *own_sum = args->own_sums == NULL ? NULL
                                           : args->own_sums + (uint64_t)wp_launch_warp_idx(warp) *
                                                                  args->rings.slot_bytes;
    const struct wp_call *call = &combine->message.call;
    const struct summands rows = {WP_ARRAY_PLANE,
                                  combine->dtype,
                                  args->wire_dtype,
                                  call->row_bytes[0],
                                  wp_wire_weights_bytes(call),
                                  combine->biases,
                                  combine->num_biases,
                                  combine->out,
                                  own_sum};
    return rows;
}

WP_FN struct summands summands_of_weights(const struct wp_internode_combine_args *args)
{
    const struct wp_combine_args *combine = &args->combine;
    const struct summands weights = {WP_ARRAY_TOPK_WEIGHTS,
                                     WEFT_FP32,
                                     WEFT_FP32,
                                     (uint64_t)combine->routing.num_topk * sizeof(float),
                                     0,
                                     combine->biases,
                                     0, /* which weights have none of */
                                     (char *)combine->out_topk_weights,
                                     NULL};
    return weights;
}

WP_FN struct wp_relay relay_of(const struct wp_operation *op,
                               const struct wp_internode_combine_args *args, int32_t node,
                               int32_t channel, const int32_t *num_rows)
{
    const uint64_t row_bytes = wp_wire_combine_bytes(&args->combine.message.call, args->wire_dtype);
    const struct wp_relay relay = {wp_ring_of(&args->rings, node, channel), op, num_rows[node],
                                   wp_rows_per_chunk(&args->rings, row_bytes), row_bytes};
    return relay;
}

WP_FN int64_t num_elements_of(const struct summands *summands)
{
    return (int64_t)(summands->row_bytes / wp_dtype_bytes(summands->dtype));
}

/* The sources are in the warp's pointers. */
WP_FN void sum_up(struct wp_warp *warp, const struct summands *summands, char *dst,
                  int32_t num_srcs, struct wp_mixed_sum sum)
{
    wp_warp_sync(warp);
    wp_row_sum_mixed(warp, dst, (const void *const *)wp_warp_pointers(warp), num_srcs, sum,
                     num_elements_of(summands));
    wp_warp_sync(warp); /* the pointers have been used */
}

/* The sum of rows at ranks of one node: what goes to the token's owner, by the network or at
 * once. */
WP_FN void sum_rows(struct wp_warp *warp, const struct summands *summands, char *dst,
                    int32_t num_srcs)
{
    const struct wp_mixed_sum sum = {num_srcs, summands->dtype, summands->dtype,
                                     summands->wire_dtype, WP_READ_SOON};
    sum_up(warp, summands, dst, num_srcs, sum);
}

/* ------------------------------------------------------------------ sending back */

WP_FN void sum_relayed(const struct wp_internode_combine_args *args, const struct wp_relay *relay,
                       const struct summands *summands, int32_t idx, char *wire)
{
    struct wp_warp *warp = relay->op->warp;
    const struct wp_node_routing *routing = &args->combine.routing.nodes;
    const struct wp_target *relayed =
        routing->relayed_rows +
        ((int64_t)relay->ring.node * routing->max_relayed_tokens + idx) * routing->max_relayed_rows;
    const void **srcs = wp_warp_pointers(warp);
    for (int32_t j = wp_lane_idx(warp); j < routing->max_relayed_rows; j += WP_WARP_SIZE)
        srcs[j] = wp_target_row(relay->op, relayed[j], summands->array, summands->row_bytes);
    sum_rows(warp, summands, wire + summands->wire_offset, routing->max_relayed_rows);
}

WP_FN enum wp_status send_chunks(const struct wp_internode_combine_args *args,
                                 const struct wp_relay *relay)
{
    struct wp_warp *warp = relay->op->warp;
    const struct wp_call *call = &args->combine.message.call;
    const struct wp_ring *ring = &relay->ring;
    const struct summands rows = summands_of_rows(warp, args);
    const struct summands weights = summands_of_weights(args);
    /* A rank without rows does not know. */
    const int has_weights =
        (wp_call_options(call) & (WP_OPTION_TOPK_WEIGHTS | WP_OPTION_NO_ROWS)) != 0;
    const uint64_t first = *wp_ring_counter(ring, args->rings.num_sent, relay->op->sequence);
    for (int32_t i = 0; i < wp_relay_num_chunks(relay); i++) {
        const uint64_t number = first + (uint64_t)i;
        const struct wp_relay_chunk chunk = wp_relay_chunk(relay, i);
        char *slot = wp_relay_reserve(relay, number);
        if (slot == NULL)
            return WP_STATUS_FAILED;
        for (int32_t row = chunk.begin; row < chunk.end; row++) {
            char *wire = slot + wp_relay_row_offset(relay, row - chunk.begin);
            sum_relayed(args, relay, &rows, row, wire);
            if (has_weights)
                sum_relayed(args, relay, &weights, row, wire);
        }
        wp_ring_send(warp, ring, number, wp_relay_row_offset(relay, chunk.end - chunk.begin));
    }
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ taking a token's sums */

/* The sum that a node has sent for a token. */
struct partial {
    struct wp_relay relay;
    uint64_t number; /* of the chunk */
    int32_t chunk_rows;
    const char *wire; /* the row in the slot */
};

WP_FN struct partial partial_of(const struct wp_operation *op,
                                const struct wp_internode_combine_args *args, int32_t token,
                                struct wp_route route)
{
    const struct wp_routing *routing = &args->combine.routing;
    const int32_t slot = wp_node_slot(routing, args->rings.nodes.num_nodes, token, route);
    const uint64_t row_bytes = wp_wire_combine_bytes(&args->combine.message.call, args->wire_dtype);
    const int32_t idx = slot / wp_rows_per_chunk(&args->rings, row_bytes);
    const int32_t channel = idx % args->rings.num_channels;
    struct partial partial;
    partial.relay = relay_of(op, args, route.rank, channel, routing->nodes.send_tokens);
    const struct wp_ring *ring = &partial.relay.ring;
    const int32_t i = idx / args->rings.num_channels;
    const struct wp_relay_chunk chunk = wp_relay_chunk(&partial.relay, i);
    partial.number = *wp_ring_counter(ring, args->rings.num_received, op->sequence) + (uint64_t)i;
    partial.chunk_rows = chunk.end - chunk.begin;
    partial.wire = wp_ring_in_slot(ring, partial.number) +
                   wp_relay_row_offset(&partial.relay, slot - chunk.begin);
    return partial;
}

/* Warp-wide. */
WP_FN enum wp_status await_partial(const struct partial *partial)
{
    const struct wp_relay *relay = &partial->relay;
    const enum wp_status status = wp_ring_receive(relay->op, &relay->ring, partial->number);
    return status == WP_STATUS_OK
               ? wp_relay_check(relay, wp_ring_in_slot(&relay->ring, partial->number))
               : status;
}

/* Warp-wide: the row has been read; so has the chunk, if it was the last one. */
WP_FN void release_partial(const struct wp_internode_combine_args *args,
                           const struct partial *partial)
{
    struct wp_warp *warp = partial->relay.op->warp;
    const struct wp_rings *rings = &args->rings;
    const struct wp_ring *ring = &partial->relay.ring;
    const int64_t ring_idx = (int64_t)ring->node * rings->num_channels + ring->channel;
    uint32_t *num_read = rings->num_rows_read + ring_idx * rings->num_slots +
                         (int64_t)wp_ring_slot_idx(ring, partial->number);
    uint32_t is_last = 0;
    if (wp_lane_idx(warp) == 0) {
        /* Pairs with the same of the warps that read the chunk's other rows. */
        is_last = wp_add_acq_rel(num_read, 1) + 1 == (uint32_t)partial->chunk_rows;
        if (is_last)
            *num_read = 0;
    }
    if (wp_max_u32(warp, is_last))
        wp_ring_consume(warp, ring, partial->number);
}

/* ------------------------------------------------------------------ a token */

/* Where the sum of this node's rows waits for those of the others. */
WP_FN char *own_sum(const struct summands *summands, int32_t token)
{
    return summands->own_sum == NULL ? summands->out + (uint64_t)token * summands->row_bytes
                                     : summands->own_sum;
}

WP_FN void sum_own_node(const struct wp_operation *op, const struct wp_combine_args *combine,
                        const struct summands *summands, int32_t token)
{
    struct wp_warp *warp = op->warp;
    const void **srcs = wp_warp_pointers(warp);
    const struct wp_target *targets = wp_warp_targets(warp);
    const int32_t num_srcs =
        wp_find_targets(warp, &combine->routing, token, WP_ROUTES_IN_ORDER, op->exchange->bases);
    for (int32_t j = wp_lane_idx(warp); j < num_srcs; j += WP_WARP_SIZE)
        srcs[j] = wp_target_row(op, targets[j], summands->array, summands->row_bytes);
    sum_rows(warp, summands, own_sum(summands, token), num_srcs);
    wp_row_sync(warp); /* the sum is read again */
}

/* Adds the sums of all nodes. */
WP_FN void sum_nodes(const struct wp_operation *op, const struct wp_internode_combine_args *args,
                     const struct summands *summands, int32_t token, const struct wp_route *routes,
                     int32_t num_routes)
{
    struct wp_warp *warp = op->warp;
    const uint64_t own_offset = (uint64_t)token * summands->row_bytes;
    const void **srcs = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < summands->num_biases; i += WP_WARP_SIZE)
        srcs[i] = summands->biases[i] + own_offset;
    for (int32_t j = wp_lane_idx(warp); j < num_routes; j += WP_WARP_SIZE)
        srcs[summands->num_biases + j] =
            routes[j].rank == args->rings.nodes.node
                ? own_sum(summands, token)
                : partial_of(op, args, token, routes[j]).wire + summands->wire_offset;
    const struct wp_mixed_sum sum = {summands->num_biases, summands->dtype, summands->wire_dtype,
                                     summands->dtype, WP_READ_LATER};
    sum_up(warp, summands, summands->out + own_offset, summands->num_biases + num_routes, sum);
}

WP_FN void sum_token(const struct wp_operation *op, const struct wp_internode_combine_args *args,
                     const struct summands *summands, int32_t token, const struct wp_route *routes,
                     int32_t num_routes)
{
    for (int32_t j = 0; j < num_routes; j++) {
        if (routes[j].rank == args->rings.nodes.node)
            sum_own_node(op, &args->combine, summands, token);
    }
    sum_nodes(op, args, summands, token, routes, num_routes);
}

WP_FN enum wp_status combine_token(const struct wp_operation *op,
                                   const struct wp_internode_combine_args *args, int32_t token)
{
    const struct wp_combine_args *combine = &args->combine;
    const struct wp_node_routing *routing = &combine->routing.nodes;
    const struct wp_route *routes = routing->routes + (int64_t)token * routing->max_node_routes;
    const int32_t num_routes = wp_count_routes(routes, routing->max_node_routes),
                  own = args->rings.nodes.node;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t j = 0; j < num_routes && status == WP_STATUS_OK; j++) {
        if (routes[j].rank == own)
            continue;
        const struct partial partial = partial_of(op, args, token, routes[j]);
        status = await_partial(&partial);
    }
    if (status != WP_STATUS_OK)
        return status;
    const struct summands rows = summands_of_rows(op->warp, args);
    sum_token(op, args, &rows, token, routes, num_routes);
    if (combine->out_topk_weights != NULL) {
        const struct summands weights = summands_of_weights(args);
        sum_token(op, args, &weights, token, routes, num_routes);
    }
    wp_row_sync(op->warp); /* what has come has been read */
    for (int32_t j = 0; j < num_routes; j++) {
        if (routes[j].rank == own)
            continue;
        const struct partial partial = partial_of(op, args, token, routes[j]);
        release_partial(args, &partial);
    }
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ the program */

WP_FN enum wp_status send_back(const struct wp_operation *op,
                               const struct wp_internode_combine_args *args,
                               const struct wp_duty *duty)
{
    const struct wp_node_routing *routing = &args->combine.routing.nodes;
    const int32_t node = wp_node_after(&args->rings.nodes, duty->hops);
    const struct wp_relay out = relay_of(op, args, node, duty->channel, routing->relay_tokens);
    const struct wp_relay in = relay_of(op, args, node, duty->channel, routing->send_tokens);
    if (wp_lane_idx(op->warp) == 0)
        wp_ring_advance(&out.ring, op->sequence, wp_relay_num_chunks(&out),
                        wp_relay_num_chunks(&in));
    return send_chunks(args, &out);
}

WP_FN enum wp_status combine_own(const struct wp_operation *op,
                                 const struct wp_internode_combine_args *args,
                                 const struct wp_duty *duty)
{
    const struct wp_combine_args *combine = &args->combine;
    const struct wp_share share = wp_share_parts(duty->num_local, 1, combine->routing.num_tokens,
                                                 wp_units_taken(op->exchange, op->sequence));
    enum wp_status status = WP_STATUS_OK;
    for (int32_t token = wp_duty_first_unit(op->warp, duty, &share);
         token < share.num_units && status == WP_STATUS_OK;
         token = wp_taken_unit(op->warp, wp_take_unit(op->warp, &share)))
        status = combine_token(op, args, token);
    return status;
}

WP_FN enum wp_status combine_over_nodes(struct wp_warp *warp,
                                        const struct wp_internode_combine_args *args)
{
    const struct wp_combine_args *combine = &args->combine;
    const struct wp_operation op = wp_operation_begin(warp, &combine->exchange, &combine->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    const struct wp_duty duty = wp_warp_duty(warp, &args->rings, 1);
    if (duty.kind == WP_DUTY_SEND)
        status = send_back(&op, args, &duty);
    if (status == WP_STATUS_OK)
        status = combine_own(&op, args, &duty);
    return wp_relay_finish(&op, status);
}

WP_PROGRAM(internode_combine, warp, args)
{
    return combine_over_nodes(warp, args);
}
