/* SPDX-License-Identifier: MIT */
/*
 * internode_barrier: ends when every rank of all nodes has started it. First the ranks of a node meet. Then each
 * tells its partners: who hears of its partner in a node knows that all of that node have started.
 */
#include "programs/internode_barrier.h"

WP_FN enum wp_status meet_partners(const struct wp_operation *op,
                                   const struct wp_internode_barrier_args *args)
{
    const struct wp_nodes *nodes = &args->nodes;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = 1; i < nodes->num_nodes; i++) {
        const struct wp_access tell =
            wp_counted_put(wp_partner(nodes, wp_node_after(nodes, i)), 0, 0, 0,
                           args->words_place + (uint64_t)nodes->node * sizeof(uint64_t));
        wp_remote_post(op->warp, &tell);
    }
    for (int32_t i = 1 + wp_lane_idx(op->warp); i < nodes->num_nodes && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const int32_t node = wp_node_after(nodes, i);
        const struct wp_wait_site site =
            wp_operation_site(op, WP_PHASE_START, wp_partner(nodes, node));
        status = wp_wait(op->warp, &args->words[node], op->sequence, &site);
    }
    return (enum wp_status)wp_max_u32(op->warp, (uint32_t)status);
}

WP_PROGRAM(internode_barrier, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_tell(&op);
    enum wp_status status = wp_operation_meet(&op);
    if (status == WP_STATUS_OK)
        status = meet_partners(&op, args);
    return wp_operation_end(&op, status);
}
