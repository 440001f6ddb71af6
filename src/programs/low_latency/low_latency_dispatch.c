/* SPDX-License-Identifier: MIT */
/*
 * low_latency_dispatch: a block finds where its tokens go. It writes each row once to every rank
 * that has one of its experts, into the slots that are the sender's there, and signals. A receiver
 * waits for what each block has sent, and packs it by expert, if rows are wanted so.
 *
 * Rows of an expert are in (source rank, token) order. So every rank sends every other a head
 * before the rows: how many choices of each of its experts it has. Each row tells, for each choice,
 * how many choices of the expert its source has before.
 */
#ifndef WP_LL_HAS_NODES /* variant.c */
#define WP_LL_HAS_NODES(plan) 0
#endif

#include "programs/low_latency/ll_pack.h"
#include "programs/low_latency/ll_send.h"

/* ------------------------------------------------------------------ send */

/* Where the row for choice k of a token is written: its slot, or where that is staged. NULL: an
 * earlier choice is at the same rank, or there is none. */
WP_FN char *slot_of(const struct wp_ll_sender *sender, int32_t token, int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choice = &wp_ll_choices_of(sender, token)[k];
    if (choice->row < 0 || wp_ll_is_missing(sender->run, choice->rank))
        return NULL;
    if (wp_ll_is_remote(ll, choice->rank))
        return WP_LL_NODES(wp_ll_staged_slot(sender, token, k), NULL);
    return wp_ll_row(ll, choice->rank, sender->number, ll->exchange.rank, choice->row);
}

WP_FN const char *token_elements(const struct wp_ll_sender *sender, int32_t token,
                                 struct wp_ll_span span)
{
    const struct wp_low_latency_dispatch_args *args = sender->args;
    return args->tokens + (uint64_t)token * args->token_stride_bytes + span.begin;
}

/* The token's slots, from byte `begin` on, as the warp's pointers; returns how many. */
WP_FN int32_t find_slots(const struct wp_ll_sender *sender, int32_t token, uint64_t begin)
{
    struct wp_warp *warp = sender->run->op.warp;
    const int32_t num_topk = sender->args->ll.plan.num_topk;
    int32_t num_slots = 0;
    wp_warp_sync(warp); /* the pointers before have been used */
    for (int32_t i = 0; wp_ll_has_more_choices(&sender->args->ll.plan, i); i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        char *slot = k < num_topk ? slot_of(sender, token, k) : NULL;
        const int32_t place = wp_ll_list(warp, &num_slots, slot != NULL);
        if (slot != NULL)
            wp_warp_pointers(warp)[place] = slot + begin;
    }
    wp_warp_sync(warp);
    return num_slots;
}

/* The row, or a part of it, to all its slots. */
WP_FN void send_elements(const struct wp_ll_sender *sender, int32_t token, struct wp_ll_span span)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_plan *plan = &sender->args->ll.plan;
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, span);
    const uint64_t sent_begin = (uint64_t)elements.first << plan->sent_element_bytes_log2;
    const char *src = token_elements(sender, token, span);
    const int32_t num_dsts = find_slots(sender, token, sent_begin);
    if (!wp_ll_is_quantised(plan)) {
        wp_row_copy_for(warp, plan->reuse, wp_warp_pointers(warp), num_dsts, src, span.bytes);
        return;
    }
    const int64_t first_group = (int32_t)elements.first / plan->quantisation.group_elements;
    const struct wp_quantised_rows slots = {wp_warp_pointers(warp), wp_warp_pointers(warp),
                                            (int64_t)(plan->slot.scales_offset - sent_begin) +
                                                wp_scale_offset(plan->quantisation, first_group),
                                            num_dsts};
    wp_row_quantise(warp, slots, src, plan->quantisation, elements.num);
}

/* The warp's first part of a row is on its way while it is found out where it goes. */
WP_FN void prefetch_elements(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_part part = wp_ll_unit_part(&sender->share, wp_warp_idx(warp));
    const struct wp_ll_span span =
        wp_ll_row_span(&sender->args->ll.plan, &sender->share, part.part);
    if (wp_warp_idx(warp) < sender->share.num_units && span.bytes > 0)
        wp_row_prefetch(warp, token_elements(sender, sender->tokens.begin + part.token, span),
                        span.bytes);
}

/* Writes to slot j what the row tells of top-k entry k. */
WP_FN void send_choice(const struct wp_ll_sender *sender, int32_t token, int32_t j, int32_t k)
{
    const struct wp_low_latency_dispatch_args *args = sender->args;
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    char *slot = slot_of(sender, token, j);
    if (slot == NULL)
        return;
    const int is_there = WP_LL_NODES(wp_ll_destination(ll, choices[k].rank) ==
                                         wp_ll_destination(ll, choices[j].rank),
                                     choices[k].rank == choices[j].rank);
    const int64_t weight_idx = (int64_t)token * args->ll.plan.num_topk + k;
    const float weight = args->topk_weights == NULL ? 1.0f : args->topk_weights[weight_idx];
    wp_ll_slot_words(slot, at->experts_offset)[k] = is_there ? choices[k].local_expert : -1;
    ((float *)wp_ll_slot_words(slot, at->weights_offset))[k] = is_there ? weight : 0.0f;
    if (ll->plan.is_by_expert)
        wp_ll_slot_words(slot, at->order_offset)[k] = choices[k].order;
    WP_LL_NODES(wp_ll_send_target(sender, token, slot, j, k, is_there), (void)0);
    if (k == 0) {
        *wp_ll_slot_words(slot, at->token_offset) = token;
        /* The rank of choice j answers there, at first. */
        *wp_ll_slot_words(slot, at->answer_offset) =
            WP_LL_HAS_NODES(&ll->plan)
                ? wp_ll_answer_slots(ll, sender->number, token)[j]
                : wp_ll_answer_slot(&ll->plan, choices[j].rank, wp_block_idx(sender->run->op.warp),
                                    token - sender->tokens.begin, j);
    }
}

WP_FN void send_choices(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_topk = ll->plan.num_topk;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    int32_t *answering = wp_ll_answering(ll, sender->number, token);
    /* A slot has as many lanes as a power of two, so that nothing is divided. */
    const int32_t width_log2 = ll->plan.num_topk_log2, mask = (1 << width_log2) - 1;
    for (int32_t i = wp_lane_idx(warp); i < num_topk << width_log2; i += WP_WARP_SIZE) {
        const int32_t j = i >> width_log2, k = i & mask;
        if (k < num_topk)
            send_choice(sender, token, j, k);
        if (k > 0)
            continue;
        const int32_t rank = WP_LL_NODES(wp_ll_remote_answerer(sender, choices, j),
                                         wp_ll_answerer(&ll->plan, choices[j]));
        answering[j] = rank >= 0 && !wp_ll_is_missing(sender->run, rank) ? rank : WP_NO_RANK;
    }
}

WP_FN void send_tokens(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_share *share = &sender->share;
    for (int32_t unit = wp_warp_idx(warp); unit < share->num_units; unit += wp_num_warps(warp)) {
        const struct wp_part part = wp_ll_unit_part(share, unit);
        const int32_t token = sender->tokens.begin + part.token;
        const struct wp_ll_span span = wp_ll_row_span(&sender->args->ll.plan, share, part.part);
        if (span.bytes > 0)
            send_elements(sender, token, span);
        if (wp_ll_is_last_part(share, part.part))
            send_choices(sender, token);
    }
}

/* Tells each rank which of this block's rows are there. */
WP_FN void send_ranges(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    for (int32_t rank = wp_ll_thread_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_ll_num_threads(warp)) {
        const struct wp_ll_range range = wp_ll_sent_range(sender, rank);
        if (!wp_ll_is_remote(ll, rank) && !wp_ll_is_missing(sender->run, rank))
            *wp_ll_range_of(ll, rank, sender->number, ll->exchange.rank, wp_block_idx(warp)) =
                range;
    }
}

/* ------------------------------------------------------------------ heads */

/* All warps of the last block, whose counters have all tokens, call this. It sends heads. The
 * credit for this block's rows is one for heads, too: other blocks of a rank have read the head
 * before in a launch that ended before the rank gave that credit. */
WP_FN void send_heads(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t max_local = ll->plan.max_local_experts;
    for (int32_t rank = wp_warp_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_num_warps(warp)) {
        const int32_t *counts = sender->counters.experts + (int64_t)rank * max_local;
        if (wp_ll_is_missing(sender->run, rank))
            continue;
        if (wp_ll_is_remote(ll, rank))
            WP_LL_NODES(wp_ll_send_remote_head(sender, rank, counts), (void)0);
        else
            wp_tagged_send(warp, rank, wp_ll_head(ll, rank, sender->number, ll->exchange.rank),
                           counts, max_local, sender->number);
    }
}

/* The loads of the first choices (`first`) have been under way since the launch began. */
WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args,
                          struct wp_ll_first_choices first)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_sender sender =
        wp_ll_sender_of(run, args, first, run->numbers.rows_sent + 1);
    const uint64_t num_outstanding = run->numbers.rows_sent - run->numbers.rows_ended;
    enum wp_status status = WP_STATUS_OK;
    if (num_outstanding >= (uint64_t)plan->num_buffers)
        return wp_ll_fail(run, (uint64_t)plan->num_buffers, num_outstanding + 1);
    prefetch_elements(&sender);
    wp_ll_clear_counters(&sender);
    if (wp_ll_is_leader_warp(warp)) /* for all, while they find choices */
        status = wp_ll_await_ranks(run, WP_LL_ALL_RANKS, WP_LL_CREDIT, WP_LL_ROWS,
                                   wp_ll_number_before(run, sender.number));
    wp_ll_find_routes(&sender);
    WP_LL_NODES(wp_ll_find_answer_slots(&sender), (void)0);
    status = wp_block_status(warp, status);
    if (status != WP_STATUS_OK)
        return status;
    if (plan->is_by_expert && wp_block_idx(warp) == plan->num_blocks - 1)
        send_heads(&sender);
    send_tokens(&sender);
    send_ranges(&sender);
    struct wp_ll_buffer buffer = wp_ll_buffer_state(run, sender.number);
    buffer.tokens = sender.tokens;
    wp_ll_remember(run, sender.number, buffer);
    WP_LL_NODES(wp_ll_put_rows(&sender), (void)0);
    wp_ll_send_arrived(run, WP_LL_ROWS, sender.number);
    run->numbers.rows_sent = sender.number;
    return WP_STATUS_OK;
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t max_local = plan->max_local_experts;
    const int64_t num_counts = (int64_t)args->ll.exchange.num_ranks * max_local;
    const struct wp_ll_taker taker = {
        run,
        args,
        run->numbers.rows_received + 1,
        (uint32_t *)wp_ll_near_or(warp, args->ll.near.counters, args->ll.near.choices,
                                  args->ll.expert_bases + wp_block_idx(warp) * num_counts),
        max_local,
        max_local,
        0};
    if (taker.number > run->numbers.rows_sent)
        return wp_ll_fail(run, run->numbers.rows_sent, taker.number);
    enum wp_status status = WP_LL_NODES(wp_ll_relay(run, taker.number), WP_STATUS_OK);
    if (plan->is_by_expert && status == WP_STATUS_OK)
        status = wp_ll_find_bases(&taker);
    if (status == WP_STATUS_OK && wp_ll_packs_early(args))
        status = wp_ll_pack_early(&taker);
    else if (status == WP_STATUS_OK)
        status = wp_ll_await_block(run, WP_LL_ARRIVED, WP_LL_ROWS, taker.number);
    if (status == WP_STATUS_OK && !wp_ll_packs_early(args)) {
        wp_admit_next(warp); /* all ranks have started */
        if (wp_ll_send_missing(run, args->missing_ranks))
            wp_ll_send_num_rows(&taker);
        if (plan->is_by_expert)
            wp_ll_pack_all(&taker);
        if (!wp_ll_has_masks(&args->ll.masks) && wp_warp_idx(warp) == 0 &&
            wp_block_idx(warp) == plan->num_blocks - 1)
            wp_ll_send_num_rows(&taker);
    }
    status = wp_block_status(warp, status);
    if (status != WP_STATUS_OK)
        return status;
    run->numbers.rows_received = taker.number;
    if (wp_block_idx(warp) == 0 && wp_ll_thread_idx(warp) == 0)
        *args->ll.received_buffer = (int32_t)wp_ll_buffer(plan, taker.number);
    return WP_STATUS_OK;
}

WP_FN enum wp_status run_phases(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args)
{
    struct wp_ll_first_choices first = {{0, 0}, -1, -1};
    if (args->phases & WP_LL_SEND)
        first = wp_ll_load_first_choices(warp, args);
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    if (args->phases & WP_LL_SEND)
        status = send(&run, args, first);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = receive(&run, args);
    return wp_ll_end(&run, status);
}

WP_FN enum wp_status dispatch(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args)
{
    const enum wp_status status = run_phases(warp, args);
    wp_ll_end_expert_signals(warp, args);
    return status;
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(low_latency_dispatch, warp, args)
{
    return dispatch(warp, args);
}
#endif
