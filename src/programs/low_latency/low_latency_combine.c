/* SPDX-License-Identifier: MIT */
/*
 * low_latency_combine: each rank sends, for each row that it has got, an answer to the row's owner:
 * the sum of its experts' rows in ascending order of the choices, or each expert's row by itself.
 * The owner sums what comes, ranks or choices in ascending order. Each row tells to which slot its answer
 * goes, or the first one of several: those of a token's choices are a stride apart, with nodes those of a
 * rank lie one behind the other, since they go in one put. Answers to a row that a partner has relayed go to him, who
 * sums them (low_latency/relay.h).
 */
#ifndef WP_LL_HAS_NODES /* variant.c */
#define WP_LL_HAS_NODES(plan) 0
#endif

#include "programs/low_latency/combine.h"
#include "programs/low_latency/protocol.h"
#include "programs/low_latency/relay.h"

/* ------------------------------------------------------------------ answer */

struct answerer {
    const struct wp_ll_run *run;
    const struct wp_low_latency_combine_args *args;
    uint64_t number; /* of the answers */
    uint64_t result; /* that they answer */
};

/* A row that is answered. */
struct asked_row {
    int32_t source;
    int32_t idx;
    int32_t token;          /* at its source; known if weights come late */
    int32_t answer;         /* the slot of its (first) answer, */
    int32_t block_answer;   /* and with nodes that of the first that the rows of its block get */
    const int32_t *experts; /* [num_topk] -1 where the choice is not here */
    const float *weights;   /* [num_topk] */
};

WP_FN int32_t answer_of_row(const struct answerer *answerer, int32_t source, int32_t idx)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const char *slot = wp_ll_row(ll, ll->exchange.rank, answerer->result, source, idx);
    return *(const int32_t *)(const void *)(slot + ll->plan.slot.answer_offset);
}

/* Row i of those that a block of a source has sent. */
WP_FN struct asked_row asked_row(const struct answerer *answerer, int32_t source,
                                 struct wp_ll_range range, int32_t i)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    const int32_t idx = range.first + i;
    const char *slot = wp_ll_row(ll, ll->exchange.rank, answerer->result, source, idx);
    const struct asked_row row = {
        source,
        idx,
        wp_ll_weighs_late(&ll->plan) ? *(const int32_t *)(const void *)(slot + at->token_offset)
                                     : 0,
        *(const int32_t *)(const void *)(slot + at->answer_offset),
        WP_LL_HAS_NODES(&ll->plan) ? answer_of_row(answerer, source, range.first) : 0,
        (const int32_t *)(const void *)(slot + at->experts_offset),
        (const float *)(const void *)(slot + at->weights_offset)};
    return row;
}

/* The caller's row that has been packed as this one. */
WP_FN const char *packed_row(const struct answerer *answerer, int32_t packed)
{
    return answerer->args->rows + (uint64_t)packed * answerer->args->row_stride_bytes;
}

WP_FN const char *row_of_rank(const struct answerer *answerer, struct asked_row row)
{
    const struct wp_low_latency_combine_args *args = answerer->args;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t idx = (uint64_t)row.source * (uint64_t)ll->plan.max_tokens + (uint64_t)row.idx;
    if (ll->plan.answers_stay && args->rows == NULL)
        return wp_ll_row(ll, ll->exchange.rank, answerer->result, row.source, row.idx);
    return args->rows + idx * args->row_stride_bytes;
}

WP_FN int32_t count_experts(const int32_t *experts, int32_t num_choices)
{
    int32_t num_experts = 0;
    for (int32_t k = 0; k < num_choices; k++)
        num_experts += experts[k] >= 0;
    return num_experts;
}

/* Where the answer to a row goes: to its slot, at its owner or where a node's are summed, or to where that is staged. */
WP_FN char *answer_place(const struct answerer *answerer, struct asked_row row, int32_t slot)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    if (wp_ll_stays(ll, row.source))
        return wp_ll_row(ll, ll->exchange.rank, answerer->result, row.source, row.idx);
    if (!WP_LL_HAS_NODES(&ll->plan) || !wp_ll_is_remote(ll, row.source))
        return wp_ll_answer(ll, row.source, answerer->number, slot);
    if (wp_ll_has_node_sums(&ll->plan))
        return wp_ll_summand(ll, wp_ll_bringer(ll, row.source), answerer->number, slot);
    return ll->network.memory +
           wp_ll_staged_answer(ll, answerer->number, ll->network.idx_of_rank[row.source],
                               wp_block_idx(answerer->run->op.warp), slot - row.block_answer);
}

/* Part `span` of a row, or of the weighted sum of the warp's pointers. */
WP_FN void send_answer(const struct answerer *answerer, struct asked_row row, int32_t slot,
                       const float *weights, int32_t num_srcs, struct wp_ll_span span)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, span);
    char *dst = answer_place(answerer, row, slot) + wp_ll_answer_bytes(plan, elements.first);
    const struct wp_weighted_sum sum = {plan->dtype, plan->answer_dtype, plan->reuse};
    if (wp_ll_answers_are_logs(plan))
        wp_row_log_encode(warp, dst, wp_warp_pointers(warp), weights, num_srcs, plan->dtype,
                          elements.num);
    else
        wp_row_weighted_sum(warp, dst, wp_warp_pointers(warp), weights, num_srcs, sum,
                            elements.num);
}

/* The caller has summed the rows of this rank's experts: they are sent as they are. */
WP_FN void answer_with_row(const struct answerer *answerer, struct asked_row row,
                           struct wp_ll_span span)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const void **pointers = wp_warp_pointers(warp);
    const char *from = row_of_rank(answerer, row) + span.begin;
    if (ll->plan.answer_dtype == ll->plan.dtype)
        wp_row_prefetch(warp, from, span.bytes); /* while it is found out where it goes */
    wp_warp_sync(warp);                          /* those before have been used */
    if (wp_lane_idx(warp) == 0)
        pointers[0] = ll->plan.answer_dtype != ll->plan.dtype
                          ? from
                          : answer_place(answerer, row, row.answer) + span.begin;
    wp_warp_sync(warp);
    if (ll->plan.answer_dtype == ll->plan.dtype)
        wp_row_copy_for(warp, ll->plan.reuse, pointers, 1, from, span.bytes);
    else
        send_answer(answerer, row, row.answer, NULL, 1, span);
}

/* Lists the caller's rows for the choices here, with their weights; returns how many there are. Weights that come late have
 * been taken. */
WP_FN int32_t find_rows(const struct answerer *answerer, struct asked_row row, uint64_t begin)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const int32_t num_topk = ll->plan.num_topk;
    const int32_t *all_packed = wp_ll_packed(ll, answerer->result, row.source, row.idx);
    const float *weights = wp_ll_weighs_late(&ll->plan) ? wp_ll_weights(warp) : row.weights;
    int32_t num_rows = 0;
    wp_warp_sync(warp); /* those before have been used, and the weights are there */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        /* Both loads are under way together. */
        const int32_t packed = k < num_topk ? all_packed[k] : -1;
        const float weight = k < num_topk ? weights[k] : 0.0f;
        if (wp_ll_weighs_late(&ll->plan))
            wp_warp_sync(warp); /* all have loaded what is overwritten now, here or further up */
        const int32_t place = wp_ll_list(warp, &num_rows, packed >= 0);
        if (packed < 0)
            continue;
        wp_warp_pointers(warp)[place] = packed_row(answerer, packed) + begin;
        wp_ll_weights(warp)[place] = weight;
    }
    wp_warp_sync(warp);
    return num_rows;
}

/* The sum of all choices here. */
WP_FN void answer_with_sum(const struct answerer *answerer, struct asked_row row,
                           struct wp_ll_span span)
{
    const int32_t num_rows = find_rows(answerer, row, span.begin);
    send_answer(answerer, row, row.answer, wp_ll_weights(answerer->run->op.warp), num_rows, span);
}

/* ------------------------------------------------------------------ answers of single experts */

WP_FN int32_t first_choice_here(const struct answerer *answerer, struct asked_row row)
{
    int32_t k = 0;
    while (k < answerer->args->ll.plan.num_topk && row.experts[k] < 0)
        k++;
    return k;
}

/* The slot of the answer to choice k; of the choices here that many are before it, and `first` is the first. */
WP_FN int32_t slot_of_choice(const struct answerer *answerer, struct asked_row row, int32_t first,
                             int32_t k, int32_t num_before)
{
    if (WP_LL_HAS_NODES(&answerer->args->ll.plan))
        return row.answer + num_before;
    return row.answer + (k - first) * answerer->args->ll.plan.answer_slots.choice_stride;
}

/* Of so many elements, the listed rows to the listed places; of no row zeros. */
WP_FN void send_rows(const struct answerer *answerer, const void *const *dsts,
                     const void *const *srcs, int32_t num_rows, int64_t num_elements)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    const struct wp_weighted_sum sum = {plan->dtype, plan->answer_dtype, plan->reuse};
    if (plan->answer_dtype == plan->dtype) {
        wp_row_copy_each(warp, plan->reuse, dsts, srcs, num_rows,
                         (uint64_t)num_elements << plan->element_bytes_log2);
        return;
    }
    for (int32_t i = 0; i < num_rows; i++) {
        char *dst = (char *)(uintptr_t)dsts[i];
        if (wp_ll_answers_are_logs(plan))
            wp_row_log_encode(warp, dst, &srcs[i], NULL, 1, plan->dtype, num_elements);
        else
            wp_row_weighted_sum(warp, dst, &srcs[i], NULL, 1, sum, num_elements);
    }
}

/* The answers to the choices from `begin` on, one for each lane; num_before of them are here before these, and grow. */
WP_FN void answer_some_choices(const struct answerer *answerer, struct asked_row row, int32_t first,
                               int32_t begin, int32_t *num_before, struct wp_ll_span span)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_elements elements = wp_ll_elements_of(&ll->plan, span);
    const void **srcs = wp_warp_pointers(warp), **dsts = srcs + WP_WARP_SIZE;
    const int32_t k = begin + wp_lane_idx(warp), before = *num_before;
    const int is_choice = k < ll->plan.num_topk;
    /* Both loads are under way together. */
    const int32_t packed =
        is_choice ? wp_ll_packed(ll, answerer->result, row.source, row.idx)[k] : -1;
    const int is_here = is_choice && row.experts[k] >= 0;
    wp_warp_sync(warp); /* the pointers before have been used */
    const int32_t place = wp_ll_list(warp, num_before, is_here);
    if (is_here) {
        const int32_t slot = slot_of_choice(answerer, row, first, k, place);
        srcs[place - before] = packed >= 0 ? packed_row(answerer, packed) + span.begin : NULL;
        dsts[place - before] =
            answer_place(answerer, row, slot) + wp_ll_answer_bytes(&ll->plan, elements.first);
    }
    wp_warp_sync(warp);
    send_rows(answerer, dsts, srcs, *num_before - before, elements.num);
}
WP_STATIC_ASSERT(2 * WP_WARP_SIZE <= WP_WARP_POINTERS, "a source and a place for each lane");

/* One answer for each choice; where its expert had no room, of zeros. */
WP_FN void answer_by_choice(const struct answerer *answerer, struct asked_row row,
                            struct wp_ll_span span)
{
    const int32_t first = first_choice_here(answerer, row);
    int32_t num_here = 0;
    for (int32_t k = 0; k < answerer->args->ll.plan.num_topk; k += WP_WARP_SIZE)
        answer_some_choices(answerer, row, first, k, &num_here, span);
}

/* ------------------------------------------------------------------ all answers */

/* Of a source's waits that of one warp counts. */
WP_FN enum wp_status take_weights(const struct answerer *answerer, struct asked_row row,
                                  struct wp_part part)
{
    const struct wp_ll_run *run = answerer->run;
    const int is_counted = part.token == 0 && part.part == 0;
    int64_t *waited_ns = is_counted ? wp_ll_waited_ns(run, row.source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_weights_site(run, answerer->number, row.source);
    site.absent_after_ms = 0; /* with masks they are there */
    const enum wp_status status =
        wp_ll_take_weights(run, &site, row.token, wp_ll_weights(run->op.warp));
    if (wp_lane_idx(run->op.warp) == 0)
        wp_ll_end_waiting(run, waited_ns, begin_ns);
    return status;
}

/* One part of row i of those that a block of a source has sent. */
WP_FN enum wp_status answer_part(const struct answerer *answerer, int32_t source,
                                 struct wp_ll_range range, struct wp_part part)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_span span = wp_ll_span(&ll->plan, &ll->share_of_sources, part.part);
    if (span.bytes == 0)
        return WP_STATUS_OK;
    const struct asked_row row = asked_row(answerer, source, range, part.token);
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_weighs_late(&ll->plan))
        status = take_weights(answerer, row, part);
    if (status != WP_STATUS_OK)
        return status;
    if (!ll->plan.is_by_expert)
        answer_with_row(answerer, row, span);
    else if (ll->plan.answers_are_rows)
        answer_by_choice(answerer, row, span);
    else
        answer_with_sum(answerer, row, span);
    return status;
}

/* The first ranges have been read. */
WP_FN enum wp_status answer_all(const struct answerer *answerer)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_share *share = &ll->share_of_sources;
    enum wp_status status = WP_STATUS_OK;
    int32_t unit = wp_warp_idx(warp); /* of those of all sources: from the i-th one's first on */
    for (int32_t i = 0; i < ll->exchange.num_ranks && status == WP_STATUS_OK; i++) {
        if (i > 0 && i % WP_WARP_SIZE == 0)
            wp_ll_read_ranges(answerer->run, answerer->result, i);
        const int32_t source = wp_ll_source(ll, i);
        const struct wp_ll_range range = wp_ll_warp_ranges(warp)[i % WP_WARP_SIZE];
        const int are_there = answerer->args->rows == NULL && wp_ll_stays(ll, source);
        const int32_t num_units = are_there ? 0 : range.num_rows << share->parts_log2;
        for (; unit < num_units && status == WP_STATUS_OK; unit += wp_num_warps(warp))
            status = answer_part(answerer, source, range, wp_ll_unit_part(share, unit));
        unit -= num_units;
    }
    return status;
}

/* Answers that a block of a source gets from this rank. */
WP_FN int32_t count_answers(const struct answerer *answerer, int32_t source,
                            struct wp_ll_range range)
{
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    if (!plan->answers_are_rows || range.num_rows == 0)
        return range.num_rows;
    const struct asked_row last = asked_row(answerer, source, range, range.num_rows - 1);
    return last.answer + count_experts(last.experts, plan->num_topk) - last.block_answer;
}

/* By all warps, when the block has written its answers: puts those to other nodes. */
WP_FN void put_answers(const struct answerer *answerer)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const int32_t block = wp_block_idx(warp);
    for (int32_t i = wp_warp_idx(warp); i < ll->network.num_remote; i += wp_num_warps(warp)) {
        const int32_t rank = ll->network.ranks[i];
        if (wp_ll_is_missing(answerer->run, rank))
            continue;
        const struct wp_ll_range range = wp_ll_range(ll, answerer->result, rank, block);
        const int32_t first = range.num_rows > 0 ? answer_of_row(answerer, rank, range.first) : 0;
        const struct wp_ll_put put = {
            rank,
            wp_ll_staged_answer(ll, answerer->number, i, block, 0),
            wp_ll_answer_offset(ll, answerer->number, first),
            (uint64_t)count_answers(answerer, rank, range) * ll->plan.answer_bytes,
            wp_ll_network_arrived(ll, WP_LL_ANSWERS, answerer->number, ll->exchange.rank, block),
            WP_LL_ANSWERED,
            WP_ACCESS_AT_ONCE};
        wp_ll_post(warp, ll, &put);
    }
}

/* With masks, warp-wide: waits for the weights of a row; WP_STATUS_ABSENT: its source is missing. */
WP_FN enum wp_status await_weights(const struct answerer *answerer, struct asked_row row)
{
    const struct wp_ll_run *run = answerer->run;
    const struct wp_wait_site site = wp_ll_weights_site(run, answerer->number, row.source);
    struct wp_ll_patience patience =
        wp_ll_patience_about(answerer->number, run->ll->exchange.num_ranks);
    enum wp_status status;
    do
        status = wp_ll_take_weights(run, &site, row.token, wp_ll_weights(run->op.warp));
    while (status == WP_STATUS_ABSENT && wp_ll_warp_waits_on(run, row.source, &patience));
    return status;
}

/* With masks, the leader warp calls this: it waits for the weights of all rows of the block. The block goes on
 * without sources whose weights do not come. */
WP_FN enum wp_status await_all_weights(const struct answerer *answerer)
{
    const struct wp_ll_run *run = answerer->run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    enum wp_status status = WP_STATUS_OK;
    wp_warp_sync(warp); /* lanes have found out who is missing */
    for (int32_t source = 0; source < ll->exchange.num_ranks; source++) {
        if (wp_ll_is_missing(run, source))
            continue;
        const struct wp_ll_range range =
            wp_ll_range(ll, answerer->result, source, wp_block_idx(warp));
        for (int32_t i = 0; i < range.num_rows && status == WP_STATUS_OK; i++)
            status = await_weights(answerer, asked_row(answerer, source, range, i));
        if (status == WP_STATUS_FAILED)
            return status;
        if (status == WP_STATUS_ABSENT && wp_lane_idx(warp) == 0) {
            wp_ll_mask_out(&ll->masks, source);
            wp_ll_missing(run)[source] = 1;
        }
        status = WP_STATUS_OK;
    }
    return status;
}

/* By all warps. With masks weights that come late are awaited, too, by the warp that finds out for all who
 * is missing. */
WP_FN enum wp_status await_room(const struct answerer *answerer)
{
    const struct wp_ll_run *run = answerer->run;
    const uint64_t before = wp_ll_number_before(run, answerer->number);
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_is_room_known(run, answerer->number, answerer->result))
        return status;
    if (!wp_ll_has_masks(&run->ll->masks) || !wp_ll_weighs_late(&run->ll->plan))
        return wp_ll_await_block(run, WP_LL_ROOM, WP_LL_ANSWERS, before);
    if (wp_ll_is_leader_warp(run->op.warp))
        status = wp_ll_await_all(run, WP_LL_ROOM, WP_LL_ANSWERS, before);
    if (wp_ll_is_leader_warp(run->op.warp) && status == WP_STATUS_OK)
        status = await_all_weights(answerer);
    return wp_block_status(run->op.warp, status);
}

/* By all warps of the block: sends the weights of its tokens to the ranks that answer them. */
WP_FN void send_weights(const struct answerer *answerer)
{
    const struct wp_ll_run *run = answerer->run;
    struct wp_warp *warp = run->op.warp;
    const int32_t num_topk = run->ll->plan.num_topk;
    const struct wp_ll_weights_sender sender = {run, answerer->args->late_weights,
                                                wp_ll_weights(warp), answerer->number};
    const struct wp_ll_tokens tokens = wp_ll_half_of(run, answerer->result).tokens;
    int32_t k = wp_warp_idx(warp);
    for (int32_t token = tokens.begin; token < tokens.end; token++) {
        for (; k < num_topk; k += wp_num_warps(warp)) {
            /* The loads are under way together. */
            const int32_t rank = wp_ll_answering(run->ll, answerer->result, token)[k];
            wp_ll_load_weights(&sender, token);
            if (rank >= 0 && !wp_ll_is_masked(&run->ll->masks, rank))
                wp_ll_send_weights(&sender, token, rank);
        }
        k -= num_topk;
    }
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_ll_numbers *numbers = &run->numbers;
    const struct answerer answerer = {run, args, numbers->answers_sent + 1,
                                      numbers->rows_answered + 1};
    if (answerer.result > numbers->rows_received ||
        answerer.number > numbers->answers_received + (uint64_t)plan->num_halves)
        return wp_ll_fail(run, numbers->rows_received, answerer.result);
    if (wp_ll_weighs_late(plan))
        send_weights(&answerer);
    const int has_masks = wp_ll_has_masks(&args->ll.masks);
    struct wp_ll_range range = {0, 0};
    if (!has_masks) /* on its way while room is awaited: with masks it is found out then whose count */
        range = wp_ll_range_for_lane(run, answerer.result, 0);
    enum wp_status status = await_room(&answerer);
    if (status == WP_STATUS_OK && has_masks)
        range = wp_ll_range_for_lane(run, answerer.result, 0);
    wp_ll_keep_ranges(warp, range);
    if (status == WP_STATUS_OK)
        status = answer_all(&answerer);
    status = wp_block_status(warp, status);
    if (status != WP_STATUS_OK)
        return status;
    struct wp_ll_half half = wp_ll_half_of(run, answerer.number);
    half.answered = answerer.result;
    half.use = args->use;
    wp_ll_remember(run, answerer.number, half);
    if (WP_LL_HAS_NODES(plan) && !wp_ll_has_node_sums(plan))
        put_answers(&answerer); /* the block has met */
    wp_ll_tell_arrived(run, WP_LL_ANSWERS, answerer.number);
    numbers->answers_sent = answerer.number;
    if (args->use == WP_LL_RESULT_ENDS)
        numbers->rows_answered = answerer.result;
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ receive */

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args)
{
    struct wp_warp *warp = run->op.warp;
    struct wp_ll_numbers *numbers = &run->numbers;
    const uint64_t number = numbers->answers_received + 1;
    const struct wp_ll_half half = wp_ll_half_of(run, number);
    const struct wp_ll_tokens tokens = wp_ll_half_of(run, half.answered).tokens;
    const struct wp_ll_summer summer = {
        run,           args,   number,
        half.answered, tokens, wp_ll_share_rows(wp_num_warps(warp), tokens.end - tokens.begin)};
    if (numbers->answers_received >= numbers->answers_sent)
        return wp_ll_fail(run, numbers->answers_sent, number);
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_has_node_sums(&args->ll.plan))
        status = wp_ll_relay_sums(&summer); /* first, since others wait for them */
    if (status == WP_STATUS_OK)
        status = wp_ll_await_and_sum(&summer);
    status = wp_block_status(warp, status);
    if (status != WP_STATUS_OK)
        return status;
    struct wp_ll_room room = {0, number};
    if (half.use == WP_LL_RESULT_ENDS)
        numbers->rows_ended = room.rows = half.answered;
    wp_ll_tell_room(run, room);
    numbers->answers_received = number;
    return WP_STATUS_OK;
}

WP_FN enum wp_status combine(struct wp_warp *warp, const struct wp_low_latency_combine_args *args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    if (args->phases & WP_LL_SEND)
        status = send(&run, args);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = receive(&run, args);
    return wp_ll_end_met(&run, status);
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(low_latency_combine, warp, args)
{
    return combine(warp, args);
}
#endif
