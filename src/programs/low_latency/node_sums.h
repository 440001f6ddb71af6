/* SPDX-License-Identifier: MIT */
/*
 * Low latency between nodes through partners, the way back: of a token, the sum of what a node's ranks answer crosses the
 * network once. They write their answers into slots at the partner that has relayed the row (the row tells which), and
 * signal him as they do all ranks of the node. He sums those of each row in the order of the ranks, rounds the sum as an
 * answer, and puts the sums of a block to the source, where its slots for them lie one behind the other.
 *
 * Nobody waits for more than without partners:
 *
 *     room for answers at the partner  is told when he has received the answers of that number, of all that the ranks of
 *                                      his node have sent to him; they await it before they send.
 *     room at the source               he has awaited before he sent his own answers of that number.
 *     what is summed                   needs the launches that send of the node's ranks, which wait for room alone, and
 *                                      the partner's that receives: he sums before he waits for what others sum.
 *
 * The messages that dispatch has brought tell him what he sums, and lie there until the result has ended.
 */
#pragma once

#include "programs/low_latency/messages.h"
#include "programs/low_latency/sums.h"

/* Warp-wide: waits until this block of the ranks of this node has sent its answers. */
WP_FN enum wp_status wp_ll_await_node(const struct wp_ll_summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_nodes *nodes = &summer->run->ll->network.nodes;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t first = 0; first < nodes->num_local; first += WP_WARP_SIZE) {
        const int32_t i = first + wp_lane_idx(warp);
        const int32_t rank = i < nodes->num_local && status == WP_STATUS_OK
                                 ? wp_node_rank(nodes, nodes->node, i)
                                 : WP_NO_RANK;
        if (wp_ll_await_told(summer->run, WP_LL_ARRIVED, WP_LL_ANSWERS, rank, summer->number) !=
            WP_STATUS_OK)
            status = WP_STATUS_FAILED;
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* Lists the answers to a row of message i, from byte `begin` on; returns how many there are. */
WP_FN int32_t wp_ll_find_summands(const struct wp_ll_summer *summer,
                                  const struct wp_ll_relayer *relayer, int32_t i, int32_t row,
                                  int32_t num_summands, uint64_t begin)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency *ll = summer->run->ll;
    wp_warp_sync(
        warp); /* the pointers before have been used; and each lane has waited for some ranks */
    for (int32_t place = wp_lane_idx(warp); place < num_summands; place += WP_WARP_SIZE)
        wp_warp_pointers(warp)[place] = wp_ll_summand(ll, ll->exchange.rank, summer->number,
                                                      wp_ll_summand_slot(relayer, i, row, place)) +
                                        begin;
    wp_warp_sync(warp);
    return num_summands;
}

/* A part of the sum of a row, to where it is staged. */
WP_FN void wp_ll_sum_summands(const struct wp_ll_summer *summer,
                              const struct wp_ll_relayer *relayer,
                              const struct wp_ll_relayed_row *row)
{
    const struct wp_low_latency *ll = summer->run->ll;
    const struct wp_ll_span span = wp_ll_span(&ll->plan, &ll->share_of_sources, row->part);
    const struct wp_ll_elements elements = wp_ll_elements_of(&ll->plan, span);
    const uint64_t begin = wp_ll_answer_bytes(&ll->plan, elements.first);
    const int32_t num_ranks = wp_ll_targets_before(ll, row->at, INT32_MAX);
    if (span.bytes == 0)
        return;
    const int32_t num_srcs =
        wp_ll_find_summands(summer, relayer, row->message, row->idx, num_ranks, begin);
    char *staged =
        ll->network.memory + wp_ll_staged_answer(ll, summer->number, row->message,
                                                 wp_block_idx(summer->run->op.warp), row->idx);
    wp_ll_sum_to_answer(summer->run, staged + begin, wp_warp_pointers(summer->run->op.warp),
                        num_srcs, elements.num);
}

/* By all warps: the sums for all messages to this block. */
WP_FN void wp_ll_sum_messages(const struct wp_ll_summer *summer,
                              const struct wp_ll_relayer *relayer)
{
    struct wp_ll_relayed_rows rows = wp_ll_relayed_rows_of(summer->run->op.warp);
    while (wp_ll_next_relayed(relayer, &rows))
        wp_ll_sum_summands(summer, relayer, &rows.row);
}

/* By all warps, when the block has written its sums. */
WP_FN void wp_ll_put_sums(const struct wp_ll_summer *summer, const struct wp_ll_relayer *relayer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency *ll = summer->run->ll;
    const int32_t block = wp_block_idx(warp);
    for (int32_t i = wp_warp_idx(warp); i < ll->plan.message.num_sources; i += wp_num_warps(warp)) {
        const struct wp_ll_relayed_message message = wp_ll_relayed_message(relayer, i);
        if (message.source == WP_NO_RANK)
            continue;
        const char *first_row = wp_ll_message_row(ll, message.at, 0);
        const int32_t first =
            message.num_rows > 0
                ? *(const int32_t *)(const void *)(first_row + ll->plan.slot.answer_offset)
                : 0;
        const struct wp_ll_put put = {
            message.source,
            wp_ll_staged_answer(ll, summer->number, i, block, 0),
            wp_ll_answer_offset(ll, summer->number, first),
            (uint64_t)message.num_rows * ll->plan.answer_bytes,
            wp_ll_network_arrived(ll, WP_LL_ANSWERS, summer->number, ll->exchange.rank, block),
            WP_LL_ANSWERED,
            WP_ACCESS_AT_ONCE};
        wp_ll_post(warp, ll, &put);
    }
}

/* By all warps: waits for the answers of this node's ranks to the rows that this rank has relayed, and sends their
 * sums. */
WP_FN enum wp_status wp_ll_relay_sums(const struct wp_ll_summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_ll_relayer relayer = {summer->run, summer->result};
    enum wp_status status = wp_ll_await_node(summer);
    if (status == WP_STATUS_OK)
        wp_ll_sum_messages(summer, &relayer);
    status = wp_block_status(warp, status);
    if (status == WP_STATUS_OK)
        wp_ll_put_sums(summer, &relayer);
    return status;
}
