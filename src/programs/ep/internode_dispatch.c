/* SPDX-License-Identifier: MIT */
/*
 * internode_dispatch: as dispatch, over several nodes. A token that ranks of another node need
 * crosses the network once, to this rank's partner there, which relays it to those ranks. A warp
 * for every ring sends, another relays; the other warps deliver the tokens of this rank to ranks of
 * its own node. internode_quantised_dispatch takes the same steps.
 */
#include "programs/ep/internode_dispatch.h"

#include "programs/ep/own_tokens.h"
#include "programs/relay.h"

WP_FN struct wp_relay relay_of(const struct wp_operation *op,
                               const struct wp_internode_dispatch_args *args, int32_t node,
                               int32_t channel, const int32_t *num_rows)
{
    const struct wp_routing *routing = &args->dispatch.routing;
    const uint64_t row_bytes =
        wp_wire_dispatch_bytes(&args->dispatch.message.call, routing->nodes.max_relayed_rows);
    const struct wp_relay relay = {wp_ring_of(&args->rings, node, channel), op, num_rows[node],
                                   wp_rows_per_chunk(&args->rings, row_bytes), row_bytes};
    return relay;
}

/* ------------------------------------------------------------------ sending */

/* The number of a rank among those of a node; -1: it is in another one. */
WP_FN int32_t local_idx_of(const struct wp_nodes *nodes, int32_t node, int32_t rank)
{
    const int32_t local_idx = nodes->local_idxs[rank];
    return wp_node_rank(nodes, node, local_idx) == rank ? local_idx : -1;
}

/* Where the rows go: those routes that are on the node, in their order. */
WP_FN void write_rows(struct wp_warp *warp, const struct wp_internode_dispatch_args *args,
                      int32_t node, int32_t token, struct wp_wire_token *wire)
{
    const struct wp_routing *routing = &args->dispatch.routing;
    const struct wp_route *routes = wp_token_routes(routing, token);
    struct wp_wire_row *rows = (struct wp_wire_row *)(void *)(wire + 1);
    const int32_t num_routes = wp_num_routes(routing, routes);
    const int32_t chunk = token / routing->chunk_tokens;
    int32_t num_rows = 0;
    for (int32_t j = 0; j < num_routes; j++) {
        const int32_t local_idx = local_idx_of(&args->rings.nodes, node, routes[j].rank);
        if (local_idx < 0)
            continue;
        if (wp_lane_idx(warp) == 0) {
            rows[num_rows].local_idx = local_idx;
            rows[num_rows].slot =
                routing->chunk_base[(int64_t)chunk * routing->num_ranks + routes[j].rank] +
                routes[j].slot;
        }
        num_rows++;
    }
    if (wp_lane_idx(warp) == 0) {
        wire->token = token;
        wire->num_rows = num_rows;
    }
}

/* Ids as the user has them, but in 32 bits: what is larger is no expert. */
WP_FN void write_topk(struct wp_warp *warp, const struct wp_internode_dispatch_args *args,
                      int32_t token, struct wp_wire_token *wire)
{
    const struct wp_dispatch_args *dispatch = &args->dispatch;
    const struct wp_routing *routing = &dispatch->routing;
    const uint32_t options = wp_call_options(&dispatch->message.call);
    struct wp_wire_row *rows = (struct wp_wire_row *)(void *)(wire + 1);
    int32_t *ids = (int32_t *)(void *)(rows + routing->nodes.max_relayed_rows);
    float *weights = (float *)(void *)(ids + routing->num_topk);
    const weft_dtype index_type = options & WP_OPTION_INT64 ? WEFT_INT64 : WEFT_INT32;
    for (int32_t k = wp_lane_idx(warp); k < routing->num_topk; k += WP_WARP_SIZE) {
        const int64_t choice = (int64_t)token * routing->num_topk + k;
        if (options & WP_OPTION_TOPK_IDX) {
            const int64_t expert = wp_expert_id(dispatch->topk_idx, index_type, choice);
            ids[k] = expert < 0 || expert >= dispatch->placement.num_experts ? -1 : (int32_t)expert;
        }
        if (options & WP_OPTION_TOPK_WEIGHTS)
            weights[k] = dispatch->topk_weights[choice];
    }
}

WP_FN void write_token(struct wp_warp *warp, const struct wp_internode_dispatch_args *args,
                       int32_t node, int32_t token, char *wire, enum wp_own_planes planes)
{
    const struct wp_dispatch_args *dispatch = &args->dispatch;
    const struct wp_call *call = &dispatch->message.call;
    const struct wp_quantised_plane *quantised = &dispatch->quantised;
    const int32_t max_rows = dispatch->routing.nodes.max_relayed_rows;
    write_rows(warp, args, node, token, (struct wp_wire_token *)(void *)wire);
    write_topk(warp, args, token, (struct wp_wire_token *)(void *)wire);
    const int32_t scales_plane = wp_call_num_planes(call) - 1;
    const int is_quantised = planes == WP_PLANES_OF_ANY_KIND && wp_is_quantised(quantised);
    for (int32_t plane = 0; plane <= scales_plane - is_quantised; plane++) {
        const void **dsts = wp_warp_pointers(warp);
        const char *src =
            dispatch->planes[plane].rows + (uint64_t)token * dispatch->planes[plane].stride_bytes;
        wp_warp_sync(warp); /* the pointers before have been used */
        if (wp_lane_idx(warp) == 0) {
            dsts[0] = wire + wp_wire_plane_offset(call, max_rows, plane);
            dsts[1] = wire + wp_wire_plane_offset(call, max_rows, scales_plane);
        }
        wp_warp_sync(warp);
        const struct wp_quantised_rows to = {dsts, dsts + 1, 0, 1};
        if (is_quantised && plane == quantised->idx)
            wp_row_quantise(warp, to, src, quantised->how, (int64_t)call->row_bytes[plane]);
        else
            wp_row_copy_for(warp, WP_READ_SOON, dsts, 1, src, call->row_bytes[plane]);
    }
}

WP_FN enum wp_status send_chunks(const struct wp_internode_dispatch_args *args,
                                 const struct wp_relay *relay, enum wp_own_planes planes)
{
    struct wp_warp *warp = relay->op->warp;
    const struct wp_ring *ring = &relay->ring;
    const struct wp_node_routing *nodes = &args->dispatch.routing.nodes;
    const int32_t *tokens = nodes->tokens + (int64_t)ring->node * nodes->max_tokens;
    const uint64_t first = *wp_ring_counter(ring, args->rings.num_sent, relay->op->sequence);
    for (int32_t i = 0; i < wp_relay_num_chunks(relay); i++) {
        const uint64_t number = first + (uint64_t)i;
        const struct wp_relay_chunk chunk = wp_relay_chunk(relay, i);
        char *slot = wp_relay_reserve(relay, number);
        if (slot == NULL)
            return WP_STATUS_FAILED;
        for (int32_t row = chunk.begin; row < chunk.end; row++)
            write_token(warp, args, ring->node, tokens[row],
                        slot + wp_relay_row_offset(relay, row - chunk.begin), planes);
        wp_ring_send(warp, ring, number, wp_relay_row_offset(relay, chunk.end - chunk.begin));
    }
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ relaying */

/* The rows of the partner's token `idx` at the ranks of this node are noted, for combine and later
 * dispatches, and the warp's targets. Returns how many. */
WP_FN int32_t find_relayed(struct wp_warp *warp, const struct wp_internode_dispatch_args *args,
                           int32_t node, int32_t idx, const struct wp_wire_token *wire)
{
    const struct wp_node_routing *routing = &args->dispatch.routing.nodes;
    const struct wp_nodes *nodes = &args->rings.nodes;
    const struct wp_wire_row *rows = (const struct wp_wire_row *)(const void *)(wire + 1);
    struct wp_target *relayed =
        routing->relayed_rows +
        ((int64_t)node * routing->max_relayed_tokens + idx) * routing->max_relayed_rows;
    struct wp_target *targets = wp_warp_targets(warp);
    wp_warp_sync(warp); /* the targets and pointers before have been used */
    for (int32_t j = wp_lane_idx(warp); j < routing->max_relayed_rows; j += WP_WARP_SIZE) {
        struct wp_target target = {WP_NO_ROUTE, 0};
        if (j < wire->num_rows) {
            target.rank = nodes->ranks[(int64_t)nodes->node * nodes->num_local + rows[j].local_idx];
            target.row = routing->relay_base[(int64_t)node * nodes->num_local + rows[j].local_idx] +
                         rows[j].slot;
        }
        relayed[j] = target;
        targets[j] = target;
    }
    return wire->num_rows;
}

WP_FN void relay_token(const struct wp_internode_dispatch_args *args, const struct wp_relay *relay,
                       const struct wp_delivery *delivery, int32_t idx, const char *row)
{
    const struct wp_wire_token *wire = (const struct wp_wire_token *)(const void *)row;
    const int32_t max_rows = args->dispatch.routing.nodes.max_relayed_rows;
    const struct wp_wire_row *rows = (const struct wp_wire_row *)(const void *)(wire + 1);
    const int32_t *ids = (const int32_t *)(const void *)(rows + max_rows);
    const struct wp_token token = {relay->ring.partner, wire->token, WEFT_INT32, ids,
                                   (const float *)(const void *)(ids + delivery->num_topk)};
    const int32_t num_targets = find_relayed(relay->op->warp, args, relay->ring.node, idx, wire);
    for (int32_t plane = 0; plane < wp_call_num_planes(delivery->call); plane++) {
        const struct wp_span all = {0, delivery->call->row_bytes[plane]};
        wp_deliver_row(delivery, plane, row + wp_wire_plane_offset(delivery->call, max_rows, plane),
                       all, num_targets);
    }
    wp_deliver_topk(delivery, &token, num_targets);
}

WP_FN enum wp_status relay_chunks(const struct wp_internode_dispatch_args *args,
                                  const struct wp_relay *relay)
{
    const struct wp_dispatch_args *dispatch = &args->dispatch;
    const struct wp_ring *ring = &relay->ring;
    const uint64_t first = *wp_ring_counter(ring, args->rings.num_received, relay->op->sequence);
    for (int32_t i = 0; i < wp_relay_num_chunks(relay); i++) {
        const uint64_t number = first + (uint64_t)i;
        const struct wp_relay_chunk chunk = wp_relay_chunk(relay, i);
        const char *slot = wp_ring_in_slot(ring, number);
        if (wp_ring_receive(relay->op, ring, number) != WP_STATUS_OK ||
            wp_relay_check(relay, slot) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        /* This rank's own call may be without rows, and then without what goes with them. */
        const struct wp_delivery delivery = {relay->op, wp_relay_call(slot), &dispatch->placement,
                                             dispatch->routing.num_topk};
        for (int32_t row = chunk.begin; row < chunk.end; row++)
            relay_token(args, relay, &delivery, row,
                        slot + wp_relay_row_offset(relay, row - chunk.begin));
        wp_ring_consume(relay->op->warp, ring, number);
    }
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ the program */

/* Serves the warp's ring. Its sender counts for the receiver, too. */
WP_FN enum wp_status serve_ring(const struct wp_operation *op,
                                const struct wp_internode_dispatch_args *args,
                                const struct wp_duty *duty, enum wp_own_planes planes)
{
    const struct wp_node_routing *routing = &args->dispatch.routing.nodes;
    const struct wp_nodes *nodes = &args->rings.nodes;
    const int32_t node = duty->kind == WP_DUTY_SEND ? wp_node_after(nodes, duty->hops)
                                                    : wp_node_before(nodes, duty->hops);
    const struct wp_relay out = relay_of(op, args, node, duty->channel, routing->send_tokens);
    const struct wp_relay in = relay_of(op, args, node, duty->channel, routing->relay_tokens);
    if (duty->kind == WP_DUTY_RECEIVE)
        return relay_chunks(args, &in);
    if (wp_lane_idx(op->warp) == 0)
        wp_ring_advance(&out.ring, op->sequence, wp_relay_num_chunks(&out),
                        wp_relay_num_chunks(&in));
    return send_chunks(args, &out, planes);
}

/* Warps of this very launch may have ended, and noted that it has relayed: so its own number does
 * not count, and all warps of all ranks see the same. */
WP_FN int is_needed(struct wp_warp *warp, const struct wp_internode_dispatch_args *args)
{
    const struct wp_exchange_state *state = args->dispatch.exchange.state;
    const uint64_t sequence = state->block_sequences[wp_block_idx(warp)] + 1;
    const int32_t relayed_by = wp_load_relaxed(args->dispatch.routing.nodes.relayed_by);
    return args->when == WP_RELAY_ALWAYS || relayed_by == 0 || relayed_by == (int32_t)sequence;
}

/* One lane of the launch, when all ranks have done their parts. */
WP_FN void note_relayed(struct wp_warp *warp, const struct wp_dispatch_args *dispatch,
                        uint64_t sequence)
{
    int32_t *relayed_by = dispatch->routing.nodes.relayed_by;
    if (wp_launch_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0 && wp_load_relaxed(relayed_by) == 0)
        wp_add_relaxed(relayed_by, (int32_t)sequence);
}

WP_FN enum wp_status dispatch_over_nodes(struct wp_warp *warp,
                                         const struct wp_internode_dispatch_args *args,
                                         enum wp_own_planes planes)
{
    const struct wp_dispatch_args *dispatch = &args->dispatch;
    if (!is_needed(warp, args))
        return WP_STATUS_OK;
    const struct wp_operation op =
        wp_operation_begin(warp, &dispatch->exchange, &dispatch->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    const struct wp_duty duty = wp_warp_duty(warp, &args->rings, 2);
    const struct wp_own_tokens own =
        wp_own_tokens(&op, dispatch, duty.num_local, dispatch->exchange.bases, planes);
    int32_t first = duty.local_idx, num_targets = 0;
    if (duty.kind == WP_DUTY_LOCAL)
        num_targets = wp_own_prepare(&own, first);
    enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    if (duty.kind != WP_DUTY_LOCAL)
        status = serve_ring(&op, args, &duty, planes);
    if (duty.kind != WP_DUTY_LOCAL && status == WP_STATUS_OK) {
        first = wp_duty_first_unit(warp, &duty, &own.share);
        num_targets = wp_own_prepare(&own, first);
    }
    if (status == WP_STATUS_OK)
        wp_own_deliver(&own, first, num_targets);
    wp_complete_outputs(&op, &dispatch->routing, dispatch->recv_topk_idx);
    status = wp_relay_finish(&op, status);
    if (status == WP_STATUS_OK)
        note_relayed(warp, dispatch, op.sequence);
    return status;
}

#ifndef WP_STEPS_ONLY
WP_PROGRAM(internode_dispatch, warp, args)
{
    return dispatch_over_nodes(warp, args, WP_PLANES_AS_THEY_ARE);
}
#endif
