/* SPDX-License-Identifier: MIT */
/*
 * The sum of a node's answers to a token crosses the network once. The ranks of the node write
 * their answers into slots at the partner that has relayed the row; the row tells which slots. They
 * signal the partner as they signal all ranks of the node. The partner sums the answers to each row
 * in the order of the ranks, rounds the sum as an answer, and puts the sums of a block to the
 * source, whose slots for them lie one behind the other.
 *
 * No rank waits for more than without partners:
 *
 *     credit at the partner  comes when it has received the answers of that number from all ranks
 *                            of its node; they wait for it before they send
 *     credit at the source   the partner has waited for it before it sent its own answers of that
 *                            number
 *     the answers            need the send phases of the node's ranks, which wait for credit alone,
 *                            and the receive phase of the partner, which sums before it waits for
 *                            other sums
 *
 * The messages of dispatch tell the partner what it sums. They stay until the result has ended.
 */
#pragma once

#include "programs/low_latency/ll_relay.h"

/* Memory of the warp's own. */
WP_FN char *wp_ll_own_sum(const struct wp_ll_run *run)
{
    return run->ll->sums +
           (uint64_t)wp_launch_warp_idx(run->op.warp) * wp_ll_sum_bytes(&run->ll->plan);
}

/* The sum of answers, or parts of them, as one. */
WP_FN void wp_ll_sum_to_answer(const struct wp_ll_run *run, char *dst, const void *const *answers,
                               int32_t num_answers, int64_t num_elements)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &run->ll->plan;
    const struct wp_weighted_sum sum = {plan->answer_dtype, plan->answer_dtype, WP_READ_SOON};
    wp_row_weighted_sum(warp, dst, answers, NULL, num_answers, sum, num_elements);
}

/* The place of a rank's answer in the sum: those of a node are summed together, if nodes have
 * sums. */
WP_FN int32_t wp_ll_sum_place(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_has_node_sums(&ll->plan) && rank >= 0
               ? ll->network.node_of_rank[rank] * ll->exchange.num_ranks + rank
               : rank;
}

/* With sums of nodes: the answers to a token from ranks of this node, which have been listed,
 * become their sum. Partners have made the sums of the other nodes. That of one answer is the
 * answer itself. */
WP_FN void wp_ll_sum_own_node(const struct wp_ll_run *run, const int32_t *answering,
                              int64_t num_elements)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const void **answers = wp_warp_pointers(warp);
    int32_t first = 0, num = 0;
    if (!wp_ll_has_node_sums(&ll->plan))
        return;
    for (int32_t k = 0; k < ll->plan.num_topk; k++) {
        if (answering[k] < 0)
            continue;
        const int32_t node = ll->network.node_of_rank[answering[k]];
        first += node < ll->network.nodes.node;
        num += node == ll->network.nodes.node;
    }
    if (num <= 1)
        return;
    char *sum = wp_ll_own_sum(run);
    wp_row_sync(warp); /* the sum before has been read */
    wp_ll_sum_to_answer(run, sum, answers + first, num, num_elements);
    wp_row_sync(warp); /* the sum is there, and the pointers have been used */
    for (int32_t i = wp_lane_idx(warp); i < num; i += WP_WARP_SIZE)
        answers[first + i] = i == 0 ? sum : NULL;
    wp_warp_sync(warp);
}

/* Stages a part of the sum of the answers to a row of a message. */
WP_FN void wp_ll_sum_summands(const struct wp_ll_relayer *relayer,
                              const struct wp_ll_relayed_message *message, struct wp_part part)
{
    struct wp_warp *warp = relayer->run->op.warp;
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_span span = wp_ll_row_span(&ll->plan, &ll->share_of_sources, part.part);
    const struct wp_ll_elements elements = wp_ll_elements_of(&ll->plan, span);
    const uint64_t begin = wp_ll_answer_bytes(&ll->plan, elements.first);
    if (span.bytes == 0)
        return;
    const int32_t num_summands =
        wp_ll_targets_before(ll, wp_ll_message_row(ll, message->at, part.token), INT32_MAX);
    wp_warp_sync(warp); /* the pointers have been used, and each lane has waited for some ranks */
    for (int32_t i = wp_lane_idx(warp); i < num_summands; i += WP_WARP_SIZE)
        wp_warp_pointers(warp)[i] =
            wp_ll_summand(ll, ll->exchange.rank, relayer->answers,
                          wp_ll_summand_slot(relayer, message->idx, part.token, i)) +
            begin;
    wp_warp_sync(warp);
    char *staged = ll->network.memory + wp_ll_staged_answer(ll, relayer->answers, message->idx,
                                                            wp_block_idx(warp), part.token);
    wp_ll_sum_to_answer(relayer->run, staged + begin, wp_warp_pointers(warp), num_summands,
                        elements.num);
}

/* All warps call this when the block has written its sums. */
WP_FN void wp_ll_put_sums(const struct wp_ll_relayer *relayer)
{
    struct wp_warp *warp = relayer->run->op.warp;
    const struct wp_low_latency *ll = relayer->run->ll;
    const int32_t block = wp_block_idx(warp);
    for (int32_t i = wp_warp_idx(warp); i < ll->plan.message.num_sources; i += wp_num_warps(warp)) {
        const struct wp_ll_relayed_message message = wp_ll_relayed_message(relayer, i);
        if (message.source == WP_NO_RANK)
            continue;
        const char *first_row = wp_ll_message_row(ll, message.at, 0);
        const int32_t first =
            message.num_rows > 0 ? *wp_ll_slot_words(first_row, ll->plan.slot.answer_offset) : 0;
        const struct wp_ll_put put = {
            message.source, wp_ll_staged_answer(ll, relayer->answers, i, block, 0),
            wp_ll_answer_offset(ll, relayer->answers, first),
            (uint64_t)message.num_rows * ll->plan.answer_bytes, WP_LL_ANSWERED};
        wp_ll_put_payload(warp, ll, WP_LL_ANSWERS, relayer->answers, &put);
    }
}

/* All warps call this before they receive, since other ranks wait for it. It waits for the answers
 * of this node's ranks to the rows that this rank has relayed, and sends their sums. */
WP_FN enum wp_status wp_ll_relay_sums(const struct wp_ll_run *run, uint64_t result,
                                      uint64_t answers)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_relayer relayer = {run, result, answers};
    struct wp_ll_relayed_message message = {-1, WP_NO_RANK, NULL, 0};
    int32_t unit = wp_warp_idx(warp);
    if (!wp_ll_has_node_sums(&run->ll->plan))
        return WP_STATUS_OK;
    enum wp_status status =
        wp_ll_await_ranks(run, WP_LL_RANKS_OF_NODE, WP_LL_ARRIVED, WP_LL_ANSWERS, answers);
    for (; status == WP_STATUS_OK && wp_ll_has_relayed(&relayer, &message, &unit);
         unit += wp_num_warps(warp))
        wp_ll_sum_summands(&relayer, &message, wp_ll_unit_part(&run->ll->share_of_sources, unit));
    status = wp_block_status(warp, status);
    if (status == WP_STATUS_OK)
        wp_ll_put_sums(&relayer);
    return status;
}
