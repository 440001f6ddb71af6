/* SPDX-License-Identifier: MIT */
/*
 * internode_barrier: ends when every rank of all nodes has started it. First the ranks of a node meet. Then each
 * tells its partners: who hears of its partner in a node knows that all of that node have started.
 */
#include "programs/internode_barrier.h"

WEFT_FN enum weft_status meet_partners(struct weft_warp *warp,
                                       const struct weft_internode_barrier_args *args,
                                       uint64_t sequence)
{
    const struct weft_nodes *nodes = &args->nodes;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = 1; i < nodes->num_nodes; i++) {
        const struct weft_remote_put put = {weft_partner(nodes, weft_node_after(nodes, i)),
                                            1,
                                            0,
                                            0,
                                            0,
                                            args->words_offset +
                                                (uint64_t)nodes->node * sizeof(uint64_t)};
        weft_remote_put(warp, &put);
    }
    for (int32_t i = 1 + weft_lane_idx(warp); i < nodes->num_nodes && status == WEFT_STATUS_OK;
         i += WEFT_WARP_SIZE) {
        const int32_t node = weft_node_after(nodes, i);
        const struct weft_wait_site site = {WEFT_PHASE_START, weft_partner(nodes, node), sequence,
                                            args->exchange.mailbox_offset};
        status = weft_wait(warp, &args->words[node], sequence, &site);
    }
    return (enum weft_status)weft_max_u32(warp, (uint32_t)status);
}

WEFT_PROGRAM(internode_barrier, warp, args)
{
    const uint64_t sequence = weft_exchange_begin(warp, &args->exchange);
    if (sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_exchange_tell(warp, &args->exchange, sequence, &args->message);
    enum weft_status status = weft_exchange_meet(warp, &args->exchange, sequence, &args->message);
    if (status == WEFT_STATUS_OK)
        status = meet_partners(warp, args, sequence);
    return weft_exchange_end(warp, &args->exchange, sequence, status);
}
