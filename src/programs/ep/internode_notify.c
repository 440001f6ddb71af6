/* SPDX-License-Identifier: MIT */
/*
 * internode_notify: as notify, where ranks of other nodes can be reached by the network only. A
 * rank tells its partner in each node what it has for that node; the partner spreads it among the
 * ranks there. Then every rank has the counts of all ranks for all ranks of its node: prefix sums
 * give the rows of what arrives, of what it sends within the node, and of what it will relay for
 * its partners. One block.
 */
#include "programs/ep/internode_notify.h"

#include "programs/ep/counts.h"

/* The i-th rank of a node. */
WP_FN int32_t rank_of(const struct wp_nodes *nodes, int32_t node, int32_t i)
{
    return nodes->ranks[(int64_t)node * nodes->num_local + i];
}

/* ------------------------------------------------------------------ telling */

WP_FN struct wp_told_counts *told_counts(const struct wp_internode_notify_args *args,
                                         enum wp_told_direction direction, uint64_t notify,
                                         int32_t node)
{
    return (struct wp_told_counts *)(void *)(args->told +
                                             wp_told_offset(args->rings.nodes.num_nodes,
                                                            args->told_bytes, direction, notify,
                                                            node));
}

WP_FN void send_to_partner(struct wp_warp *warp, const struct wp_internode_notify_args *args,
                           uint64_t notify, int32_t node)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    struct wp_told_counts *told = told_counts(args, WP_TOLD_OUT, notify, node);
    const int32_t num_ranks = args->notify.routing.num_ranks;
    int32_t *rows = told->counts, *selections = rows + num_ranks;
    wp_call_write(warp, &told->call, &args->notify.message.call);
    if (wp_lane_idx(warp) == 0) {
        told->num_tokens = args->notify.routing.nodes.send_tokens[node];
        told->tag = args->notify.tag;
    }
    for (int32_t rank = wp_lane_idx(warp); rank < num_ranks; rank += WP_WARP_SIZE)
        rows[rank] = args->notify.routing.send_rows[rank];
    for (int32_t i = 0; i < nodes->num_local; i++) {
        const int32_t rank = rank_of(nodes, node, i);
        wp_copy_selections(warp, &args->notify, rank, selections);
        selections += wp_num_local_experts(&args->notify.placement, rank);
    }
    const int32_t num_nodes = nodes->num_nodes;
    const struct wp_access put = wp_counted_put(
        wp_partner(nodes, node),
        args->told_place + wp_told_offset(num_nodes, args->told_bytes, WP_TOLD_OUT, notify, node),
        args->told_place +
            wp_told_offset(num_nodes, args->told_bytes, WP_TOLD_IN, notify, nodes->node),
        (uint64_t)((char *)selections - (char *)told),
        args->told_place + wp_told_word(num_nodes, notify, nodes->node));
    wp_remote_post(warp, &put);
}

/* ------------------------------------------------------------------ spreading */

/* Gives the ranks of the node what `source` has told. */
WP_FN void spread_told(struct wp_warp *warp, const struct wp_internode_notify_args *args,
                       uint64_t sequence, int32_t source, const struct wp_told_counts *told)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    const int32_t num_ranks = args->notify.routing.num_ranks;
    const int32_t *rows = told->counts;
    const int32_t *selections = rows + num_ranks;
    for (int32_t i = 0; i < nodes->num_local; i++) {
        const int32_t owner = rank_of(nodes, nodes->node, i);
        const int32_t num_experts = wp_num_local_experts(&args->notify.placement, owner);
        int32_t *counts = wp_counts_of(&args->notify, sequence, owner, source);
        for (int32_t rank = wp_lane_idx(warp); rank < num_ranks; rank += WP_WARP_SIZE)
            counts[rank] = rows[rank];
        if (wp_lane_idx(warp) == 0)
            counts[num_ranks] = told->tag;
        for (int32_t j = wp_lane_idx(warp); j < num_experts; j += WP_WARP_SIZE)
            counts[wp_notify_first_selection(num_ranks) + j] = selections[j];
        selections += num_experts;
    }
}

/* Warp-wide: takes what the partner in a node tells. */
WP_FN enum wp_status receive_from_partner(const struct wp_operation *op,
                                          const struct wp_internode_notify_args *args,
                                          uint64_t notify, int32_t node)
{
    struct wp_warp *warp = op->warp;
    const int32_t partner = wp_partner(&args->rings.nodes, node);
    const struct wp_wait_site site = wp_operation_site(op, WP_PHASE_START, partner);
    const char *word = args->told + wp_told_word(args->rings.nodes.num_nodes, notify, node);
    const struct wp_told_counts *told = told_counts(args, WP_TOLD_IN, notify, node);
    const enum wp_status status =
        wp_wait(warp, (const uint64_t *)(const void *)word, notify / 2 + 1, &site);
    if (wp_max_u32(warp, (uint32_t)status) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    if (wp_call_check(warp, site, &args->notify.message.call, &told->call) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    if (wp_lane_idx(warp) == 0)
        args->notify.routing.nodes.relay_tokens[node] = told->num_tokens;
    spread_told(warp, args, op->sequence, partner, told);
    return WP_STATUS_OK;
}

WP_FN enum wp_status receive_from_partners(const struct wp_operation *op,
                                           const struct wp_internode_notify_args *args,
                                           uint64_t notify)
{
    struct wp_warp *warp = op->warp;
    const struct wp_nodes *nodes = &args->rings.nodes;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = 1 + wp_warp_idx(warp); i < nodes->num_nodes && status == WP_STATUS_OK;
         i += wp_num_warps(warp))
        status = receive_from_partner(op, args, notify, wp_node_before(nodes, i));
    return wp_block_status(warp, status);
}

/* ------------------------------------------------------------------ prefix sums */

/* One lane: where the rows of a node's partner begin at the i-th rank of this node. */
WP_FN void receive_relay_base(const struct wp_internode_notify_args *args, uint64_t sequence,
                              int32_t node, int32_t i)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    args->notify.routing.nodes.relay_base[(int64_t)node * nodes->num_local + i] = wp_counts_sum(
        &args->notify, sequence, wp_partner(nodes, node), rank_of(nodes, nodes->node, i));
}

WP_FN void receive_counts(struct wp_warp *warp, const struct wp_internode_notify_args *args,
                          uint64_t sequence)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    wp_counts_receive(warp, &args->notify, sequence);
    for (int32_t i = thread; i < nodes->num_nodes * nodes->num_local; i += num_threads)
        receive_relay_base(args, sequence, i / nodes->num_local, i % nodes->num_local);
    if (thread == 0)
        *args->notify.routing.nodes.relayed_by = 0;
}

/* ------------------------------------------------------------------ the program */

/* Which token has a slot among those for a node. */
WP_FN void list_tokens(struct wp_warp *warp, const struct wp_internode_notify_args *args)
{
    const struct wp_routing *routing = &args->notify.routing;
    const struct wp_node_routing *nodes = &routing->nodes;
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    for (int32_t token = thread; token < routing->num_tokens;
         token += wp_num_warps(warp) * WP_WARP_SIZE) {
        const struct wp_route *routes = nodes->routes + (int64_t)token * nodes->max_node_routes;
        for (int32_t j = 0; j < nodes->max_node_routes && routes[j].rank != WP_NO_ROUTE; j++) {
            const int32_t slot =
                wp_node_slot(routing, args->rings.nodes.num_nodes, token, routes[j]);
            nodes->tokens[(int64_t)routes[j].rank * nodes->max_tokens + slot] = token;
        }
    }
}

/* The rings' counters go on by none. */
WP_FN void advance_rings(struct wp_warp *warp, const struct wp_internode_notify_args *args,
                         uint64_t sequence)
{
    const struct wp_rings *rings = &args->rings;
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_rings = (rings->nodes.num_nodes - 1) * rings->num_channels;
    for (int32_t i = thread; i < num_rings; i += wp_num_warps(warp) * WP_WARP_SIZE) {
        const int32_t node = wp_node_after(&rings->nodes, 1 + i / rings->num_channels);
        const struct wp_ring ring = wp_ring_of(rings, node, i % rings->num_channels);
        wp_ring_advance(&ring, sequence, 0, 0);
    }
    if (thread == 0)
        ++*args->num_notifies;
}

WP_FN enum wp_status exchange_counts(const struct wp_operation *op,
                                     const struct wp_internode_notify_args *args, uint64_t notify)
{
    struct wp_warp *warp = op->warp;
    const struct wp_nodes *nodes = &args->rings.nodes;
    wp_operation_send(op);
    for (int32_t i = 1 + wp_warp_idx(warp); i < nodes->num_nodes; i += wp_num_warps(warp))
        send_to_partner(warp, args, notify, wp_node_after(nodes, i));
    for (int32_t i = wp_warp_idx(warp); i < nodes->num_local; i += wp_num_warps(warp))
        wp_counts_send(warp, &args->notify, op->sequence, rank_of(nodes, nodes->node, i));
    enum wp_status status = wp_operation_meet(op);
    if (status == WP_STATUS_OK)
        status = receive_from_partners(op, args, notify);
    if (status != WP_STATUS_OK)
        return status;
    if (wp_warp_idx(warp) == 0) {
        wp_operation_signal(op);
        status = wp_operation_await(op, WP_BLOCKS_AS_HERE);
    }
    return wp_block_status(warp, status);
}

WP_PROGRAM(internode_notify, warp, args)
{
    const struct wp_operation op =
        wp_operation_begin(warp, &args->notify.exchange, &args->notify.message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const uint64_t notify = *args->num_notifies;
    list_tokens(warp, args);
    const enum wp_status status = exchange_counts(&op, args, notify);
    if (status == WP_STATUS_OK) {
        receive_counts(warp, args, op.sequence);
        advance_rings(warp, args, op.sequence);
    }
    return wp_operation_end(&op, status);
}
