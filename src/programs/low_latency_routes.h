/* SPDX-License-Identifier: MIT */
/* Where the tokens of a block go in low-latency dispatch: to which ranks, into which of their slots,
 * and how many selections of the same expert come before. */
#pragma once

#include "programs/low_latency_dispatch.h"

/* Of a block: what the tokens before have taken; in the end, what those of the block have, too. */
struct wp_ll_counters {
    int32_t *firsts;  /* [num_ranks] rows before those of the block */
    int32_t *rows;    /* [num_ranks] */
    int32_t *experts; /* [num_ranks][max_local_experts] selections, by expert only */
    /* With nodes: */
    int32_t *answers;       /* [num_ranks] to this block, */
    int32_t *first_answers; /* and the first one's slot among those of the block */
    int32_t *relayed;       /* [num_nodes] rows of the block that are relayed there */
    int32_t *is_relayed;    /* [num_ranks] with detours: whether those for a rank are */
};

struct wp_ll_sender {
    const struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    struct wp_ll_choice *before; /* [tokens before those of the block][num_topk] */
    struct wp_ll_choice *own;    /* [tokens of the block][num_topk] */
    struct wp_ll_counters counters;
    struct wp_ll_tokens tokens; /* of this block */
    struct wp_share share;      /* of these among its warps */
    uint64_t number;
};

WP_FN int32_t wp_ll_thread_idx(struct wp_warp *warp)
{
    return wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
}

WP_FN int32_t wp_ll_num_threads(struct wp_warp *warp)
{
    return wp_num_warps(warp) * WP_WARP_SIZE;
}

/* Memory of the block, behind the words of wp_block_max, where there is room; else `far`. */
WP_FN void *wp_ll_near(struct wp_warp *warp, uint64_t offset, uint64_t bytes, void *far)
{
    return WP_BLOCK_WORDS_BYTES + offset + bytes <= WP_BLOCK_SHARED_BYTES
               ? (char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES + offset
               : (char *)far;
}

WP_FN struct wp_ll_counters wp_ll_counters_of(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const int32_t num_counters = wp_ll_num_counters(&ll->plan, ll->exchange.num_ranks);
    int32_t *firsts =
        (int32_t *)wp_ll_near(warp, 0, (uint64_t)num_counters * sizeof(int32_t),
                              ll->counters + (int64_t)wp_block_idx(warp) * num_counters);
    const int64_t num_ranks = ll->exchange.num_ranks;
    int32_t *answers = firsts + 2 * num_ranks;
    int32_t *relayed = firsts + num_counters - ll->plan.message.num_nodes;
    const struct wp_ll_counters counters = {firsts,
                                            firsts + num_ranks,
                                            answers +
                                                (WP_LL_HAS_NODES(&ll->plan) ? 2 * num_ranks : 0),
                                            answers,
                                            answers + num_ranks,
                                            relayed,
                                            relayed - num_ranks};
    return counters;
}

WP_FN struct wp_ll_tokens wp_ll_tokens_of(const struct wp_low_latency_dispatch_args *args,
                                          int32_t block)
{
    const int32_t num_more = args->num_blocks_with_more;
    const int32_t begin =
        block * args->num_tokens_per_block + (block < num_more ? block : num_more);
    const struct wp_ll_tokens tokens = {begin,
                                        begin + args->num_tokens_per_block + (block < num_more)};
    return tokens;
}

/* What a block sends as `number`: [tokens.begin, tokens.end). */
WP_FN struct wp_ll_sender wp_ll_sender_of(const struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t block = wp_block_idx(warp);
    const struct wp_ll_tokens tokens = wp_ll_tokens_of(args, block);
    const int32_t num_tokens = tokens.end - tokens.begin;
    const uint64_t own_bytes =
        (uint64_t)num_tokens * (uint64_t)plan->num_topk * sizeof(struct wp_ll_choice);
    struct wp_ll_choice *choices =
        args->ll.choices + (int64_t)block * plan->max_tokens * plan->num_topk;
    const uint64_t counters_bytes = wp_ll_align(
        (uint64_t)wp_ll_num_counters(plan, args->ll.exchange.num_ranks) * sizeof(int32_t));
    struct wp_ll_choice *own = (struct wp_ll_choice *)wp_ll_near(
        warp, counters_bytes, own_bytes, choices + (int64_t)tokens.begin * plan->num_topk);
    const struct wp_share share = plan->max_row_parts == 1 ? wp_share_rows(1, num_tokens, NULL)
                                                           : wp_ll_share(warp, num_tokens);
    const struct wp_ll_sender sender = {
        run, args, choices, own, wp_ll_counters_of(warp, &args->ll), tokens, share, number};
    return sender;
}

WP_FN struct wp_ll_choice *wp_ll_choices_of(const struct wp_ll_sender *sender, int32_t token)
{
    const int64_t num_topk = sender->args->ll.plan.num_topk;
    const int32_t begin = sender->tokens.begin;
    return token < begin ? sender->before + token * num_topk
                         : sender->own + (token - begin) * num_topk;
}

WP_FN int32_t *wp_ll_expert_counter(const struct wp_ll_sender *sender,
                                    const struct wp_ll_choice *choice)
{
    return sender->counters.experts +
           (int64_t)choice->rank * sender->args->ll.plan.max_local_experts + choice->local_expert;
}

/* By all warps of the block: where the choices of its tokens, and of those before, are. */
WP_FN void wp_ll_find_choices(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = sender->args;
    const int32_t num_topk = args->ll.plan.num_topk;
    for (int32_t i = wp_ll_thread_idx(warp); i < sender->tokens.end * num_topk;
         i += wp_ll_num_threads(warp)) {
        const struct wp_place_of_expert place =
            wp_place_expert(&args->ll.placement, wp_expert_id(args->topk_idx, args->index_type, i),
                            args->ll.exchange.rank, i / num_topk);
        const struct wp_ll_choice choice = {place.rank, place.local_expert, -1, 0};
        wp_ll_choices_of(sender, i / num_topk)[i % num_topk] = choice;
    }
}

WP_FN int wp_ll_has_same_expert(const struct wp_ll_choice *a, const struct wp_ll_choice *b)
{
    return a->rank == b->rank && a->local_expert == b->local_expert;
}

/* Of the choices before k: how many have its rank, and its expert. */
struct wp_ll_same {
    int32_t num_of_rank;
    int32_t num_of_expert;
};
WP_FN struct wp_ll_same wp_ll_find_same(const struct wp_ll_choice *choices, int32_t k)
{
    struct wp_ll_same same = {0, 0};
    for (int32_t before = 0; before < k; before++) {
        same.num_of_rank += choices[before].rank == choices[k].rank;
        same.num_of_expert += wp_ll_has_same_expert(&choices[before], &choices[k]);
    }
    return same;
}

/* By all warps: counts what the tokens before those of the block have. */
WP_FN void wp_ll_count_before(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_plan *plan = &sender->args->ll.plan;
    const int32_t num_topk = plan->num_topk;
    for (int32_t i = wp_ll_thread_idx(warp); i < sender->tokens.begin * num_topk;
         i += wp_ll_num_threads(warp)) {
        const struct wp_ll_choice *choices = wp_ll_choices_of(sender, i / num_topk);
        const struct wp_ll_choice *choice = &choices[i % num_topk];
        if (choice->rank < 0)
            continue;
        if (wp_ll_find_same(choices, i % num_topk).num_of_rank == 0)
            wp_add_relaxed(&sender->counters.rows[choice->rank], 1);
        if (plan->is_by_expert)
            wp_add_relaxed(wp_ll_expert_counter(sender, choice), 1);
    }
}

/* ------------------------------------------------------------------ answers, with nodes */

/* Whether the block's rows for a rank are relayed. */
WP_FN int wp_ll_relays_to(const struct wp_ll_sender *sender, int32_t rank)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    return wp_ll_is_relayed(ll, rank) &&
           (!wp_ll_has_detours(&ll->plan) || sender->counters.is_relayed[rank] != 0);
}

/* Whether a choice's row is in the message for a node. */
WP_FN int wp_ll_is_in_message(const struct wp_ll_sender *sender, int32_t rank, int32_t node)
{
    return rank >= 0 && sender->args->ll.network.node_of_rank[rank] == node &&
           wp_ll_relays_to(sender, rank);
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
        const struct wp_ll_same same = wp_ll_find_same(choices, k);
        if (choices[k].rank < 0)
            continue;
        if (same.num_of_rank == 0)
            choices[k].row = sender->counters.rows[choices[k].rank];
        if (plan->is_by_expert)
            choices[k].order = *wp_ll_expert_counter(sender, &choices[k]) + same.num_of_expert;
    }
    wp_warp_sync(warp);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        if (choices[k].row >= 0)
            sender->counters.rows[choices[k].rank] = choices[k].row + 1;
        if (plan->is_by_expert && choices[k].rank >= 0)
            wp_add_relaxed(wp_ll_expert_counter(sender, &choices[k]), 1);
    }
    wp_warp_sync(warp);
    if (WP_LL_HAS_NODES(plan) && plan->message.num_sources > 0)
        wp_ll_number_relayed(sender, token);
    if (WP_LL_HAS_NODES(plan))
        wp_ll_number_answers(sender, token);
    else if (wp_ll_remembers_rows(plan))
        for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE)
            wp_ll_answer_slots(&sender->args->ll, sender->number, token)[k] = choices[k].row;
}

/* By all warps, which have met since one of them has waited for room, and masked those for whom that was in vain: to whom
 * rows are relayed in this launch. */
WP_FN void wp_ll_choose_relayed(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_masks *masks = &ll->masks;
    for (int32_t rank = wp_ll_thread_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_ll_num_threads(warp))
        sender->counters.is_relayed[rank] =
            wp_ll_is_relayed(ll, rank) && wp_load_relaxed(&masks->detours[rank]) == 0 &&
            !wp_ll_is_masked(masks, rank) &&
            !wp_ll_is_masked(masks,
                             wp_ll_partner(ll, ll->exchange.rank, ll->network.node_of_rank[rank]));
}

/* By all warps, which meet in between and afterwards. Tokens are numbered one after the other, of which a block has
 * few. */
WP_FN void wp_ll_find_routes(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    const int32_t num_counters = wp_ll_num_counters(&ll->plan, num_ranks);
    for (int32_t i = wp_ll_thread_idx(warp); i < num_counters; i += wp_ll_num_threads(warp))
        sender->counters.firsts[i] = 0;
    wp_ll_find_choices(sender);
    wp_block_sync(warp);
    wp_ll_count_before(sender);
    if (wp_ll_has_detours(&ll->plan))
        wp_ll_choose_relayed(sender);
    wp_block_sync(warp);
    if (wp_warp_idx(warp) == 0) {
        for (int32_t rank = wp_lane_idx(warp); rank < num_ranks; rank += WP_WARP_SIZE)
            sender->counters.firsts[rank] = sender->counters.rows[rank];
        for (int32_t token = sender->tokens.begin; token < sender->tokens.end; token++)
            wp_ll_number_token(sender, token);
        if (WP_LL_HAS_NODES(&ll->plan))
            wp_ll_place_answers(sender);
    }
}
