/* SPDX-License-Identifier: MIT */
/* What the warps of packet_low_latency_dispatch have of rows: of each source's token, or of each of its rows, a part; what is
 * loaded for that first; and how a part that is sent is made. */
#pragma once

#include "programs/low_latency/packet_pack.h"
#include "programs/low_latency/packet_routes.h"

/* Of a launch. */
WP_FN int32_t wp_ll_num_units_of(const struct wp_low_latency *ll)
{
    return wp_ll_num_row_units(&ll->plan, ll->exchange.num_ranks);
}

/* Units are dealt out to the blocks first, so that those of few tokens have many SMs. */
WP_FN int32_t wp_ll_first_unit(struct wp_warp *warp)
{
    return wp_block_idx(warp) + wp_warp_idx(warp) * wp_num_blocks(warp);
}

WP_FN int32_t wp_ll_unit_step(struct wp_warp *warp)
{
    return wp_num_blocks(warp) * wp_num_warps(warp);
}

/* By expert some warps have none. */
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

WP_FN struct wp_ll_slot_bytes wp_ll_unit_bytes(const struct wp_ll_plan *plan, int32_t part)
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

/* What is on its way for a unit. */
struct wp_ll_unit_loads {
    int32_t taken;  /* what the unit's rank has taken (wp_ll_note_heard_taken) */
    int64_t expert; /* of the lane's choice of the token, */
    float weight;   /* and its weight */
    struct wp_packet_row row;
};

WP_FN struct wp_ll_unit_loads wp_ll_load_unit(struct wp_warp *warp,
                                              const struct wp_low_latency_dispatch_args *args,
                                              struct wp_ll_unit unit)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t k = wp_lane_idx(warp), choice = unit.token * plan->num_topk + k;
    const enum wp_ll_unit_kind kind = wp_ll_kind_of(plan, unit.part);
    struct wp_ll_unit_loads loads = {wp_load_relaxed(&args->ll.rows_taken[unit.rank]), -1, 1.0f,
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

/* In memory of the warp: where it makes what it sends of choices. */
WP_FN char *wp_ll_part_memory(struct wp_warp *warp)
{
    return (char *)wp_warp_shared(warp);
}

/* The token, the slot of its answer, and which of the rank's experts it is for. */
WP_FN struct wp_packet_row wp_ll_make_choices(struct wp_warp *warp,
                                              const struct wp_low_latency_dispatch_args *args,
                                              struct wp_ll_unit unit,
                                              const struct wp_ll_unit_loads *loads)
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
                           wp_ll_unit_bytes(&ll->plan, unit.part).num);
}
