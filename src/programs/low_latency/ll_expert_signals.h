/* SPDX-License-Identifier: MIT */
/*
 * Words that tell of each expert, while dispatch goes on, that all its rows are packed.
 *
 * Each expert has a counter. A warp that has packed a part of a row adds 1 to it. The first block,
 * which knows from the heads how many rows come, subtracts the parts of all of them. So the counter
 * is zero again after the last of these additions, and only then: whoever adds last raises the
 * expert's word. Each addition releases what its warp has packed and acquires what the others have.
 *
 * Rows of a rank that goes missing may be counted and never come, and a launch may fail. So the
 * block that ends last raises the words that are left. Nobody waits for a word in vain.
 */
#pragma once

#include "programs/low_latency/ll_launch.h"
#include "programs/low_latency/ll_protocol.h"

/* Variants define this macro (low_latency/variant.c). */
#ifndef WP_LL_HAS_EXPERT_SIGNALS
#define WP_LL_HAS_EXPERT_SIGNALS(args) ((args)->expert_signals != NULL)
#endif

WP_FN int wp_ll_has_expert_signals(const struct wp_low_latency_dispatch_args *args)
{
    (void)args;
    return WP_LL_HAS_EXPERT_SIGNALS(args);
}

/* A word of a launch that has failed. */
#define WP_LL_EXPERT_FAILED UINT64_MAX

/* One lane calls this: so many parts of an expert's rows have been packed, or, negative, come. The
 * addition pairs with those of other warps, that to the word with whoever waits for the word. */
WP_FN void wp_ll_count_parts(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                             int32_t expert, uint32_t num_parts)
{
    const struct wp_low_latency *ll = &args->ll;
    if (wp_add_acq_rel(&ll->parts_left[expert], num_parts) + num_parts == 0)
        (void)wp_fetch_add(warp, ll->exchange.rank, &args->expert_signals[expert], 1);
}

/* All warps of a launch that receives call this last. Launches before may have failed, too. */
WP_FN void wp_ll_end_expert_signals(struct wp_warp *warp,
                                    const struct wp_low_latency_dispatch_args *args)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t own = ll->exchange.rank;
    if (!wp_ll_has_expert_signals(args) || (args->phases & WP_LL_RECEIVE) == 0 ||
        !wp_is_last_block(warp, ll->num_blocks_told))
        return;
    const int has_failed = wp_load_relaxed(&ll->exchange.state->num_failures) != 0;
    for (int32_t expert = wp_ll_thread_idx(warp); expert < ll->num_local_experts;
         expert += wp_ll_num_threads(warp)) {
        const int is_left = ll->parts_left[expert] != 0;
        ll->parts_left[expert] = 0;
        if (has_failed)
            wp_signal(warp, own, &args->expert_signals[expert], WP_LL_EXPERT_FAILED);
        else if (is_left)
            (void)wp_fetch_add(warp, own, &args->expert_signals[expert], 1);
    }
}
