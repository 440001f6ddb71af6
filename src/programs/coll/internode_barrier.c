/* SPDX-License-Identifier: MIT */
/*
 * internode_barrier: ends when every rank of all nodes has started it. First the ranks of a node
 * meet. Then each rail tells partners, in rounds: that of the next node, of the one after two,
 * after four, and so on, and hears as many. Who has heard in the rounds before of so many nodes
 * before its own tells of these, too: after the last round it knows of all. Ranks of a node that
 * are no rails hear of it when the node meets once more.
 */
#include "programs/coll/internode_barrier.h"

WP_FN enum wp_status meet_partner(const struct wp_operation *op,
                                  const struct wp_internode_barrier_args *args, int32_t round)
{
    const struct wp_nodes *nodes = &args->nodes;
    const int32_t distance = 1 << round;
    const struct wp_access tell =
        wp_counted_put(wp_partner(nodes, wp_node_after(nodes, distance)), 0, 0, 0,
                       args->words_place + (uint64_t)round * sizeof(uint64_t));
    wp_remote_post(op->warp, &tell);
    const struct wp_wait_site site =
        wp_operation_site(op, WP_PHASE_START, wp_partner(nodes, wp_node_before(nodes, distance)));
    return (enum wp_status)wp_max_u32(
        op->warp, (uint32_t)wp_wait(op->warp, &args->words[round], op->sequence, &site));
}

WP_FN enum wp_status meet_partners(const struct wp_operation *op,
                                   const struct wp_internode_barrier_args *args)
{
    const struct wp_nodes *nodes = &args->nodes;
    enum wp_status status = WP_STATUS_OK;
    if (nodes->local_idx >= nodes->num_rails)
        return WP_STATUS_OK;
    for (int32_t round = 0; 1 << round < nodes->num_nodes && status == WP_STATUS_OK; round++)
        status = meet_partner(op, args, round);
    return status;
}

WP_PROGRAM(internode_barrier, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    enum wp_status status = wp_operation_meet(&op);
    if (status == WP_STATUS_OK)
        status = meet_partners(&op, args);
    if (status == WP_STATUS_OK && args->nodes.num_local > args->nodes.num_rails)
        return wp_operation_finish(&op, WP_BLOCKS_AS_HERE);
    return wp_operation_end(&op, status);
}
