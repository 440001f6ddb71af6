/* SPDX-License-Identifier: MIT */
/*
 * Rows that come in packets (low_latency_packets.h) and are packed by expert. Each source tells every rank which of its
 * experts its choices are for, so whoever has heard all of them knows where any part of a row goes before that is there.
 */
#pragma once

#include "programs/low_latency_pack.h"
#include "programs/low_latency_packets.h"

/* What a block has in its memory. */
struct wp_ll_packer {
    struct wp_ll_taker taker;
    /* [num_ranks][wp_ll_num_choices] of each choice the expert here, or WP_LL_NOT_HERE; and how many of the source's choices
     * are for the same one before it. */
    int32_t *experts, *orders;
};

WP_FN struct wp_ll_packer wp_ll_packer_of(struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          uint64_t number)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t num_ranks = args->ll.exchange.num_ranks;
    char *memory = (char *)wp_block_shared(run->op.warp) + WP_LL_TOLD_OFFSET;
    int32_t *bases = (int32_t *)(void *)memory;
    int32_t *experts = bases + num_ranks * plan->max_local_experts;
    const struct wp_ll_packer packer = {
        {run, args, bases, number}, experts, experts + num_ranks * wp_ll_num_choices(plan)};
    return packer;
}

/* ------------------------------------------------------------------ what sources tell */

/* Warp-wide: the order of a source's choices, and in place of its bases how many are for each expert. */
WP_FN void wp_ll_order_choices(const struct wp_ll_packer *packer, int32_t source)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &packer->taker.args->ll.plan;
    const int32_t num_choices = wp_ll_num_choices(plan);
    const int32_t *experts = packer->experts + source * num_choices;
    int32_t *orders = packer->orders + source * num_choices;
    int32_t *counts = packer->taker.bases + source * plan->max_local_experts;
    for (int32_t begin = 0; begin < num_choices; begin += WP_WARP_SIZE) {
        const int32_t i = begin + wp_lane_idx(warp);
        const int32_t expert = i < num_choices ? experts[i] : WP_LL_NOT_HERE;
        const int32_t num_below = wp_same_below(warp, (uint32_t)expert);
        if (expert >= 0)
            orders[i] = counts[expert] + num_below;
        wp_warp_sync(warp); /* all have read the counts */
        if (expert >= 0)
            wp_add_relaxed(&counts[expert], 1);
        wp_warp_sync(warp);
    }
}

/* Warp-wide. */
WP_FN enum wp_status wp_ll_take_choices(const struct wp_ll_packer *packer, int32_t source)
{
    const struct wp_ll_run *run = packer->taker.run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t num_choices = wp_ll_num_choices(&ll->plan);
    int32_t *counts = packer->taker.bases + source * ll->plan.max_local_experts;
    int64_t *waited_ns = wp_lane_idx(warp) == 0 ? wp_ll_waited_ns(run, source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = packer->taker.number; /* which they carry */
    for (int32_t expert = wp_lane_idx(warp); expert < ll->plan.max_local_experts;
         expert += WP_WARP_SIZE)
        counts[expert] = 0;
    const enum wp_status status = wp_tagged_take_relaxed(
        warp, wp_ll_head(ll, ll->exchange.rank, packer->taker.number, source),
        packer->experts + source * num_choices, num_choices, &site);
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    wp_warp_sync(warp);
    if (status == WP_STATUS_OK)
        wp_ll_order_choices(packer, source);
    return status;
}

/* By all warps of a block: hears all sources. */
WP_FN enum wp_status wp_ll_hear_choices(const struct wp_ll_packer *packer)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const int32_t num_ranks = packer->taker.args->ll.exchange.num_ranks;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t source = wp_warp_idx(warp); source < num_ranks && status == WP_STATUS_OK;
         source += wp_num_warps(warp))
        status = wp_ll_take_choices(packer, source);
    status = wp_block_status(warp, status);
    if (status == WP_STATUS_OK)
        wp_ll_sum_heads(&packer->taker);
    return status;
}

/* ------------------------------------------------------------------ where rows are packed */

/* Of a source's token: whether it has a choice here, and so many places, as the warp's pointers. */
struct wp_ll_places {
    int is_here;
    int32_t num;
};

/* What is packed as that row, from the part's first byte on. */
WP_FN char *wp_ll_packed_part(const struct wp_ll_packer *packer, struct wp_ll_unit unit,
                              int32_t packed)
{
    const struct wp_low_latency_dispatch_args *args = packer->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    if (wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_SCALES)
        return wp_ll_packed_scales(&packer->taker, packed);
    const int32_t first = wp_ll_part_elements(plan, plan->row_parts, unit.part).first;
    return args->rows + (uint64_t)(uint32_t)packed * plan->row_bytes +
           ((uint64_t)first << plan->sent_element_bytes_log2);
}

/* The warp that has the choices keeps for combine where each is packed, and tells the caller whose token that is. */
WP_FN void wp_ll_keep_packed(const struct wp_ll_packer *packer, struct wp_ll_unit unit, int32_t k,
                             int32_t packed)
{
    const struct wp_low_latency_dispatch_args *args = packer->taker.args;
    wp_ll_packed(&args->ll, packer->taker.number, unit.rank, unit.token)[k] = packed;
    if (packed >= 0 && args->src_tokens != NULL)
        args->src_tokens[packed] = unit.token;
}

/* Warp-wide. */
WP_FN struct wp_ll_places wp_ll_find_places(const struct wp_ll_packer *packer,
                                            struct wp_ll_unit unit)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &packer->taker.args->ll.plan;
    const int is_kept = wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_CHOICES;
    const int32_t first = unit.rank * wp_ll_num_choices(plan) + unit.token * plan->num_topk;
    struct wp_ll_places places = {0, 0};
    wp_warp_sync(warp); /* the pointers before have been used */
    for (int32_t i = 0; i < plan->num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int32_t packed = k < plan->num_topk ? wp_ll_packed_as(&packer->taker, unit.rank,
                                                                    packer->experts[first + k],
                                                                    packer->orders[first + k])
                                                  : WP_LL_NOT_HERE;
        places.is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
        const int32_t place = wp_ll_list(warp, &places.num, packed >= 0);
        if (is_kept && k < plan->num_topk)
            wp_ll_keep_packed(packer, unit, k, packed);
        else if (packed >= 0)
            wp_warp_pointers(warp)[place] = wp_ll_packed_part(packer, unit, packed);
    }
    wp_warp_sync(warp);
    return places;
}

/* Words of scales, from `first` on, to all places. */
WP_FN void wp_ll_pack_scale_words(const struct wp_ll_packer *packer, struct wp_ll_places places,
                                  int32_t first, const uint32_t *words, int32_t num_words)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const int64_t stride = packer->taker.args->scales.word_stride;
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < num_words; i += WP_WARP_SIZE)
        for (int32_t j = 0; j < places.num; j++)
            ((uint32_t *)(uintptr_t)dsts[j])[(first + i) * stride] = words[i];
}
