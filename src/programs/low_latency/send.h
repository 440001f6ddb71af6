/* SPDX-License-Identifier: MIT */
/* What a block of low-latency dispatch sends: where the choices of its tokens are, and how many rows and selections of
 * an expert the tokens before have. */
#pragma once

#include "programs/low_latency/protocol.h"
#include "programs/low_latency/waits.h"

/* Counters of a block: first of the tokens before the block's own, in the end with these. */
struct wp_ll_counters {
    int32_t *firsts;  /* [num_ranks] rows before those of the block */
    int32_t *rows;    /* [num_ranks] */
    int32_t *experts; /* [num_ranks][max_local_experts] selections, by expert only */
    /* With nodes: */
    int32_t *answers;       /* [num_ranks] to this block, */
    int32_t *first_answers; /* and the first one's slot among those of the block */
    int32_t *relayed;       /* [num_nodes] rows of the block that are relayed there */
};

/* The experts that a lane looks at first: of the block's own tokens, and of the tokens before (-1: none).
 * They are loaded from the beginning of the launch. */
struct wp_ll_first_choices {
    int64_t own;
    int64_t before;
};

struct wp_ll_sender {
    const struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    struct wp_ll_choice *choices; /* [tokens of the block][num_topk] */
    struct wp_ll_counters counters;
    /* [tokens before those of the block][wp_ll_rank_words] a bit for each rank: one of the token's choices is there */
    int32_t *ranks_of_tokens;
    struct wp_ll_tokens tokens; /* of this block */
    struct wp_ll_first_choices first;
    struct wp_ll_share share; /* of these among its warps */
    uint64_t number;
};

WP_FN struct wp_ll_counters wp_ll_counters_of(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const int32_t num_counters = wp_ll_num_counters(&ll->plan, ll->exchange.num_ranks);
    int32_t *firsts =
        (int32_t *)wp_ll_near_or(warp, ll->near.counters, ll->near.choices,
                                 ll->counters + (int64_t)wp_block_idx(warp) * num_counters);
    const int64_t num_ranks = ll->exchange.num_ranks;
    int32_t *answers = firsts + 2 * num_ranks;
    int32_t *relayed = firsts + num_counters - ll->plan.message.num_nodes;
    const struct wp_ll_counters counters = {
        firsts,  firsts + num_ranks,  answers + (WP_LL_HAS_NODES(&ll->plan) ? 2 * num_ranks : 0),
        answers, answers + num_ranks, relayed};
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

/* The expert of choice k of a token; -1: none. */
WP_FN int64_t wp_ll_chosen_expert(const struct wp_low_latency_dispatch_args *args, int32_t token,
                                  int32_t k)
{
    const int32_t num_topk = args->ll.plan.num_topk, i = token * num_topk + k;
    if (k >= num_topk)
        return -1;
    return wp_expert_id_now(args->topk_idx, args->index_type, i);
}

/* The expert of a choice of a token before the block's own. Each token has a power of two of threads, so
 * that nothing is divided. The last threads begin, since the first ones have the block's own tokens. */
WP_FN int64_t wp_ll_expert_before(const struct wp_low_latency_dispatch_args *args,
                                  struct wp_ll_tokens tokens, int32_t i)
{
    const int32_t width_log2 = args->ll.plan.num_topk_log2, mask = (1 << width_log2) - 1;
    return i < tokens.begin << width_log2 ? wp_ll_chosen_expert(args, i >> width_log2, i & mask)
                                          : -1;
}

WP_FN int32_t wp_ll_first_before(struct wp_warp *warp)
{
    return wp_ll_num_threads(warp) - 1 - wp_ll_thread_idx(warp);
}

WP_FN struct wp_ll_first_choices
wp_ll_load_first_choices(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args)
{
    const struct wp_ll_tokens tokens = wp_ll_tokens_of(args, wp_block_idx(warp));
    const int32_t token = tokens.begin + wp_warp_idx(warp);
    const struct wp_ll_first_choices first = {
        token < tokens.end ? wp_ll_chosen_expert(args, token, wp_lane_idx(warp)) : -1,
        wp_ll_expert_before(args, tokens, wp_ll_first_before(warp))};
    return first;
}

/* What a block sends as `number`: [tokens.begin, tokens.end). */
WP_FN struct wp_ll_sender wp_ll_sender_of(const struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          struct wp_ll_first_choices first, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t block = wp_block_idx(warp);
    const struct wp_ll_tokens tokens = wp_ll_tokens_of(args, block);
    const int32_t num_tokens = tokens.end - tokens.begin;
    const struct wp_ll_near *near = &args->ll.near;
    struct wp_ll_choice *choices = (struct wp_ll_choice *)wp_ll_near_or(
        warp, near->choices, near->ranks_of_tokens,
        args->ll.choices + (int64_t)block * plan->block_tokens * plan->num_topk);
    const int64_t num_words =
        (int64_t)plan->max_tokens * wp_ll_rank_words(args->ll.exchange.num_ranks);
    int32_t *ranks_of_tokens =
        (int32_t *)wp_ll_near_or(warp, near->ranks_of_tokens, near->end,
                                 args->ll.ranks_of_tokens + (int64_t)block * num_words);
    const struct wp_ll_share share =
        wp_ll_share_rows(plan->max_row_parts == 1 ? 1 : wp_num_warps(warp), num_tokens);
    const struct wp_ll_sender sender = {
        run,   args,  choices, wp_ll_counters_of(warp, &args->ll), ranks_of_tokens, tokens,
        first, share, number};
    return sender;
}

/* The choices of a token of the block. */
WP_FN struct wp_ll_choice *wp_ll_choices_of(const struct wp_ll_sender *sender, int32_t token)
{
    const int32_t first = (token - sender->tokens.begin) * sender->args->ll.plan.num_topk;
    return sender->choices + first;
}

WP_FN int32_t wp_ll_expert_idx(const struct wp_ll_sender *sender, int32_t rank,
                               int32_t local_expert)
{
    return rank * sender->args->ll.plan.max_local_experts + local_expert;
}

WP_FN int32_t *wp_ll_expert_counter(const struct wp_ll_sender *sender, int32_t rank,
                                    int32_t local_expert)
{
    return sender->counters.experts + wp_ll_expert_idx(sender, rank, local_expert);
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

/* ------------------------------------------------------------------ the tokens before those of the block */

/* Of the choices of a token at one rank, one finds the rank's bit clear. That one counts the token. */
WP_FN void wp_ll_count_choice(const struct wp_ll_sender *sender, int32_t token, int64_t expert)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    int32_t *ranks =
        sender->ranks_of_tokens + (int64_t)token * wp_ll_rank_words(ll->exchange.num_ranks);
    const struct wp_place_of_expert place =
        wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
    const int32_t bit = (int32_t)(1u << (place.rank & 31));
    if (place.rank < 0)
        return;
    if ((wp_or_relaxed(&ranks[place.rank >> 5], bit) & bit) == 0)
        wp_add_relaxed(&sender->counters.rows[place.rank], 1);
    if (ll->plan.is_by_expert)
        wp_add_relaxed(wp_ll_expert_counter(sender, place.rank, place.local_expert), 1);
}

/* All warps call this. The next load is under way while a choice is counted. */
WP_FN void wp_ll_count_choices(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const int32_t width_log2 = sender->args->ll.plan.num_topk_log2;
    const int32_t num_threads = wp_ll_num_threads(warp), end = sender->tokens.begin << width_log2;
    int32_t i = wp_ll_first_before(warp);
    int64_t expert = sender->first.before;
    while (i < end) {
        const int32_t token = i >> width_log2;
        const int64_t found = expert;
        i += num_threads;
        expert = wp_ll_expert_before(sender->args, sender->tokens, i);
        wp_ll_count_choice(sender, token, found);
    }
}

/* ------------------------------------------------------------------ the tokens of the block */

/* How many of some choices have the rank, and the expert, of `place`. */
struct wp_ll_same {
    int32_t num_of_rank;
    int32_t num_of_expert;
};
WP_FN struct wp_ll_same wp_ll_find_same(const struct wp_ll_choice *choices, int32_t num_choices,
                                        struct wp_place_of_expert place)
{
    struct wp_ll_same same = {0, 0};
    for (int32_t k = 0; k < num_choices; k++) {
        const int has_rank = choices[k].rank == place.rank;
        same.num_of_rank += has_rank;
        same.num_of_expert += has_rank && choices[k].local_expert == place.local_expert;
    }
    return same;
}

/* One warp calls this. It finds what can be known of a token's choices without other tokens. */
WP_FN void wp_ll_find_choices(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_topk = ll->plan.num_topk;
    struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    for (int32_t first = 0; first < num_topk; first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        const int is_on_its_way = first == 0 && token == sender->tokens.begin + wp_warp_idx(warp);
        const int64_t expert =
            is_on_its_way ? sender->first.own : wp_ll_chosen_expert(sender->args, token, k);
        const struct wp_place_of_expert place =
            wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
        struct wp_ll_same same = wp_ll_find_same(choices, first, place);
        same.num_of_rank += wp_same_below(warp, (uint32_t)place.rank);
        if (ll->plan.is_by_expert)
            same.num_of_expert += wp_same_below(
                warp, (uint32_t)wp_ll_expert_idx(sender, place.rank, place.local_expert));
        const struct wp_ll_choice choice = {place.rank, place.local_expert,
                                            place.rank >= 0 && same.num_of_rank == 0 ? 0 : -1,
                                            same.num_of_expert};
        if (k < num_topk)
            choices[k] = choice;
        if (first + WP_WARP_SIZE < num_topk)
            wp_warp_sync(warp); /* they are there for those behind */
    }
}

/* All warps call this. */
WP_FN void wp_ll_find_all_choices(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    for (int32_t token = sender->tokens.begin + wp_warp_idx(warp); token < sender->tokens.end;
         token += wp_num_warps(warp))
        wp_ll_find_choices(sender, token);
}

/* ================== routes */

/* The routes of a block's tokens: their ranks, their slots there, and how many choices of the same expert
 * come before. */

/* ------------------------------------------------------------------ answers, with nodes */

/* Whether the row of a choice at `rank` is in the message for a node. */
WP_FN int wp_ll_is_in_message(const struct wp_ll_sender *sender, int32_t rank, int32_t node)
{
    return rank >= 0 && sender->args->ll.network.node_of_rank[rank] == node &&
           wp_ll_is_relayed(&sender->args->ll, rank);
}

/* Whether the row of choice k is in the message that has the row of choice j. */
WP_FN int wp_ll_is_in_message_of(const struct wp_ll_sender *sender,
                                 const struct wp_ll_choice *choices, int32_t j, int32_t k)
{
    return wp_ll_is_in_message(sender, choices[k].rank,
                               sender->args->ll.network.node_of_rank[choices[j].rank]);
}

/* Whether choice k is the first one whose row is in its message. */
WP_FN int wp_ll_is_first_in_message(const struct wp_ll_sender *sender,
                                    const struct wp_ll_choice *choices, int32_t k)
{
    for (int32_t before = 0; before < k; before++)
        if (wp_ll_is_in_message_of(sender, choices, k, before))
            return 0;
    return 1;
}

/* The rank that sends the answer to choice k. WP_NO_RANK: none does, or the answer to an earlier choice
 * stands for this one, too. */
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

/* One warp calls this when all answers are counted. The answers of a rank get slots one behind the other.
 * If ranks share slots, ranks of other nodes come first, so that rows for them can be staged in the same
 * order. */
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

/* One warp calls this. It counts the block's rows for each other node. */
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

/* One warp calls this. It gives the choices of a token their rows and orders. */
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
    if (WP_LL_HAS_RELAYS(plan))
        wp_ll_number_relayed(sender, token);
    if (WP_LL_HAS_NODES(plan))
        wp_ll_number_answers(sender, token);
    else if (plan->answers_stay)
        for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE)
            wp_ll_answer_slots(&sender->args->ll, sender->number, token)[k] = choices[k].row;
}

/* All warps call this. They have met since the counters were cleared, and meet afterwards. Tokens are
 * numbered one after the other: a block has few. */
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
