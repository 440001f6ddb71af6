/* SPDX-License-Identifier: MIT */
/*
 * Rows that come in packets and are packed by expert: heads of sources, as each block hears them. A head tells how many choices
 * each expert here has, in pairs, so whoever has heard all of them knows where any part of a row goes before that is there. With
 * masks (low_latency/packet_masks.h) blocks must use the same heads.
 */
#pragma once

#include "programs/low_latency/pack.h"
#include "programs/low_latency/packet_mail.h"

struct wp_ll_hearer {
    struct wp_ll_taker taker; /* without bases */
    uint32_t *heads;          /* in memory of the block: [num_ranks][num_words] */
    int32_t num_words;
};

WP_FN struct wp_ll_hearer wp_ll_hearer_of(struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          uint64_t number, int32_t num_words)
{
    char *memory = (char *)wp_block_shared(run->op.warp) + WP_BLOCK_WORDS_BYTES;
    const struct wp_ll_hearer hearer = {
        {run, args, NULL, number}, (uint32_t *)(void *)memory, num_words};
    return hearer;
}

WP_FN uint32_t *wp_ll_head_of(const struct wp_ll_hearer *hearer, int32_t source)
{
    return hearer->heads + (ptrdiff_t)source * hearer->num_words;
}

/* ------------------------------------------------------------------ hearing them */

/* Warp-wide: the source's tagged row. */
WP_FN enum wp_status wp_ll_take_packet_head(const struct wp_ll_hearer *hearer, int32_t source,
                                            const struct wp_wait_site *site)
{
    const struct wp_low_latency *ll = &hearer->taker.args->ll;
    const char *head = wp_ll_head(ll, ll->exchange.rank, hearer->taker.number, source);
    return wp_tagged_take_relaxed(hearer->taker.run->op.warp, head, wp_ll_head_of(hearer, source),
                                  hearer->num_words, site);
}

/* Warp-wide, with masks: waits for it, unless the source is left out. */
WP_FN enum wp_status wp_ll_await_packet_head(const struct wp_ll_hearer *hearer, int32_t source,
                                             const struct wp_wait_site *site)
{
    struct wp_ll_run *run = hearer->taker.run;
    struct wp_ll_packet_wait wait;
    enum wp_status status = WP_STATUS_ABSENT;
    wp_ll_begin_packet_wait(&wait, hearer->taker.number);
    while (!wp_ll_leaves_out(run, source)) {
        status = wp_ll_take_packet_head(hearer, source, site);
        wait.progress.missing = 1u << source;
        if (!wp_ll_waits_again(run, &wait, status))
            break;
        wp_warp_sync(run->op.warp); /* parts of it may have been taken */
    }
    return status;
}

/* Warp-wide, with masks, when that has been awaited: the same for all blocks. */
WP_FN enum wp_status wp_ll_settle_packet_head(const struct wp_ll_hearer *hearer, int32_t source,
                                              enum wp_status status, struct wp_wait_site site)
{
    struct wp_ll_run *run = hearer->taker.run;
    const struct wp_ll_head_words to = {wp_ll_head_of(hearer, source), hearer->num_words,
                                        wp_ll_num_pairs(&run->ll->plan)};
    const int counts = wp_ll_agree_on_head(&hearer->taker, source, status, to);
    site.absent_after_ms = 0; /* what counts is there */
    if (counts && status == WP_STATUS_ABSENT)
        return wp_ll_take_packet_head(hearer, source, &site);
    if (!counts)
        wp_ll_leave_out(run, 1u << source);
    return WP_STATUS_OK;
}

/* Warp-wide. That of a source that is left out tells of no choices. */
WP_FN enum wp_status wp_ll_hear_head(const struct wp_ll_hearer *hearer, int32_t source)
{
    const struct wp_ll_run *run = hearer->taker.run;
    const int has_masks = wp_ll_has_masks(&run->ll->masks);
    int64_t *waited_ns = wp_lane_idx(run->op.warp) == 0 ? wp_ll_waited_ns(run, source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = hearer->taker.number; /* which it carries */
    const enum wp_status status = has_masks ? wp_ll_await_packet_head(hearer, source, &site)
                                            : wp_ll_take_packet_head(hearer, source, &site);
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    return has_masks && status != WP_STATUS_FAILED
               ? wp_ll_settle_packet_head(hearer, source, status, site)
               : status;
}

/* By expert the first source that the warp hears, of every so many: the last warps do, which have least to do besides. */
WP_FN int32_t wp_ll_first_heard(struct wp_warp *warp)
{
    return wp_num_warps(warp) - 1 - wp_warp_idx(warp);
}

/* By all warps of a block, which meet afterwards. */
WP_FN enum wp_status wp_ll_hear_heads(const struct wp_ll_hearer *hearer)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_ranks = hearer->taker.args->ll.exchange.num_ranks;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t source = wp_ll_first_heard(warp); source < num_ranks && status == WP_STATUS_OK;
         source += wp_num_warps(warp))
        status = wp_ll_hear_head(hearer, source);
    return status;
}

/* ------------------------------------------------------------------ what they tell */

/* The source to blame that an expert lacks room. */
WP_FN int32_t wp_ll_heard_exceeding(const struct wp_ll_hearer *hearer, int32_t expert)
{
    int32_t source = 0;
    while (!wp_ll_exceeds_share(&hearer->taker,
                                (int32_t)wp_ll_pair_count(wp_ll_head_of(hearer, source), expert)))
        source++;
    return source;
}

/* By a lane of the first block: tells the caller of an expert. */
WP_FN void wp_ll_tell_heard_expert(const struct wp_ll_hearer *hearer, int32_t expert)
{
    const struct wp_ll_taker *taker = &hearer->taker;
    int32_t first = 0;
    for (int32_t rank = 0; rank < taker->args->ll.exchange.num_ranks; rank++) {
        const int32_t num_rows = (int32_t)wp_ll_pair_count(wp_ll_head_of(hearer, rank), expert);
        wp_ll_tell_expert(taker, expert, rank, first, num_rows);
        first += num_rows;
    }
    wp_ll_tell_expert_total(taker, expert, first);
    if (wp_ll_lacks_room(taker, first))
        wp_ll_fail_for_room(taker, expert, wp_ll_heard_exceeding(hearer, expert), first);
}

/* The packed row of a source's choice that is the expert's, of those in their order. */
WP_FN int32_t wp_ll_packed_choice_at(const struct wp_ll_hearer *hearer, int32_t source,
                                     int32_t expert, uint32_t order)
{
    uint32_t position = order;
    for (int32_t before = 0; before < source; before++)
        position += wp_ll_pair_count(wp_ll_head_of(hearer, before), expert);
    return wp_ll_packed_at(&hearer->taker.args->ll.plan, expert, (int32_t)position);
}

/* ------------------------------------------------------------------ scales */

enum { WP_LL_UNIT_SCALE_WORDS = WP_LL_PART_BYTES / sizeof(uint32_t) /* at most */ };

/* Words of a row's scales, from `first` on, to so many places. */
WP_FN void wp_ll_pack_scale_words(const struct wp_ll_hearer *hearer, int32_t first,
                                  int32_t num_places, const uint32_t *words)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_scales *to = &hearer->taker.args->scales;
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < WP_LL_UNIT_SCALE_WORDS && first + i < to->num_words;
         i += WP_WARP_SIZE)
        for (int32_t j = 0; j < num_places; j++)
            ((uint32_t *)(uintptr_t)dsts[j])[(first + i) * to->word_stride] = words[i];
}
