/* SPDX-License-Identifier: MIT */
/* Rows that dispatch with signals has brought: how many there are, and where they are packed by
 * expert. */
#pragma once

#include "programs/low_latency/ll_expert_signals.h"
#include "programs/low_latency/ll_waits.h"

struct wp_ll_taker {
    struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    uint64_t number;
    /* By expert, of this block: the heads of sources, [num_ranks][num_head_words]. Their first
     * words have the number of the source's choices for each expert here. With signals an expert
     * has a word, which becomes the row at which the source begins; in packets two experts have
     * one. */
    uint32_t *heads;
    int32_t num_head_words, num_count_words;
    int counts_are_pairs;
};

WP_FN uint32_t *wp_ll_head_of(const struct wp_ll_taker *taker, int32_t source)
{
    return taker->heads + (ptrdiff_t)source * taker->num_head_words;
}

/* One warp of a block that has received from all sources calls this. It writes the number of rows
 * of each source: the range of the last block has the source's last rows. A masked rank's rows
 * count as none. */
WP_FN void wp_ll_send_num_rows(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t last = ll->plan.num_blocks - 1;
    const struct wp_ll_range none = {0, 0};
    for (int32_t i = wp_lane_idx(warp);
         i < ll->exchange.num_ranks && taker->args->num_rows_per_rank != NULL; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        const struct wp_ll_range range =
            wp_ll_is_masked(&ll->masks, rank) ? none : wp_ll_range(ll, taker->number, rank, last);
        taker->args->num_rows_per_rank[rank] = range.first + range.num_rows;
    }
}

/* Warp-wide: receives the head of any rank, or waits for a period in vain. */
WP_FN enum wp_status wp_ll_take_head_once(const struct wp_ll_taker *taker,
                                          const struct wp_wait_site *site)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const char *head = wp_ll_head(ll, ll->exchange.rank, taker->number, site->rank);
    uint32_t *words = wp_ll_head_of(taker, site->rank);
    struct wp_wait_site brought = *site;
    if (WP_LL_NODES(wp_ll_is_put(ll, WP_LL_ROWS, site->rank), 0))
        return WP_LL_NODES(wp_ll_take_remote_head(warp, ll, taker->number, (int32_t *)words, site),
                           WP_STATUS_OK);
    brought.rank = WP_LL_NODES(wp_ll_word_sender(ll, WP_LL_ROWS, site->rank), site->rank);
    return wp_tagged_take_relaxed(warp, head, words, taker->num_head_words, &brought);
}

/* Warp-wide: receives the head of a rank, unless that `is_missing`. With masks all blocks agree,
 * after the wait, whether the head counts, as the first of them has decided. WP_STATUS_ABSENT: it
 * does not, and its words say that no choice is for an expert here. */
WP_FN enum wp_status wp_ll_take_head(const struct wp_ll_taker *taker, int32_t rank, int is_missing)
{
    const struct wp_ll_run *run = taker->run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    int64_t *waited_ns = wp_lane_idx(warp) == 0 ? wp_ll_waited_ns(run, rank) : NULL;
    const uint64_t begin_ns = waited_ns == NULL ? 0 : wp_now_ns(run->op.warp);
    struct wp_ll_patience patience = wp_ll_patience_about(taker->number, ll->exchange.num_ranks);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, rank);
    enum wp_status status = WP_STATUS_ABSENT;
    site.sequence = taker->number; /* which the head carries */
    if (!is_missing)
        do
            status = wp_ll_take_head_once(taker, &site);
        while (wp_ll_warp_waits_on(run, rank, status, &patience));
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    if (!wp_ll_has_masks(&ll->masks) || status == WP_STATUS_FAILED)
        return status;
    uint32_t counts = 0;
    if (wp_lane_idx(warp) == 0)
        counts = (uint32_t)wp_ll_decide_presence(&ll->masks, rank, taker->number,
                                                 status == WP_STATUS_OK);
    counts = wp_max_u32(warp, counts);
    for (int32_t i = wp_lane_idx(warp); !counts && i < taker->num_head_words; i += WP_WARP_SIZE)
        wp_ll_head_of(taker, rank)[i] = i < taker->num_count_words ? 0 : WP_LL_CHOSEN_NONE;
    if (!counts)
        return WP_STATUS_ABSENT;
    site.absent_after_ms = 0; /* what counts is there */
    return status == WP_STATUS_ABSENT ? wp_ll_take_head_once(taker, &site) : status;
}

/* One lane calls this. It fails, which the host learns. What runs on the stream before that must
 * not read rows that are not there. So the caller gets the ranges of those that are. This operation
 * goes on to its end, since others wait for it. */
WP_FN void wp_ll_fail_for_room(const struct wp_ll_taker *taker, int32_t local_expert,
                               int32_t source, int32_t num_rows)
{
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_placement *at = &ll->placement;
    const int32_t capacity = ll->plan.capacity, num_ranks = ll->exchange.num_ranks;
    const int32_t entry = at->rank_entries[at->rank_offsets[ll->exchange.rank] + local_expert];
    uint32_t expert = 0; /* its number among all experts */
    while (at->expert_offsets[expert + 1] <= entry)
        expert++;
    for (int32_t rank = 0; rank < num_ranks && args->row_ranges != NULL; rank++) {
        int64_t *range = &args->row_ranges[(int64_t)local_expert * num_ranks + rank];
        const int32_t first = (int32_t)(*range >> 32), end = first + (int32_t)*range;
        const int32_t first_there = first < capacity ? first : capacity;
        const int32_t end_there = end < capacity ? end : capacity;
        *range = (int64_t)first_there << 32 | (end_there - first_there);
    }
    if (args->num_rows_per_expert != NULL)
        args->num_rows_per_expert[local_expert] = capacity;
    const struct wp_failure failure = {WP_FAILURE_NO_ROOM,
                                       wp_ll_site(taker->run, WP_PHASE_DATA, source), expert,
                                       (uint64_t)capacity, (uint64_t)num_rows};
    (void)wp_fail(taker->run->op.warp, &failure);
}

/* The parts in which so many rows of an expert are packed, as far as there is room. */
WP_FN uint32_t wp_ll_num_parts_of(const struct wp_low_latency *ll, int32_t num_rows)
{
    const int32_t num_packed = num_rows < ll->plan.capacity ? num_rows : ll->plan.capacity;
    const int32_t num_parts = wp_ll_has_packets(&ll->plan) ? ll->plan.taken_parts.num_units
                                                           : 1 << ll->share_of_sources.parts_log2;
    return (uint32_t)num_packed * (uint32_t)num_parts;
}

/* All warps of a block call this when they have met with their heads; in packets, of the first
 * block alone. It writes the counts of experts for the caller, in the last warps first: in packets
 * these have heard, so they are awake. With signals counts become the rows at which sources begin.
 * If an expert has no room for all rows, the source with most of them has sent more than its share,
 * since its tokens choose the expert twice. */
WP_FN void wp_ll_send_experts(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const struct wp_low_latency *ll = &args->ll;
    const int tells = wp_block_idx(warp) == 0, num_warps = wp_num_warps(warp);
    for (int32_t expert = (num_warps - 1 - wp_warp_idx(warp)) * WP_WARP_SIZE + wp_lane_idx(warp);
         expert < ll->num_local_experts; expert += num_warps * WP_WARP_SIZE) {
        int32_t first = 0, most = 0, most_from = 0;
        for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++) {
            uint32_t *counts = wp_ll_head_of(taker, rank);
            const int32_t num_rows =
                (int32_t)(taker->counts_are_pairs ? wp_ll_pair_count(counts, expert)
                                                  : counts[expert]);
            if (!taker->counts_are_pairs)
                counts[expert] = (uint32_t)first;
            if (tells && args->row_ranges != NULL)
                args->row_ranges[(int64_t)expert * ll->exchange.num_ranks + rank] =
                    (int64_t)((uint64_t)(uint32_t)first << 32 | (uint32_t)num_rows);
            most_from = num_rows > most ? rank : most_from;
            most = num_rows > most ? num_rows : most;
            first += num_rows;
        }
        if (tells && args->num_rows_per_expert != NULL)
            args->num_rows_per_expert[expert] = first;
        if (tells && args->cumulative_rows != NULL)
            args->cumulative_rows[expert] += first;
        if (tells && first > ll->plan.capacity && !ll->plan.drops_rows)
            wp_ll_fail_for_room(taker, expert, most_from, first);
        if (tells && wp_ll_has_expert_signals(args))
            wp_ll_count_parts(warp, args, expert, 0u - wp_ll_num_parts_of(ll, first));
    }
}

/* All warps call this. It receives the heads of all sources, and finds the bases. The first warps
 * receive if there are more warps than ranks: the leader warp may still wait for its stores to
 * leave, which takes as long. */
WP_FN enum wp_status wp_ll_find_bases(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_warp_idx(warp); i < ll->exchange.num_ranks && status != WP_STATUS_FAILED;
         i += wp_num_warps(warp)) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        status = wp_ll_take_head(taker, rank, wp_ll_warp_masks(warp, &ll->masks, rank));
        if (status == WP_STATUS_ABSENT && wp_lane_idx(warp) == 0)
            wp_ll_mask_out(&ll->masks, rank);
    }
    status = wp_block_status(warp, wp_ll_unless_absent(status));
    wp_ll_miss_masked(taker->run); /* whose head is not there, even if its rows have come */
    if (status != WP_STATUS_OK)
        return status;
    wp_ll_send_experts(taker);
    wp_block_sync(warp);
    return status;
}

/* A row that has come, or a part of it. */
struct wp_ll_taken_row {
    int32_t source;
    int32_t idx;
    const char *slot;
    /* Its warp does what is to be done once. */
    int is_last_part;
};

/* In memory of the warp: the packed rows of a row that has come, counted over all local experts. */
WP_FN int32_t *wp_ll_packed_rows(struct wp_warp *warp)
{
    return (int32_t *)wp_warp_shared(warp);
}
WP_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(int32_t) <= WP_LL_RANGES_OFFSET, "one for each choice");

/* The packed row of an expert with so many rows before it. */
WP_FN int32_t wp_ll_packed_at(const struct wp_ll_plan *plan, int32_t expert, int32_t position)
{
    return position < plan->capacity ? expert * plan->capacity + position : WP_LL_NO_ROOM;
}

/* Lists the packed rows of a row; with the last part, keeps them for combine. Returns their
 * number. */
WP_FN int32_t wp_ll_find_packed(const struct wp_ll_taker *taker, struct wp_ll_taken_row row)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_ll_plan *plan = &taker->args->ll.plan;
    const int32_t num_topk = plan->num_topk;
    const int32_t *experts = wp_ll_slot_words(row.slot, plan->slot.experts_offset);
    const int32_t *orders = wp_ll_slot_words(row.slot, plan->slot.order_offset);
    const uint32_t *bases = wp_ll_head_of(taker, row.source);
    struct wp_ll_packed_choice *kept =
        wp_ll_packed_choices(&taker->args->ll, taker->number, row.source, row.idx);
    int32_t num_packed = 0;
    wp_warp_sync(warp); /* those before have been used, and the pointers */
    for (int32_t i = 0; wp_ll_has_more_choices(plan, i); i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        /* Both loads are under way together. */
        const int32_t expert = k < num_topk ? experts[k] : -1;
        const int32_t order = k < num_topk ? orders[k] : 0;
        const int32_t packed = expert >= 0
                                   ? wp_ll_packed_at(plan, expert, (int32_t)bases[expert] + order)
                                   : WP_LL_NOT_HERE;
        const int32_t place = wp_ll_list(warp, &num_packed, packed >= 0);
        if (k < num_topk && row.is_last_part)
            kept[k].packed = packed;
        if (packed >= 0)
            wp_ll_packed_rows(warp)[place] = packed;
    }
    wp_warp_sync(warp);
    return num_packed;
}

/* Where the scales of a packed row begin. */
WP_FN char *wp_ll_packed_scales(const struct wp_ll_taker *taker, int32_t packed)
{
    const struct wp_ll_scales *to = &taker->args->scales;
    const int32_t capacity = taker->args->ll.plan.capacity, expert = packed / capacity;
    const int64_t first =
        expert * to->expert_stride + (packed - expert * capacity) * to->row_stride;
    return to->words + first * to->word_bytes;
}

/* The parts of a packed row beside its elements, as far as a lane can hold them. It is loaded while
 * elements are copied. */
struct wp_ll_rest {
    uint32_t token;
    uint32_t first_scale, second_scale; /* of the lane */
};

WP_FN struct wp_ll_rest wp_ll_load_rest(const struct wp_ll_taker *taker, struct wp_ll_taken_row row)
{
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const int32_t lane = wp_lane_idx(taker->run->op.warp);
    const int32_t num_scales =
        args->scales.word_bytes == sizeof(uint32_t) ? args->scales.num_words : 0;
    const uint32_t *scales =
        (const uint32_t *)wp_ll_slot_words(row.slot, args->ll.plan.slot.scales_offset);
    struct wp_ll_rest rest = {0, 0, 0};
    if (args->src_tokens != NULL)
        rest.token = wp_load_now_u32(
            (const uint32_t *)(const void *)(row.slot + args->ll.plan.slot.token_offset));
    if (lane < num_scales)
        rest.first_scale = wp_load_now_u32(scales + lane);
    if (lane + WP_WARP_SIZE < num_scales)
        rest.second_scale = wp_load_now_u32(scales + lane + WP_WARP_SIZE);
    return rest;
}

/* One warp calls this. It copies all but the elements to all packed rows, and keeps the weights. */
WP_FN void wp_ll_pack_rest(const struct wp_ll_taker *taker, struct wp_ll_taken_row row,
                           struct wp_ll_rest rest, int32_t num_packed)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const struct wp_ll_scales *to = &args->scales;
    const uint32_t *from =
        (const uint32_t *)wp_ll_slot_words(row.slot, args->ll.plan.slot.scales_offset);
    const void **dsts = wp_warp_pointers(warp);
    const float *weights =
        (const float *)wp_ll_slot_words(row.slot, args->ll.plan.slot.weights_offset);
    struct wp_ll_packed_choice *kept =
        wp_ll_packed_choices(&args->ll, taker->number, row.source, row.idx);
    for (int32_t k = wp_lane_idx(warp); k < args->ll.plan.num_topk; k += WP_WARP_SIZE)
        kept[k].weight = weights[k];
    for (int32_t i = wp_lane_idx(warp); i < num_packed && args->src_tokens != NULL;
         i += WP_WARP_SIZE)
        args->src_tokens[wp_ll_packed_rows(warp)[i]] = (int32_t)rest.token;
    if (to->num_words == 0)
        return;
    wp_warp_sync(warp); /* the pointers to elements have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_packed; i += WP_WARP_SIZE)
        dsts[i] = wp_ll_packed_scales(taker, wp_ll_packed_rows(warp)[i]);
    wp_warp_sync(warp);
    for (int32_t i = wp_lane_idx(warp); i < to->num_words; i += WP_WARP_SIZE)
        for (int32_t j = 0; j < num_packed; j++) {
            char *dst = (char *)dsts[j] + i * to->word_stride * to->word_bytes;
            if (to->word_bytes != sizeof(uint32_t))
                *dst = ((const char *)from)[i];
            else if (i >= 2 * WP_WARP_SIZE)
                *(uint32_t *)(void *)dst = from[i];
            else
                *(uint32_t *)(void *)dst = i < WP_WARP_SIZE ? rest.first_scale : rest.second_scale;
        }
}

/* Tells the experts of a row's packed rows that a part of it is there. */
WP_FN void wp_ll_tell_packed(const struct wp_ll_taker *taker, int32_t num_packed)
{
    struct wp_warp *warp = taker->run->op.warp;
    wp_row_sync(warp); /* all lanes have copied */
    for (int32_t i = wp_lane_idx(warp); i < num_packed; i += WP_WARP_SIZE)
        wp_ll_count_parts(warp, taker->args,
                          wp_ll_packed_rows(warp)[i] / taker->args->ll.plan.capacity, 1);
}

/* Packs one part of a row of a source. */
WP_FN void wp_ll_pack_part(const struct wp_ll_taker *taker, int32_t source, int32_t idx,
                           int32_t part)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const void **dsts = wp_warp_pointers(warp);
    const struct wp_ll_taken_row row = {
        source, idx, wp_ll_row(ll, ll->exchange.rank, taker->number, source, idx),
        wp_ll_is_last_part(&ll->share_of_sources, part)};
    const struct wp_ll_span span =
        wp_ll_part_span(&ll->share_of_sources, part, (uint32_t)ll->plan.row_bytes);
    if (span.bytes == 0 && !row.is_last_part && !wp_ll_has_expert_signals(taker->args))
        return;
    struct wp_ll_rest rest = {0, 0, 0};
    if (row.is_last_part)
        rest = wp_ll_load_rest(taker, row);
    if (span.bytes > 0)
        wp_row_prefetch(warp, row.slot + span.begin, span.bytes);
    const int32_t num_packed = wp_ll_find_packed(taker, row);
    if (span.bytes > 0) {
        char *rows = taker->args->rows + span.begin;
        for (int32_t i = wp_lane_idx(warp); i < num_packed; i += WP_WARP_SIZE)
            dsts[i] = rows + (uint64_t)wp_ll_packed_rows(warp)[i] * ll->plan.row_bytes;
        wp_warp_sync(warp);
        wp_row_copy(warp, dsts, num_packed, row.slot + span.begin, span.bytes);
    }
    if (row.is_last_part)
        wp_ll_pack_rest(taker, row, rest, num_packed);
    if (wp_ll_has_expert_signals(taker->args))
        wp_ll_tell_packed(taker, num_packed);
}

WP_FN void wp_ll_pack_all(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const struct wp_ll_share *share = &ll->share_of_sources;
    int32_t unit = wp_warp_idx(warp); /* of those of all sources: from the i-th one's first on */
    for (int32_t i = 0; i < ll->exchange.num_ranks; i++) {
        if (i % WP_WARP_SIZE == 0) {
            wp_warp_sync(warp); /* each lane has waited for some sources; ranges have been used */
            wp_ll_keep_ranges(warp, wp_ll_range_for_lane(taker->run, taker->number, i));
        }
        const struct wp_ll_range range = wp_ll_warp_ranges(warp)[i % WP_WARP_SIZE];
        const int32_t num_units = range.num_rows << share->parts_log2;
        for (; unit < num_units; unit += wp_num_warps(warp)) {
            const struct wp_part part = wp_ll_unit_part(share, unit);
            wp_ll_pack_part(taker, wp_ll_source(ll, i), range.first + part.token, part.part);
        }
        unit -= num_units;
    }
}

/* Returns 1 if rows of a source are packed as soon as they have come, so that experts that need no
 * others can begin. With masks the block first agrees on the ranks that are missing. */
WP_FN int wp_ll_packs_early(const struct wp_low_latency_dispatch_args *args)
{
    return wp_ll_has_expert_signals(args) && !wp_ll_has_masks(&args->ll.masks);
}

/* Waits for one source, and packs the warp's units of its rows: every step-th from `first` on. */
WP_FN enum wp_status wp_ll_pack_source(const struct wp_ll_taker *taker, int32_t source,
                                       int32_t first, int32_t step)
{
    const struct wp_ll_run *run = taker->run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_share *share = &run->ll->share_of_sources;
    const enum wp_status found =
        wp_ll_await_told(run, WP_LL_ARRIVED, WP_LL_ROWS,
                         wp_lane_idx(warp) == 0 ? source : WP_NO_RANK, taker->number);
    const enum wp_status status = (enum wp_status)wp_max_u32(warp, (uint32_t)found);
    if (status != WP_STATUS_OK)
        return status;
    wp_warp_sync(warp); /* the first lane has waited */
    const struct wp_ll_range range =
        wp_ll_range(run->ll, taker->number, source, wp_block_idx(warp));
    for (int32_t unit = first; unit < range.num_rows << share->parts_log2; unit += step) {
        const struct wp_part part = wp_ll_unit_part(share, unit);
        wp_ll_pack_part(taker, source, range.first + part.token, part.part);
    }
    return status;
}

/* All warps of a block call this in place of the wait for all sources. If there are several, the
 * leader waits for all, as it does otherwise, and the others share the sources: a late one holds up
 * only the warps that pack it. */
WP_FN enum wp_status wp_ll_pack_early(const struct wp_ll_taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_exchange *exchange = &taker->args->ll.exchange;
    const int32_t idx = wp_warp_idx(warp), num_ranks = exchange->num_ranks;
    const int32_t num_packers = wp_num_warps(warp) > 1 ? wp_num_warps(warp) - 1 : 1;
    enum wp_status status = WP_STATUS_OK;
    wp_admit_next(warp); /* all ranks have started: their heads are here */
    for (int32_t i = idx % num_ranks; idx < num_packers && i < num_ranks && status == WP_STATUS_OK;
         i += num_packers)
        status = wp_ll_pack_source(taker, wp_rank_after(exchange, i), idx / num_ranks,
                                   (num_packers - 1 - i % num_packers) / num_ranks + 1);
    if (status == WP_STATUS_OK && wp_ll_is_leader_warp(warp))
        status = wp_ll_await_ranks(taker->run, WP_LL_ALL_RANKS, WP_LL_ARRIVED, WP_LL_ROWS,
                                   taker->number);
    if (status == WP_STATUS_OK && wp_ll_is_leader_warp(warp) &&
        wp_block_idx(warp) == taker->args->ll.plan.num_blocks - 1)
        wp_ll_send_num_rows(taker);
    return status;
}
