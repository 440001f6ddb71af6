/* SPDX-License-Identifier: MIT */
/*
 * internode_notify: as notify, where ranks of other nodes can be reached by the network only. A rank tells its partner
 * in each node what it has for that node; the partner spreads it among the ranks there. Then every rank has
 * the counts of all ranks for all ranks of its node: prefix sums give the rows of what arrives, of what it sends within
 * the node, and of what it will relay for its partners. One block.
 */
#include "programs/internode_notify.h"

#include "programs/counts.h"

/* The i-th rank of a node. */
WEFT_FN int32_t rank_of(const struct weft_nodes *nodes, int32_t node, int32_t i)
{
    return nodes->ranks[(int64_t)node * nodes->num_local + i];
}

/* ------------------------------------------------------------------ telling */

WEFT_FN struct weft_told_counts *told_counts(const struct weft_internode_notify_args *args,
                                             enum weft_told_direction direction, uint64_t notify,
                                             int32_t node)
{
    return (struct weft_told_counts *)(void *)(args->told +
                                               weft_told_offset(args->rings.nodes.num_nodes,
                                                                args->told_bytes, direction, notify,
                                                                node));
}

WEFT_FN void tell_partner(struct weft_warp *warp, const struct weft_internode_notify_args *args,
                          uint64_t notify, int32_t node)
{
    const struct weft_nodes *nodes = &args->rings.nodes;
    struct weft_told_counts *told = told_counts(args, WEFT_TOLD_OUT, notify, node);
    const int32_t num_ranks = args->notify.routing.num_ranks;
    int32_t *rows = told->counts, *selections = rows + num_ranks;
    weft_call_write(warp, &told->call, &args->notify.message.call);
    if (weft_lane_idx(warp) == 0)
        told->num_tokens = args->notify.routing.nodes.send_tokens[node];
    for (int32_t rank = weft_lane_idx(warp); rank < num_ranks; rank += WEFT_WARP_SIZE)
        rows[rank] = args->notify.routing.send_rows[rank];
    for (int32_t i = 0; i < nodes->num_local; i++) {
        const int32_t rank = rank_of(nodes, node, i);
        weft_copy_selections(warp, &args->notify, rank, selections);
        selections += weft_num_local_experts(&args->notify.placement, rank);
    }
    const int32_t num_nodes = nodes->num_nodes;
    const struct weft_access put =
        weft_counted_put(weft_partner(nodes, node),
                         args->told_place + weft_told_offset(num_nodes, args->told_bytes,
                                                             WEFT_TOLD_OUT, notify, node),
                         args->told_place + weft_told_offset(num_nodes, args->told_bytes,
                                                             WEFT_TOLD_IN, notify, nodes->node),
                         (uint64_t)((char *)selections - (char *)told),
                         args->told_place + weft_told_word(num_nodes, notify, nodes->node));
    weft_remote_post(warp, &put);
}

/* ------------------------------------------------------------------ spreading */

/* Gives the ranks of the node what `source` has told. */
WEFT_FN void spread_told(struct weft_warp *warp, const struct weft_internode_notify_args *args,
                         uint64_t sequence, int32_t source, const struct weft_told_counts *told)
{
    const struct weft_nodes *nodes = &args->rings.nodes;
    const int32_t num_ranks = args->notify.routing.num_ranks;
    const int32_t *rows = told->counts;
    const int32_t *selections = rows + num_ranks;
    for (int32_t i = 0; i < nodes->num_local; i++) {
        const int32_t owner = rank_of(nodes, nodes->node, i);
        const int32_t num_experts = weft_num_local_experts(&args->notify.placement, owner);
        int32_t *counts = weft_counts_of(&args->notify, sequence, owner, source);
        for (int32_t rank = weft_lane_idx(warp); rank < num_ranks; rank += WEFT_WARP_SIZE)
            counts[rank] = rows[rank];
        for (int32_t j = weft_lane_idx(warp); j < num_experts; j += WEFT_WARP_SIZE)
            counts[num_ranks + j] = selections[j];
        selections += num_experts;
    }
}

/* Warp-wide: takes what the partner in a node tells. */
WEFT_FN enum weft_status hear_partner(const struct weft_operation *op,
                                      const struct weft_internode_notify_args *args,
                                      uint64_t notify, int32_t node)
{
    struct weft_warp *warp = op->warp;
    const int32_t partner = weft_partner(&args->rings.nodes, node);
    const struct weft_wait_site site = weft_operation_site(op, WEFT_PHASE_START, partner);
    const char *word = args->told + weft_told_word(args->rings.nodes.num_nodes, notify, node);
    const struct weft_told_counts *told = told_counts(args, WEFT_TOLD_IN, notify, node);
    const enum weft_status status =
        weft_wait(warp, (const uint64_t *)(const void *)word, notify / 2 + 1, &site);
    if (weft_max_u32(warp, (uint32_t)status) != WEFT_STATUS_OK)
        return WEFT_STATUS_FAILED;
    if (weft_call_check(warp, site, &args->notify.message.call, &told->call) != WEFT_STATUS_OK)
        return WEFT_STATUS_FAILED;
    if (weft_lane_idx(warp) == 0)
        args->notify.routing.nodes.relay_tokens[node] = told->num_tokens;
    spread_told(warp, args, op->sequence, partner, told);
    return WEFT_STATUS_OK;
}

WEFT_FN enum weft_status hear_partners(const struct weft_operation *op,
                                       const struct weft_internode_notify_args *args,
                                       uint64_t notify)
{
    struct weft_warp *warp = op->warp;
    const struct weft_nodes *nodes = &args->rings.nodes;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = 1 + weft_warp_idx(warp); i < nodes->num_nodes && status == WEFT_STATUS_OK;
         i += weft_num_warps(warp))
        status = hear_partner(op, args, notify, weft_node_before(nodes, i));
    return (enum weft_status)weft_block_max_again(warp, (uint32_t)status);
}

/* ------------------------------------------------------------------ prefix sums */

/* One lane: where the rows of a node's partner begin at the i-th rank of this node. */
WEFT_FN void receive_relay_base(const struct weft_internode_notify_args *args, uint64_t sequence,
                                int32_t node, int32_t i)
{
    const struct weft_nodes *nodes = &args->rings.nodes;
    args->notify.routing.nodes.relay_base[(int64_t)node * nodes->num_local + i] = weft_counts_sum(
        &args->notify, sequence, weft_partner(nodes, node), rank_of(nodes, nodes->node, i));
}

WEFT_FN void receive_counts(struct weft_warp *warp, const struct weft_internode_notify_args *args,
                            uint64_t sequence)
{
    const struct weft_nodes *nodes = &args->rings.nodes;
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_threads = weft_num_warps(warp) * WEFT_WARP_SIZE;
    weft_counts_receive(warp, &args->notify, sequence);
    for (int32_t i = thread; i < nodes->num_nodes * nodes->num_local; i += num_threads)
        receive_relay_base(args, sequence, i / nodes->num_local, i % nodes->num_local);
    if (thread == 0)
        *args->notify.routing.nodes.relayed_by = 0;
}

/* ------------------------------------------------------------------ the program */

/* Which token has a slot among those for a node. */
WEFT_FN void list_tokens(struct weft_warp *warp, const struct weft_internode_notify_args *args)
{
    const struct weft_routing *routing = &args->notify.routing;
    const struct weft_node_routing *nodes = &routing->nodes;
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    for (int32_t token = thread; token < routing->num_tokens;
         token += weft_num_warps(warp) * WEFT_WARP_SIZE) {
        const struct weft_route *routes = nodes->routes + (int64_t)token * nodes->max_node_routes;
        for (int32_t j = 0; j < nodes->max_node_routes && routes[j].rank != WEFT_NO_ROUTE; j++) {
            const int32_t slot =
                weft_node_slot(routing, args->rings.nodes.num_nodes, token, routes[j]);
            nodes->tokens[(int64_t)routes[j].rank * nodes->max_tokens + slot] = token;
        }
    }
}

/* The rings' counters go on by none. */
WEFT_FN void advance_rings(struct weft_warp *warp, const struct weft_internode_notify_args *args,
                           uint64_t sequence)
{
    const struct weft_rings *rings = &args->rings;
    const int32_t thread = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_rings = (rings->nodes.num_nodes - 1) * rings->num_channels;
    for (int32_t i = thread; i < num_rings; i += weft_num_warps(warp) * WEFT_WARP_SIZE) {
        const int32_t node = weft_node_after(&rings->nodes, 1 + i / rings->num_channels);
        const struct weft_ring ring = weft_ring_of(rings, node, i % rings->num_channels);
        weft_ring_advance(&ring, sequence, 0, 0);
    }
    if (thread == 0)
        ++*args->num_notifies;
}

WEFT_FN enum weft_status exchange_counts(const struct weft_operation *op,
                                         const struct weft_internode_notify_args *args,
                                         uint64_t notify)
{
    struct weft_warp *warp = op->warp;
    const struct weft_nodes *nodes = &args->rings.nodes;
    weft_operation_tell(op);
    for (int32_t i = 1 + weft_warp_idx(warp); i < nodes->num_nodes; i += weft_num_warps(warp))
        tell_partner(warp, args, notify, weft_node_after(nodes, i));
    for (int32_t i = weft_warp_idx(warp); i < nodes->num_local; i += weft_num_warps(warp))
        weft_counts_send(warp, &args->notify, op->sequence, rank_of(nodes, nodes->node, i));
    enum weft_status status = weft_operation_meet(op);
    if (status == WEFT_STATUS_OK)
        status = hear_partners(op, args, notify);
    if (status != WEFT_STATUS_OK)
        return status;
    weft_block_sync(warp);
    if (weft_warp_idx(warp) == 0) {
        weft_operation_signal(op);
        status = weft_operation_await(op, WEFT_BLOCKS_AS_HERE);
    }
    return (enum weft_status)weft_block_max(warp, (uint32_t)status);
}

WEFT_PROGRAM(internode_notify, warp, args)
{
    const struct weft_operation op =
        weft_operation_begin(warp, &args->notify.exchange, &args->notify.message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    const uint64_t notify = *args->num_notifies;
    list_tokens(warp, args);
    const enum weft_status status = exchange_counts(&op, args, notify);
    if (status == WEFT_STATUS_OK) {
        receive_counts(warp, args, op.sequence);
        advance_rings(warp, args, op.sequence);
    }
    return weft_operation_end(&op, status);
}
