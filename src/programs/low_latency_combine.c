/* SPDX-License-Identifier: MIT */
/*
 * low_latency_combine: each rank sends, for each row that it has got, an answer to the row's owner:
 * the sum of its experts' rows in ascending order of the choices, or each expert's row by itself.
 * The owner sums what comes, ranks or choices in ascending order. Each row tells
 * where its answer goes: its token's place, in which there is a slot for each choice, and for sums the
 * first one of each rank; with nodes the slot itself, since the answers of a rank to a block go in one
 * put.
 */
#ifndef WP_LL_HAS_NODES /* internode_low_latency_combine.c */
#define WP_LL_HAS_NODES(plan) 0
#endif

#include "programs/low_latency_combine.h"

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
    int32_t answer;         /* its token's place; with nodes the slot of its (first) answer, */
    int32_t block_answer;   /* and that of the first that the rows of its block get */
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
        *(const int32_t *)(const void *)(slot + at->answer_offset),
        WP_LL_HAS_NODES(&ll->plan) ? answer_of_row(answerer, source, range.first) : 0,
        (const int32_t *)(const void *)(slot + at->experts_offset),
        (const float *)(const void *)(slot + at->weights_offset)};
    return row;
}

/* The caller's row for choice k; NULL: there is none. */
WP_FN const char *row_of_choice(const struct answerer *answerer, struct asked_row row, int32_t k)
{
    const struct wp_low_latency_combine_args *args = answerer->args;
    const int32_t packed = wp_ll_packed(&args->ll, answerer->result, row.source, row.idx)[k];
    return packed < 0 ? NULL : args->rows + (uint64_t)packed * args->row_stride_bytes;
}

WP_FN const char *row_of_rank(const struct answerer *answerer, struct asked_row row)
{
    const struct wp_low_latency_combine_args *args = answerer->args;
    const uint64_t idx =
        (uint64_t)row.source * (uint64_t)args->ll.plan.max_tokens + (uint64_t)row.idx;
    return args->rows + idx * args->row_stride_bytes;
}

WP_FN int32_t first_choice(const int32_t *experts)
{
    int32_t k = 0;
    while (experts[k] < 0) /* a row has come for one at least */
        k++;
    return k;
}

WP_FN int32_t count_experts(const int32_t *experts, int32_t num_choices)
{
    int32_t num_experts = 0;
    for (int32_t k = 0; k < num_choices; k++)
        num_experts += experts[k] >= 0;
    return num_experts;
}

/* Where the answer to a row goes, for choice k, or for all from k on: to its slot, or to where that
 * is staged. */
WP_FN char *answer_place(const struct answerer *answerer, struct asked_row row, int32_t k)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    if (!WP_LL_HAS_NODES(plan))
        return wp_ll_answer(ll, row.source, answerer->number,
                            wp_ll_answer_slot(plan, ll->exchange.rank, row.answer, k));
    const int32_t slot = row.answer + (plan->answers_are_rows ? count_experts(row.experts, k) : 0);
    if (!wp_ll_is_remote(ll, row.source))
        return wp_ll_answer(ll, row.source, answerer->number, slot);
    return ll->network.memory + wp_ll_staged_answer(ll, answerer->number, row.source,
                                                    wp_block_idx(answerer->run->op.warp),
                                                    slot - row.block_answer);
}

/* The weighted sum of the warp's pointers, in memory of the warp's own, as its first pointer. */
WP_FN void sum_here(const struct answerer *answerer, const float *weights, int32_t num_srcs,
                    int64_t num_elements)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_weighted_sum sum = {ll->plan.dtype, ll->plan.dtype};
    char *here = ll->sums + (uint64_t)wp_launch_warp_idx(warp) * (uint64_t)ll->plan.hidden *
                                wp_dtype_bytes(ll->plan.dtype);
    wp_row_sync(warp); /* the row before has been read */
    wp_row_weighted_sum(warp, here, wp_warp_pointers(warp), weights, num_srcs, sum, num_elements);
    wp_row_sync(warp); /* the sum is there, and the pointers have been used */
    if (wp_lane_idx(warp) == 0)
        wp_warp_pointers(warp)[0] = here;
    wp_warp_sync(warp);
}

/* The row of the warp's first pointer as logarithms; of no row, or of several, their sum. */
WP_FN void send_logarithms(const struct answerer *answerer, char *dst, const float *weights,
                           int32_t num_srcs, int64_t num_elements)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const void **pointers = wp_warp_pointers(warp);
    if (num_srcs > 1 || weights != NULL || pointers[0] == NULL)
        sum_here(answerer, weights, num_srcs, num_elements);
    const void *from = pointers[0];
    wp_warp_sync(warp); /* all lanes have read it */
    if (wp_lane_idx(warp) == 0)
        pointers[0] = dst;
    wp_warp_sync(warp);
    wp_row_log_encode(warp, pointers, 1, from, answerer->args->ll.plan.dtype, num_elements);
}

/* Part `span` of a row, or of the weighted sum of the warp's pointers. */
WP_FN void send_answer(const struct answerer *answerer, struct asked_row row, int32_t choice,
                       const float *weights, int32_t num_srcs, struct wp_span span)
{
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    struct wp_warp *warp = answerer->run->op.warp;
    const uint64_t element_bytes = wp_dtype_bytes(plan->dtype);
    const int64_t num_elements = (int64_t)((uint32_t)span.bytes / (uint32_t)element_bytes);
    char *dst = answer_place(answerer, row, choice) +
                wp_ll_answer_bytes(plan, (int64_t)((uint32_t)span.begin / (uint32_t)element_bytes));
    const struct wp_weighted_sum sum = {plan->dtype, plan->answer_dtype};
    if (plan->answer_dtype == WEFT_LOG_10BIT)
        send_logarithms(answerer, dst, weights, num_srcs, num_elements);
    else
        wp_row_weighted_sum(warp, dst, wp_warp_pointers(warp), weights, num_srcs, sum,
                            num_elements);
}

/* The caller has summed the rows of this rank's experts: they are sent as they are. */
WP_FN void answer_with_row(const struct answerer *answerer, struct asked_row row,
                           struct wp_span span)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const void **pointers = wp_warp_pointers(warp);
    const char *from = row_of_rank(answerer, row) + span.begin;
    const int32_t choice = first_choice(row.experts);
    wp_warp_sync(warp); /* those before have been used */
    if (wp_lane_idx(warp) == 0)
        pointers[0] = ll->plan.answer_dtype != ll->plan.dtype
                          ? from
                          : answer_place(answerer, row, choice) + span.begin;
    wp_warp_sync(warp);
    if (ll->plan.answer_dtype == ll->plan.dtype)
        wp_ll_copy_row(warp, &ll->plan, pointers, 1, from, span.bytes);
    else
        send_answer(answerer, row, choice, NULL, 1, span);
}

/* The sum of all choices here. */
WP_FN void answer_with_sum(const struct answerer *answerer, struct asked_row row,
                           struct wp_span span)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    const void **srcs = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        const char *from = row_of_choice(answerer, row, k);
        srcs[k] = from == NULL ? NULL : from + span.begin;
    }
    wp_warp_sync(warp);
    send_answer(answerer, row, first_choice(row.experts), row.weights, plan->num_topk, span);
}

/* One answer for each choice; where its expert had no room, of zeros. */
WP_FN void answer_by_choice(const struct answerer *answerer, struct asked_row row,
                            struct wp_span span)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    const void **srcs = wp_warp_pointers(warp);
    for (int32_t k = 0; k < plan->num_topk; k++) {
        if (row.experts[k] < 0)
            continue;
        wp_warp_sync(warp);
        if (wp_lane_idx(warp) == 0) {
            const char *from = row_of_choice(answerer, row, k);
            srcs[0] = from == NULL ? NULL : from + span.begin;
        }
        wp_warp_sync(warp);
        send_answer(answerer, row, k, NULL, 1, span);
    }
}

WP_FN void answer_rows(const struct answerer *answerer, int32_t source, struct wp_ll_range range,
                       const struct wp_share *share, int32_t num_before)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_ll_plan *plan = &answerer->args->ll.plan;
    const uint64_t row_bytes = (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype);
    for (int32_t unit = wp_ll_first_unit(warp, num_before);
         unit < range.num_rows * share->num_parts; unit += wp_num_warps(warp)) {
        const struct wp_part part = wp_unit_part(share, unit);
        const struct wp_span span = wp_part_span(share, part.part, row_bytes);
        if (span.bytes == 0)
            continue;
        const struct asked_row row = asked_row(answerer, source, range, part.token);
        if (!plan->is_by_expert)
            answer_with_row(answerer, row, span);
        else if (plan->answers_are_rows)
            answer_by_choice(answerer, row, span);
        else
            answer_with_sum(answerer, row, span);
    }
}

WP_FN void answer_all(const struct answerer *answerer)
{
    struct wp_warp *warp = answerer->run->op.warp;
    const struct wp_low_latency *ll = &answerer->args->ll;
    const struct wp_share share = wp_ll_share_of_sources(warp, &ll->plan);
    int32_t num_units = 0;
    for (int32_t i = 0; i < ll->exchange.num_ranks; i++) {
        if (i % WP_WARP_SIZE == 0)
            wp_ll_read_ranges(answerer->run, answerer->result, i);
        const struct wp_ll_range range = wp_ll_warp_ranges(warp)[i % WP_WARP_SIZE];
        answer_rows(answerer, wp_rank_after(&ll->exchange, i), range, &share, num_units);
        num_units += range.num_rows * share.num_parts;
    }
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
        const struct wp_ll_range range = wp_ll_range(ll, answerer->result, rank, block);
        const int32_t first = range.num_rows > 0 ? answer_of_row(answerer, rank, range.first) : 0;
        const struct wp_ll_put put = {
            rank,
            wp_ll_staged_answer(ll, answerer->number, rank, block, 0),
            wp_ll_answer_offset(ll, answerer->number, first),
            (uint64_t)count_answers(answerer, rank, range) * ll->plan.answer_bytes,
            wp_ll_network_arrived(ll, WP_LL_ANSWERS, answerer->number, ll->exchange.rank, block),
            1};
        wp_ll_post(warp, ll, &put);
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
    enum wp_status status = wp_ll_await_block(run, WP_LL_ROOM, WP_LL_ANSWERS,
                                              wp_ll_number_before(run, answerer.number));
    if (status == WP_STATUS_OK)
        answer_all(&answerer);
    status = (enum wp_status)wp_block_max(warp, (uint32_t)status);
    if (status != WP_STATUS_OK)
        return status;
    wp_ll_remember_answers(run, answerer.number, answerer.result, args->use);
    if (WP_LL_HAS_NODES(plan))
        put_answers(&answerer); /* the block has met */
    wp_ll_tell_arrived(run, WP_LL_ANSWERS, answerer.number);
    numbers->answers_sent = answerer.number;
    if (args->use == WP_LL_RESULT_ENDS)
        numbers->rows_answered = answerer.result;
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ sum up */

struct summer {
    const struct wp_ll_run *run;
    const struct wp_low_latency_combine_args *args;
    uint64_t number;
    uint64_t result;
    struct wp_ll_tokens tokens; /* of this block */
};

/* Of a token's sums, how many come from ranks below that of choice k. */
WP_FN int32_t num_ranks_below(const int32_t *answering, int32_t num_topk, int32_t k)
{
    int32_t num_below = 0;
    for (int32_t other = 0; other < num_topk; other++)
        num_below += answering[other] >= 0 && answering[other] < answering[k];
    return num_below;
}

/* Whether the rank that answers a choice, if any does, has done so. */
WP_FN int has_come(const struct summer *summer, int32_t answering)
{
    const int has_masks = wp_ll_has_masks(&summer->args->ll.masks);
    return answering >= 0 && (!has_masks || wp_ll_missing(summer->run)[answering] == 0);
}

WP_FN int32_t place_of(const struct summer *summer, int32_t token)
{
    return wp_ll_place_of(&summer->args->ll.plan, wp_block_idx(summer->run->op.warp),
                          summer->tokens, token);
}

WP_FN const char *answer_of_choice(const struct summer *summer, int32_t token, int32_t k,
                                   int32_t answering)
{
    const struct wp_low_latency *ll = &summer->args->ll;
    const int32_t slot = WP_LL_HAS_NODES(&ll->plan)
                             ? wp_ll_answer_slots(ll, summer->result, token)[k]
                             : wp_ll_answer_slot(&ll->plan, answering, place_of(summer, token), k);
    return wp_ll_answer(ll, ll->exchange.rank, summer->number, slot);
}

/* The token's answers in the order in which they are summed, the others NULL. */
WP_FN void find_answers(const struct summer *summer, int32_t token, struct wp_span span)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency *ll = &summer->args->ll;
    const int32_t num_topk = ll->plan.num_topk;
    const int32_t *answering = wp_ll_answering(ll, summer->result, token);
    const uint64_t begin = wp_ll_answer_bytes(
        &ll->plan, (int64_t)((uint32_t)span.begin / (uint32_t)wp_dtype_bytes(ll->plan.dtype)));
    const void **srcs = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE)
        srcs[k] = NULL;
    wp_warp_sync(warp);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t place =
            ll->plan.answers_are_rows ? k : num_ranks_below(answering, num_topk, k);
        if (has_come(summer, answering[k]))
            srcs[place] = answer_of_choice(summer, token, k, answering[k]) + begin;
    }
    wp_warp_sync(warp);
}

WP_FN void sum_token(const struct summer *summer, int32_t token, struct wp_span span)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency_combine_args *args = summer->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const uint64_t row_bytes = (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype);
    const float *weights =
        args->topk_weights == NULL ? NULL : args->topk_weights + (int64_t)token * plan->num_topk;
    char *out = args->out + (uint64_t)token * row_bytes + span.begin;
    const int64_t num_elements =
        (int64_t)((uint32_t)span.bytes / (uint32_t)wp_dtype_bytes(plan->dtype));
    const struct wp_weighted_sum sum = {plan->answer_dtype, plan->dtype};
    find_answers(summer, token, span);
    if (plan->answer_dtype == WEFT_LOG_10BIT)
        wp_row_log_sum(warp, out, wp_warp_pointers(warp), weights, plan->num_topk, plan->dtype,
                       num_elements);
    else
        wp_row_weighted_sum(warp, out, wp_warp_pointers(warp), weights, plan->num_topk, sum,
                            num_elements);
}

WP_FN void sum_tokens(const struct summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_ll_plan *plan = &summer->args->ll.plan;
    const struct wp_ll_tokens tokens = summer->tokens;
    const struct wp_share share = wp_ll_share(warp, tokens.end - tokens.begin);
    for (int32_t unit = wp_warp_idx(warp); unit < share.num_units; unit += wp_num_warps(warp)) {
        const struct wp_part part = wp_unit_part(&share, unit);
        const struct wp_span span =
            wp_part_span(&share, part.part, (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype));
        if (span.bytes > 0)
            sum_token(summer, tokens.begin + part.token, span);
    }
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_ll_numbers *numbers = &run->numbers;
    const uint64_t number = numbers->answers_received + 1;
    const uint64_t result = run->block->halves[wp_ll_half(plan, number)].answered;
    const struct summer summer = {
        run, args, number, result,
        wp_ll_tokens_of(run->block->halves[wp_ll_half(plan, result)].num_tokens, wp_block_idx(warp),
                        plan->num_blocks)};
    if (numbers->answers_received >= numbers->answers_sent)
        return wp_ll_fail(run, numbers->answers_sent, number);
    enum wp_status status = wp_ll_await_block(run, WP_LL_ARRIVED, WP_LL_ANSWERS, number);
    if (status == WP_STATUS_OK) {
        wp_admit_next(warp); /* all ranks have started */
        sum_tokens(&summer);
    }
    status = (enum wp_status)wp_block_max(warp, (uint32_t)status);
    if (status != WP_STATUS_OK)
        return status;
    wp_ll_tell_missing(run, args->missing_ranks, NULL);
    struct wp_ll_room room = {0, number};
    if (run->block->halves[wp_ll_half(plan, number)].use == WP_LL_RESULT_ENDS)
        numbers->rows_ended = room.rows = summer.result;
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
    return wp_ll_end(&run, status);
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(low_latency_combine, warp, args)
{
    return combine(warp, args);
}
#endif
