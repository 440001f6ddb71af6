/* SPDX-License-Identifier: MIT */
/* By expert, with masks: heads of sources in packets (low_latency/packet_masks.h). Blocks must use the same ones. */
#pragma once

#include "programs/low_latency/pack.h"
#include "programs/low_latency/packet_mail.h"

/* Warp-wide: waits for a source's head, unless the source is left out. */
WP_FN enum wp_status wp_ll_await_packet_head(const struct wp_ll_taker *taker, int32_t source,
                                             struct wp_ll_head_words to,
                                             const struct wp_wait_site *site)
{
    struct wp_ll_run *run = taker->run;
    const struct wp_low_latency *ll = &taker->args->ll;
    const char *head = wp_ll_head(ll, ll->exchange.rank, taker->number, source);
    struct wp_ll_packet_wait wait;
    enum wp_status status = WP_STATUS_ABSENT;
    wp_ll_begin_packet_wait(&wait, taker->number);
    while (!wp_ll_leaves_out(run, source)) {
        status = wp_tagged_take_relaxed(run->op.warp, head, to.words, to.num, site);
        wait.progress.missing = 1u << source;
        if (!wp_ll_waits_again(run, &wait, status))
            break;
        wp_warp_sync(run->op.warp); /* parts of it may have been taken */
    }
    return status;
}

/* Warp-wide: the words of a source's head. WP_STATUS_ABSENT: they are zeros, since the launch goes on without the source. */
WP_FN enum wp_status wp_ll_take_packet_head(const struct wp_ll_taker *taker, int32_t source,
                                            struct wp_ll_head_words to)
{
    struct wp_ll_run *run = taker->run;
    const struct wp_low_latency *ll = &taker->args->ll;
    int64_t *waited_ns = wp_lane_idx(run->op.warp) == 0 ? wp_ll_waited_ns(run, source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = taker->number; /* which the head carries */
    const enum wp_status status = wp_ll_await_packet_head(taker, source, to, &site);
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    if (status == WP_STATUS_FAILED)
        return status;
    if (!wp_ll_agree_on_head(taker, source, status, to)) {
        wp_ll_leave_out(run, 1u << source);
        wp_warp_sync(run->op.warp); /* they are zeros now */
        return WP_STATUS_ABSENT;
    }
    site.absent_after_ms = 0; /* what counts is there */
    return status == WP_STATUS_OK
               ? status
               : wp_tagged_take_relaxed(run->op.warp,
                                        wp_ll_head(ll, ll->exchange.rank, taker->number, source),
                                        to.words, to.num, &site);
}
