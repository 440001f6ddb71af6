/* SPDX-License-Identifier: MIT */
/* packet_low_latency_combine: low_latency_combine in packets (ll_packets.h). A warp sends parts of
 * answers to single tokens, by expert sums, and receives a part of the answers of all ranks to a
 * token of its own. */

/* Between nodes there are no packets. */
#define WP_LL_HAS_NODES(plan) 0
#ifndef WP_LL_STEPS_ONLY /* variants define it in low_latency/variant.c */
#define WP_ROWS_ARE_MADE_NEAR
#endif

#include "programs/low_latency/ll_combine.h"
#include "programs/low_latency/ll_packets.h"
#include "programs/low_latency/ll_protocol.h"

struct wp_packet_low_latency_combine_args {
    struct wp_low_latency_combine_args combine;
};

/* ------------------------------------------------------------------ what dispatch has found out */

/* A word of a table, for each buffer: loaded before it is known which buffer counts. */
struct of_buffers {
    int32_t first, second;
};

WP_FN int32_t of_buffer(const struct wp_low_latency *ll, struct of_buffers of, uint64_t number)
{
    return wp_ll_buffer(&ll->plan, number) == 0 ? of.first : of.second;
}

WP_FN struct of_buffers load_buffers(const struct wp_low_latency *ll, const void *first,
                                     const void *second)
{
    struct of_buffers of = {(int32_t)wp_load_now_u32((const uint32_t *)first), 0};
    if (ll->plan.num_buffers > 1)
        of.second = (int32_t)wp_load_now_u32((const uint32_t *)second);
    return of;
}

/* A work item answers with this. */
struct answered {
    /* By rank, a row of the item's rank: */
    struct of_buffers num_rows;  /* of the rank */
    struct of_buffers token;     /* at its source */
    struct wp_packet_row answer; /* a part of it, if there is such a row */
    /* By expert, the lane's first choice of a token: */
    struct of_buffers packed; /* as which of the caller's rows */
    struct of_buffers weight; /* the bits of a float */
};

/* Begins to load for item i. By rank the place of the caller's row is known, so its load begins
 * before it is known whether there is a row. */
WP_FN struct answered load_answered(struct wp_warp *warp,
                                    const struct wp_low_latency_combine_args *args, int32_t i)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    const int32_t own = ll->exchange.rank, k = wp_lane_idx(warp);
    const struct wp_ll_unit unit = wp_ll_unit_of(ll, plan->answer_parts, i);
    struct answered answered = {
        {0, 0}, {0, 0}, wp_packets_load(warp, NULL, 0), {WP_LL_NOT_HERE, WP_LL_NOT_HERE}, {0, 0}};
    if (i >= wp_ll_num_answer_units(plan, ll->exchange.num_ranks) ||
        (plan->is_by_expert && k >= plan->num_topk))
        return answered;
    if (plan->is_by_expert) {
        const struct wp_ll_packed_choice *first =
            wp_ll_packed_choices(ll, 0, unit.rank, unit.token);
        const struct wp_ll_packed_choice *second =
            wp_ll_packed_choices(ll, 1, unit.rank, unit.token);
        answered.packed = load_buffers(ll, &first[k].packed, &second[k].packed);
        answered.weight = load_buffers(ll, &first[k].weight, &second[k].weight);
        return answered;
    }
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->answer_parts, unit.part);
    const uint64_t row = wp_ll_token_idx(ll, 0, unit.rank, unit.token);
    const uint64_t at = plan->slot.answer_offset;
    answered.num_rows = load_buffers(ll, &ll->num_rows[wp_ll_rank_of_buffer(ll, 0, unit.rank)],
                                     &ll->num_rows[wp_ll_rank_of_buffer(ll, 1, unit.rank)]);
    answered.token = load_buffers(ll, wp_ll_row(ll, own, 0, unit.rank, unit.token) + at,
                                  wp_ll_row(ll, own, 1, unit.rank, unit.token) + at);
    answered.answer = wp_packets_load(warp,
                                      args->rows + row * args->row_stride_bytes +
                                          ((uint64_t)elements.first << plan->element_bytes_log2),
                                      (uint64_t)elements.num << plan->element_bytes_log2);
    return answered;
}

/* Begins to load whether rank n answers a token, in lane n. */
WP_FN struct of_buffers load_target(struct wp_warp *warp, const struct wp_low_latency *ll,
                                    int32_t token, int is_there)
{
    const struct of_buffers none = {0, 0};
    return wp_lane_idx(warp) < ll->exchange.num_ranks && is_there
               ? load_buffers(ll,
                              &ll->row_targets[wp_ll_token_idx(ll, 0, wp_lane_idx(warp), token)],
                              &ll->row_targets[wp_ll_token_idx(ll, 1, wp_lane_idx(warp), token)])
               : none;
}

/* Begins to load the same for the i-th part that is summed. */
WP_FN struct of_buffers load_target_of_part(struct wp_warp *warp, const struct wp_low_latency *ll,
                                            int32_t i)
{
    return load_target(warp, ll, wp_ll_part_of(ll->plan.sum_parts, i).token,
                       i < ll->plan.max_tokens * ll->plan.sum_parts.num);
}

/* The answers that are sent, or received. */
struct outgoing {
    struct wp_ll_run *run;
    const struct wp_low_latency_combine_args *args;
    struct wp_packets packets;
    uint64_t number;     /* of the answers */
    uint64_t result;     /* that they answer */
    int is_credit_known; /* to send */
};

/* A bit for each rank that answers a token of this rank. Lane n knows of rank n. On GPUs there are
 * no more ranks than lanes. */
WP_FN uint32_t answering_ranks(const struct outgoing *outgoing, int32_t token,
                               struct of_buffers target)
{
    struct wp_warp *warp = outgoing->run->op.warp;
    const struct wp_low_latency *ll = &outgoing->args->ll;
    uint32_t ranks = wp_ballot(warp, of_buffer(ll, target, outgoing->result) > 0);
    for (int32_t rank = WP_WARP_SIZE; rank < WP_LL_NEAR_RANKS && rank < ll->exchange.num_ranks;
         rank++)
        ranks |= (uint32_t)ll->row_targets[wp_ll_token_idx(ll, outgoing->result, rank, token)]
                 << rank;
    return ranks;
}

/* ------------------------------------------------------------------ answer */

/* The packets of an item's part of the answer to a token. */
WP_FN struct wp_packet_targets answer_targets(const struct outgoing *outgoing,
                                              struct wp_ll_unit unit, int32_t token)
{
    const struct wp_low_latency *ll = &outgoing->args->ll;
    const struct wp_ll_elements elements =
        wp_ll_part_elements(&ll->plan, ll->plan.answer_parts, unit.part);
    const struct wp_packet_targets there = {
        unit.rank, unit.rank + 1, wp_ll_answer_packet(ll, ll->exchange.rank, token, elements),
        WP_PACKETS_TO_ALL, 0};
    return there;
}

/* The weights of the warp, in memory of the block. */
WP_FN float *weights_memory(struct wp_warp *warp, const struct wp_ll_plan *plan)
{
    float *weights = (float *)(void *)((char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES);
    const int32_t first = wp_warp_idx(warp) * plan->num_topk;
    return weights + first;
}

WP_STATIC_ASSERT(WP_BLOCK_WORDS_BYTES + WP_BLOCK_MOST_WARPS * WP_WARP_SHARED_BYTES / 2 -
                         WP_BLOCK_MOST_WARPS * WP_ALIGNED_BYTES / 2 <=
                     WP_BLOCK_SHARED_BYTES,
                 "those of a row are less than half of what goes with it (WP_LL_UNIT_CHOICES)");

/* ------------------------------------------------------------------ weights that come late */

/* All warps that receive call this. It sends the weights of this rank's tokens to the ranks that
 * answer them. A rank that gives credit for answers has read the weights of its own answers before.
 * A wait for weights counts as a wait for answers, so the first block receives the words of all
 * ranks before it waits. */
WP_FN enum wp_status send_weights(const struct outgoing *outgoing)
{
    struct wp_warp *warp = outgoing->run->op.warp;
    const struct wp_low_latency *ll = &outgoing->args->ll;
    const struct wp_ll_weights_sender sender = {outgoing->run, outgoing->args->late_weights,
                                                weights_memory(warp, &ll->plan), outgoing->number};
    const struct wp_ll_turns turns = wp_ll_turns_to(WP_LL_RECEIVE, warp, ll);
    const int32_t end = wp_ll_buffer_state(outgoing->run, outgoing->result).tokens.end;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t token = turns.first; token < end; token += turns.step) {
        uint32_t ranks = answering_ranks(outgoing, token, load_target(warp, ll, token, 1));
        wp_ll_load_weights(&sender, token);
        for (int32_t rank = 0; ranks != 0 && status == WP_STATUS_OK; rank++, ranks >>= 1) {
            if (!(ranks & 1u))
                continue;
            status = outgoing->is_credit_known
                         ? WP_STATUS_OK
                         : wp_ll_await_credit(outgoing->run, WP_LL_ANSWERS, rank, outgoing->number);
            if (status == WP_STATUS_OK && !wp_ll_leaves_out(outgoing->run, rank))
                wp_ll_send_weights(&sender, token, rank);
        }
    }
    return status == WP_STATUS_OK && wp_block_idx(warp) == 0 && ll->waited_ns != NULL
               ? wp_ll_receive_all(outgoing->run, WP_LL_ANSWERS, outgoing->number, ll->waited_ns)
               : status;
}

/* Warp-wide, by expert: whether the item's token has a choice here. */
WP_FN int has_choice(const struct outgoing *outgoing, struct wp_ll_unit unit,
                     const struct answered *first)
{
    struct wp_warp *warp = outgoing->run->op.warp;
    const struct wp_low_latency *ll = &outgoing->args->ll;
    int is_here = of_buffer(ll, first->packed, outgoing->result) != WP_LL_NOT_HERE;
    for (int32_t k = WP_WARP_SIZE + wp_lane_idx(warp); k < ll->plan.num_topk; k += WP_WARP_SIZE)
        is_here |= wp_ll_packed_choices(ll, outgoing->result, unit.rank, unit.token)[k].packed !=
                   WP_LL_NOT_HERE;
    return wp_ballot(warp, is_here) != 0;
}

/* Warp-wide: waits for the weights of the item's token, unless its rank is left out. */
WP_FN enum wp_status take_weights(const struct outgoing *outgoing, struct wp_ll_unit unit)
{
    struct wp_ll_run *run = outgoing->run;
    const enum wp_status status =
        wp_ll_take_weights(run, outgoing->number, unit.rank, unit.token,
                           weights_memory(run->op.warp, &outgoing->args->ll.plan));
    wp_ll_leave_out(run, status == WP_STATUS_ABSENT ? 1u << unit.rank : 0);
    return status;
}

/* ------------------------------------------------------------------ answers by expert */

/* By expert: sends the sum of the caller's rows for the choices of a token here, if it has any. If
 * no expert had room for it, the sum is zeros. A token whose weights do not come is not
 * answered. */
WP_FN enum wp_status answer_choices(const struct outgoing *outgoing, struct wp_ll_unit unit,
                                    const struct answered *answered)
{
    struct wp_warp *warp = outgoing->run->op.warp;
    const struct wp_ll_plan *plan = &outgoing->args->ll.plan;
    const struct wp_weighted_sum how = {plan->dtype, plan->dtype, WP_READ_SOON};
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->answer_parts, unit.part);
    const int32_t weight = of_buffer(&outgoing->args->ll, answered->weight, outgoing->result);
    struct wp_ll_packed_choice first = {
        of_buffer(&outgoing->args->ll, answered->packed, outgoing->result), 0.0f};
    memcpy(&first.weight, &weight, sizeof weight);
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_weighs_late(plan) && has_choice(outgoing, unit, answered))
        status = take_weights(outgoing, unit);
    const struct wp_ll_packed_choice *choices =
        wp_ll_packed_choices(&outgoing->args->ll, outgoing->result, unit.rank, unit.token);
    if (status == WP_STATUS_OK)
        status = wp_ll_await_answered(outgoing->run, outgoing->args, choices);
    if (status != WP_STATUS_OK)
        return wp_ll_unless_absent(status);
    const int32_t num_rows = wp_ll_find_answered(
        warp, outgoing->args, choices, first, (uint64_t)elements.first << plan->element_bytes_log2,
        weights_memory(warp, plan));
    if (num_rows >= 0)
        wp_packets_send_weighted_sum(warp, &outgoing->packets,
                                     answer_targets(outgoing, unit, unit.token),
                                     (const void *const *)wp_warp_pointers(warp),
                                     weights_memory(warp, plan), num_rows, how, elements.num);
    return status;
}

/* Warp-wide: answers an item, by rank with a part of the caller's row, if there is such a row. */
WP_FN enum wp_status answer_unit(const struct outgoing *outgoing, struct wp_ll_unit unit,
                                 const struct answered *answered)
{
    const struct wp_low_latency *ll = &outgoing->args->ll;
    const enum wp_status status =
        outgoing->is_credit_known
            ? WP_STATUS_OK
            : wp_ll_await_credit(outgoing->run, WP_LL_ANSWERS, unit.rank, outgoing->number);
    if (status != WP_STATUS_OK || wp_ll_leaves_out(outgoing->run, unit.rank))
        return status;
    if (ll->plan.is_by_expert)
        return answer_choices(outgoing, unit, answered);
    const int32_t token = of_buffer(ll, answered->token, outgoing->result);
    if (unit.token < of_buffer(ll, answered->num_rows, outgoing->result))
        wp_packets_send(outgoing->run->op.warp, &outgoing->packets,
                        answer_targets(outgoing, unit, token), &answered->answer);
    return status;
}

/* All warps call this. It signals that this rank has answered. */
WP_FN void tell_answering(const struct outgoing *outgoing)
{
    struct wp_warp *warp = outgoing->run->op.warp;
    const struct wp_low_latency *ll = &outgoing->args->ll;
    if (wp_block_idx(warp) != 0 || !wp_ll_is_leader_warp(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < ll->exchange.num_ranks; rank += WP_WARP_SIZE)
        if (!wp_ll_leaves_out(outgoing->run, rank))
            wp_tell(warp, rank,
                    wp_ll_comes_word(ll, rank, WP_LL_ANSWERS, outgoing->number, ll->exchange.rank),
                    wp_ll_comes(outgoing->number, WP_LL_MOST_ROWS, 0));
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args,
                          struct answered answered)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_ll_numbers *numbers = &run->numbers;
    const uint64_t number = numbers->answers_sent + 1;
    const uint64_t result = numbers->rows_answered + 1;
    const struct outgoing outgoing = {
        run,    args,   wp_ll_packets_of(&args->ll, WP_LL_ANSWERS, number),
        number, result, wp_ll_is_credit_known(run, number, result)};
    const struct wp_ll_turns turns = wp_ll_turns_to(WP_LL_SEND, warp, &args->ll);
    const int32_t end = wp_ll_num_answer_units(plan, args->ll.exchange.num_ranks);
    enum wp_status status = WP_STATUS_OK;
    if (outgoing.result > numbers->rows_received ||
        number > numbers->answers_received + (uint64_t)plan->num_buffers)
        return wp_ll_fail(run, numbers->rows_received, outgoing.result);
    tell_answering(&outgoing);
    if (wp_ll_weighs_late(plan))
        status = send_weights(&outgoing);
    for (int32_t i = turns.first; i < end && status == WP_STATUS_OK; i += turns.step) {
        status = answer_unit(&outgoing, wp_ll_unit_of(&args->ll, plan->answer_parts, i), &answered);
        answered = load_answered(warp, args, i + turns.step);
    }
    struct wp_ll_buffer buffer = wp_ll_buffer_state(run, number);
    buffer.answered = outgoing.result;
    buffer.use = args->use;
    wp_ll_remember(run, number, buffer);
    numbers->answers_sent = number;
    if (args->use == WP_LL_RESULT_ENDS)
        numbers->rows_answered = outgoing.result;
    return status;
}

/* ------------------------------------------------------------------ receive */

WP_FN enum wp_status sum_part(const struct outgoing *outgoing, struct wp_ll_unit summed,
                              struct of_buffers target)
{
    struct wp_warp *warp = outgoing->run->op.warp;
    const struct wp_low_latency_combine_args *args = outgoing->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->sum_parts, summed.part);
    char *out =
        args->out + (((uint64_t)summed.token * (uint64_t)plan->hidden + (uint64_t)elements.first)
                     << plan->element_bytes_log2);
    struct wp_packet_rows from = {answering_ranks(outgoing, summed.token, target),
                                  wp_ll_answer_packet(&args->ll, 0, summed.token, elements),
                                  (uint64_t)plan->max_tokens * plan->answer_bytes /
                                      WP_PACKET_BYTES};
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, outgoing->number);
    do { /* without those that are missing by now */
        from.ranks &= ~outgoing->run->masked;
        status = wp_packets_sum(warp, &outgoing->packets, &from, out, plan->dtype,
                                (uint64_t)elements.num, &wait.progress);
    } while (wp_ll_waits_again(outgoing->run, &wait, status));
    return status;
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args,
                             struct of_buffers target)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t number = run->numbers.answers_received;
    const struct wp_ll_buffer buffer = wp_ll_buffer_state(run, number);
    const struct outgoing outgoing = {
        run, args, wp_ll_packets_of(ll, WP_LL_ANSWERS, number), number, buffer.answered, 0};
    const struct wp_ll_turns turns = wp_ll_turns_to(WP_LL_RECEIVE, warp, ll);
    const int32_t end =
        wp_ll_buffer_state(run, buffer.answered).tokens.end * ll->plan.sum_parts.num;
    enum wp_status status = WP_STATUS_OK;
    int64_t *waits_ns = wp_block_idx(warp) == 0 ? ll->waited_ns : NULL;
    /* With many tokens the next launch may come when this one has ended: its blocks would not
     * spread over the SMs before. */
    if (!ll->plan.is_told || waits_ns != NULL)
        status = wp_ll_receive_all(run, WP_LL_ANSWERS, number, waits_ns);
    for (int32_t i = turns.first; i < end && status == WP_STATUS_OK; i += turns.step) {
        const struct of_buffers next = load_target_of_part(warp, ll, i + turns.step);
        status = sum_part(&outgoing, wp_ll_part_of(ll->plan.sum_parts, i), target);
        target = next;
    }
    return wp_ll_end_committed(run, status);
}

/* Advances to the answers that are to be received. */
WP_FN enum wp_status begin_receiving(struct wp_ll_run *run)
{
    struct wp_ll_numbers *numbers = &run->numbers;
    const struct wp_ll_buffer buffer = wp_ll_buffer_state(run, ++numbers->answers_received);
    if (numbers->answers_received > numbers->answers_sent)
        return wp_ll_fail(run, numbers->answers_sent, numbers->answers_received);
    if (buffer.use == WP_LL_RESULT_ENDS)
        numbers->rows_ended = buffer.answered;
    return WP_STATUS_OK;
}

WP_FN enum wp_status combine(struct wp_warp *warp, const struct wp_low_latency_combine_args *args)
{
    const struct wp_ll_loads remembered = wp_ll_load(warp, &args->ll);
    const struct answered answered = load_answered(
        warp, args,
        args->phases & WP_LL_SEND ? wp_ll_turns_to(WP_LL_SEND, warp, &args->ll).first : INT32_MAX);
    /* With many tokens it is loaded when they have been sent: a warp that sends and receives has no
     * registers for it before. */
    const int32_t first = wp_ll_turns_to(WP_LL_RECEIVE, warp, &args->ll).first;
    struct of_buffers target =
        load_target_of_part(warp, &args->ll, args->ll.plan.is_told ? INT32_MAX : first);
    struct wp_ll_run run = wp_ll_begin_loaded(warp, &args->ll, remembered);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    wp_ll_send_taken(&run, args->phases & WP_LL_RECEIVE ? args->missing_ranks : NULL);
    if (args->phases & WP_LL_SEND)
        status = send(&run, args, answered);
    if (args->ll.plan.is_told)
        target = load_target_of_part(warp, &args->ll, first);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = begin_receiving(&run);
    status = wp_ll_commit(&run, wp_block_status(warp, status));
    if (status != WP_STATUS_OK || !(args->phases & WP_LL_RECEIVE))
        return status;
    return receive(&run, args, target);
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(packet_low_latency_combine, warp, args)
{
    return combine(warp, &args->combine);
}
#endif
