/* SPDX-License-Identifier: MIT */
/* Where the tokens of a block go in low-latency dispatch: to which ranks, into which of their slots,
 * and how many selections of the same expert come before. */
#pragma once

#include "programs/low_latency/choices.h"

/* ------------------------------------------------------------------ answers, with nodes */

/* Whether a choice's row is in the message for a node. */
WP_FN int wp_ll_is_in_message(const struct wp_ll_sender *sender, int32_t rank, int32_t node)
{
    return rank >= 0 && sender->args->ll.network.node_of_rank[rank] == node &&
           wp_ll_is_relayed(&sender->args->ll, rank);
}

/* Whether it is in the same as that of choice j, which is in one. */
WP_FN int wp_ll_is_in_message_of(const struct wp_ll_sender *sender,
                                 const struct wp_ll_choice *choices, int32_t j, int32_t k)
{
    return wp_ll_is_in_message(sender, choices[k].rank,
                               sender->args->ll.network.node_of_rank[choices[j].rank]);
}

/* Whether that of no choice before is. */
WP_FN int wp_ll_is_first_in_message(const struct wp_ll_sender *sender,
                                    const struct wp_ll_choice *choices, int32_t k)
{
    for (int32_t before = 0; before < k; before++)
        if (wp_ll_is_in_message_of(sender, choices, k, before))
            return 0;
    return 1;
}

/* Who sends the answer that is to choice k, of several the first one; WP_NO_RANK: it comes with an earlier choice's, or
 * none does. */
WP_FN int32_t wp_ll_answerer(const struct wp_ll_sender *sender, const struct wp_ll_choice *choices,
                             int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t rank = choices[k].rank;
    if (rank < 0 || (!ll->plan.answers_are_rows && !wp_ll_is_summed(ll, rank)))
        return choices[k].row >= 0 ? rank : WP_NO_RANK;
    if (ll->plan.answers_are_rows)
        return rank;
    return wp_ll_is_first_in_message(sender, choices, k)
               ? wp_ll_partner(ll, ll->exchange.rank, ll->network.node_of_rank[rank])
               : WP_NO_RANK;
}

/* How many of the choices [begin, end) are at a rank. */
WP_FN int32_t wp_ll_count_same_rank(const struct wp_ll_choice *choices, int32_t rank, int32_t begin,
                                    int32_t end)
{
    int32_t num_same = 0;
    for (int32_t k = begin; k < end; k++)
        num_same += choices[k].rank == rank;
    return num_same;
}

/* By one warp: which of its rank's answers to the block that to a choice is; -1: there is none. */
WP_FN void wp_ll_number_answers(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_topk = ll->plan.num_topk, are_rows = ll->plan.answers_are_rows;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    int32_t *slots = wp_ll_answer_slots(ll, sender->number, token);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t rank = wp_ll_answerer(sender, choices, k);
        slots[k] = -1;
        if (rank >= 0)
            slots[k] = sender->counters.answers[rank] +
                       (are_rows ? wp_ll_count_same_rank(choices, rank, 0, k) : 0);
    }
    wp_warp_sync(warp);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE)
        if (slots[k] >= 0 &&
            !(are_rows && wp_ll_count_same_rank(choices, choices[k].rank, k + 1, num_topk) > 0))
            sender->counters.answers[wp_ll_answerer(sender, choices, k)] = slots[k] + 1;
    wp_warp_sync(warp);
}

/* By one warp, when all answers are numbered: those of each rank lie one behind the other, and, where
 * ranks share slots, those of ranks of other nodes first, so that rows for these can be staged in the
 * same order. */
WP_FN void wp_ll_place_answers(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    const struct wp_ll_answer_slots *at = &ll->plan.answer_slots;
    const int32_t first_of_block = wp_block_idx(warp) * at->block_stride;
    int32_t first = 0;
    for (int32_t begin = 0; begin < num_ranks; begin += WP_WARP_SIZE) {
        const int32_t i = begin + wp_lane_idx(warp);
        const int32_t rank = i < num_ranks ? ll->network.ranks[i] : -1;
        int32_t total;
        const int32_t before =
            wp_prefix_sum(warp, rank < 0 ? 0 : sender->counters.answers[rank], &total);
        if (rank >= 0)
            sender->counters.first_answers[rank] = at->rank_stride > 0 ? 0 : first + before;
        first += total;
    }
    wp_warp_sync(warp);
    for (int32_t token = sender->tokens.begin; token < sender->tokens.end; token++) {
        const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
        int32_t *slots = wp_ll_answer_slots(ll, sender->number, token);
        for (int32_t k = wp_lane_idx(warp); k < ll->plan.num_topk; k += WP_WARP_SIZE) {
            if (slots[k] < 0)
                continue;
            const int32_t rank = wp_ll_answerer(sender, choices, k);
            slots[k] = wp_ll_stays(ll, rank) ? choices[k].row
                                             : slots[k] + first_of_block + rank * at->rank_stride +
                                                   sender->counters.first_answers[rank];
        }
    }
}

/* ------------------------------------------------------------------ rows */

/* By one warp: which of the block's rows for each other node the token is. */
WP_FN void wp_ll_number_relayed(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    int32_t *rows = wp_ll_relayed_rows(ll, token);
    for (int32_t node = wp_lane_idx(warp); node < ll->plan.message.num_nodes;
         node += WP_WARP_SIZE) {
        int is_wanted = 0;
        for (int32_t k = 0; k < ll->plan.num_topk && node != ll->network.nodes.node; k++)
            is_wanted |= wp_ll_is_in_message(sender, choices[k].rank, node);
        rows[node] = is_wanted ? sender->counters.relayed[node]++ : -1;
    }
}

/* By one warp: gives the choices of a token their rows and orders. */
WP_FN void wp_ll_number_token(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_plan *plan = &sender->args->ll.plan;
    struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        struct wp_ll_choice choice = choices[k];
        if (choice.row >= 0) /* the only one that does so for its rank */
            choice.row = sender->counters.rows[choice.rank]++;
        if (plan->is_by_expert && choice.rank >= 0)
            choice.order += *wp_ll_expert_counter(sender, choice.rank, choice.local_expert);
        choices[k] = choice;
    }
    wp_warp_sync(warp);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk && plan->is_by_expert; k += WP_WARP_SIZE)
        if (choices[k].rank >= 0)
            wp_add_relaxed(wp_ll_expert_counter(sender, choices[k].rank, choices[k].local_expert),
                           1);
    wp_warp_sync(warp);
    if (WP_LL_HAS_NODES(plan) && plan->message.num_sources > 0)
        wp_ll_number_relayed(sender, token);
    if (WP_LL_HAS_NODES(plan))
        wp_ll_number_answers(sender, token);
    else if (plan->answers_stay)
        for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE)
            wp_ll_answer_slots(&sender->args->ll, sender->number, token)[k] = choices[k].row;
}

/* By all warps, which have met since the counters were cleared, and meet afterwards. Tokens are numbered one after the
 * other, of which a block has few. */
WP_FN void wp_ll_find_routes(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    wp_ll_find_all_choices(sender);
    wp_ll_count_choices(sender);
    wp_block_sync(warp);
    if (wp_warp_idx(warp) == 0) {
        for (int32_t rank = wp_lane_idx(warp); rank < num_ranks; rank += WP_WARP_SIZE)
            sender->counters.firsts[rank] = sender->counters.rows[rank];
        wp_warp_sync(warp); /* before any of them is counted on */
        for (int32_t token = sender->tokens.begin; token < sender->tokens.end; token++)
            wp_ll_number_token(sender, token);
        if (WP_LL_HAS_NODES(&ll->plan))
            wp_ll_place_answers(sender);
    }
}
