/* SPDX-License-Identifier: MIT */
/*
 * What low latency is mostly used for: tokens and answers of bf16, one node; rows as they are, or as
 * FP8 with a float scale for 128 elements; by rank or by expert; sums as answers, of bf16 or as logarithms, or by expert the
 * rows; rows that are whole units of 16 bytes; 32 choices of a token at most; in dispatch of so few tokens and experts that
 * a block has room near it for what it counts, and in packets of few tokens experts without a table. Its programs are
 * compiled once more for each of these, without masks, and sums of bf16 with masks, and then have no code for anything else
 * (low_latency/hints.h). With code for all there are more values
 * than a GPU has registers, and what waits in memory meanwhile is far, since each acquire empties the
 * nearest cache; and warps jump over what is not theirs, each time to code that is in no cache. Measured on
 * an H200 with one rank, 128 tokens in BF16, in graphs: combine takes 16.3 us in the general form, 11.0 with
 * both layouts, 9.3 by rank alone. With one token almost all is such delay: a step by rank takes 16.9 us with
 * both layouts, 14.7 without the other.
 */
#pragma once

#include "programs/low_latency/near.h"

enum wp_ll_form { WP_LL_GENERAL, WP_LL_BF16, WP_LL_FP8 };

/* Whether low_latency/hints.h is true, if addresses are multiples of WP_ALIGNED_BYTES, and memory of a block has room for
 * what is kept in it. */
WP_FN int wp_ll_suits_hints(const struct wp_low_latency *ll)
{
    const uint64_t row_bytes = (uint64_t)ll->plan.hidden << ll->plan.element_bytes_log2;
    return row_bytes % WP_ALIGNED_BYTES == 0 && ll->plan.row_bytes % WP_ALIGNED_BYTES == 0 &&
           ll->plan.num_topk <= WP_LL_USUAL_TOPK;
}

WP_FN int wp_ll_is_usual(const struct wp_low_latency *ll)
{
    return ll->plan.dtype == WEFT_BF16 && !ll->plan.answers_stay && !ll->plan.has_nodes &&
           wp_ll_suits_hints(ll);
}

/* What is so, as constants. */
WP_FN void wp_ll_fix_usual(struct wp_low_latency *ll, const struct wp_low_latency *given)
{
    ll->areas = given->near_areas;
    ll->plan.dtype = WEFT_BF16;
    ll->plan.element_bytes_log2 = 1;
    ll->plan.answers_stay = 0;
}

enum wp_ll_faults { WP_LL_FAILS, WP_LL_MASKS };

WP_FN enum wp_ll_faults wp_ll_faults_of(const struct wp_low_latency *ll)
{
    return wp_ll_has_masks(&ll->masks) ? WP_LL_MASKS : WP_LL_FAILS;
}

enum wp_ll_layout { WP_LL_BY_RANK, WP_LL_BY_EXPERT };

WP_FN enum wp_ll_layout wp_ll_layout_of(const struct wp_low_latency *ll)
{
    return ll->plan.is_by_expert ? WP_LL_BY_EXPERT : WP_LL_BY_RANK;
}

/* ------------------------------------------------------------------ rows, of dispatch */

WP_FN struct wp_quantisation wp_ll_usual_quantisation(enum wp_ll_form form)
{
    const struct wp_quantisation none = {WEFT_BF16, WEFT_BF16, WP_SCALE_FP32, 1, 0};
    const struct wp_quantisation fp8 = {WEFT_BF16, WEFT_FP8_E4M3, WP_SCALE_FP32, 128, 0};
    return form == WP_LL_FP8 ? fp8 : none;
}

WP_FN int wp_ll_has_quantisation(const struct wp_ll_plan *plan, struct wp_quantisation usual)
{
    const struct wp_quantisation *own = &plan->quantisation;
    return own->src_dtype == usual.src_dtype && own->dst_dtype == usual.dst_dtype &&
           own->scale == usual.scale && own->group_elements == usual.group_elements &&
           own->scale_stride_bytes == usual.scale_stride_bytes;
}

/* What dispatch needs besides, however rows are quantised. */
WP_FN int wp_ll_rows_are_usual(const struct wp_low_latency *ll)
{
    if (!wp_ll_is_usual(ll))
        return 0;
    if (wp_ll_is_told(&ll->plan))
        return 1;
    return wp_ll_has_packets(&ll->plan) ? ll->placement.is_even : wp_ll_is_near(ll->near.end);
}

WP_FN enum wp_ll_form wp_ll_form_of(const struct wp_low_latency *ll)
{
    if (!wp_ll_rows_are_usual(ll))
        return WP_LL_GENERAL;
    if (wp_ll_has_quantisation(&ll->plan, wp_ll_usual_quantisation(WP_LL_BF16)))
        return WP_LL_BF16;
    return wp_ll_has_quantisation(&ll->plan, wp_ll_usual_quantisation(WP_LL_FP8)) ? WP_LL_FP8
                                                                                  : WP_LL_GENERAL;
}

WP_FN void wp_ll_fix_rows(struct wp_low_latency *ll, const struct wp_low_latency *given,
                          enum wp_ll_form form, enum wp_ll_layout layout)
{
    wp_ll_fix_usual(ll, given);
    ll->plan.is_by_expert = layout == WP_LL_BY_EXPERT;
    ll->plan.sent_element_bytes_log2 = form == WP_LL_FP8 ? 0 : 1;
    ll->plan.quantisation = wp_ll_usual_quantisation(form);
}

/* Of rows that go in packets: as many groups as have scales for one, or as many elements as a part has room for. */
WP_FN void wp_ll_fix_row_parts(struct wp_ll_plan *plan, enum wp_ll_form form)
{
    const int32_t num_groups = WP_LL_PART_SCALES_BYTES / (int32_t)sizeof(float);
    plan->row_parts.elements =
        form == WP_LL_FP8 ? num_groups * plan->quantisation.group_elements : WP_LL_PART_BYTES / 2;
}

/* Of many rows, which are sent as a lane can have them on their way. */
WP_FN void wp_ll_fix_told_parts(struct wp_ll_plan *plan)
{
    plan->row_parts.elements = WP_LL_TOLD_PART_ELEMENTS;
}

/* ------------------------------------------------------------------ answers, of combine */

enum wp_ll_answers {
    WP_LL_ANY_ANSWERS,
    WP_LL_SUMS_BY_RANK,
    WP_LL_SUMS_BY_EXPERT,
    WP_LL_SUMS_WEIGHED_LATE, /* by expert, too */
    WP_LL_ROWS_BY_EXPERT,
    WP_LL_LOGS_BY_RANK, /* sums as logarithms */
    WP_LL_LOGS_BY_EXPERT
};

/* It does not matter how rows have come. */
WP_FN enum wp_ll_answers wp_ll_answers_of(const struct wp_low_latency *ll)
{
    const int are_logs = wp_ll_answers_are_logs(&ll->plan);
    if (!wp_ll_is_near(ll->near.counters)) /* whom it goes on without */
        return WP_LL_ANY_ANSWERS;
    if (!wp_ll_is_usual(ll) || (ll->plan.answer_dtype != WEFT_BF16 && !are_logs))
        return WP_LL_ANY_ANSWERS;
    if (are_logs && (ll->plan.answers_are_rows || ll->plan.weights_come_late))
        return WP_LL_ANY_ANSWERS;
    if (are_logs)
        return ll->plan.is_by_expert ? WP_LL_LOGS_BY_EXPERT : WP_LL_LOGS_BY_RANK;
    if (ll->plan.answers_are_rows)
        return WP_LL_ROWS_BY_EXPERT;
    if (ll->plan.weights_come_late)
        return WP_LL_SUMS_WEIGHED_LATE;
    return ll->plan.is_by_expert ? WP_LL_SUMS_BY_EXPERT : WP_LL_SUMS_BY_RANK;
}

WP_FN void wp_ll_fix_answers(struct wp_low_latency *ll, const struct wp_low_latency *given,
                             enum wp_ll_answers answers)
{
    const int are_logs = answers == WP_LL_LOGS_BY_RANK || answers == WP_LL_LOGS_BY_EXPERT;
    wp_ll_fix_usual(ll, given);
    ll->plan.is_by_expert = answers != WP_LL_SUMS_BY_RANK && answers != WP_LL_LOGS_BY_RANK;
    ll->plan.weights_come_late = answers == WP_LL_SUMS_WEIGHED_LATE;
    ll->plan.answer_dtype = are_logs ? WEFT_LOG_10BIT : WEFT_BF16;
    ll->plan.answers_are_rows = answers == WP_LL_ROWS_BY_EXPERT;
}

WP_FN void wp_ll_fix_answer_parts(struct wp_ll_plan *plan)
{
    plan->answer_parts.elements = WP_LL_PART_BYTES / 2;
    plan->sum_parts.elements = WP_LL_PART_BYTES / 2;
    plan->taken_parts.num = 0;
}

WP_FN void wp_ll_fix_told_answer_parts(struct wp_ll_plan *plan)
{
    plan->taken_parts.num = 1; /* or more */
    plan->answer_parts.elements = WP_LL_TOLD_PART_ELEMENTS;
    plan->sum_parts.elements =
        wp_ll_answers_are_logs(plan) ? (int32_t)WP_LOG_BLOCK_ELEMENTS : WP_LL_PART_BYTES / 2;
}
