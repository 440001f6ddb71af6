/* SPDX-License-Identifier: MIT */
/*
 * Dispatch and combine between nodes. Mail for ranks of other nodes is staged (ll_nodes.h), or goes
 * through a partner (ll_relay.h). The steps for one node call these functions, by WP_LL_NODES
 * alone:
 *
 *     words of a rank  wp_ll_is_told_remotely, wp_ll_is_put, wp_ll_word_sender, wp_ll_says_more,
 *                      wp_ll_told_range
 *     masks            wp_ll_network_waits, wp_ll_send_waits_remotely
 *     credit           wp_ll_give_remote_credit
 *     dispatch         wp_ll_find_answer_slots, wp_ll_staged_slot, wp_ll_destination,
 *                      wp_ll_send_target, wp_ll_remote_answerer, wp_ll_send_remote_head,
 *                      wp_ll_put_rows; wp_ll_relay, wp_ll_take_remote_head
 *     combine          wp_ll_remote_answer, wp_ll_put_answers; wp_ll_relay_sums, wp_ll_sum_place,
 *                      wp_ll_sum_own_node
 */
#pragma once

#include "programs/low_latency/ll_relay_sums.h"

/* ================== dispatch */

/* ------------------------------------------------------------------ slots of answers */

/* The rank that sends the answer to choice k. WP_NO_RANK: none does, or the answer to an earlier
 * choice stands for this one, too. */
WP_FN int32_t wp_ll_remote_answerer(const struct wp_ll_sender *sender,
                                    const struct wp_ll_choice *choices, int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t rank = choices[k].rank;
    if (rank < 0 || ll->plan.answers_are_rows || !wp_ll_is_summed(ll, rank))
        return wp_ll_answerer(&ll->plan, choices[k]);
    return wp_ll_is_first_there(ll, choices, k)
               ? wp_ll_partner(ll, ll->exchange.rank, ll->network.node_of_rank[rank])
               : WP_NO_RANK;
}

/* The number of the choices [begin, end) at a rank. */
WP_FN int32_t wp_ll_count_same_rank(const struct wp_ll_choice *choices, int32_t rank, int32_t begin,
                                    int32_t end)
{
    int32_t num_same = 0;
    for (int32_t k = begin; k < end; k++)
        num_same += choices[k].rank == rank;
    return num_same;
}

/* One warp calls this. It counts the answers of each rank to the block; -1: no answer. */
WP_FN void wp_ll_number_answers(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_topk = ll->plan.num_topk, are_rows = ll->plan.answers_are_rows;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    int32_t *slots = wp_ll_answer_slots(ll, sender->number, token);
    int32_t *counters = sender->counters.answers;
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t rank = wp_ll_remote_answerer(sender, choices, k);
        slots[k] = -1;
        if (rank >= 0)
            slots[k] = counters[rank] + (are_rows ? wp_ll_count_same_rank(choices, rank, 0, k) : 0);
    }
    wp_warp_sync(warp);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE)
        if (slots[k] >= 0 &&
            !(are_rows && wp_ll_count_same_rank(choices, choices[k].rank, k + 1, num_topk) > 0))
            counters[wp_ll_remote_answerer(sender, choices, k)] = slots[k] + 1;
    wp_warp_sync(warp);
}

/* One warp calls this when all answers are counted. The answers of a rank get slots one behind the
 * other. If ranks share slots, ranks of other nodes come first, so that rows for them can be staged
 * in the same order. */
WP_FN void wp_ll_place_answers(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    const int32_t *counters = sender->counters.answers;
    int32_t *first_answers = sender->counters.first_answers;
    const struct wp_ll_answer_slots *at = &ll->plan.answer_slots;
    const int32_t first_of_block = wp_block_idx(warp) * at->block_stride;
    int32_t first = 0;
    for (int32_t begin = 0; begin < num_ranks; begin += WP_WARP_SIZE) {
        const int32_t i = begin + wp_lane_idx(warp);
        const int32_t rank = i < num_ranks ? ll->network.ranks[i] : -1;
        int32_t total;
        const int32_t before = wp_prefix_sum(warp, rank < 0 ? 0 : counters[rank], &total);
        if (rank >= 0)
            first_answers[rank] = at->rank_stride > 0 ? 0 : first + before;
        first += total;
    }
    wp_warp_sync(warp);
    for (int32_t token = sender->tokens.begin; token < sender->tokens.end; token++) {
        const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
        int32_t *slots = wp_ll_answer_slots(ll, sender->number, token);
        for (int32_t k = wp_lane_idx(warp); k < ll->plan.num_topk; k += WP_WARP_SIZE) {
            if (slots[k] < 0)
                continue;
            const int32_t rank = wp_ll_remote_answerer(sender, choices, k);
            slots[k] = wp_ll_stays(ll, rank) ? choices[k].row
                                             : slots[k] + first_of_block + rank * at->rank_stride +
                                                   first_answers[rank];
        }
    }
}

/* The first warp calls this when it has found the routes of the block's tokens. */
WP_FN void wp_ll_find_answer_slots(const struct wp_ll_sender *sender)
{
    if (wp_warp_idx(sender->run->op.warp) != 0)
        return;
    for (int32_t token = sender->tokens.begin; token < sender->tokens.end; token++) {
        if (WP_LL_HAS_RELAYS(&sender->args->ll.plan))
            wp_ll_number_relayed(sender, token);
        wp_ll_number_answers(sender, token);
    }
    wp_ll_place_answers(sender);
}

/* ------------------------------------------------------------------ rows and heads */

/* Where a row for a rank of another node is staged: rows are in the order of their answers, or
 * where the rank has its own. */
WP_FN uint64_t wp_ll_staged_row(const struct wp_ll_sender *sender, int32_t rank, int32_t row)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_network *network = &ll->network;
    const uint64_t block =
        wp_ll_staged_idx(ll, sender->number, 1, 0, wp_block_idx(sender->run->op.warp));
    const int32_t idx = network->idx_of_rank[rank] * network->staged_rank_rows +
                        sender->counters.first_answers[rank] + row - sender->counters.firsts[rank];
    return network->rows_offset +
           (block * (uint64_t)network->staged_rows + (uint64_t)idx) * ll->plan.slot.bytes;
}

/* Where the row of choice k is staged for its rank. NULL: an earlier choice has put it there. */
WP_FN char *wp_ll_staged_slot(const struct wp_ll_sender *sender, int32_t token, int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choice = &wp_ll_choices_of(sender, token)[k];
    if (WP_LL_HAS_RELAYS(&ll->plan))
        return wp_ll_relayed_slot(sender, token, k);
    return ll->network.memory + wp_ll_staged_row(sender, choice->rank, choice->row);
}

/* Warp-wide: sends the head of a rank of another node. */
WP_FN void wp_ll_send_remote_head(const struct wp_ll_sender *sender, int32_t rank,
                                  const int32_t *counts)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t max_local = ll->plan.max_local_experts;
    if (WP_LL_HAS_RELAYS(&ll->plan)) {
        wp_ll_stage_head(sender, rank, counts);
        return;
    }
    const uint64_t staged = wp_ll_network_head(ll, WP_LL_TO, sender->number, rank);
    int32_t *head = (int32_t *)(void *)(ll->network.memory + staged);
    struct wp_access put = wp_counted_put(
        rank, ll->network.place + staged,
        ll->network.place + wp_ll_network_head(ll, WP_LL_FROM, sender->number, ll->exchange.rank),
        (uint64_t)max_local * sizeof(int32_t),
        ll->network.place + wp_ll_network_head_word(ll, sender->number, ll->exchange.rank));
    put.absent_after_ms = wp_ll_period_ms(&ll->masks);
    for (int32_t i = wp_lane_idx(warp); i < max_local; i += WP_WARP_SIZE)
        head[i] = counts[i];
    wp_remote_post(warp, &put);
}

/* All warps call this when the block has written its rows. It puts those for other nodes. */
WP_FN void wp_ll_put_rows(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int has_relays = WP_LL_HAS_RELAYS(&ll->plan);
    if (has_relays)
        wp_ll_stage_ranges(sender);
    wp_block_sync(warp);
    if (has_relays)
        wp_ll_put_messages(sender);
    const int32_t num_straight = has_relays ? 0 : ll->network.num_remote;
    for (int32_t i = wp_warp_idx(warp); i < num_straight; i += wp_num_warps(warp)) {
        const int32_t rank = ll->network.ranks[i];
        const struct wp_ll_range range = wp_ll_sent_range(sender, rank);
        const struct wp_ll_put put = {
            rank, wp_ll_staged_row(sender, rank, range.first),
            wp_ll_row_offset(ll, sender->number, ll->exchange.rank, range.first),
            (uint64_t)range.num_rows * ll->plan.slot.bytes, wp_ll_range_word(ll, range)};
        if (!wp_ll_is_missing(sender->run, rank))
            wp_ll_put_payload(warp, ll, WP_LL_ROWS, sender->number, &put);
    }
}

/* ================== combine */

/* Where the answer to a row of a rank of another node is written: where a node's answers are
 * summed, or where it is staged. `block_answer` is the slot of the first answer to the row's
 * block. */
WP_FN char *wp_ll_remote_answer(const struct wp_ll_run *run, uint64_t number, int32_t source,
                                int32_t slot, int32_t block_answer)
{
    const struct wp_low_latency *ll = run->ll;
    if (wp_ll_has_node_sums(&ll->plan))
        return wp_ll_summand(ll, wp_ll_forwarder(ll, source), number, slot);
    return ll->network.memory + wp_ll_staged_answer(ll, number, ll->network.idx_of_rank[source],
                                                    wp_block_idx(run->op.warp),
                                                    slot - block_answer);
}

/* Behind the slots of the answers to a row, one for each choice here. */
WP_FN int32_t wp_ll_answers_end(const struct wp_low_latency *ll, uint64_t result, int32_t source,
                                int32_t row)
{
    const char *slot = wp_ll_row(ll, ll->exchange.rank, result, source, row);
    const int32_t *experts = wp_ll_slot_words(slot, ll->plan.slot.experts_offset);
    int32_t end = *wp_ll_slot_words(slot, ll->plan.slot.answer_offset);
    for (int32_t k = 0; k < ll->plan.num_topk; k++)
        end += experts[k] >= 0;
    return end;
}

/* All warps call this when the block has written its answers and met. It puts those for other
 * nodes. */
WP_FN void wp_ll_put_answers(const struct wp_ll_run *run, uint64_t number, uint64_t result)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t block = wp_block_idx(warp);
    for (int32_t i = wp_warp_idx(warp);
         i < ll->network.num_remote && !wp_ll_has_node_sums(&ll->plan); i += wp_num_warps(warp)) {
        const int32_t rank = ll->network.ranks[i];
        if (wp_ll_is_missing(run, rank))
            continue;
        const struct wp_ll_range range = wp_ll_range(ll, result, rank, block);
        const int32_t first =
            range.num_rows > 0 ? wp_ll_answer_to_row(ll, result, rank, range.first) : 0;
        int32_t num_answers = range.num_rows;
        if (ll->plan.answers_are_rows && range.num_rows > 0)
            num_answers =
                wp_ll_answers_end(ll, result, rank, range.first + range.num_rows - 1) - first;
        const struct wp_ll_put put = {rank, wp_ll_staged_answer(ll, number, i, block, 0),
                                      wp_ll_answer_offset(ll, number, first),
                                      (uint64_t)num_answers * ll->plan.answer_bytes,
                                      WP_LL_ANSWERED};
        wp_ll_put_payload(warp, ll, WP_LL_ANSWERS, number, &put);
    }
}
