/* SPDX-License-Identifier: MIT */
/* What a block of low latency has in its memory, where that has room for it. */
#pragma once

#include "programs/low_latency/area.h"

/* ------------------------------------------------------------------ with signals */

/* What a block counts: for each rank rows, twice, and selections of its experts; with nodes also
 * answers, twice, and for each node the rows that are relayed there. */
WP_FN int32_t wp_ll_num_counters(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    const int32_t num_experts = plan->is_by_expert ? plan->max_local_experts : 0;
    const int32_t num_of_nodes = WP_LL_HAS_NODES(plan) ? 2 : 0;
    return num_ranks * (2 + num_experts + num_of_nodes) +
           (WP_LL_HAS_NODES(plan) ? plan->message.num_nodes : 0);
}

/* Of a bit for each rank. */
WP_FN int32_t wp_ll_rank_words(int32_t num_ranks)
{
    return (num_ranks + 31) / 32;
}

WP_FN struct wp_ll_near wp_ll_near_of(const struct wp_ll_plan *plan,
                                      const struct wp_ll_masks *masks, int32_t num_ranks)
{
    const uint64_t missing_bytes =
        wp_ll_has_masks(masks) ? (uint64_t)num_ranks * sizeof(int32_t) : 0;
    const uint64_t counters_bytes = (uint64_t)wp_ll_num_counters(plan, num_ranks) * sizeof(int32_t);
    struct wp_ll_near near;
    near.counters = (uint32_t)wp_ll_align(missing_bytes);
    near.choices = near.counters + (uint32_t)wp_ll_align(counters_bytes);
    near.ranks_of_tokens = near.choices + (uint32_t)plan->block_tokens * (uint32_t)plan->num_topk *
                                              (uint32_t)sizeof(struct wp_ll_choice);
    near.end = near.ranks_of_tokens + (uint32_t)plan->max_tokens *
                                          (uint32_t)wp_ll_rank_words(num_ranks) *
                                          (uint32_t)sizeof(int32_t);
    return near;
}

/* Whether memory of a block has room for so much behind the words of wp_block_max. Some programs know that it has
 * (low_latency/hints.h). */
#ifndef WP_LL_IS_NEAR
#define WP_LL_IS_NEAR 0
#endif
WP_FN int wp_ll_is_near(uint64_t end)
{
    return WP_LL_IS_NEAR || WP_BLOCK_WORDS_BYTES + end <= WP_BLOCK_SHARED_BYTES;
}

/* ------------------------------------------------------------------ with packets */

/* If ranks are told, counts of all sources there, by expert, and behind them places of choices (low_latency/told.h). */
WP_FN uint64_t wp_ll_told_counts_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return (uint64_t)num_ranks * (uint64_t)wp_ll_num_pairs(plan) * sizeof(uint32_t);
}
