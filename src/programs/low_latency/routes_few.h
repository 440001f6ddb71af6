/* SPDX-License-Identifier: MIT */
/* Dispatch of few tokens in packets: each warp finds out by itself where its part of a row goes. */
#pragma once

#include "programs/low_latency/packet_rows.h"

/* ================== where tokens go */

/* ------------------------------------------------------------------ choices */

/* The first choices of all tokens: two for each lane, or four. */
struct wp_ll_lane_choices {
    int64_t first, second;
    int64_t third, fourth;
};

/* By expert, a warp needs the choices of all tokens only for a head. */
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

/* Whether a token goes to a rank, and how many tokens before it do. */
struct wp_ll_going {
    int goes;
    int32_t num_before;
};

/* A bit for each lane whose choice is at the rank. The lanes have the choices from `begin` on. */
WP_FN uint32_t wp_ll_find_choices_at(struct wp_warp *warp,
                                     const struct wp_low_latency_dispatch_args *args,
                                     struct wp_experts_of_rank experts, int32_t begin,
                                     int64_t expert)
{
    return wp_ballot(warp,
                     wp_ll_choice_among(args, experts, expert, begin + wp_lane_idx(warp)) >= 0);
}

/* Whether the lanes have loaded all choices, and there is a lane for each token. */
WP_FN int wp_ll_choices_are_few(const struct wp_low_latency_dispatch_args *args,
                                int32_t num_of_lane)
{
    return args->num_tokens * args->ll.plan.num_topk <= num_of_lane * WP_WARP_SIZE &&
           args->num_tokens < WP_WARP_SIZE;
}

/* All lanes call this. Lane n knows whether token n goes. */
WP_FN struct wp_ll_going wp_ll_going_of(struct wp_warp *warp,
                                        const struct wp_low_latency_dispatch_args *args, int goes,
                                        int32_t token)
{
    const uint32_t going = wp_ballot(warp, wp_lane_idx(warp) < args->num_tokens && goes);
    const struct wp_ll_going found = {(int)(going >> token & 1u),
                                      wp_popcount(going & ((1u << token) - 1))};
    return found;
}

/* Warp-wide: the same from two choices of each lane. */
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

/* A bit for each choice, so many in each half. */
struct wp_ll_choice_bits {
    uint64_t low, high;
    int32_t half;
};

/* The next `num` bits, at most half of all; others follow them. */
WP_FN uint64_t wp_ll_bits_from(struct wp_ll_choice_bits bits, int32_t begin, int32_t num)
{
    uint64_t from = begin < bits.half ? bits.low >> begin : bits.high >> (begin - bits.half);
    if (begin < bits.half && begin + num > bits.half)
        from |= bits.high << (bits.half - begin);
    return from;
}

/* Warp-wide: the same from four choices of each lane. A token has at most two of each. */
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

/* Whole tokens whose choices the lanes look at together, one each; at least one token. */
struct wp_ll_seen_tokens {
    int32_t first, num;
};

/* The lane's choice of these tokens. */
WP_FN int64_t wp_ll_seen_choice(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args,
                                struct wp_ll_seen_tokens seen)
{
    const int32_t num_topk = args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    return lane < seen.num * num_topk ? wp_ll_load_choice(args, seen.first * num_topk + lane) : -1;
}

/* Adds what these tokens tell about the rows before a token. */
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

/* Warp-wide: the same for any number of choices, if a token has at most one for each lane. So many loads
 * are under way together. */
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

/* Warp-wide: the same for any number, token by token. */
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

/* Warp-wide: whether a token goes to a rank. Lane n has its choice n. */
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

/* All lanes call this, with the choices from `begin` on. Each has the expert of its choice at the target,
 * or -1. It adds the choices to the head. */
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

/* Clears the head in memory of the warp. */
WP_FN void wp_ll_begin_chosen(struct wp_warp *warp, const struct wp_ll_plan *plan)
{
    uint32_t *told = (uint32_t *)wp_warp_shared(warp);
    for (int32_t i = wp_lane_idx(warp); i < wp_ll_num_chosen_words(plan); i += WP_WARP_SIZE)
        told[i] = 0;
}

/* Warp-wide, by expert: sends a target the head of `number`. The target has given credit. The head has
 * the number of choices for each expert there, and the expert of each choice. */
WP_FN void wp_ll_few_tell_choices(struct wp_warp *warp,
                                  const struct wp_low_latency_dispatch_args *args,
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

/* ================== where rows are packed */

/* How the target finds from heads where it packs a row, by expert. */

/* What a work item has of a row: a part of its elements, or what is behind them. */
enum wp_ll_unit_kind { WP_LL_UNIT_ELEMENTS, WP_LL_UNIT_SCALES, WP_LL_UNIT_CHOICES };

WP_FN enum wp_ll_unit_kind wp_ll_kind_of(const struct wp_ll_plan *plan, int32_t part)
{
    if (part < plan->row_parts.num)
        return WP_LL_UNIT_ELEMENTS;
    return part == plan->row_parts.num || !wp_ll_is_quantised(plan) ? WP_LL_UNIT_CHOICES
                                                                    : WP_LL_UNIT_SCALES;
}

/* The first scale of the part. */
WP_FN int32_t wp_ll_first_scale(const struct wp_ll_plan *plan, int32_t part)
{
    return (part - plan->row_parts.num - 1) * WP_LL_UNIT_SCALE_WORDS;
}

/* ------------------------------------------------------------------ what sources tell */

WP_STATIC_ASSERT(WP_BLOCK_WORDS_BYTES + WP_LL_NEAR_RANKS * WP_WARP_SHARED_BYTES <=
                     WP_BLOCK_SHARED_BYTES,
                 "each has been made in memory of a warp");

/* What the head of a source says about a choice. */
WP_FN uint32_t wp_ll_told_chosen(const struct wp_ll_hearer *hearer, int32_t source, int32_t choice)
{
    const int32_t num_pairs = wp_ll_num_pairs(&hearer->taker.args->ll.plan);
    return wp_ll_pair_count(wp_ll_head_of(hearer, source) + num_pairs, choice);
}

/* All warps call this after they have met. Those of the first block that have received a head write
 * counts of experts for the caller. */
WP_FN void wp_ll_few_tell_experts(const struct wp_ll_hearer *hearer)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_low_latency *ll = &hearer->taker.args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks, num_warps = wp_num_warps(warp);
    const int32_t num_heard = num_ranks < num_warps ? num_ranks : num_warps;
    if (wp_block_idx(warp) != 0 || wp_ll_first_heard(warp) >= num_heard)
        return;
    for (int32_t expert = wp_ll_first_heard(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
         expert < ll->num_local_experts; expert += num_heard * WP_WARP_SIZE)
        wp_ll_tell_heard_expert(hearer, expert);
}

/* ------------------------------------------------------------------ where rows are packed */

/* The packed row of a source's choice. */
WP_FN int32_t wp_ll_few_packed_choice(const struct wp_ll_hearer *hearer, int32_t source,
                                      int32_t choice)
{
    const uint32_t chosen = wp_ll_told_chosen(hearer, source, choice);
    const int is_here = chosen != WP_LL_CHOSEN_NOT_HERE;
    const int32_t expert = is_here ? (int32_t)(chosen & ((1 << WP_LL_CHOSEN_EXPERT_BITS) - 1)) : 0;
    const int32_t packed =
        wp_ll_packed_choice_at(hearer, source, expert, chosen >> WP_LL_CHOSEN_EXPERT_BITS);
    return is_here ? packed : WP_LL_NOT_HERE;
}

/* The place of the item's part in a packed row. */
WP_FN char *wp_ll_packed_part(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                              int32_t packed)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    if (wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_SCALES)
        return wp_ll_packed_scales(&hearer->taker, packed);
    const int32_t first = wp_ll_part_elements(plan, plan->row_parts, unit.part).first;
    return args->rows + (uint64_t)(uint32_t)packed * plan->row_bytes +
           ((uint64_t)first << plan->sent_element_bytes_log2);
}

/* Whether a source's token has a choice here, and how many places it has, as the warp's pointers. */
struct wp_ll_places {
    int is_here;
    int32_t num;
};

/* What combine needs of the choices of a source's token. */
WP_FN struct wp_ll_packed_choice *wp_ll_kept_choices(const struct wp_ll_hearer *hearer,
                                                     struct wp_ll_unit unit)
{
    return wp_ll_packed_choices(&hearer->taker.args->ll, hearer->taker.number, unit.rank,
                                unit.token);
}

/* All lanes call this, each with choice k of the item's token. It adds the places of the item's part. */
WP_FN void wp_ll_add_places(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit, int32_t k,
                            struct wp_ll_places *places)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &hearer->taker.args->ll.plan;
    const int is_choice = k < plan->num_topk;
    const int32_t found = wp_ll_few_packed_choice(
        hearer, unit.rank, unit.token * plan->num_topk + (is_choice ? k : 0));
    const int32_t packed = is_choice ? found : WP_LL_NOT_HERE;
    places->is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
    const int32_t place = wp_ll_list(warp, &places->num, packed >= 0);
    if (wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_CHOICES && is_choice)
        wp_ll_kept_choices(hearer, unit)[k].packed = packed;
    else if (packed >= 0)
        wp_warp_pointers(warp)[place] = wp_ll_packed_part(hearer, unit, packed);
}

/* Warp-wide: finds the places of the item's part. The warp that has the choices keeps them for combine. */
WP_FN struct wp_ll_places wp_ll_few_find_places(const struct wp_ll_hearer *hearer,
                                                struct wp_ll_unit unit)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_topk = hearer->taker.args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    struct wp_ll_places places = {0, 0};
    wp_warp_sync(warp); /* the pointers before have been used, and what is in memory of the warp */
    wp_ll_add_places(hearer, unit, lane, &places);
    for (int32_t i = WP_WARP_SIZE; !wp_ll_topk_fits_lanes() && i < num_topk; i += WP_WARP_SIZE)
        wp_ll_add_places(hearer, unit, i + lane, &places);
    wp_warp_sync(warp);
    return places;
}

/* Keeps the weights of a source's token for combine, and writes src_tokens for the caller. */
WP_FN void wp_ll_keep_choices(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                              const float *weights)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    struct wp_ll_packed_choice *kept = wp_ll_kept_choices(hearer, unit);
    for (int32_t k = wp_lane_idx(hearer->taker.run->op.warp); k < args->ll.plan.num_topk;
         k += WP_WARP_SIZE) {
        kept[k].weight = weights[k];
        if (kept[k].packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[kept[k].packed] = unit.token;
    }
}

/* ================== units */

/* Work items: which a warp has, what is loaded for one first, and how what it sends is made. */

/* The work items of a launch. */
WP_FN int32_t wp_ll_num_units_of(const struct wp_low_latency *ll)
{
    return wp_ll_num_row_units(&ll->plan, ll->exchange.num_ranks);
}

/* Items go round the blocks first, so that few tokens use many SMs. */
WP_FN int32_t wp_ll_first_unit(struct wp_warp *warp)
{
    return wp_block_idx(warp) + wp_warp_idx(warp) * wp_num_blocks(warp);
}

/* By expert, warps that receive heads have no items. */
WP_FN int32_t wp_ll_first_row_unit(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const int hears = ll->plan.is_by_expert && wp_ll_first_heard(warp) < ll->num_hearers;
    return hears ? wp_ll_num_units_of(ll) : wp_ll_first_unit(warp);
}

WP_FN int32_t wp_ll_row_unit_step(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const int32_t num_hearers = ll->plan.is_by_expert ? ll->num_hearers : 0;
    return wp_num_blocks(warp) * (wp_num_warps(warp) - num_hearers);
}

WP_FN struct wp_ll_unit wp_ll_row_unit_of(const struct wp_low_latency *ll, int32_t i)
{
    return wp_ll_counted_unit_of(ll, ll->plan.row_parts, i);
}

WP_FN struct wp_ll_slot_bytes wp_ll_few_unit_bytes(const struct wp_ll_plan *plan, int32_t part)
{
    const struct wp_ll_slot *slot = &plan->slot;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->row_parts, part);
    const struct wp_ll_slot_bytes of_elements = wp_ll_element_bytes(plan, elements);
    const uint64_t first_scale =
        slot->scales_offset + (uint64_t)wp_ll_first_scale(plan, part) * sizeof(uint32_t);
    const uint64_t scales_left = slot->token_offset - first_scale;
    const struct wp_ll_slot_bytes scales = {
        first_scale, scales_left < WP_LL_PART_BYTES ? scales_left : WP_LL_PART_BYTES};
    const struct wp_ll_slot_bytes choices = {slot->token_offset,
                                             slot->order_offset - slot->token_offset};
    switch (wp_ll_kind_of(plan, part)) {
    case WP_LL_UNIT_ELEMENTS:
        return of_elements;
    case WP_LL_UNIT_SCALES:
        return scales;
    default:
        return choices;
    }
}

/* ------------------------------------------------------------------ what is loaded first */

/* What is being loaded for an item. */
struct wp_ll_few_unit_loads {
    int32_t taken;  /* what the unit's rank has taken (wp_ll_note_heard_taken) */
    int64_t expert; /* of the lane's choice of the token, */
    float weight;   /* and its weight */
    struct wp_packet_row row;
};

WP_FN struct wp_ll_few_unit_loads
wp_ll_few_load_unit(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                    struct wp_ll_unit unit)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t k = wp_lane_idx(warp), choice = unit.token * plan->num_topk + k;
    const enum wp_ll_unit_kind kind = wp_ll_kind_of(plan, unit.part);
    struct wp_ll_few_unit_loads loads = {wp_load_relaxed(&args->ll.rows_taken[unit.rank]), -1, 1.0f,
                                         wp_packets_load(warp, NULL, 0)};
    if (unit.token == WP_LL_COUNTED && plan->is_by_expert)
        wp_ll_begin_chosen(warp, plan);
    if (unit.token == WP_LL_COUNTED || unit.token >= args->num_tokens)
        return loads;
    if (kind == WP_LL_UNIT_ELEMENTS)
        loads.row = wp_packets_load(warp, wp_ll_part_of_token(args, unit.token, unit.part),
                                    wp_ll_token_part_bytes(plan, unit.part));
    if ((plan->is_by_expert || kind == WP_LL_UNIT_CHOICES) && k < plan->num_topk)
        loads.expert = wp_ll_load_choice(args, choice);
    if (kind == WP_LL_UNIT_CHOICES && k < plan->num_topk && args->topk_weights != NULL)
        loads.weight = args->topk_weights[choice];
    return loads;
}

/* ------------------------------------------------------------------ what a unit sends */

/* Memory of the warp for what it sends of choices. */
WP_FN char *wp_ll_part_memory(struct wp_warp *warp)
{
    return (char *)wp_warp_shared(warp);
}

/* Makes what goes behind a row: the token, the slot of its answer, its experts there and weights. */
WP_FN struct wp_packet_row wp_ll_make_choices(struct wp_warp *warp,
                                              const struct wp_low_latency_dispatch_args *args,
                                              struct wp_ll_unit unit,
                                              const struct wp_ll_few_unit_loads *loads)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    const int32_t num_topk = ll->plan.num_topk;
    char *memory = wp_ll_part_memory(warp) - at->token_offset; /* of the slot */
    const struct wp_experts_of_rank at_rank = wp_experts_of(&ll->placement, unit.rank);
    int32_t *experts = (int32_t *)(void *)(memory + at->experts_offset);
    float *weights = (float *)(void *)(memory + at->weights_offset);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t i = unit.token * num_topk + k;
        const int64_t expert = k < WP_WARP_SIZE ? loads->expert : wp_ll_load_choice(args, i);
        const float weight = k < WP_WARP_SIZE             ? loads->weight
                             : args->topk_weights == NULL ? 1.0f
                                                          : args->topk_weights[i];
        const int32_t local_expert =
            wp_expert_among(&ll->placement, at_rank, expert, ll->exchange.rank, unit.token);
        experts[k] = local_expert;
        weights[k] = local_expert >= 0 ? weight : 0.0f;
    }
    if (wp_lane_idx(warp) == 0) {
        *(int32_t *)(void *)(memory + at->token_offset) = unit.token;
        *(int32_t *)(void *)(memory + at->answer_offset) = unit.token;
    }
    wp_warp_sync(warp);
    return wp_packets_load(warp, wp_ll_part_memory(warp),
                           wp_ll_few_unit_bytes(&ll->plan, unit.part).num);
}
