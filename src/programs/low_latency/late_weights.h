/* SPDX-License-Identifier: MIT */
/*
 * Weights that come with combine, for callers who do not have them in dispatch. Whoever sums a token's rows needs its
 * weights, and they are its owner's: so, before anything else, each block of combine sends those of its tokens to the ranks
 * that have the rows. They are tagged rows in the slots of these, which tell by themselves that they have come, and each
 * warp waits for those of the row that it answers. They lie in the half of the answers' number, not in that of the result's,
 * since a result may be answered more than once: when a half's answers are sent again, those before have been received, so
 * that their weights have been read.
 */
#pragma once

#include "programs/low_latency/sums.h"

WP_FN int wp_ll_weighs_late(const struct wp_ll_plan *plan)
{
    return !WP_LL_HAS_NODES(plan) && plan->weights_come_late;
}

/* At `owner`: of the row of a source. */
WP_FN char *wp_ll_late_weights(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                               int32_t source, int32_t row)
{
    return wp_ll_row(ll, owner, number, source, row) + ll->plan.slot.late_weights_offset;
}

/* What is sent: this rank's weights for the answers `number` to the tokens of the block in `result`. */
struct wp_ll_weights_sender {
    const struct wp_ll_run *run;
    const float *weights; /* [num_tokens][num_topk], NULL: 1 */
    uint64_t number;
    uint64_t result;
};

/* Those of a token, to the rank that answers choice k, if one does. */
WP_FN void wp_ll_send_token_weights(const struct wp_ll_weights_sender *sender, int32_t token,
                                    int32_t k)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = sender->run->ll;
    const int32_t num_topk = ll->plan.num_topk;
    /* All loads are under way together. */
    const int32_t rank = wp_ll_answering(ll, sender->result, token)[k];
    const int32_t row = wp_ll_answer_slots(ll, sender->result, token)[k];
    float *here = wp_ll_weights(warp);
    wp_warp_sync(warp); /* those before have been sent */
    for (int32_t i = wp_lane_idx(warp); i < num_topk; i += WP_WARP_SIZE)
        here[i] = sender->weights == NULL ? 1.0f : sender->weights[(int64_t)token * num_topk + i];
    wp_warp_sync(warp);
    if (rank >= 0)
        wp_tagged_send(warp, rank,
                       wp_ll_late_weights(ll, rank, sender->number, ll->exchange.rank, row), here,
                       num_topk, sender->number);
}

/* By all warps of the block. */
WP_FN void wp_ll_send_weights(const struct wp_ll_weights_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_tokens tokens = wp_ll_half_of(sender->run, sender->result).tokens;
    int32_t k = wp_warp_idx(warp);
    for (int32_t token = tokens.begin; token < tokens.end; token++) {
        for (; k < sender->run->ll->plan.num_topk; k += wp_num_warps(warp))
            wp_ll_send_token_weights(sender, token, k);
        k -= sender->run->ll->plan.num_topk;
    }
}

/* Warp-wide, before a row is answered: waits for its weights, and copies them to wp_ll_weights, where they are after a sync. */
WP_FN enum wp_status wp_ll_take_weights(const struct wp_ll_run *run, uint64_t number,
                                        int32_t source, int32_t row, int64_t *waited_ns)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = number; /* which the row carries */
    wp_warp_sync(warp);     /* those before have been used */
    const enum wp_status status =
        wp_tagged_take_relaxed(warp, wp_ll_late_weights(ll, ll->exchange.rank, number, source, row),
                               wp_ll_weights(warp), ll->plan.num_topk, &site);
    if (wp_lane_idx(warp) == 0)
        wp_ll_end_waiting(run, waited_ns, begin_ns);
    return status;
}
