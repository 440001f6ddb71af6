/* SPDX-License-Identifier: MIT */
/*
 * The constants of the variants of low latency's programs, and the choice of a variant for a case.
 * Variants are for the usual cases: one node; tokens and answers of BF16; rows as they are, or as
 * FP8 with a scale for 128 elements; rows of whole units of 16 bytes; at most 32 top-k entries of a
 * token. Scales are floats, or, by expert and without masks, of any kind. Dispatch by signals has
 * so few tokens and experts that its counters fit in the memory of a block. Dispatch of few tokens
 * in packets has experts without a table.
 *
 * A variant has no code for other cases (low_latency/variants.def, low_latency/variant.c). Code for
 * all cases has more values than a GPU has registers. The others wait in memory, which is slow,
 * since each acquire empties the nearest cache. Warps also jump over code of other cases, each time
 * to code that is in no cache. Measured on an H200 with one rank, 128 tokens in BF16, in graphs:
 * combine takes 16.3 us in the general program, 11.0 us in a variant with both layouts, 9.3 us in
 * one by rank alone. With one token almost all time is such delay: a step by rank takes 16.9 us
 * with both layouts, 14.7 us without the other one.
 */
#pragma once

#include "programs/low_latency/ll_layout.h"

/* ------------------------------------------------------------------ differences of variants */

enum wp_ll_protocol {
    WP_LL_PROTOCOL_SIGNALS,
    WP_LL_PROTOCOL_PACKETS,
    WP_LL_PROTOCOL_TOLD,
    WP_LL_PROTOCOL_NODES,
    WP_LL_PROTOCOL_RELAYED
};
enum wp_ll_form {
    WP_LL_GENERAL,
    WP_LL_BF16,
    WP_LL_FP8,
    WP_LL_FP8_POWER, /* scales are powers of two */
    WP_LL_FP8_UE8M0  /* scales are exponents */
};
enum wp_ll_layout { WP_LL_BY_RANK, WP_LL_BY_EXPERT, WP_LL_ANY_LAYOUT };
enum wp_ll_sends { WP_LL_SENDS_ROWS, WP_LL_SENDS_SUMS, WP_LL_SENDS_LATE, WP_LL_SENDS_ANY };
enum wp_ll_faults { WP_LL_FAILS, WP_LL_MASKS, WP_LL_ANY_FAULTS };

/* Columns of low_latency/variants.def. */
struct wp_ll_variant {
    enum wp_ll_protocol protocol;
    enum wp_ll_form form;
    enum wp_ll_layout layout;
    enum wp_ll_sends sends;
    enum wp_ll_faults faults;
};

#define WP_LL_VARIANT_OF(protocol, format, layout, sends, faults)                                  \
    {                                                                                              \
        WP_LL_PROTOCOL_##protocol, WP_LL_##format, WP_LL_##layout, WP_LL_SENDS_##sends,            \
            WP_LL_##faults                                                                         \
    }

WP_FN enum wp_ll_protocol wp_ll_protocol_of(const struct wp_ll_plan *plan)
{
    if (!wp_ll_has_packets(plan))
        return WP_LL_PROTOCOL_SIGNALS;
    return plan->is_told ? WP_LL_PROTOCOL_TOLD : WP_LL_PROTOCOL_PACKETS;
}

WP_FN enum wp_ll_layout wp_ll_layout_of(const struct wp_ll_plan *plan)
{
    return plan->is_by_expert ? WP_LL_BY_EXPERT : WP_LL_BY_RANK;
}

WP_FN enum wp_ll_faults wp_ll_faults_of(const struct wp_ll_masks *masks)
{
    return wp_ll_has_masks(masks) ? WP_LL_MASKS : WP_LL_FAILS;
}

/* ------------------------------------------------------------------ constants of all variants */

/* 1: low_latency/variant.c is true, provided that addresses are multiples of WP_ALIGNED_BYTES and
 * the memory of a block has room for the values that are kept there. */
WP_FN int wp_ll_is_usual(const struct wp_low_latency *ll)
{
    const struct wp_ll_plan *plan = &ll->plan;
    const uint64_t row_bytes = (uint64_t)plan->hidden << plan->element_bytes_log2;
    return plan->dtype == WEFT_BF16 && !plan->answers_stay && !plan->has_nodes &&
           row_bytes % WP_ALIGNED_BYTES == 0 && plan->row_bytes % WP_ALIGNED_BYTES == 0 &&
           plan->num_topk <= WP_LL_USUAL_TOPK;
}

/* Sets the usual values, as constants. */
WP_FN void wp_ll_fix_usual(struct wp_low_latency *ll, const struct wp_low_latency *given)
{
    ll->areas = given->near_areas;
    ll->num_receiver_warps = 0;
    ll->plan.dtype = WEFT_BF16;
    ll->plan.element_bytes_log2 = 1;
    ll->plan.answers_stay = 0;
}

/* ------------------------------------------------------------------ rows, of dispatch */

WP_FN struct wp_quantisation wp_ll_usual_quantisation(enum wp_ll_form form)
{
    const struct wp_quantisation none = {WEFT_BF16, WEFT_BF16, WP_SCALE_FP32, 1, 0};
    struct wp_quantisation fp8 = {WEFT_BF16, WEFT_FP8_E4M3, WP_SCALE_FP32, 128, 0};
    if (form == WP_LL_BF16)
        return none;
    if (form == WP_LL_FP8_POWER)
        fp8.scale = WP_SCALE_FP32_POWER_OF_TWO;
    if (form == WP_LL_FP8_UE8M0)
        fp8.scale = WP_SCALE_UE8M0;
    return fp8;
}

WP_FN int wp_ll_has_quantisation(const struct wp_ll_plan *plan, struct wp_quantisation usual)
{
    const struct wp_quantisation *own = &plan->quantisation;
    return own->src_dtype == usual.src_dtype && own->dst_dtype == usual.dst_dtype &&
           own->scale == usual.scale && own->group_elements == usual.group_elements &&
           own->scale_stride_bytes == usual.scale_stride_bytes;
}

WP_FN enum wp_ll_form wp_ll_form_of(const struct wp_low_latency *ll)
{
    const int has_all_scales = ll->plan.is_by_expert && !wp_ll_has_masks(&ll->masks);
    const enum wp_ll_form last = has_all_scales ? WP_LL_FP8_UE8M0 : WP_LL_FP8;
    const int is_near =
        wp_ll_has_packets(&ll->plan) ? ll->placement.is_even : wp_ll_is_near(ll->near.end);
    if (!wp_ll_is_usual(ll) || !(ll->plan.is_told || is_near))
        return WP_LL_GENERAL;
    for (int form = WP_LL_BF16; form <= (int)last; form++)
        if (wp_ll_has_quantisation(&ll->plan, wp_ll_usual_quantisation((enum wp_ll_form)form)))
            return (enum wp_ll_form)form;
    return WP_LL_GENERAL;
}

/* A part of a row in packets has, of few tokens, as many groups as it has scales for, or as many
 * elements as fit; of many tokens, as many as a lane can have on their way. */
WP_FN void wp_ll_fix_dispatch(struct wp_low_latency *ll, const struct wp_low_latency *given,
                              struct wp_ll_variant variant)
{
    const int32_t num_groups = WP_LL_PART_SCALES_BYTES / (int32_t)sizeof(float);
    struct wp_ll_plan *plan = &ll->plan;
    wp_ll_fix_usual(ll, given);
    plan->is_by_expert = variant.layout == WP_LL_BY_EXPERT;
    plan->is_told = variant.protocol == WP_LL_PROTOCOL_TOLD;
    plan->sent_element_bytes_log2 = variant.form == WP_LL_BF16 ? 1 : 0;
    plan->quantisation = wp_ll_usual_quantisation(variant.form);
    if (plan->is_told)
        plan->row_parts.elements = WP_LL_TOLD_PART_ELEMENTS;
    if (variant.protocol == WP_LL_PROTOCOL_PACKETS && variant.layout == WP_LL_BY_EXPERT)
        ll->num_receiver_warps = given->num_receiver_warps;
    if (variant.protocol != WP_LL_PROTOCOL_PACKETS)
        return;
    ll->num_receivers = 0;
    plan->row_parts.elements = variant.form == WP_LL_BF16
                                   ? WP_LL_PART_BYTES / 2
                                   : num_groups * plan->quantisation.group_elements;
    plan->taken_parts = plan->row_parts;
}

/* ------------------------------------------------------------------ answers, of combine */

/* The form of the rows that came does not matter. */
WP_FN enum wp_ll_form wp_ll_answer_form_of(const struct wp_low_latency *ll)
{
    if (!wp_ll_is_near(ll->near.counters) || !wp_ll_is_usual(ll)) /* counters: masked ranks */
        return WP_LL_GENERAL;
    return ll->plan.answer_dtype == WEFT_BF16 ? WP_LL_BF16 : WP_LL_GENERAL;
}

WP_FN enum wp_ll_sends wp_ll_sends_of(const struct wp_ll_plan *plan)
{
    if (plan->answers_are_rows)
        return WP_LL_SENDS_ROWS;
    return plan->weights_come_late ? WP_LL_SENDS_LATE : WP_LL_SENDS_SUMS;
}

WP_FN void wp_ll_fix_combine(struct wp_low_latency *ll, const struct wp_low_latency *given,
                             struct wp_ll_variant variant)
{
    struct wp_ll_plan *plan = &ll->plan;
    wp_ll_fix_usual(ll, given);
    plan->is_by_expert = variant.layout == WP_LL_BY_EXPERT;
    plan->is_told = variant.protocol == WP_LL_PROTOCOL_TOLD;
    plan->weights_come_late = variant.sends == WP_LL_SENDS_LATE;
    plan->answer_dtype = WEFT_BF16;
    plan->answers_are_rows = variant.sends == WP_LL_SENDS_ROWS;
    if (variant.protocol == WP_LL_PROTOCOL_SIGNALS)
        return;
    plan->answer_parts.elements = plan->is_told ? WP_LL_TOLD_PART_ELEMENTS : WP_LL_PART_BYTES / 2;
    plan->sum_parts.elements = WP_LL_PART_BYTES / 2;
}
