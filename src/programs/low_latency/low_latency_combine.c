/* SPDX-License-Identifier: MIT */
/*
 * low_latency_combine: each rank sends an answer to the owner of each row that it has: the sum of
 * its experts' rows in ascending order of the choices, or each expert's row by itself. The owner
 * sums what comes, ranks or choices in ascending order. Each row tells to which slot its answer
 * goes, or the first one of several. Those of a token's choices are a stride apart. Between nodes
 * those of a rank lie one behind the other, since they go in one put.
 */
#ifndef WP_LL_HAS_NODES /* variant.c */
#define WP_LL_HAS_NODES(plan) 0
#endif

#include "programs/low_latency/ll_combine.h"

/* In memory of the warp: of the rows of its pointers. */
WP_FN float *wp_ll_weights(struct wp_warp *warp)
{
    return (float *)wp_warp_shared(warp);
}
WP_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(float) <= WP_LL_RANGES_OFFSET, "one for each choice");

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
};

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
        wp_ll_weighs_late(&ll->plan) ? *wp_ll_slot_words(slot, at->token_offset) : 0,
        *wp_ll_slot_words(slot, at->answer_offset),
        WP_LL_HAS_NODES(&ll->plan) ? wp_ll_answer_to_row(ll, answerer->result, source, range.first)
                                   : 0,
        wp_ll_slot_words(slot, at->experts_offset)};
    return row;
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

/* Where the answer to a row is written. */
WP_FN char *answer_place(const struct answerer *answerer, struct asked_row row, int32_t slot)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    if (wp_ll_stays(ll, row.source))
        return wp_ll_row(ll, ll->exchange.rank, answerer->result, row.source, row.idx);
    if (wp_ll_is_remote(ll, row.source))
        return WP_LL_NODES(wp_ll_remote_answer(answerer->run, answerer->number, row.source, slot,
                                               row.block_answer),
                           NULL);
    return wp_ll_answer(ll, row.source, answerer->number, slot);
}

/* Writes elements of an answer: the weighted sum of some rows. */
WP_FN void write_answer(const struct answerer *answerer, char *dst, const void *const *srcs,
                        const float *weights, int32_t num_srcs, int64_t num_elements)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    const struct wp_weighted_sum sum = {plan->dtype, plan->answer_dtype, plan->reuse};
    wp_row_weighted_sum(warp, dst, srcs, weights, num_srcs, sum, num_elements);
}

/* Sends part `span` of the weighted sum of the warp's pointers. */
WP_FN void send_answer(const struct answerer *answerer, struct asked_row row, const float *weights,
                       int32_t num_srcs, struct wp_ll_span span)
{
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, span);
    char *dst = answer_place(answerer, row, row.answer) + wp_ll_answer_bytes(plan, elements.first);
    write_answer(answerer, dst, wp_warp_pointers(answerer->run->op.warp), weights, num_srcs,
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
        send_answer(answerer, row, NULL, 1, span);
}

/* ------------------------------------------------------------------ answers of single experts */

/* Copies elements of the listed rows to the listed places. Where there is no row they are zeros. */
WP_FN void send_rows(const struct answerer *answerer, const void *const *dsts,
                     const void *const *srcs, int32_t num_rows, int64_t num_elements)
{
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    if (plan->answer_dtype == plan->dtype) {
        wp_row_copy_each(answerer->run->op.warp, plan->reuse, dsts, srcs, num_rows,
                         (uint64_t)num_elements << plan->element_bytes_log2);
        return;
    }
    for (int32_t i = 0; i < num_rows; i++)
        write_answer(answerer, (char *)(uintptr_t)dsts[i], &srcs[i], NULL, 1, num_elements);
}

/* Answers the choices from `begin` on, one for each lane. `first` is the first choice here, and
 * num_before are before these. */
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
        is_choice ? wp_ll_packed_choices(ll, answerer->result, row.source, row.idx)[k].packed
                  : WP_LL_NOT_HERE;
    const int is_here = is_choice && row.experts[k] >= 0;
    wp_warp_sync(warp); /* the pointers before have been used */
    const int32_t place = wp_ll_list(warp, num_before, is_here);
    if (is_here) {
        const int32_t slot = row.answer + (WP_LL_HAS_NODES(&ll->plan)
                                               ? place
                                               : (k - first) * ll->plan.answer_slots.choice_stride);
        srcs[place - before] =
            packed >= 0 ? wp_ll_packed_answer(answerer->args, packed) + span.begin : NULL;
        dsts[place - before] =
            answer_place(answerer, row, slot) + wp_ll_answer_bytes(&ll->plan, elements.first);
    }
    wp_warp_sync(warp);
    send_rows(answerer, dsts, srcs, *num_before - before, elements.num);
}
WP_STATIC_ASSERT(2 * WP_WARP_SIZE <= WP_WARP_POINTERS, "a source and a place for each lane");

/* One answer for each choice. If its expert had no credit, it is zeros. */
WP_FN void answer_by_choice(const struct answerer *answerer, struct asked_row row,
                            struct wp_ll_span span)
{
    const int32_t num_topk = answerer->args->ll.plan.num_topk;
    int32_t first = 0, num_here = 0;
    while (first < num_topk && row.experts[first] < 0)
        first++;
    for (int32_t k = 0; k < num_topk; k += WP_WARP_SIZE)
        answer_some_choices(answerer, row, first, k, &num_here, span);
}

/* ------------------------------------------------------------------ all answers */

/* One warp's wait for a source counts. WP_STATUS_ABSENT: the source is masked, maybe by this
 * wait. */
WP_FN enum wp_status take_weights(const struct answerer *answerer, struct asked_row row,
                                  struct wp_part part)
{
    const struct wp_ll_run *run = answerer->run;
    const int is_counted = part.token == 0 && part.part == 0;
    int64_t *waited_ns = is_counted ? wp_ll_waited_ns(run, row.source) : NULL;
    const uint64_t begin_ns = waited_ns == NULL ? 0 : wp_now_ns(run->op.warp);
    if (wp_ll_warp_masks(run->op.warp, &run->ll->masks, row.source))
        return WP_STATUS_ABSENT;
    const enum wp_status status = wp_ll_take_weights(run, answerer->number, row.source, row.token,
                                                     wp_ll_weights(run->op.warp));
    if (wp_lane_idx(run->op.warp) == 0)
        wp_ll_end_waiting(run, waited_ns, begin_ns);
    if (status == WP_STATUS_ABSENT)
        wp_ll_mask_out(&run->ll->masks, row.source);
    return status;
}

/* Answers with the sum of the caller's rows for the choices here. */
WP_FN void answer_with_sum(const struct answerer *answerer, struct asked_row row,
                           struct wp_ll_span span)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_packed_choice none = {WP_LL_NOT_HERE, 0.0f};
    const struct wp_ll_packed_choice *choices =
        wp_ll_packed_choices(ll, answerer->result, row.source, row.idx);
    const int32_t lane = wp_lane_idx(warp);
    const int32_t num_rows = wp_ll_find_answered(warp, answerer->args, choices,
                                                 lane < ll->plan.num_topk ? choices[lane] : none,
                                                 span.begin, wp_ll_weights(warp));
    send_answer(answerer, row, wp_ll_weights(warp), num_rows, span);
}

/* One part of row i of those that a block of a source has sent. */
WP_FN enum wp_status answer_part(const struct answerer *answerer, int32_t source,
                                 struct wp_ll_range range, struct wp_part part)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_span span = wp_ll_row_span(&ll->plan, &ll->share_of_sources, part.part);
    if (span.bytes == 0)
        return WP_STATUS_OK;
    const struct asked_row row = asked_row(answerer, source, range, part.token);
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_weighs_late(&ll->plan))
        status = take_weights(answerer, row, part);
    if (status == WP_STATUS_OK && ll->plan.is_by_expert)
        status = wp_ll_await_answered(answerer->run, answerer->args,
                                      wp_ll_packed_choices(ll, answerer->result, source, row.idx));
    if (status != WP_STATUS_OK)
        return wp_ll_unless_absent(status);
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
        if (i > 0 && i % WP_WARP_SIZE == 0) {
            wp_warp_sync(warp); /* ranges have been used */
            wp_ll_keep_ranges(warp, wp_ll_range_for_lane(answerer->run, answerer->result, i));
        }
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

/* All warps call this. It sends the weights of the block's tokens to the ranks that answer them. */
WP_FN void send_weights(const struct answerer *answerer)
{
    const struct wp_ll_run *run = answerer->run;
    struct wp_warp *warp = run->op.warp;
    const int32_t num_topk = run->ll->plan.num_topk;
    const struct wp_ll_weights_sender sender = {run, answerer->args->late_weights,
                                                wp_ll_weights(warp), answerer->number};
    const struct wp_ll_tokens tokens = wp_ll_buffer_state(run, answerer->result).tokens;
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
        answerer.number > numbers->answers_received + (uint64_t)plan->num_buffers)
        return wp_ll_fail(run, numbers->rows_received, answerer.result);
    if (wp_ll_weighs_late(plan))
        send_weights(&answerer);
    const int has_masks = wp_ll_has_masks(&args->ll.masks);
    struct wp_ll_range range = {0, 0};
    if (!has_masks) /* on its way while credit is awaited; with masks that tells whose rows count */
        range = wp_ll_range_for_lane(run, answerer.result, 0);
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_is_credit_known(run, answerer.number, answerer.result))
        status = wp_ll_await_block(run, WP_LL_CREDIT, WP_LL_ANSWERS,
                                   wp_ll_number_before(run, answerer.number));
    if (status == WP_STATUS_OK && has_masks)
        range = wp_ll_range_for_lane(run, answerer.result, 0);
    wp_ll_keep_ranges(warp, range);
    if (status == WP_STATUS_OK)
        status = answer_all(&answerer);
    status = wp_block_status(warp, status);
    if (status != WP_STATUS_OK)
        return status;
    struct wp_ll_buffer buffer = wp_ll_buffer_state(run, answerer.number);
    buffer.answered = answerer.result;
    buffer.use = args->use;
    wp_ll_remember(run, answerer.number, buffer);
    if (wp_ll_weighs_late(plan))
        wp_ll_miss_masked(run); /* whose weights have not come: their answers are not signalled */
    WP_LL_NODES(wp_ll_put_answers(run, answerer.number, answerer.result), (void)0);
    wp_ll_send_arrived(run, WP_LL_ANSWERS, answerer.number);
    numbers->answers_sent = answerer.number;
    if (args->use == WP_LL_RESULT_ENDS)
        numbers->rows_answered = answerer.result;
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ receive */

struct summer {
    const struct wp_ll_run *run;
    const struct wp_low_latency_combine_args *args;
    uint64_t number;
    uint64_t result;
    struct wp_ll_tokens tokens; /* of this block, in the result */
    struct wp_ll_share share;   /* of these among its warps */
};

/* Whether the rank that answers a choice, if any does, has done so. */
WP_FN int has_come(const struct summer *summer, int32_t answering)
{
    return answering >= 0 && !wp_ll_is_missing(summer->run, answering);
}

/* How many of a token's sums come before that of choice k. */
WP_FN int32_t sums_before(const struct summer *summer, const int32_t *answering, int32_t k)
{
    const struct wp_low_latency *ll = &summer->args->ll;
    int32_t num_before = 0;
    for (int32_t other = 0; other < ll->plan.num_topk; other++)
        num_before += WP_LL_NODES(wp_ll_sum_place(ll, answering[other]), answering[other]) <
                          WP_LL_NODES(wp_ll_sum_place(ll, answering[k]), answering[k]) &&
                      has_come(summer, answering[other]);
    return num_before;
}

WP_FN const char *answer_of_choice(const struct summer *summer, int32_t token, int32_t k,
                                   int32_t answering)
{
    const struct wp_low_latency *ll = &summer->args->ll;
    if (wp_ll_stays(ll, answering))
        return wp_ll_row(ll, answering, summer->result, ll->exchange.rank,
                         wp_ll_answer_slots(ll, summer->result, token)[k]);
    const int32_t slot =
        WP_LL_HAS_NODES(&ll->plan)
            ? wp_ll_answer_slots(ll, summer->result, token)[k]
            : wp_ll_answer_slot(&ll->plan, answering, wp_block_idx(summer->run->op.warp),
                                token - summer->tokens.begin, k);
    return wp_ll_answer(ll, ll->exchange.rank, summer->number, slot);
}

/* Lists the token's answers in the order of their sum, with their weights. Returns how many there
 * are. */
WP_FN int32_t find_answers(const struct summer *summer, int32_t token, uint64_t begin)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency_combine_args *args = summer->args;
    const int32_t num_topk = args->ll.plan.num_topk;
    const int32_t *answering = wp_ll_answering(&args->ll, summer->result, token);
    int32_t num_answers = 0;
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int answers = k < num_topk && has_come(summer, answering[k]);
        const int32_t listed = wp_ll_list(warp, &num_answers, answers);
        if (!answers)
            continue;
        const int32_t place =
            args->ll.plan.answers_are_rows ? listed : sums_before(summer, answering, k);
        wp_warp_pointers(warp)[place] = answer_of_choice(summer, token, k, answering[k]) + begin;
        if (args->topk_weights != NULL)
            wp_ll_weights(warp)[place] = args->topk_weights[(int64_t)token * num_topk + k];
    }
    wp_warp_sync(warp);
    return num_answers;
}

/* The part of a token that the warp sums, whose answers have been found. */
struct summed_part {
    int32_t unit;
    int32_t token;
    int32_t num_answers;
    struct wp_ll_span span;
};

WP_FN struct summed_part find_part(const struct summer *summer, int32_t unit)
{
    const struct wp_ll_plan *plan = &summer->args->ll.plan;
    const struct wp_part part = wp_ll_unit_part(&summer->share, unit);
    struct summed_part found = {unit, summer->tokens.begin + part.token, 0,
                                wp_ll_row_span(plan, &summer->share, part.part)};
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, found.span);
    if (unit < summer->share.num_units && found.span.bytes > 0)
        found.num_answers =
            find_answers(summer, found.token, wp_ll_answer_bytes(plan, elements.first));
    return found;
}

WP_FN void sum_part(const struct summer *summer, const struct summed_part *part)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency_combine_args *args = summer->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const uint64_t row_bytes = (uint64_t)plan->hidden << plan->element_bytes_log2;
    const float *weights = args->topk_weights == NULL ? NULL : wp_ll_weights(warp);
    char *out = args->out + (uint64_t)part->token * row_bytes + part->span.begin;
    const struct wp_ll_elements elements = wp_ll_elements_of(plan, part->span);
    const struct wp_weighted_sum sum = {plan->answer_dtype, plan->dtype, plan->reuse};
    WP_LL_NODES(wp_ll_sum_own_node(summer->run,
                                   wp_ll_answering(&args->ll, summer->result, part->token),
                                   elements.num),
                (void)0);
    wp_row_weighted_sum(warp, out, wp_warp_pointers(warp), weights, part->num_answers, sum,
                        elements.num);
}

/* The first part has been found. */
WP_FN void sum_tokens(const struct summer *summer, struct summed_part part)
{
    const int32_t num_warps = wp_num_warps(summer->run->op.warp);
    while (part.unit < summer->share.num_units) {
        if (part.span.bytes > 0)
            sum_part(summer, &part);
        if (part.unit + num_warps >= summer->share.num_units)
            return;
        part = find_part(summer, part.unit + num_warps);
    }
}

/* It is known where answers lie before they come; with masks, only when it is known whose do
 * not. */
WP_FN enum wp_status await_and_sum(const struct summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const int has_masks = wp_ll_has_masks(&summer->args->ll.masks);
    struct summed_part part = {wp_warp_idx(warp), 0, 0, {0, 0}};
    if (!has_masks)
        part = find_part(summer, part.unit);
    const enum wp_status status =
        wp_ll_await_block(summer->run, WP_LL_ARRIVED, WP_LL_ANSWERS, summer->number);
    if (status != WP_STATUS_OK)
        return status;
    wp_admit_next(warp); /* all ranks have started */
    wp_warp_sync(warp);  /* each lane has waited for some ranks */
    wp_ll_send_missing(summer->run, summer->args->missing_ranks);
    if (has_masks)
        part = find_part(summer, part.unit);
    sum_tokens(summer, part);
    return status;
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args)
{
    struct wp_warp *warp = run->op.warp;
    struct wp_ll_numbers *numbers = &run->numbers;
    const uint64_t number = numbers->answers_received + 1;
    const struct wp_ll_buffer buffer = wp_ll_buffer_state(run, number);
    const struct wp_ll_tokens tokens = wp_ll_buffer_state(run, buffer.answered).tokens;
    const struct summer summer = {
        run,    args,
        number, buffer.answered,
        tokens, wp_ll_share_rows(wp_num_warps(warp), tokens.end - tokens.begin)};
    if (numbers->answers_received >= numbers->answers_sent)
        return wp_ll_fail(run, numbers->answers_sent, number);
    enum wp_status status =
        WP_LL_NODES(wp_ll_relay_sums(run, buffer.answered, number), WP_STATUS_OK);
    if (status == WP_STATUS_OK)
        status = await_and_sum(&summer);
    status = wp_block_status(warp, status);
    if (status != WP_STATUS_OK)
        return status;
    struct wp_ll_credit credit = {0, number};
    if (buffer.use == WP_LL_RESULT_ENDS)
        numbers->rows_ended = credit.rows = buffer.answered;
    wp_ll_give_credit(run, credit);
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
    return wp_ll_end(&run, status);
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(low_latency_combine, warp, args)
{
    return combine(warp, args);
}
#endif
