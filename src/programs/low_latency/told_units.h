/* SPDX-License-Identifier: MIT */
/* What the warps of told_low_latency_dispatch have of rows: parts that they send, and parts that they receive. */
#pragma once

#include "programs/low_latency/told.h"
#include "programs/low_latency/told_pack.h"

/* ------------------------------------------------------------------ parts that are sent */

/* Warps that tell, too, have done so first. */
WP_FN struct wp_ll_turns wp_ll_turns_to_send_parts(struct wp_warp *warp,
                                                   const struct wp_low_latency *ll)
{
    const int32_t num_told =
        ll->num_receivers > 0 ? 0 : wp_ll_num_told_units(&ll->plan, ll->exchange.num_ranks);
    struct wp_ll_turns turns = wp_ll_turns_to_send(warp, ll);
    while (turns.first < num_told)
        turns.first += turns.step;
    turns.first -= num_told;
    return turns;
}

/* Part i of those that a rank sends, of its tokens. */
struct wp_ll_sent_unit {
    int32_t token;
    int32_t part;
};

WP_FN struct wp_ll_sent_unit wp_ll_sent_unit_of(const struct wp_ll_plan *plan, int32_t i)
{
    const int32_t token = (int32_t)wp_divide((uint32_t)i, plan->row_parts.units_reciprocal);
    const struct wp_ll_sent_unit unit = {token, i - token * plan->row_parts.num};
    return unit;
}

/* What is on its way for it. */
struct wp_ll_unit_loads {
    int64_t expert; /* of the lane's choice of the token */
    struct wp_packet_row row;
};

/* Of unit i, if there is such a one. */
WP_FN struct wp_ll_unit_loads
wp_ll_load_unit(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args, int32_t i)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_sent_unit unit = wp_ll_sent_unit_of(plan, i);
    const int32_t lane = wp_lane_idx(warp);
    struct wp_ll_unit_loads loads = {-1, wp_packets_load(warp, NULL, 0)};
    if (i >= args->num_tokens * plan->row_parts.num)
        return loads;
    if (lane < plan->num_topk)
        loads.expert = wp_ll_load_choice(args, unit.token * plan->num_topk + lane);
    loads.row = wp_packets_load(warp, wp_ll_part_of_token(args, unit.token, unit.part),
                                wp_ll_token_part_bytes(plan, unit.part));
    return loads;
}

/* Warp-wide: whether the lanes' ranks have a choice of the token: a bit for each. */
WP_FN uint32_t wp_ll_find_ranks(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args, int32_t token,
                                int64_t expert)
{
    const struct wp_low_latency *ll = &args->ll;
    uint32_t of_lane = 0;
    for (int32_t first = 0; first < ll->plan.num_topk; first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        if (first > 0)
            expert =
                k < ll->plan.num_topk ? wp_ll_load_choice(args, token * ll->plan.num_topk + k) : -1;
        const struct wp_place_of_expert place =
            wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
        of_lane |= place.rank < 0 ? 0 : 1u << place.rank;
    }
    return wp_or_u32(warp, of_lane);
}

/* ------------------------------------------------------------------ parts that are received */

/* Unit i of what a rank receives. */
WP_FN struct wp_ll_unit wp_ll_taken_unit_of(const struct wp_low_latency *ll, int32_t i)
{
    return wp_ll_counted_unit_of(ll, ll->plan.taken_parts, i);
}

WP_FN struct wp_ll_slot_bytes wp_ll_unit_bytes(const struct wp_ll_plan *plan, int32_t part)
{
    return wp_ll_element_bytes(plan, wp_ll_part_elements(plan, plan->taken_parts, part));
}

/* Whose warp has what a row has besides elements: it takes scales, and keeps what is told of choices. That is the last part's,
 * but by expert with scales none of theirs: these take as long as a part there (docs/measurements.md). */
WP_FN int wp_ll_has_rest(const struct wp_ll_plan *plan, int32_t part)
{
    return part == plan->taken_parts.num_units - 1;
}

/* Of the scales of elements before a part's first one. */
WP_FN uint64_t wp_ll_part_scales_bytes(const struct wp_ll_plan *plan, int32_t first)
{
    return (uint64_t)(first / plan->quantisation.group_elements) * sizeof(float);
}
