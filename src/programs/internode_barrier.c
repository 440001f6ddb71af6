/* SPDX-License-Identifier: MIT */
/*
 * internode_barrier: ends when every rank of all nodes has started it. First the ranks of a node meet. Then each
 * tells its partners: who hears of its partner in a node knows that all of that node have started.
 */
#include "programs/internode_barrier.h"

WEFT_FN enum weft_status meet_partners(const struct weft_operation *op,
                                       const struct weft_internode_barrier_args *args)
{
    const struct weft_nodes *nodes = &args->nodes;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = 1; i < nodes->num_nodes; i++) {
        const struct weft_access tell =
            weft_counted_put(weft_partner(nodes, weft_node_after(nodes, i)), 0, 0, 0,
                             args->words_place + (uint64_t)nodes->node * sizeof(uint64_t));
        weft_remote_post(op->warp, &tell);
    }
    for (int32_t i = 1 + weft_lane_idx(op->warp); i < nodes->num_nodes && status == WEFT_STATUS_OK;
         i += WEFT_WARP_SIZE) {
        const int32_t node = weft_node_after(nodes, i);
        const struct weft_wait_site site =
            weft_operation_site(op, WEFT_PHASE_START, weft_partner(nodes, node));
        status = weft_wait(op->warp, &args->words[node], op->sequence, &site);
    }
    return (enum weft_status)weft_max_u32(op->warp, (uint32_t)status);
}

WEFT_PROGRAM(internode_barrier, warp, args)
{
    const struct weft_operation op = weft_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_operation_tell(&op);
    enum weft_status status = weft_operation_meet(&op);
    if (status == WEFT_STATUS_OK)
        status = meet_partners(&op, args);
    return weft_operation_end(&op, status);
}
