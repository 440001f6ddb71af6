/* SPDX-License-Identifier: MIT */
/*
 * Ranks that low latency in packets goes on without (low_latency/masks.h). Each warp waits for packets itself, so each goes by
 * what it knows: who was masked when the launch began, and whom it has masked since. What has come of a rank by then is taken,
 * and no more: so of a row or an answer that comes in parts, one warp may have taken its part while another one waits in vain.
 */
#pragma once

#include "programs/low_latency/waits.h"

/* Warp-wide: leaves out those, too, whom other warps have masked by now. */
WP_FN void wp_ll_look_at_masks(struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    run->masked |= wp_ll_find_masked(warp, run->ll, wp_ll_load_masked(run->ll, wp_lane_idx(warp)));
}

/* Of some ranks. */
WP_FN uint32_t wp_ll_without_masked(const struct wp_ll_run *run, uint32_t ranks)
{
    return wp_ll_has_masks(&run->ll->masks) ? ranks & ~run->masked : ranks;
}

/* ------------------------------------------------------------------ what the caller is told */

/* What the caller is told must be so at the end, whoever finds out, and no warp waits for another one. So one warp of the first
 * block says as the launch begins that nobody is missing, and, when it has received, who is masked by then; and who masks a
 * rank says so behind that. Stores of one warp to a word are in order; so what is told last is that the rank is missing, unless
 * the first store, by then as old as the launch, had not reached memory when a rank is masked behind the last look.
 *
 * The warp that does so. */
WP_FN int wp_ll_tells_missing_ranks(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    return wp_ll_has_masks(&run->ll->masks) && run->missing_ranks != NULL &&
           wp_block_idx(warp) == 0 && wp_ll_speaks(warp);
}

/* By all warps, as a launch begins in which this is told. */
WP_FN void wp_ll_begin_missing(struct wp_ll_run *run, int32_t *missing_ranks)
{
    struct wp_warp *warp = run->op.warp;
    run->missing_ranks = missing_ranks;
    if (wp_ll_tells_missing_ranks(run))
        for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
             rank += WP_WARP_SIZE)
            wp_store_relaxed(&missing_ranks[rank], WP_LL_THERE);
}

/* By all warps, when they have received. */
WP_FN void wp_ll_end_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    if (wp_ll_tells_missing_ranks(run))
        for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks;
             rank += WP_WARP_SIZE)
            if (wp_ll_is_masked(&run->ll->masks, rank))
                wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
}

/* By a lane: masks the rank, and says so. */
WP_FN void wp_ll_miss(const struct wp_ll_run *run, int32_t rank)
{
    wp_ll_mask_out(&run->ll->masks, rank);
    if (run->missing_ranks != NULL)
        wp_store_relaxed(&run->missing_ranks[rank], WP_LL_MASKED);
}

/* Warp-wide: goes on without those ranks. */
WP_FN void wp_ll_leave_out(struct wp_ll_run *run, uint32_t ranks)
{
    const uint32_t new_ones = ranks & ~run->masked; /* of the others has been told */
    for (int32_t rank = wp_lane_idx(run->op.warp); rank < run->ll->exchange.num_ranks;
         rank += WP_WARP_SIZE)
        if (new_ones >> rank & 1u)
            wp_ll_miss(run, rank);
    run->masked |= new_ones;
}

/* ------------------------------------------------------------------ waits for packets */

/* In periods, of several ranks together. */
struct wp_ll_packet_wait {
    struct wp_packet_progress progress;
    uint64_t number;     /* of the rows, or answers */
    int32_t num_periods; /* in vain; then there is: */
    struct wp_ll_patience patience[WP_LL_NEAR_RANKS];
};

WP_FN void wp_ll_begin_packet_wait(struct wp_ll_packet_wait *wait, uint64_t number)
{
    const struct wp_packet_progress none = {0, 0};
    wait->progress = none;
    wait->number = number;
    wait->num_periods = 0;
}

/* Warp-wide, after a period in vain: tells the others that it waits, and goes on without those that are missing by now. It is
 * inlined: as a called function, with copies of what the warp knows, dispatch of one token on 2 H200 took 12 us in place of 5
 * (2026-11-28). */
WP_FN void wp_ll_pass_period(struct wp_ll_run *run, struct wp_ll_packet_wait *wait)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    uint32_t given_up = 0;
    wp_ll_tell_waits(run, ll->masks.mask); /* before it looks at each of many, which takes time */
    for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++) {
        int goes_on = 0;
        if (wait->num_periods == 0)
            wait->patience[rank] = wp_ll_patience_about(wait->number, ll->exchange.num_ranks);
        if (wp_ballot(warp, wait->progress.missing >> rank & 1u) == 0)
            continue;
        if (wp_lane_idx(warp) == 0)
            goes_on = wp_ll_goes_on_waiting(run, rank, &wait->patience[rank]) &&
                      !wp_ll_is_masked(&ll->masks, rank);
        if (wp_ballot(warp, goes_on) == 0)
            given_up |= 1u << rank;
    }
    wait->num_periods++;
    wait->progress.missing = 0;
    wp_ll_leave_out(run, given_up);
}

/* Warp-wide, when packets have been waited for, with a status that all lanes have: whether to wait again. Some of their ranks may
 * be left out from now on. */
WP_FN int wp_ll_waits_again(struct wp_ll_run *run, struct wp_ll_packet_wait *wait,
                            enum wp_status status)
{
    if (!wp_ll_has_masks(&run->ll->masks) || status != WP_STATUS_ABSENT ||
        wp_ballot(run->op.warp, wait->progress.missing != 0) == 0)
        return 0;
    wp_ll_pass_period(run, wait);
    return 1;
}

/* ------------------------------------------------------------------ waits for words */

/* Of a lane. It may want to know how long that took. */
struct wp_ll_word_wait {
    int32_t rank; /* WP_NO_RANK: nothing */
    const uint64_t *word;
    uint64_t at_least;
    enum wp_phase phase;
    int64_t *waited_ns;
};

WP_FN struct wp_ll_wait wp_ll_wait_of(const struct wp_ll_run *run, const struct wp_ll_word_wait *of)
{
    const int is_awaited = of->rank != WP_NO_RANK && !wp_ll_leaves_out(run, of->rank);
    const struct wp_ll_wait wait = {{is_awaited ? of->word : NULL, of->at_least},
                                    wp_ll_site(run, of->phase, of->rank),
                                    of->waited_ns,
                                    0,
                                    0};
    return wait;
}

/* What a lane has found. */
struct wp_ll_heard {
    enum wp_status status; /* of all lanes */
    uint64_t word;
};

/* Warp-wide, when each lane has waited for a period, and has found this: goes on; ranks that are missing are left out. */
WP_FN enum wp_status wp_ll_await_in_periods(struct wp_ll_run *run, struct wp_ll_wait *wait,
                                            uint64_t number, enum wp_status found)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    uint32_t given_up = 0;
    found = wp_ll_await_words_on(run, ll->masks.mask, wait,
                                 wp_ll_patience_about(number, ll->exchange.num_ranks), found);
    for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++)
        if (wp_ballot(warp, found == WP_STATUS_ABSENT && wait->site.rank == rank) != 0)
            given_up |= 1u << rank;
    wp_ll_leave_out(run, given_up);
    return wp_max_u32(warp, found == WP_STATUS_FAILED) ? WP_STATUS_FAILED : WP_STATUS_OK;
}

/* Warp-wide: each lane waits for a word of its rank, if it has one; those that are missing are left out. */
WP_FN struct wp_ll_heard wp_ll_await_words_of(struct wp_ll_run *run, struct wp_ll_word_wait of,
                                              uint64_t number)
{
    struct wp_ll_wait wait = wp_ll_wait_of(run, &of);
    struct wp_ll_heard heard = {WP_STATUS_OK, 0};
    const enum wp_status found =
        wait.told.word != NULL ? wp_ll_await_once(run, &wait) : WP_STATUS_OK;
    heard.status = (enum wp_status)wp_max_u32(run->op.warp, (uint32_t)found);
    if (heard.status == WP_STATUS_ABSENT)
        heard.status = wp_ll_await_in_periods(run, &wait, number, found);
    heard.word = wait.seen;
    return heard;
}
