/* SPDX-License-Identifier: MIT */
/* Where tokens go whose rows go in packets (low_latency/packets.h): each warp finds out by itself what it needs. */
#pragma once

#include "programs/low_latency/packet_mail.h"

/* ------------------------------------------------------------------ choices */

/* The first choices of all tokens, each lane its own: two, or four. */
struct wp_ll_lane_choices {
    int64_t first, second;
    int64_t third, fourth;
};

/* By expert a warp looks at those of all tokens only to tell of them. */
WP_FN int wp_ll_lanes_have_four(const struct wp_low_latency_dispatch_args *args)
{
    return !args->ll.plan.is_by_expert &&
           args->num_tokens * args->ll.plan.num_topk > 2 * WP_WARP_SIZE;
}

WP_FN struct wp_ll_lane_choices wp_ll_load_choices(struct wp_warp *warp,
                                                   const struct wp_low_latency_dispatch_args *args)
{
    const int32_t lane = wp_lane_idx(warp);
    struct wp_ll_lane_choices choices = {wp_ll_load_choice(args, lane),
                                         wp_ll_load_choice(args, WP_WARP_SIZE + lane), -1, -1};
    if (wp_ll_lanes_have_four(args)) {
        choices.third = wp_ll_load_choice(args, 2 * WP_WARP_SIZE + lane);
        choices.fourth = wp_ll_load_choice(args, 3 * WP_WARP_SIZE + lane);
    }
    return choices;
}

/* ------------------------------------------------------------------ rows */

/* Of a token, or behind all: whether it has a choice at a rank, and how many tokens before it have. */
struct wp_ll_going {
    int goes;
    int32_t num_before;
};

/* Of the lanes' choices, from `begin` on of those of all tokens: a bit for each that is at the rank. */
WP_FN uint32_t wp_ll_find_choices_at(struct wp_warp *warp,
                                     const struct wp_low_latency_dispatch_args *args,
                                     struct wp_experts_of_rank experts, int32_t begin,
                                     int64_t expert)
{
    return wp_ballot(warp,
                     wp_ll_choice_among(args, experts, expert, begin + wp_lane_idx(warp)) >= 0);
}

/* Whether choices are so few that each lane has loaded two, or four, of tokens of which each lane can look at one. */
WP_FN int wp_ll_choices_are_few(const struct wp_low_latency_dispatch_args *args,
                                int32_t num_of_lane)
{
    return args->num_tokens * args->ll.plan.num_topk <= num_of_lane * WP_WARP_SIZE &&
           args->num_tokens < WP_WARP_SIZE;
}

/* By all lanes, each with what it knows of token `lane`, if there is such a one. */
WP_FN struct wp_ll_going wp_ll_going_of(struct wp_warp *warp,
                                        const struct wp_low_latency_dispatch_args *args, int goes,
                                        int32_t token)
{
    const uint32_t going = wp_ballot(warp, wp_lane_idx(warp) < args->num_tokens && goes);
    const struct wp_ll_going found = {(int)(going >> token & 1u),
                                      wp_popcount(going & ((1u << token) - 1))};
    return found;
}

/* Warp-wide: of two choices of each lane. */
WP_FN struct wp_ll_going wp_ll_find_going_of_two(struct wp_warp *warp,
                                                 const struct wp_low_latency_dispatch_args *args,
                                                 struct wp_ll_lane_choices choices,
                                                 struct wp_experts_of_rank experts, int32_t token)
{
    const int32_t num_topk = args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    const uint64_t of_token = (UINT64_C(1) << num_topk) - 1;
    uint64_t at_rank = wp_ll_find_choices_at(warp, args, experts, 0, choices.first);
    if (args->num_tokens * num_topk > WP_WARP_SIZE)
        at_rank |=
            (uint64_t)wp_ll_find_choices_at(warp, args, experts, WP_WARP_SIZE, choices.second)
            << WP_WARP_SIZE;
    const int32_t of_lane = lane < args->num_tokens ? lane : 0;
    return wp_ll_going_of(warp, args, (at_rank >> of_lane * num_topk & of_token) != 0, token);
}

/* A bit for each choice, of which so many are in each half. */
struct wp_ll_choice_bits {
    uint64_t low, high;
    int32_t half;
};

/* The next `num`, at most half of all, with others behind them. */
WP_FN uint64_t wp_ll_bits_from(struct wp_ll_choice_bits bits, int32_t begin, int32_t num)
{
    uint64_t from = begin < bits.half ? bits.low >> begin : bits.high >> (begin - bits.half);
    if (begin < bits.half && begin + num > bits.half)
        from |= bits.high << (bits.half - begin);
    return from;
}

/* Of four, where a token has no more than two of each lane. */
WP_FN struct wp_ll_going wp_ll_find_going_of_four(struct wp_warp *warp,
                                                  const struct wp_low_latency_dispatch_args *args,
                                                  struct wp_ll_lane_choices choices,
                                                  struct wp_experts_of_rank experts, int32_t token)
{
    enum { HALF = 2 * WP_WARP_SIZE };
    const int32_t num_topk = args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    const uint64_t of_token = (UINT64_C(1) << num_topk) - 1;
    const uint64_t first = wp_ll_find_choices_at(warp, args, experts, 0, choices.first);
    const uint64_t second =
        wp_ll_find_choices_at(warp, args, experts, WP_WARP_SIZE, choices.second);
    const uint64_t third = wp_ll_find_choices_at(warp, args, experts, HALF, choices.third);
    const uint64_t fourth =
        wp_ll_find_choices_at(warp, args, experts, HALF + WP_WARP_SIZE, choices.fourth);
    const struct wp_ll_choice_bits bits = {first | second << WP_WARP_SIZE,
                                           third | fourth << WP_WARP_SIZE, HALF};
    const int32_t begin = lane < args->num_tokens ? lane * num_topk : 0;
    const uint64_t at_rank = wp_ll_bits_from(bits, begin, num_topk);
    return wp_ll_going_of(warp, args, (at_rank & of_token) != 0, token);
}

/* Whole tokens whose choices the lanes look at together, each at one: there is one at least. */
struct wp_ll_seen_tokens {
    int32_t first, num;
};

/* The lane's choice of those. */
WP_FN int64_t wp_ll_seen_choice(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args,
                                struct wp_ll_seen_tokens seen)
{
    const int32_t num_topk = args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    return lane < seen.num * num_topk ? wp_ll_load_choice(args, seen.first * num_topk + lane) : -1;
}

/* Adds what is found of them up to a token. */
WP_FN void wp_ll_add_going(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                           struct wp_ll_seen_tokens seen, int64_t expert,
                           struct wp_experts_of_rank experts, int32_t token,
                           struct wp_ll_going *found)
{
    const int32_t num_topk = args->ll.plan.num_topk;
    const uint64_t of_token = (UINT64_C(1) << num_topk) - 1;
    uint64_t at_rank = wp_ll_find_choices_at(warp, args, experts, seen.first * num_topk, expert);
    for (int32_t t = seen.first; t < seen.first + seen.num && t <= token; t++) {
        const int goes = (at_rank & of_token) != 0;
        found->num_before += goes && t < token;
        found->goes |= goes && t == token;
        at_rank >>= num_topk;
    }
}

/* The same of any number, where a token has no more choices than a warp has lanes: so many loads are under way together. */
WP_FN struct wp_ll_going wp_ll_find_going_of_many(struct wp_warp *warp,
                                                  const struct wp_low_latency_dispatch_args *args,
                                                  struct wp_experts_of_rank experts, int32_t token)
{
    const int32_t num_seen = (int32_t)wp_divide(WP_WARP_SIZE, args->ll.plan.topk_reciprocal);
    struct wp_ll_going found = {0, 0};
    for (int32_t t = 0; t <= token && t < args->num_tokens; t += 4 * num_seen) {
        const struct wp_ll_seen_tokens first = {t, num_seen}, second = {t + num_seen, num_seen},
                                       third = {t + 2 * num_seen, num_seen},
                                       fourth = {t + 3 * num_seen, num_seen};
        const int64_t of_first = wp_ll_seen_choice(warp, args, first);
        const int64_t of_second = wp_ll_seen_choice(warp, args, second);
        const int64_t of_third = wp_ll_seen_choice(warp, args, third);
        const int64_t of_fourth = wp_ll_seen_choice(warp, args, fourth);
        wp_ll_add_going(warp, args, first, of_first, experts, token, &found);
        wp_ll_add_going(warp, args, second, of_second, experts, token, &found);
        wp_ll_add_going(warp, args, third, of_third, experts, token, &found);
        wp_ll_add_going(warp, args, fourth, of_fourth, experts, token, &found);
    }
    return found;
}

/* The same of any number, token by token. */
WP_FN struct wp_ll_going
wp_ll_find_going_one_by_one(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                            struct wp_experts_of_rank experts, int32_t token)
{
    const int32_t num_topk = args->ll.plan.num_topk;
    struct wp_ll_going found = {0, 0};
    for (int32_t t = 0; t <= token; t++) {
        found.num_before += found.goes;
        found.goes = 0;
        for (int32_t first = 0; first < num_topk; first += WP_WARP_SIZE) {
            const int32_t k = first + wp_lane_idx(warp), begin = t * num_topk + first;
            const int64_t expert = k < num_topk ? wp_ll_load_choice(args, t * num_topk + k) : -1;
            found.goes |= wp_ll_find_choices_at(warp, args, experts, begin, expert) != 0;
        }
    }
    return found;
}

WP_FN struct wp_ll_going wp_ll_find_going(struct wp_warp *warp,
                                          const struct wp_low_latency_dispatch_args *args,
                                          struct wp_ll_lane_choices choices, int32_t rank,
                                          int32_t token)
{
    const struct wp_experts_of_rank experts = wp_experts_of(&args->ll.placement, rank);
    if (wp_ll_choices_are_few(args, 2))
        return wp_ll_find_going_of_two(warp, args, choices, experts, token);
    if (wp_ll_lanes_have_four(args) && wp_ll_choices_are_few(args, 4) &&
        args->ll.plan.num_topk <= 2 * WP_WARP_SIZE)
        return wp_ll_find_going_of_four(warp, args, choices, experts, token);
    if (wp_ll_topk_fits_lanes() || args->ll.plan.num_topk <= WP_WARP_SIZE)
        return wp_ll_find_going_of_many(warp, args, experts, token);
    return wp_ll_find_going_one_by_one(warp, args, experts, token);
}

/* Warp-wide: whether a token goes to a rank, by the lanes' first choices of it. */
WP_FN int wp_ll_goes(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                     int64_t expert, int32_t rank, int32_t token)
{
    const struct wp_experts_of_rank experts = wp_experts_of(&args->ll.placement, rank);
    const int32_t num_topk = args->ll.plan.num_topk, begin = token * num_topk;
    int goes = wp_ll_find_choices_at(warp, args, experts, begin, expert) != 0;
    for (int32_t first = WP_WARP_SIZE; !wp_ll_topk_fits_lanes() && first < num_topk;
         first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        const int64_t other = k < num_topk ? wp_ll_load_choice(args, begin + k) : -1;
        goes |= wp_ll_find_choices_at(warp, args, experts, begin + first, other) != 0;
    }
    return goes;
}

/* ------------------------------------------------------------------ choices that are told */

/* By all lanes, with choices from `begin` on of those of all tokens, each with the rank's expert that its own is for, or none:
 * adds them to what the rank is told. */
WP_FN void wp_ll_add_chosen(struct wp_warp *warp, const struct wp_ll_plan *plan, int32_t begin,
                            int32_t expert)
{
    const int32_t i = begin + wp_lane_idx(warp);
    uint32_t *counts = (uint32_t *)wp_warp_shared(warp);
    const uint32_t num_below = (uint32_t)wp_same_below(warp, (uint32_t)expert);
    const uint32_t order = expert < 0 ? 0 : num_below + wp_ll_pair_count(counts, expert);
    wp_warp_sync(warp); /* all have seen how many there were before these */
    if (expert >= 0)
        wp_ll_add_to_pair(counts, expert, 1);
    if (i < wp_ll_num_choices(plan))
        wp_ll_add_to_pair(counts + wp_ll_num_pairs(plan), i,
                          expert < 0 ? WP_LL_CHOSEN_NOT_HERE : wp_ll_chosen(expert, order));
    wp_warp_sync(warp);
}

/* In memory of the warp: as it is before choices are added. */
WP_FN void wp_ll_begin_chosen(struct wp_warp *warp, const struct wp_ll_plan *plan)
{
    uint32_t *told = (uint32_t *)wp_warp_shared(warp);
    for (int32_t i = wp_lane_idx(warp); i < wp_ll_num_chosen_words(plan); i += WP_WARP_SIZE)
        told[i] = 0;
}

/* Warp-wide, when there is room for the rows of `number`, by expert: tells a rank how many choices each of its experts has, and
 * which of them each choice is for, of all tokens that there may be. */
WP_FN void wp_ll_tell_choices(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                              struct wp_ll_lane_choices choices, int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t num_words = wp_ll_num_chosen_words(&ll->plan);
    const struct wp_experts_of_rank experts = wp_experts_of(&ll->placement, rank);
    wp_warp_sync(warp); /* they have begun */
    for (int32_t begin = 0; begin < wp_ll_num_choices(&ll->plan); begin += WP_WARP_SIZE) {
        const int32_t i = begin + wp_lane_idx(warp);
        const int64_t next = wp_ll_load_choice(args, i + 2 * WP_WARP_SIZE);
        wp_ll_add_chosen(warp, &ll->plan, begin,
                         wp_ll_choice_among(args, experts, choices.first, i));
        choices.first = choices.second;
        choices.second = next;
    }
    wp_tagged_send(warp, rank, wp_ll_head(ll, rank, number, ll->exchange.rank),
                   wp_warp_shared(warp), num_words, number);
}
