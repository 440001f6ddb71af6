/* SPDX-License-Identifier: MIT */
/* Routes of a block's tokens, in dispatch with signals: the ranks of each token, its slots there,
 * and how many choices of the same expert come before. */
#pragma once

#include "programs/low_latency/ll_launch.h"
#include "programs/low_latency/ll_protocol.h"

/* Counters of a block: first of the tokens before the block's own, in the end with these. */
struct wp_ll_counters {
    int32_t *firsts;  /* [num_ranks] rows before those of the block */
    int32_t *rows;    /* [num_ranks] */
    int32_t *experts; /* [num_ranks][max_local_experts] selections, by expert only */
    /* Between nodes: */
    int32_t *answers;       /* [num_ranks] of a rank to this block */
    int32_t *first_answers; /* [num_ranks] slots among those of the block */
    int32_t *relayed;       /* [num_nodes] rows that are relayed there */
};

/* The top-k entries that the launch loads from its beginning on. */
struct wp_ll_first_choices {
    struct wp_ll_tokens tokens; /* of this block */
    int64_t own,
        before; /* the experts that a lane looks at first; -1: none. Of these tokens, and of those
                            before */
};

struct wp_ll_sender {
    const struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    struct wp_ll_choice *choices; /* [tokens of the block][num_topk] */
    struct wp_ll_counters counters;
    /* [tokens before those of the block][wp_ll_rank_words] a bit for each rank: one of the token's
     * choices is there. */
    int32_t *ranks_of_tokens;
    struct wp_ll_tokens tokens; /* of this block */
    struct wp_ll_first_choices first;
    struct wp_ll_share share; /* of these among its warps */
    uint64_t number;
};

/* The expert of choice k of a token; -1: none. */
WP_FN int64_t wp_ll_chosen_expert(const struct wp_low_latency_dispatch_args *args, int32_t token,
                                  int32_t k)
{
    const int32_t num_topk = args->ll.plan.num_topk, i = token * num_topk + k;
    if (k >= num_topk)
        return -1;
    return wp_expert_id_now(args->topk_idx, args->index_type, i);
}

/* The expert of choice i of the tokens before the block's own. Each token has a power of two of
 * choices, so that nothing is divided. */
WP_FN int64_t wp_ll_expert_before(const struct wp_low_latency_dispatch_args *args,
                                  struct wp_ll_tokens tokens, int32_t i)
{
    const int32_t width_log2 = args->ll.plan.num_topk_log2, mask = (1 << width_log2) - 1;
    return i < tokens.begin << width_log2 ? wp_ll_chosen_expert(args, i >> width_log2, i & mask)
                                          : -1;
}

/* The last threads begin with the tokens before, since the first ones have the block's own
 * tokens. */
WP_FN struct wp_ll_first_choices
wp_ll_load_first_choices(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args)
{
    const int32_t block = wp_block_idx(warp), num_more = args->num_blocks_with_more;
    const int32_t begin =
        block * args->num_tokens_per_block + (block < num_more ? block : num_more);
    const struct wp_ll_tokens tokens = {begin,
                                        begin + args->num_tokens_per_block + (block < num_more)};
    const int32_t token = tokens.begin + wp_warp_idx(warp);
    const struct wp_ll_first_choices first = {
        tokens, token < tokens.end ? wp_ll_chosen_expert(args, token, wp_lane_idx(warp)) : -1,
        wp_ll_expert_before(args, tokens, wp_ll_num_threads(warp) - 1 - wp_ll_thread_idx(warp))};
    return first;
}

/* The sender of a block's tokens [tokens.begin, tokens.end) as `number`. */
WP_FN struct wp_ll_sender wp_ll_sender_of(const struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          struct wp_ll_first_choices first, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t block = wp_block_idx(warp);
    const int32_t num_tokens = first.tokens.end - first.tokens.begin;
    const struct wp_ll_near *near = &args->ll.near;
    struct wp_ll_choice *choices = (struct wp_ll_choice *)wp_ll_near_or(
        warp, near->choices, near->ranks_of_tokens,
        args->ll.choices + (int64_t)block * plan->block_tokens * plan->num_topk);
    const int64_t num_words =
        (int64_t)plan->max_tokens * wp_ll_rank_words(args->ll.exchange.num_ranks);
    int32_t *ranks_of_tokens =
        (int32_t *)wp_ll_near_or(warp, near->ranks_of_tokens, near->end,
                                 args->ll.ranks_of_tokens + (int64_t)block * num_words);
    const int64_t num_ranks = args->ll.exchange.num_ranks;
    int32_t *firsts = (int32_t *)wp_ll_near_or(
        warp, near->counters, near->choices,
        args->ll.counters + (int64_t)block * wp_ll_num_counters(plan, (int32_t)num_ranks));
    int32_t *answers = firsts + wp_ll_num_counters(plan, (int32_t)num_ranks) - 2 * num_ranks -
                       plan->message.num_nodes;
    const struct wp_ll_counters counters = {firsts,  firsts + num_ranks,  firsts + 2 * num_ranks,
                                            answers, answers + num_ranks, answers + 2 * num_ranks};
    const struct wp_ll_share share =
        wp_ll_share_rows(plan->max_row_parts == 1 ? 1 : wp_num_warps(warp), num_tokens);
    const struct wp_ll_sender sender = {run,          args,  choices, counters, ranks_of_tokens,
                                        first.tokens, first, share,   number};
    return sender;
}

/* The choices of a token of the block. */
WP_FN struct wp_ll_choice *wp_ll_choices_of(const struct wp_ll_sender *sender, int32_t token)
{
    const int32_t first = (token - sender->tokens.begin) * sender->args->ll.plan.num_topk;
    return sender->choices + first;
}

/* The rows of the block for a rank. */
WP_FN struct wp_ll_range wp_ll_sent_range(const struct wp_ll_sender *sender, int32_t rank)
{
    const int32_t first = sender->counters.firsts[rank];
    const struct wp_ll_range range = {first, sender->counters.rows[rank] - first};
    return range;
}

/* The rank that sends the answer to a choice. WP_NO_RANK: none does, or the answer to an earlier
 * choice stands for this one, too. */
WP_FN int32_t wp_ll_answerer(const struct wp_ll_plan *plan, struct wp_ll_choice choice)
{
    if (choice.rank >= 0 && plan->answers_are_rows)
        return choice.rank;
    return choice.row >= 0 ? choice.rank : WP_NO_RANK;
}

WP_FN int32_t wp_ll_expert_idx(const struct wp_ll_sender *sender, int32_t rank,
                               int32_t local_expert)
{
    return rank * sender->args->ll.plan.max_local_experts + local_expert;
}

/* ------------------------------------------------------------------ choices */

/* All warps call this, and meet afterwards. */
WP_FN void wp_ll_clear_counters(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_counters = wp_ll_num_counters(&ll->plan, ll->exchange.num_ranks);
    for (int32_t i = wp_ll_thread_idx(warp); i < num_counters; i += wp_ll_num_threads(warp))
        sender->counters.firsts[i] = 0;
    const int32_t num_words = sender->tokens.begin * wp_ll_rank_words(ll->exchange.num_ranks);
    for (int32_t i = wp_ll_thread_idx(warp); i < num_words; i += wp_ll_num_threads(warp))
        sender->ranks_of_tokens[i] = 0;
    wp_block_sync(warp);
}

/* ------------------------------------------------------------------ the tokens before those of the
 * block */

/* All warps call this. Of the choices of a token at one rank, one finds the rank's bit clear. That
 * one counts the token. The next load is under way while a choice is counted. */
WP_FN void wp_ll_count_choices(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t width_log2 = ll->plan.num_topk_log2;
    const int32_t num_words = wp_ll_rank_words(ll->exchange.num_ranks);
    const int32_t num_threads = wp_ll_num_threads(warp), end = sender->tokens.begin << width_log2;
    int32_t *experts = sender->counters.experts;
    int64_t expert = sender->first.before;
    for (int32_t i = num_threads - 1 - wp_ll_thread_idx(warp); i < end; i += num_threads) {
        const int32_t token = i >> width_log2;
        int32_t *ranks = sender->ranks_of_tokens + (int64_t)token * num_words;
        const int64_t next = wp_ll_expert_before(sender->args, sender->tokens, i + num_threads);
        const struct wp_place_of_expert place =
            wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
        const int32_t bit = (int32_t)(1u << (place.rank & 31));
        expert = next;
        if (place.rank < 0)
            continue;
        if ((wp_or_relaxed(&ranks[place.rank >> 5], bit) & bit) == 0)
            wp_add_relaxed(&sender->counters.rows[place.rank], 1);
        if (ll->plan.is_by_expert)
            wp_add_relaxed(&experts[wp_ll_expert_idx(sender, place.rank, place.local_expert)], 1);
    }
}

/* ------------------------------------------------------------------ the tokens of the block */

/* One warp calls this. It finds what can be known of a token's choices without other tokens. */
WP_FN void wp_ll_find_choices(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_topk = ll->plan.num_topk;
    struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    for (int32_t first = 0; wp_ll_has_more_choices(&ll->plan, first); first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        const int is_on_its_way = first == 0 && token == sender->tokens.begin + wp_warp_idx(warp);
        const int64_t expert =
            is_on_its_way ? sender->first.own : wp_ll_chosen_expert(sender->args, token, k);
        const struct wp_place_of_expert place =
            wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
        int32_t num_of_rank = 0, num_of_expert = 0; /* of the choices before */
        for (int32_t before = 0; before < first; before++) {
            const int has_rank = choices[before].rank == place.rank;
            num_of_rank += has_rank;
            num_of_expert += has_rank && choices[before].local_expert == place.local_expert;
        }
        num_of_rank += wp_same_below(warp, (uint32_t)place.rank);
        if (ll->plan.is_by_expert)
            num_of_expert += wp_same_below(
                warp, (uint32_t)wp_ll_expert_idx(sender, place.rank, place.local_expert));
        const struct wp_ll_choice choice = {place.rank, place.local_expert,
                                            place.rank >= 0 && num_of_rank == 0 ? 0 : -1,
                                            num_of_expert};
        if (k < num_topk)
            choices[k] = choice;
        if (first + WP_WARP_SIZE < num_topk)
            wp_warp_sync(warp); /* they are there for those behind */
    }
}

/* One warp calls this. It gives the choices of a token their rows and orders. */
WP_FN void wp_ll_number_token(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_plan *plan = &sender->args->ll.plan;
    struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    int32_t *experts = sender->counters.experts;
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        struct wp_ll_choice choice = choices[k];
        if (choice.row >= 0) /* the only one that does so for its rank */
            choice.row = sender->counters.rows[choice.rank]++;
        if (plan->is_by_expert && choice.rank >= 0)
            choice.order += experts[wp_ll_expert_idx(sender, choice.rank, choice.local_expert)];
        choices[k] = choice;
    }
    wp_warp_sync(warp);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk && plan->is_by_expert; k += WP_WARP_SIZE)
        if (choices[k].rank >= 0)
            wp_add_relaxed(
                &experts[wp_ll_expert_idx(sender, choices[k].rank, choices[k].local_expert)], 1);
    wp_warp_sync(warp);
    if (plan->answers_stay && !WP_LL_HAS_NODES(plan))
        for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE)
            wp_ll_answer_slots(&sender->args->ll, sender->number, token)[k] = choices[k].row;
}

/* All warps call this. They have met since the counters were cleared, and meet afterwards. Tokens
 * are numbered one after the other: a block has few. */
WP_FN void wp_ll_find_routes(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    for (int32_t token = sender->tokens.begin + wp_warp_idx(warp); token < sender->tokens.end;
         token += wp_num_warps(warp))
        wp_ll_find_choices(sender, token);
    wp_ll_count_choices(sender);
    wp_block_sync(warp);
    if (wp_warp_idx(warp) == 0) {
        for (int32_t rank = wp_lane_idx(warp); rank < num_ranks; rank += WP_WARP_SIZE)
            sender->counters.firsts[rank] = sender->counters.rows[rank];
        wp_warp_sync(warp); /* before any of them is counted on */
        for (int32_t token = sender->tokens.begin; token < sender->tokens.end; token++)
            wp_ll_number_token(sender, token);
    }
}
