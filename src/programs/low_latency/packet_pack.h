/* SPDX-License-Identifier: MIT */
/*
 * Rows that come in packets (low_latency/packets.h) and are packed by expert. Each source tells every rank which of its
 * experts its choices are for, as how many for each, so whoever has heard all of them knows where any part of a row goes before
 * that is there.
 */
#pragma once

#include "programs/low_latency/packet_heads.h"

/* What a warp has of a row: a part of its elements, or what is behind them. */
enum wp_ll_unit_kind { WP_LL_UNIT_ELEMENTS, WP_LL_UNIT_SCALES, WP_LL_UNIT_CHOICES };

enum { WP_LL_UNIT_SCALE_WORDS = WP_LL_PART_BYTES / sizeof(uint32_t) /* at most */ };

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

struct wp_ll_packer {
    struct wp_ll_taker taker; /* without bases */
    uint32_t *told;           /* in memory of the block: [num_ranks][wp_ll_num_chosen_words] */
};

WP_STATIC_ASSERT(WP_BLOCK_WORDS_BYTES + WP_LL_NEAR_RANKS * WP_WARP_SHARED_BYTES <=
                     WP_BLOCK_SHARED_BYTES,
                 "each has been made in memory of a warp");

WP_FN struct wp_ll_packer wp_ll_packer_of(struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          uint64_t number)
{
    char *memory = (char *)wp_block_shared(run->op.warp) + WP_BLOCK_WORDS_BYTES;
    const struct wp_ll_packer packer = {{run, args, NULL, number}, (uint32_t *)(void *)memory};
    return packer;
}

/* ------------------------------------------------------------------ what sources tell */

/* Of a source: how many choices each expert here has, in pairs, */
WP_FN uint32_t *wp_ll_told_counts(const struct wp_ll_packer *packer, int32_t source)
{
    return packer->told + (ptrdiff_t)source * wp_ll_num_chosen_words(&packer->taker.args->ll.plan);
}

/* and what one of them is for. */
WP_FN uint32_t wp_ll_told_chosen(const struct wp_ll_packer *packer, int32_t source, int32_t choice)
{
    const int32_t num_pairs = wp_ll_num_pairs(&packer->taker.args->ll.plan);
    return wp_ll_pair_count(wp_ll_told_counts(packer, source) + num_pairs, choice);
}

/* Warp-wide, with masks: nothing of those that are missing. */
WP_FN enum wp_status wp_ll_take_choices_if_there(const struct wp_ll_packer *packer, int32_t source)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &packer->taker.args->ll.plan;
    const struct wp_ll_head_words told = {wp_ll_told_counts(packer, source),
                                          wp_ll_num_chosen_words(plan)};
    const enum wp_status status = wp_ll_take_packet_head(&packer->taker, source, told);
    if (status != WP_STATUS_ABSENT)
        return status;
    for (int32_t i = wp_ll_num_pairs(plan) + wp_lane_idx(warp); i < told.num; i += WP_WARP_SIZE)
        ((uint32_t *)told.words)[i] = (uint32_t)WP_LL_CHOSEN_NOT_HERE << 16 | WP_LL_CHOSEN_NOT_HERE;
    return WP_STATUS_OK;
}

/* Warp-wide. */
WP_FN enum wp_status wp_ll_take_choices(const struct wp_ll_packer *packer, int32_t source)
{
    const struct wp_ll_run *run = packer->taker.run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    if (wp_ll_has_masks(&ll->masks))
        return wp_ll_take_choices_if_there(packer, source);
    int64_t *waited_ns = wp_lane_idx(warp) == 0 ? wp_ll_waited_ns(run, source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = packer->taker.number; /* which they carry */
    const enum wp_status status = wp_tagged_take_relaxed(
        warp, wp_ll_head(ll, ll->exchange.rank, packer->taker.number, source),
        wp_ll_told_counts(packer, source), wp_ll_num_chosen_words(&ll->plan), &site);
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    return status;
}

/* By all warps of a block, which meet afterwards. */
WP_FN enum wp_status wp_ll_hear_choices(const struct wp_ll_packer *packer)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const int32_t num_ranks = packer->taker.args->ll.exchange.num_ranks;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t source = wp_ll_first_heard(warp); source < num_ranks && status == WP_STATUS_OK;
         source += wp_num_warps(warp))
        status = wp_ll_take_choices(packer, source);
    return status;
}

/* By all warps that have met: those of the first block that have heard a source tell the caller of experts. */
WP_FN void wp_ll_tell_experts(const struct wp_ll_packer *packer)
{
    const struct wp_ll_taker *taker = &packer->taker;
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks, num_warps = wp_num_warps(warp);
    const int32_t num_heard = num_ranks < num_warps ? num_ranks : num_warps;
    if (wp_block_idx(warp) != 0 || wp_ll_first_heard(warp) >= num_heard)
        return;
    for (int32_t expert = wp_ll_first_heard(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
         expert < ll->num_local_experts; expert += num_heard * WP_WARP_SIZE) {
        int32_t first = 0;
        for (int32_t rank = 0; rank < num_ranks; rank++) {
            const int32_t num_rows =
                (int32_t)wp_ll_pair_count(wp_ll_told_counts(packer, rank), expert);
            wp_ll_tell_expert(taker, expert, rank, first, num_rows);
            first += num_rows;
        }
        wp_ll_tell_expert_total(taker, expert, first);
    }
}

/* ------------------------------------------------------------------ where rows are packed */

/* The packed row of a source's choice. */
WP_FN int32_t wp_ll_packed_choice(const struct wp_ll_packer *packer, int32_t source, int32_t choice)
{
    const uint32_t chosen = wp_ll_told_chosen(packer, source, choice);
    const int is_here = chosen != WP_LL_CHOSEN_NOT_HERE;
    const int32_t expert = is_here ? (int32_t)(chosen & ((1 << WP_LL_CHOSEN_EXPERT_BITS) - 1)) : 0;
    uint32_t position = chosen >> WP_LL_CHOSEN_EXPERT_BITS;
    for (int32_t before = 0; before < source; before++)
        position += wp_ll_pair_count(wp_ll_told_counts(packer, before), expert);
    return is_here ? wp_ll_packed_at(&packer->taker.args->ll.plan, expert, (int32_t)position)
                   : WP_LL_NOT_HERE;
}

/* Where it has the unit's part, from that's first byte on. */
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

/* Of a source's token: whether it has a choice here, and so many places, as the warp's pointers. */
struct wp_ll_places {
    int is_here;
    int32_t num;
};

/* Of a source's token, what combine needs of its choices. */
WP_FN struct wp_ll_packed_choice *wp_ll_kept_choices(const struct wp_ll_packer *packer,
                                                     struct wp_ll_unit unit)
{
    return wp_ll_packed_choices(&packer->taker.args->ll, packer->taker.number, unit.rank,
                                unit.token);
}

/* By all lanes, each with choice k of the unit's token, if there is such a one: adds where the unit's part is packed. */
WP_FN void wp_ll_add_places(const struct wp_ll_packer *packer, struct wp_ll_unit unit, int32_t k,
                            struct wp_ll_places *places)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &packer->taker.args->ll.plan;
    const int is_choice = k < plan->num_topk;
    const int32_t found =
        wp_ll_packed_choice(packer, unit.rank, unit.token * plan->num_topk + (is_choice ? k : 0));
    const int32_t packed = is_choice ? found : WP_LL_NOT_HERE;
    places->is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
    const int32_t place = wp_ll_list(warp, &places->num, packed >= 0);
    if (wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_CHOICES && is_choice)
        wp_ll_kept_choices(packer, unit)[k].packed = packed;
    else if (packed >= 0)
        wp_warp_pointers(warp)[place] = wp_ll_packed_part(packer, unit, packed);
}

/* Warp-wide: where the unit's part is packed; combine finds out, too, by the warp that has the choices. */
WP_FN struct wp_ll_places wp_ll_find_places(const struct wp_ll_packer *packer,
                                            struct wp_ll_unit unit)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const int32_t num_topk = packer->taker.args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    struct wp_ll_places places = {0, 0};
    wp_warp_sync(warp); /* the pointers before have been used, and what is in memory of the warp */
    wp_ll_add_places(packer, unit, lane, &places);
    for (int32_t i = WP_WARP_SIZE; !wp_ll_topk_fits_lanes() && i < num_topk; i += WP_WARP_SIZE)
        wp_ll_add_places(packer, unit, i + lane, &places);
    wp_warp_sync(warp);
    return places;
}

/* The unit's scales, to so many places. */
WP_FN void wp_ll_pack_scale_words(const struct wp_ll_packer *packer, struct wp_ll_unit unit,
                                  int32_t num_places, const uint32_t *words)
{
    struct wp_warp *warp = packer->taker.run->op.warp;
    const struct wp_ll_scales *to = &packer->taker.args->scales;
    const int32_t first = wp_ll_first_scale(&packer->taker.args->ll.plan, unit.part);
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < WP_LL_UNIT_SCALE_WORDS && first + i < to->num_words;
         i += WP_WARP_SIZE)
        for (int32_t j = 0; j < num_places; j++)
            ((uint32_t *)(uintptr_t)dsts[j])[(first + i) * to->word_stride] = words[i];
}

/* What combine and the caller need of a source's token, whose places are known to combine. */
WP_FN void wp_ll_keep_choices(const struct wp_ll_packer *packer, struct wp_ll_unit unit,
                              const float *weights)
{
    const struct wp_low_latency_dispatch_args *args = packer->taker.args;
    struct wp_ll_packed_choice *kept = wp_ll_kept_choices(packer, unit);
    for (int32_t k = wp_lane_idx(packer->taker.run->op.warp); k < args->ll.plan.num_topk;
         k += WP_WARP_SIZE) {
        kept[k].weight = weights[k];
        if (kept[k].packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[kept[k].packed] = unit.token;
    }
}
