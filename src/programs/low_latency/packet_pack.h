/* SPDX-License-Identifier: MIT */
/*
 * Rows that come in packets (low_latency/packets.h) of few tokens and are packed by expert. Each source tells every rank which
 * of its experts its choices are for, behind how many for each (low_latency/packet_heads.h).
 */
#pragma once

#include "programs/low_latency/packet_heads.h"

/* What a warp has of a row: a part of its elements, or what is behind them. */
enum wp_ll_unit_kind { WP_LL_UNIT_ELEMENTS, WP_LL_UNIT_SCALES, WP_LL_UNIT_CHOICES };

WP_FN enum wp_ll_unit_kind wp_ll_kind_of(const struct wp_ll_plan *plan, int32_t part)
{
    if (part < plan->row_parts.num)
        return WP_LL_UNIT_ELEMENTS;
    return part == plan->row_parts.num || !wp_ll_is_quantised(plan) ? WP_LL_UNIT_CHOICES
                                                                    : WP_LL_UNIT_SCALES;
}

/* Of a row's scales, the first that the part has. */
WP_FN int32_t wp_ll_first_scale(const struct wp_ll_plan *plan, int32_t part)
{
    return (part - plan->row_parts.num - 1) * WP_LL_UNIT_SCALE_WORDS;
}

/* ------------------------------------------------------------------ what sources tell */

WP_STATIC_ASSERT(WP_BLOCK_WORDS_BYTES + WP_LL_NEAR_RANKS * WP_WARP_SHARED_BYTES <=
                     WP_BLOCK_SHARED_BYTES,
                 "each has been made in memory of a warp");

/* What a choice of a source is for. */
WP_FN uint32_t wp_ll_told_chosen(const struct wp_ll_hearer *hearer, int32_t source, int32_t choice)
{
    const int32_t num_pairs = wp_ll_num_pairs(&hearer->taker.args->ll.plan);
    return wp_ll_pair_count(wp_ll_head_of(hearer, source) + num_pairs, choice);
}

/* By all warps that have met: those of the first block that have heard a source tell the caller of experts. */
WP_FN void wp_ll_tell_experts(const struct wp_ll_hearer *hearer)
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
WP_FN int32_t wp_ll_packed_choice(const struct wp_ll_hearer *hearer, int32_t source, int32_t choice)
{
    const uint32_t chosen = wp_ll_told_chosen(hearer, source, choice);
    const int is_here = chosen != WP_LL_CHOSEN_NOT_HERE;
    const int32_t expert = is_here ? (int32_t)(chosen & ((1 << WP_LL_CHOSEN_EXPERT_BITS) - 1)) : 0;
    const int32_t packed =
        wp_ll_packed_choice_at(hearer, source, expert, chosen >> WP_LL_CHOSEN_EXPERT_BITS);
    return is_here ? packed : WP_LL_NOT_HERE;
}

/* Where it has the unit's part, from that's first byte on. */
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

/* Of a source's token: whether it has a choice here, and so many places, as the warp's pointers. */
struct wp_ll_places {
    int is_here;
    int32_t num;
};

/* Of a source's token, what combine needs of its choices. */
WP_FN struct wp_ll_packed_choice *wp_ll_kept_choices(const struct wp_ll_hearer *hearer,
                                                     struct wp_ll_unit unit)
{
    return wp_ll_packed_choices(&hearer->taker.args->ll, hearer->taker.number, unit.rank,
                                unit.token);
}

/* By all lanes, each with choice k of the unit's token, if there is such a one: adds where the unit's part is packed. */
WP_FN void wp_ll_add_places(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit, int32_t k,
                            struct wp_ll_places *places)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &hearer->taker.args->ll.plan;
    const int is_choice = k < plan->num_topk;
    const int32_t found =
        wp_ll_packed_choice(hearer, unit.rank, unit.token * plan->num_topk + (is_choice ? k : 0));
    const int32_t packed = is_choice ? found : WP_LL_NOT_HERE;
    places->is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
    const int32_t place = wp_ll_list(warp, &places->num, packed >= 0);
    if (wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_CHOICES && is_choice)
        wp_ll_kept_choices(hearer, unit)[k].packed = packed;
    else if (packed >= 0)
        wp_warp_pointers(warp)[place] = wp_ll_packed_part(hearer, unit, packed);
}

/* Warp-wide: where the unit's part is packed; combine finds out, too, by the warp that has the choices. */
WP_FN struct wp_ll_places wp_ll_find_places(const struct wp_ll_hearer *hearer,
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

/* What combine and the caller need of a source's token, whose places are known to combine. */
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
