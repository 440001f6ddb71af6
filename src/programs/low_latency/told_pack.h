/* SPDX-License-Identifier: MIT */
/*
 * What sources tell (low_latency/told.h), as it is heard, and where parts of rows go by it. By expert whoever has heard how
 * many choices of all sources each expert here has, and what is told of a token, knows where the token's row is packed before
 * that is there.
 */
#pragma once

#include "programs/low_latency/packet_heads.h"

/* ------------------------------------------------------------------ what sources tell */

/* By all warps of a block that have met: tells the caller of experts. */
WP_FN void wp_ll_tell_experts(const struct wp_ll_hearer *hearer)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_experts = hearer->taker.args->ll.num_local_experts;
    const int32_t num_threads = wp_ll_num_threads(warp);
    /* Whose last warps have heard: these are awake. */
    for (int32_t expert = num_threads - 1 - wp_ll_thread_idx(warp); expert < num_experts;
         expert += num_threads)
        wp_ll_tell_heard_expert(hearer, expert);
}

/* In memory of the warp: what a source tells of a token. */
WP_FN uint32_t *wp_ll_told_memory(struct wp_warp *warp)
{
    return (uint32_t *)wp_warp_shared(warp);
}

/* Warp-wide: takes so many words of it. WP_STATUS_ABSENT: the source is missing. */
WP_FN enum wp_status wp_ll_hear_token(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                      int32_t num_words)
{
    const struct wp_low_latency *ll = &hearer->taker.args->ll;
    const uint64_t number = hearer->taker.number;
    const char *told = wp_ll_told(ll, ll->exchange.rank, number, unit.rank, unit.token);
    struct wp_ll_run *run = hearer->taker.run;
    struct wp_warp *warp = run->op.warp;
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, unit.rank);
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    site.sequence = number; /* which it carries */
    wp_ll_begin_packet_wait(&wait, number);
    do {
        wp_warp_sync(warp); /* what was there has been read */
        status = wp_tagged_take_relaxed(warp, told, wp_ll_told_memory(warp), num_words, &site);
        wp_warp_sync(warp);
        wait.progress.missing = 1u << unit.rank;
    } while (wp_ll_waits_again(run, &wait, status) && !wp_ll_leaves_out(run, unit.rank));
    return status;
}

/* ------------------------------------------------------------------ where rows are packed */

/* The packed row of a source's choice. */
WP_FN int32_t wp_ll_packed_choice(const struct wp_ll_hearer *hearer, int32_t source,
                                  uint32_t choice)
{
    return choice == WP_LL_TOLD_NOT_HERE
               ? WP_LL_NOT_HERE
               : wp_ll_packed_choice_at(hearer, source, (int32_t)(choice & UINT16_MAX),
                                        choice >> 16);
}

/* What of a row. */
enum wp_ll_packed_what { WP_LL_ELEMENTS, WP_LL_SCALES };

/* Where it has the unit's elements, or the row's scales. */
WP_FN char *wp_ll_packed_to(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                            int32_t packed, enum wp_ll_packed_what what)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t first = wp_ll_part_elements(plan, plan->taken_parts, unit.part).first;
    return what == WP_LL_SCALES ? wp_ll_packed_scales(&hearer->taker, packed)
                                : args->rows + (uint64_t)(uint32_t)packed * plan->row_bytes +
                                      ((uint64_t)first << plan->sent_element_bytes_log2);
}

/* Warp-wide, when the token's choices have been heard: where the unit is packed, as the warp's pointers. Returns how many
 * places there are. */
WP_FN int32_t wp_ll_find_packed_places(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                       enum wp_ll_packed_what what)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_topk = hearer->taker.args->ll.plan.num_topk;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    int32_t num = 0; /* those before had been used when the token was heard of */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int32_t packed =
            k < num_topk ? wp_ll_packed_choice(hearer, unit.rank, choices[k]) : WP_LL_NOT_HERE;
        const int32_t place = wp_ll_list(warp, &num, packed >= 0);
        if (packed >= 0)
            wp_warp_pointers(warp)[place] = wp_ll_packed_to(hearer, unit, packed, what);
    }
    wp_warp_sync(warp);
    return num;
}

/* ------------------------------------------------------------------ what is kept of choices */

/* Of choice k, as it has been told. */
WP_FN float wp_ll_told_weight(struct wp_warp *warp, const struct wp_ll_plan *plan, int32_t k)
{
    float weight;
    memcpy(&weight, wp_ll_told_memory(warp) + 1 + plan->num_topk + k, sizeof weight);
    return weight;
}

/* By expert: what combine and the caller need of a source's token. */
WP_FN void wp_ll_keep_packed(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    struct wp_ll_packed_choice *kept =
        wp_ll_packed_choices(&args->ll, hearer->taker.number, unit.rank, unit.token);
    for (int32_t k = wp_lane_idx(warp); k < args->ll.plan.num_topk; k += WP_WARP_SIZE) {
        const struct wp_ll_packed_choice choice = {
            wp_ll_packed_choice(hearer, unit.rank, choices[k]),
            wp_ll_told_weight(warp, &args->ll.plan, k)};
        kept[k] = choice;
        if (choice.packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[choice.packed] = unit.token;
    }
}

/* By rank: what is in the row's slot behind elements and scales. */
WP_FN void wp_ll_keep_in_slot(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit, char *slot)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &hearer->taker.args->ll.plan;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    int32_t *experts = (int32_t *)(void *)(slot + plan->slot.experts_offset);
    float *weights = (float *)(void *)(slot + plan->slot.weights_offset);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        experts[k] = (int32_t)choices[k];
        weights[k] = wp_ll_told_weight(warp, plan, k);
    }
    if (wp_lane_idx(warp) == 0) {
        *(int32_t *)(void *)(slot + plan->slot.token_offset) = unit.token;
        *(int32_t *)(void *)(slot + plan->slot.answer_offset) = unit.token;
    }
}
