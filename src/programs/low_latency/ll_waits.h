/* SPDX-License-Identifier: MIT */
/* How a launch of low latency waits for other ranks, and with masks how long. */
#pragma once

#include "programs/low_latency/ll_launch.h"

/* ------------------------------------------------------------------ how long a wait lasts */

/*
 * A rank whose word does not come in time is masked: from then on it is neither sent to nor
 * awaited. Each rank masks for itself. Words and slots belong to a pair of ranks. So no third rank
 * is harmed when one rank masks another, or when a masked rank writes late.
 *
 * A rank that waits long is late for others, and must not be taken for missing. So it announces its
 * wait. A wait goes in periods; after each period in vain the rank raises its word WP_LL_WAITS on
 * all others. A rank is missing when it has been silent for a deadline: it has neither sent what is
 * awaited nor announced a wait. Ranks that wait in a circle, as after different calls, would excuse
 * each other for ever. So a wait has a most number of periods: as many for each rank as a first
 * word has. A rank that has stopped to begin anew (low_latency_unmask.c) sends nothing more of the
 * earlier epoch. So its announcement does not count for a rank that has not stopped.
 *
 * Within a launch the mask only grows. With signals, one warp of a block waits for all ranks, and
 * the whole block goes by what that warp has found. A rank that is masked meanwhile still gets what
 * the block sends; that harms nobody. In packets each warp goes by what it knows (ll_packets.h).
 */

/* The length of a wait, in periods; a deadline is WP_LL_PERIODS. */
enum { WP_LL_PERIODS_OF_FIRST = 12 };

struct wp_ll_patience {
    int32_t num_silent;  /* in a row, without a word of the awaited rank; */
    int32_t most_silent; /* then it is missing */
    int32_t num_left;    /* whatever it says */
    uint64_t heard; /* its word at the end of the last period: what it said before is no news */
};

#define WP_LL_RECEIVED_NOTHING UINT64_MAX /* at first */

/* Ranks make their first launches at different times. The awaited rank may itself wait for another
 * rank, as long as for a first word. */
WP_FN struct wp_ll_patience wp_ll_patience_about(uint64_t number, int32_t num_ranks)
{
    const struct wp_ll_patience patience = {0, number == 1 ? WP_LL_PERIODS_OF_FIRST : WP_LL_PERIODS,
                                            WP_LL_PERIODS_OF_FIRST * num_ranks,
                                            WP_LL_RECEIVED_NOTHING};
    return patience;
}

/* Blocks must use the same heads, since heads tell where rows are packed. The first block that has
 * a rank's head, or has given it up, decides for all. */
WP_FN int wp_ll_decide_presence(const struct wp_ll_masks *masks, int32_t rank, uint64_t number,
                                int is_there)
{
    const uint32_t which = (uint32_t)number << 1;
    const uint32_t own = which | (uint32_t)is_there;
    uint32_t before = (which - 2) | 1; /* mostly: it was there the last time */
    for (;;) {
        const uint32_t seen = (uint32_t)wp_compare_swap_relaxed(&masks->verdicts[rank],
                                                                (int32_t)before, (int32_t)own);
        if (seen == before)
            return is_there;
        if ((seen & ~1u) == which)
            return (int)(seen & 1u);
        before = seen;
    }
}

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

/* Warp-wide: announces this rank's wait to all ranks that `mask` does not mask. Two warps may
 * announce a wait at once, and the lower count may land last. Receivers only check that it
 * changed. */
WP_FN void wp_ll_send_waits(const struct wp_ll_run *run, const int32_t *mask)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    if (wp_lane_idx(warp) == 0) {
        const uint64_t count = wp_fetch_add(warp, own, wp_ll_waits_word(ll, own, own), 1) + 1;
        for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++)
            if (rank != own && !wp_ll_is_remote(ll, rank) && wp_load_relaxed(&mask[rank]) == 0)
                wp_credit(warp, rank, wp_ll_waits_word(ll, rank, own), count);
    }
    WP_LL_NODES(wp_ll_send_waits_remotely(warp, ll, mask), (void)0);
}

/* ------------------------------------------------------------------ how long it waits */

/* Where the launch adds how long it has waited for `rank`, or NULL: the caller does not want to
 * know. Only the first block adds, since a rank is late for all blocks. */
WP_FN int64_t *wp_ll_waited_ns(const struct wp_ll_run *run, int32_t rank)
{
    return run->ll->waited_ns != NULL && wp_block_idx(run->op.warp) == 0 ? run->ll->waited_ns + rank
                                                                         : NULL;
}

WP_FN void wp_ll_end_waiting(const struct wp_ll_run *run, int64_t *waited_ns, uint64_t begin_ns)
{
    if (waited_ns != NULL)
        *waited_ns += (int64_t)(wp_now_ns(run->op.warp) - begin_ns);
}

/* ------------------------------------------------------------------ waits */

/* The word by which this block of `rank` signals `number`. */
WP_FN struct wp_ll_awaited wp_ll_told_by(const struct wp_ll_run *run, enum wp_ll_words words,
                                         enum wp_ll_payload payload, int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = run->ll;
    const int32_t block = wp_block_idx(run->op.warp);
    struct wp_ll_awaited told = {NULL, 0};
    if (rank == WP_NO_RANK ||
        WP_LL_NODES(wp_ll_is_told_remotely(ll, words, payload, rank, block, number, &told), 0))
        return told;
    told.word = wp_ll_word(ll, ll->exchange.rank, words, payload, rank, block);
    told.at_least = number;
    return told;
}

/* A lane's wait for one word. */
struct wp_ll_wait {
    struct wp_ll_awaited told;
    struct wp_wait_site site;
    int64_t *waited_ns;
    uint64_t seen; /* what the word was when it came */
};

/* A missing rank is not an error. */
WP_FN enum wp_status wp_ll_unless_absent(enum wp_status status)
{
    return status == WP_STATUS_ABSENT ? WP_STATUS_OK : status;
}

WP_FN enum wp_status wp_ll_await_once(const struct wp_ll_run *run, struct wp_ll_wait *wait)
{
    const uint64_t begin_ns = wait->waited_ns == NULL ? 0 : wp_now_ns(run->op.warp);
    const enum wp_status status =
        wp_wait_value(run->op.warp, wait->told.word, wait->told.at_least, &wait->site, &wait->seen);
    wp_ll_end_waiting(run, wait->waited_ns, begin_ns);
    return status;
}

/* Any lane calls this after a period in vain. Returns 1 if it should wait for one more period. It
 * always waits for its own rank, whose other waits end. On GPUs a read may miss a change of a word
 * of the network; then the next change counts. An announcement does not count if this block of the
 * rank has stopped to begin anew in a later epoch. */
WP_FN int wp_ll_goes_on_waiting(const struct wp_ll_run *run, int32_t rank,
                                struct wp_ll_patience *patience)
{
    enum { LOOK_MS = 1 };
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    const uint64_t heard =
        wp_ll_is_remote(ll, rank)
            ? WP_LL_NODES(wp_ll_waits_told(run->op.warp, ll, rank), 0)
            : wp_fetch_add(run->op.warp, own, wp_ll_waits_word(ll, own, rank), 0);
    int is_news = patience->heard != WP_LL_RECEIVED_NOTHING && heard != patience->heard;
    if (is_news) {
        struct wp_ll_wait look = {
            wp_ll_told_by(run, WP_LL_RETURNED, WP_LL_STOPPED, rank, run->numbers.epoch + 1),
            wp_ll_site(run, WP_PHASE_START, rank), NULL, 0};
        look.site.absent_after_ms = LOOK_MS;
        is_news = wp_ll_await_once(run, &look) != WP_STATUS_OK;
    }
    patience->num_silent = is_news ? 0 : patience->num_silent + 1;
    patience->heard = heard;
    patience->num_left--;
    return rank == own || (patience->num_silent < patience->most_silent && patience->num_left > 0);
}

/* Warp-wide, after a wait of the whole warp for `rank`: returns 1 if the wait has ended after a
 * period in vain, and the warp must wait for one more. Then it announces the wait. */
WP_FN int wp_ll_warp_waits_on(const struct wp_ll_run *run, int32_t rank, enum wp_status found,
                              struct wp_ll_patience *patience)
{
    struct wp_warp *warp = run->op.warp;
    uint32_t goes_on = 0;
    if (!wp_ll_has_masks(&run->ll->masks) || found != WP_STATUS_ABSENT)
        return 0;
    wp_warp_sync(warp); /* parts of what is awaited may have been taken */
    if (wp_lane_idx(warp) == 0)
        goes_on =
            !wp_ll_is_masked(&run->ll->masks, rank) && wp_ll_goes_on_waiting(run, rank, patience);
    goes_on = wp_max_u32(warp, goes_on);
    if (goes_on)
        wp_ll_send_waits(run, run->ll->masks.mask);
    return (int)goes_on;
}

/* Warp-wide: each lane waits for its word. WP_STATUS_ABSENT: its rank is missing, or masked by
 * `mask`. The first period is outside of the loop: in it, one token by rank took 1.1 us longer on
 * 2 H200. */
WP_FN enum wp_status wp_ll_await_words(const struct wp_ll_run *run, const int32_t *mask,
                                       struct wp_ll_wait *wait, struct wp_ll_patience patience)
{
    int is_awaited = wait->told.word != NULL;
    enum wp_status found = is_awaited ? wp_ll_await_once(run, wait) : WP_STATUS_OK;
    while (wp_ll_has_masks(&run->ll->masks)) {
        is_awaited = is_awaited && found == WP_STATUS_ABSENT &&
                     wp_ll_goes_on_waiting(run, wait->site.rank, &patience) &&
                     wp_load_relaxed(&mask[wait->site.rank]) == 0;
        if (wp_ballot(run->op.warp, is_awaited) == 0)
            break;
        wp_ll_send_waits(run, mask);
        if (is_awaited)
            found = wp_ll_await_once(run, wait);
    }
    return found;
}

/* Warp-wide: each lane that has a rank waits until this block of the rank has told of `number`. It
 * masks the rank if that is missing. */
WP_FN enum wp_status wp_ll_await_told(const struct wp_ll_run *run, enum wp_ll_words words,
                                      enum wp_ll_payload payload, int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = run->ll;
    const enum wp_phase phase = words == WP_LL_CREDIT ? WP_PHASE_FINISH : WP_PHASE_DATA;
    const int is_counted = words != WP_LL_CREDIT && wp_ll_is_leader_warp(run->op.warp);
    struct wp_ll_wait wait = {wp_ll_told_by(run, words, payload, rank, number),
                              wp_ll_site(run, phase, rank),
                              is_counted ? wp_ll_waited_ns(run, rank) : NULL, 0};
    const int is_missing = rank != WP_NO_RANK && wp_ll_is_missing(run, rank);
    if (words == WP_LL_ARRIVED)
        wait.site.rank = WP_LL_NODES(wp_ll_word_sender(ll, payload, rank), rank);
    if (is_missing)
        wait.told.word = NULL;
    enum wp_status status = wp_ll_await_words(run, ll->masks.mask, &wait,
                                              wp_ll_patience_about(number, ll->exchange.num_ranks));
    while (status == WP_STATUS_OK &&
           WP_LL_NODES(wp_ll_says_more(ll, words, payload, rank, &wait.told), 0))
        status = wp_ll_await_once(run, &wait);
    if (is_missing)
        status = WP_STATUS_ABSENT; /* a masked rank stays masked, whoever else is awaited */
    if (status == WP_STATUS_ABSENT)
        wp_ll_mask_out(&ll->masks, rank);
    return status;
}

enum wp_ll_whom { WP_LL_ALL_RANKS, WP_LL_RANKS_OF_NODE };

/* Warp-wide: waits until this block of these ranks has told of `number`. Each lane acquires what
 * some ranks did; the lanes meet before they touch rows. Masked ranks count as missing and are not
 * awaited. */
WP_FN enum wp_status wp_ll_await_ranks(const struct wp_ll_run *run, enum wp_ll_whom whom,
                                       enum wp_ll_words words, enum wp_ll_payload payload,
                                       uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_exchange *exchange = &run->ll->exchange;
    enum wp_status status = WP_STATUS_OK;
    if (number == 0 && !wp_ll_has_masks(&run->ll->masks))
        return WP_STATUS_OK; /* nothing has been sent before */
    for (int32_t first = 0; first < exchange->num_ranks; first += WP_WARP_SIZE) {
        const int32_t i = first + wp_lane_idx(warp);
        int32_t rank = i < exchange->num_ranks && status == WP_STATUS_OK
                           ? wp_rank_after(exchange, i)
                           : WP_NO_RANK;
        if (whom == WP_LL_RANKS_OF_NODE && rank != WP_NO_RANK && wp_ll_is_remote(run->ll, rank))
            rank = WP_NO_RANK;
        const enum wp_status found = wp_ll_await_told(run, words, payload, rank, number);
        if (found == WP_STATUS_FAILED)
            status = found;
        else if (wp_ll_has_masks(&run->ll->masks) && rank != WP_NO_RANK)
            wp_ll_missing(run)[rank] = found == WP_STATUS_ABSENT;
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* All warps of the block call this. Each waits for all ranks itself. With masks the leader warp
 * waits for all warps, and finds who is missing. */
WP_FN enum wp_status wp_ll_await_block(const struct wp_ll_run *run, enum wp_ll_words words,
                                       enum wp_ll_payload payload, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_has_masks(&run->ll->masks))
        return wp_ll_await_ranks(run, WP_LL_ALL_RANKS, words, payload, number);
    if (wp_ll_is_leader_warp(warp))
        status = wp_ll_await_ranks(run, WP_LL_ALL_RANKS, words, payload, number);
    return wp_block_status(warp, status);
}
