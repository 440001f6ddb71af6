/* SPDX-License-Identifier: MIT */
/*
 * internode_barrier: ends when every rank of all nodes has started it. First the ranks of a node meet. Then each
 * tells its partners, the ranks of the other nodes with the same index in theirs: who hears of its partner
 * in a node knows that all of that node have started.
 */
#include "programs/internode_barrier.h"

WEFT_FN enum weft_status
meet_node(struct weft_warp *warp, const struct weft_internode_barrier_args *args, uint64_t sequence)
{
    const struct weft_exchange *exchange = &args->exchange;
    const int32_t *neighbours = args->ranks + (int64_t)args->node * args->num_local;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = weft_lane_idx(warp); i < args->num_local; i += WEFT_WARP_SIZE) {
        const int32_t rank = neighbours[i];
        if (rank != exchange->rank)
            weft_signal(warp, rank, weft_mailbox_finished(exchange, rank, 0, exchange->rank),
                        sequence);
    }
    for (int32_t i = weft_lane_idx(warp); i < args->num_local && status == WEFT_STATUS_OK;
         i += WEFT_WARP_SIZE) {
        const struct weft_wait_site site = {WEFT_PHASE_START, neighbours[i], sequence,
                                            exchange->mailbox_offset};
        if (neighbours[i] != exchange->rank)
            status =
                weft_wait(warp, weft_mailbox_finished(exchange, exchange->rank, 0, neighbours[i]),
                          sequence, &site);
    }
    return (enum weft_status)weft_max_u32(warp, (uint32_t)status);
}

WEFT_FN int32_t partner_in(const struct weft_internode_barrier_args *args, int32_t node)
{
    return args->ranks[(int64_t)node * args->num_local + args->local_idx];
}

/* The i-th node after the own one. */
WEFT_FN int32_t node_after(const struct weft_internode_barrier_args *args, int32_t i)
{
    return (args->node + i) % args->num_nodes;
}

WEFT_FN enum weft_status meet_partners(struct weft_warp *warp,
                                       const struct weft_internode_barrier_args *args,
                                       uint64_t sequence)
{
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = 1; i < args->num_nodes; i++) {
        const struct weft_remote_put put = {partner_in(args, node_after(args, i)),
                                            1,
                                            0,
                                            0,
                                            0,
                                            args->words_offset +
                                                (uint64_t)args->node * sizeof(uint64_t)};
        weft_remote_put(warp, &put);
    }
    for (int32_t i = 1 + weft_lane_idx(warp); i < args->num_nodes && status == WEFT_STATUS_OK;
         i += WEFT_WARP_SIZE) {
        const int32_t node = node_after(args, i);
        const struct weft_wait_site site = {WEFT_PHASE_START, partner_in(args, node), sequence,
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
    enum weft_status status = meet_node(warp, args, sequence);
    if (status == WEFT_STATUS_OK)
        status = meet_partners(warp, args, sequence);
    return weft_exchange_end(warp, &args->exchange, sequence, status);
}
