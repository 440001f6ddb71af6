/* SPDX-License-Identifier: MIT */
/* How launches of low latency wait for other ranks. low_latency.h says what the words mean that they wait for,
 * low_latency/masks.h how long. */
#pragma once

#include "programs/low_latency/run.h"

/* ------------------------------------------------------------------ whoever waits says so */

/* Where the launch waits for `rank`. */
WP_FN struct wp_wait_site wp_ll_site(const struct wp_ll_run *run, enum wp_phase phase, int32_t rank)
{
    struct wp_wait_site site = wp_operation_site(&run->op, phase, rank);
    site.absent_after_ms = wp_ll_period_ms(&run->ll->masks);
    return site;
}

/* One word for all blocks: while one of them waits, the rank does not go on to its next launch. */
WP_FN uint64_t *wp_ll_waits_word(const struct wp_low_latency *ll, int32_t owner, int32_t rank)
{
    return wp_ll_word(ll, owner, WP_LL_WAITS, WP_LL_ROWS, rank, 0);
}

/* By one lane: tells the ranks of this node that `mask` does not mask that this one waits. Of tells at the same time
 * the lower number may come last: what counts is that it changes. */
WP_FN void wp_ll_tell_node_waits(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    const uint64_t count = wp_fetch_add(warp, own, wp_ll_waits_word(ll, own, own), 1) + 1;
    for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++) {
        if (rank != own && !wp_ll_is_remote(ll, rank) && wp_load_relaxed(&mask[rank]) == 0)
            wp_credit(warp, rank, wp_ll_waits_word(ll, rank, own), count);
    }
}

/* Warp-wide: tells all ranks that `mask` does not mask. */
WP_FN void wp_ll_tell_waits(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    if (wp_lane_idx(warp) == 0)
        wp_ll_tell_node_waits(run, mask);
    (void)ll; /* some programs know without it that there is one node */
    for (int32_t i = 0; WP_LL_HAS_NODES(&ll->plan) && i < ll->network.num_remote; i++) {
        const int32_t rank = ll->network.ranks[i];
        const struct wp_ll_put told = {
            rank, 0, 0, 0, wp_ll_network_waits(ll, ll->exchange.rank), 1, WP_ACCESS_AT_ONCE};
        if (wp_ballot(warp, wp_load_relaxed(&mask[rank]) != 0) == 0)
            wp_ll_post(warp, ll, &told);
    }
}

/* ------------------------------------------------------------------ how long it waits */

/* Where it is told how long the launch has waited for what `rank` sends; NULL: nobody wants to know. Of blocks the
 * first one tells: what keeps a rank keeps it for all. */
WP_FN int64_t *wp_ll_waited_ns(const struct wp_ll_run *run, int32_t rank)
{
    return run->ll->waited_ns != NULL && wp_block_idx(run->op.warp) == 0 ? run->ll->waited_ns + rank
                                                                         : NULL;
}

WP_FN uint64_t wp_ll_begin_waiting(const struct wp_ll_run *run, const int64_t *waited_ns)
{
    return waited_ns != NULL ? wp_now_ns(run->op.warp) : 0;
}

WP_FN void wp_ll_end_waiting(const struct wp_ll_run *run, int64_t *waited_ns, uint64_t begin_ns)
{
    if (waited_ns != NULL)
        *waited_ns += (int64_t)(wp_now_ns(run->op.warp) - begin_ns);
}

/* ------------------------------------------------------------------ waits */

/* How the word of this rank stands when this block of `rank` has told of `number`. */
WP_FN struct wp_ll_told wp_ll_told_by(const struct wp_ll_run *run, enum wp_ll_words words,
                                      enum wp_ll_mail mail, int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = run->ll;
    const int32_t block = wp_block_idx(run->op.warp);
    struct wp_ll_told told = {NULL, 0};
    if (rank == WP_NO_RANK)
        return told;
    if (WP_LL_HAS_NODES(&ll->plan) && !wp_ll_is_told_by(ll, words, mail, rank))
        return told;
    if (wp_ll_is_remote(ll, rank) && (words == WP_LL_ROOM || wp_ll_is_put(ll, mail, rank)))
        return wp_ll_told_remotely(ll, words, mail, rank, block, number);
    told.word = wp_ll_word(ll, ll->exchange.rank, words, mail, rank, block);
    told.at_least = number;
    return told;
}

/* What a lane waits for. */
struct wp_ll_wait {
    struct wp_ll_told told; /* no word: nothing */
    struct wp_wait_site site;
    int64_t *waited_ns;
    int is_missing; /* its rank, as the block knows by now */
    uint64_t seen;  /* what the word was when it came */
};

WP_FN enum wp_status wp_ll_await_once(const struct wp_ll_run *run, struct wp_ll_wait *wait)
{
    const uint64_t begin_ns = wp_ll_begin_waiting(run, wait->waited_ns);
    const enum wp_status status =
        wp_wait_value(run->op.warp, wait->told.word, wait->told.at_least, &wait->site, &wait->seen);
    wp_ll_end_waiting(run, wait->waited_ns, begin_ns);
    return status;
}

/* By any lane: whether this block of `rank` has stopped, to begin anew in an epoch after this one's. */
WP_FN int wp_ll_has_begun_anew(const struct wp_ll_run *run, int32_t rank)
{
    enum { LOOK_MS = 1 };
    struct wp_ll_wait look = {
        wp_ll_told_by(run, WP_LL_RETURNED, WP_LL_STOPPED, rank, run->numbers.epoch + 1),
        wp_ll_site(run, WP_PHASE_START, rank), NULL, 0, 0};
    look.site.absent_after_ms = LOOK_MS;
    return wp_ll_await_once(run, &look) == WP_STATUS_OK;
}

/* By any lane, after a period in vain: whether to wait for another one. This rank itself may wait elsewhere before it sends, and
 * that ends. On GPUs a change of a word of the network may be missed as it is read: then the next one counts. */
WP_FN int wp_ll_goes_on_waiting(const struct wp_ll_run *run, int32_t rank,
                                struct wp_ll_patience *patience)
{
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    uint64_t *word = wp_ll_is_remote(ll, rank) ? wp_ll_own_word(ll, wp_ll_network_waits(ll, rank))
                                               : wp_ll_waits_word(ll, own, rank);
    const uint64_t heard = wp_fetch_add(run->op.warp, own, word, 0);
    const int is_news = patience->heard != WP_LL_HEARD_NOTHING && heard != patience->heard &&
                        !wp_ll_has_begun_anew(run, rank);
    patience->num_silent = is_news ? 0 : patience->num_silent + 1;
    patience->heard = heard;
    patience->num_left--;
    return rank == own || (patience->num_silent < patience->most_silent && patience->num_left > 0);
}

/* Warp-wide, with masks, when each lane has waited for its word for a period, and has found this: goes on. */
WP_FN enum wp_status wp_ll_await_words_on(const struct wp_ll_run *run, const int32_t *mask,
                                          struct wp_ll_wait *wait, struct wp_ll_patience patience,
                                          enum wp_status found)
{
    int is_awaited = wait->told.word != NULL && !wait->is_missing;
    for (;;) {
        is_awaited = is_awaited && found == WP_STATUS_ABSENT &&
                     wp_ll_goes_on_waiting(run, wait->site.rank, &patience) &&
                     wp_load_relaxed(&mask[wait->site.rank]) == 0;
        if (wp_ballot(run->op.warp, is_awaited) == 0)
            return found;
        wp_ll_tell_waits(run, mask);
        if (is_awaited)
            found = wp_ll_await_once(run, wait);
    }
}

/* Warp-wide: each lane waits for its word. WP_STATUS_ABSENT: its rank is missing, or masked by `mask`. */
WP_FN enum wp_status wp_ll_await_words(const struct wp_ll_run *run, const int32_t *mask,
                                       struct wp_ll_wait *wait, struct wp_ll_patience patience)
{
    const int has_word = wait->told.word != NULL;
    enum wp_status found = has_word ? WP_STATUS_ABSENT : WP_STATUS_OK;
    if (!wp_ll_has_masks(&run->ll->masks))
        return has_word ? wp_ll_await_once(run, wait) : found;
    if (has_word && !wait->is_missing)
        found = wp_ll_await_once(run, wait);
    return wp_ll_await_words_on(run, mask, wait, patience, found);
}

/* Warp-wide: each lane waits until this block of its rank, if it has one, has told of `number`, and masks the rank if
 * it is missing. */
WP_FN enum wp_status wp_ll_await_told(const struct wp_ll_run *run, enum wp_ll_words words,
                                      enum wp_ll_mail mail, int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = run->ll;
    const enum wp_phase phase = words == WP_LL_ROOM ? WP_PHASE_FINISH : WP_PHASE_DATA;
    const int is_counted = words != WP_LL_ROOM && wp_ll_speaks(run->op.warp);
    struct wp_ll_wait wait = {wp_ll_told_by(run, words, mail, rank, number),
                              wp_ll_site(run, phase, rank),
                              is_counted ? wp_ll_waited_ns(run, rank) : NULL, 0, 0};
    if (rank != WP_NO_RANK && words == WP_LL_ARRIVED)
        wait.site.rank = wp_ll_teller(ll, mail, rank);
    wait.is_missing = rank != WP_NO_RANK && wp_ll_is_missing(run, wait.site.rank);
    enum wp_status status = wp_ll_await_words(run, ll->masks.mask, &wait,
                                              wp_ll_patience_about(number, ll->exchange.num_ranks));
    /* What a word is added says what has come with it; nothing more is added before there is room. */
    while (wait.told.word != NULL && wp_ll_is_put(ll, mail, rank) && status == WP_STATUS_OK &&
           wp_ll_says_more(&wait.told, words))
        status = wp_ll_await_once(run, &wait);
    if (wait.told.word == NULL && rank != WP_NO_RANK && wp_ll_is_missing(run, rank))
        status = WP_STATUS_ABSENT; /* who is masked stays so, whoever else is awaited */
    if (status == WP_STATUS_ABSENT)
        wp_ll_mask_out(&ll->masks, rank);
    return status;
}

/* Warp-wide: waits until this block of all ranks has told of `number`. Each lane has acquired
 * what some ranks did: the lanes meet before they touch rows, anyway. Masked ranks, and those that become
 * so, are not awaited, but missing. */
WP_FN enum wp_status wp_ll_await_all(const struct wp_ll_run *run, enum wp_ll_words words,
                                     enum wp_ll_mail mail, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_exchange *exchange = &run->ll->exchange;
    enum wp_status status = WP_STATUS_OK;
    if (number == 0 && !wp_ll_has_masks(&run->ll->masks))
        return WP_STATUS_OK; /* nothing has been sent before */
    for (int32_t first = 0; first < exchange->num_ranks; first += WP_WARP_SIZE) {
        const int32_t i = first + wp_lane_idx(warp);
        const int32_t rank = i < exchange->num_ranks && status == WP_STATUS_OK
                                 ? wp_rank_after(exchange, i)
                                 : WP_NO_RANK;
        const enum wp_status found = wp_ll_await_told(run, words, mail, rank, number);
        if (found == WP_STATUS_FAILED)
            status = found;
        else if (wp_ll_has_masks(&run->ll->masks) && rank != WP_NO_RANK)
            wp_ll_missing(run)[rank] = found == WP_STATUS_ABSENT;
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* By all warps of the block: the same, each warp for itself. With masks the one that speaks finds out
 * for all who is missing. */
WP_FN enum wp_status wp_ll_await_block(const struct wp_ll_run *run, enum wp_ll_words words,
                                       enum wp_ll_mail mail, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_has_masks(&run->ll->masks))
        return wp_ll_await_all(run, words, mail, number);
    if (wp_ll_speaks(warp))
        status = wp_ll_await_all(run, words, mail, number);
    return wp_block_status(warp, status);
}
