/* SPDX-License-Identifier: MIT */
/* packet_low_latency_combine: low_latency_combine in packets (low_latency/packets.h). A warp sends parts of answers to single
 * tokens, by expert sums, and takes a part of the answers of all ranks to a token of its own. */

/* Between nodes there are no packets. */
#define WP_LL_HAS_NODES(plan) 0
#ifndef WP_LL_STEPS_ONLY /* variants define it in low_latency/variant.c */
#define WP_ROWS_ARE_MADE_NEAR
#endif

#include "programs/low_latency/combine.h"
#include "programs/low_latency/packets.h"
#include "programs/low_latency/protocol.h"

struct wp_packet_low_latency_combine_args {
    struct wp_low_latency_combine_args combine;
};

/* ------------------------------------------------------------------ what dispatch has found out */

/* A word of a table, for each half: loaded before it is known which half counts. */
struct of_halves {
    int32_t first, second;
};

WP_FN int32_t of_half(const struct wp_low_latency *ll, struct of_halves of, uint64_t number)
{
    return wp_ll_half(&ll->plan, number) == 0 ? of.first : of.second;
}

WP_FN struct of_halves load_halves(const struct wp_low_latency *ll, const void *first,
                                   const void *second)
{
    struct of_halves of = {(int32_t)wp_load_now_u32((const uint32_t *)first), 0};
    if (ll->plan.num_halves > 1)
        of.second = (int32_t)wp_load_now_u32((const uint32_t *)second);
    return of;
}

/* By rank: what is loaded for a row of the item's rank. */
struct answered_row {
    struct of_halves num_rows;   /* of the rank */
    struct of_halves token;      /* at its source */
    struct wp_packet_row answer; /* a part of it, if there is such a row */
};

/* By expert: what a lane loads for its first choice of a token. */
struct answered_choice {
    struct of_halves packed; /* as which of the caller's rows */
    struct of_halves weight; /* the bits of a float */
};

WP_FN const char *answer_of_row(const struct wp_low_latency *ll, uint64_t number,
                                struct wp_ll_unit unit)
{
    return wp_ll_row(ll, ll->exchange.rank, number, unit.rank, unit.token) +
           ll->plan.slot.answer_offset;
}

WP_FN int32_t num_units_of(const struct wp_low_latency *ll)
{
    return wp_ll_num_answer_units(&ll->plan, ll->exchange.num_ranks);
}

/* The place of the caller's row is known, so its load begins before it is known whether there is a row. */
WP_FN struct wp_packet_row load_answer(struct wp_warp *warp,
                                       const struct wp_low_latency_combine_args *args,
                                       struct wp_ll_unit unit)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_elements elements =
        wp_ll_part_elements(&ll->plan, ll->plan.answer_parts, unit.part);
    return wp_packets_load(warp,
                           args->rows +
                               (uint64_t)wp_ll_row_of_rank(ll, unit.rank, unit.token) *
                                   args->row_stride_bytes +
                               ((uint64_t)elements.first << ll->plan.element_bytes_log2),
                           (uint64_t)elements.num << ll->plan.element_bytes_log2);
}

WP_FN struct answered_row load_row(struct wp_warp *warp,
                                   const struct wp_low_latency_combine_args *args,
                                   struct wp_ll_unit unit)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct answered_row row = {
        load_halves(ll, &ll->num_rows[wp_ll_rank_of_half(ll, 0, unit.rank)],
                    &ll->num_rows[wp_ll_rank_of_half(ll, 1, unit.rank)]),
        load_halves(ll, answer_of_row(ll, 0, unit), answer_of_row(ll, 1, unit)),
        load_answer(warp, args, unit)};
    return row;
}

WP_FN struct answered_choice load_choice(struct wp_warp *warp, const struct wp_low_latency *ll,
                                         struct wp_ll_unit unit)
{
    const int32_t k = wp_lane_idx(warp);
    const struct wp_ll_packed_choice *first = wp_ll_packed_choices(ll, 0, unit.rank, unit.token);
    const struct wp_ll_packed_choice *second = wp_ll_packed_choices(ll, 1, unit.rank, unit.token);
    const struct answered_choice none = {{WP_LL_NOT_HERE, WP_LL_NOT_HERE}, {0, 0}};
    if (k >= ll->plan.num_topk)
        return none;
    const struct answered_choice choice = {load_halves(ll, &first[k].packed, &second[k].packed),
                                           load_halves(ll, &first[k].weight, &second[k].weight)};
    return choice;
}

/* What an item answers with; one of them, by the layout. */
struct answered {
    struct answered_row row;
    struct answered_choice choice;
};

/* Begins to load for item i. */
WP_FN struct answered load_answered(struct wp_warp *warp,
                                    const struct wp_low_latency_combine_args *args, int32_t i)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_unit unit = wp_ll_unit_of(ll, ll->plan.answer_parts, i);
    struct answered answered = {{{0, 0}, {0, 0}, wp_packets_load(warp, NULL, 0)},
                                {{WP_LL_NOT_HERE, WP_LL_NOT_HERE}, {0, 0}}};
    if (i >= num_units_of(ll))
        return answered;
    if (ll->plan.is_by_expert)
        answered.choice = load_choice(warp, ll, unit);
    else
        answered.row = load_row(warp, args, unit);
    return answered;
}

/* Part i of those that are summed. */
struct summed_part {
    int32_t token, part;
};

WP_FN struct summed_part summed_part_of(const struct wp_ll_plan *plan, int32_t i)
{
    const int32_t token = (int32_t)wp_divide((uint32_t)i, plan->sum_parts.units_reciprocal);
    const struct summed_part part = {token, i - token * plan->sum_parts.num};
    return part;
}

/* Begins to load whether rank n answers a token, in lane n. */
WP_FN struct of_halves load_target(struct wp_warp *warp, const struct wp_low_latency *ll,
                                   int32_t token, int is_there)
{
    const struct of_halves none = {0, 0};
    return wp_lane_idx(warp) < ll->exchange.num_ranks && is_there
               ? load_halves(ll, &ll->row_targets[wp_ll_token_idx(ll, 0, wp_lane_idx(warp), token)],
                             &ll->row_targets[wp_ll_token_idx(ll, 1, wp_lane_idx(warp), token)])
               : none;
}

/* The same for the i-th part that is summed. */
WP_FN struct of_halves load_target_of_part(struct wp_warp *warp, const struct wp_low_latency *ll,
                                           int32_t i)
{
    return load_target(warp, ll, summed_part_of(&ll->plan, i).token,
                       i < ll->plan.max_tokens * ll->plan.sum_parts.num);
}

/* The answers that are sent, or received. */
struct mail {
    struct wp_ll_run *run;
    const struct wp_low_latency_combine_args *args;
    struct wp_packets packets;
    uint64_t number;   /* of the answers */
    uint64_t result;   /* that they answer */
    int is_room_known; /* to send */
};

/* A bit for each rank that answers a token of this rank. Lane n knows of rank n. On GPUs there are no
 * more ranks than lanes. */
WP_FN uint32_t answering_ranks(const struct mail *mail, int32_t token, struct of_halves target)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    uint32_t ranks = wp_ballot(warp, of_half(ll, target, mail->result) > 0);
    for (int32_t rank = WP_WARP_SIZE; rank < WP_LL_NEAR_RANKS && rank < ll->exchange.num_ranks;
         rank++)
        ranks |= (uint32_t)ll->row_targets[wp_ll_token_idx(ll, mail->result, rank, token)] << rank;
    return ranks;
}

/* ------------------------------------------------------------------ answer */

/* Warp-wide: waits for the credit of a rank, unless it is left out. */
WP_FN enum wp_status await_room(const struct mail *mail, int32_t rank)
{
    return mail->is_room_known || wp_ll_leaves_out(mail->run, rank)
               ? WP_STATUS_OK
               : wp_ll_await_taken(mail->run, WP_LL_ANSWERS, rank, mail->number);
}

/* The packets of an item's part of the answer to a token. */
WP_FN struct wp_packet_targets answer_targets(const struct mail *mail, struct wp_ll_unit unit,
                                              int32_t token)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const struct wp_ll_elements elements =
        wp_ll_part_elements(&ll->plan, ll->plan.answer_parts, unit.part);
    const struct wp_packet_targets there = {
        unit.rank, unit.rank + 1, wp_ll_answer_packet(ll, ll->exchange.rank, token, elements),
        WP_PACKETS_TO_ALL, 0};
    return there;
}

/* By rank: sends the item's part of the answer, if there is such a row. */
WP_FN void answer_row(const struct mail *mail, struct wp_ll_unit unit,
                      const struct answered_row *row)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    const int32_t token = of_half(ll, row->token, mail->result);
    if (unit.token >= of_half(ll, row->num_rows, mail->result))
        return;
    wp_packets_send(warp, &mail->packets, answer_targets(mail, unit, token), &row->answer);
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

/* Warp-wide: sends the loaded weights of a token to a rank that has given credit. A rank that gives credit
 * for answers has read the weights of its own answers before. */
WP_FN enum wp_status send_weights_to(const struct mail *mail,
                                     const struct wp_ll_weights_sender *sender, int32_t token,
                                     int32_t rank)
{
    const enum wp_status status = await_room(mail, rank);
    if (status == WP_STATUS_OK && !wp_ll_leaves_out(mail->run, rank))
        wp_ll_send_weights(sender, token, rank);
    return status;
}

/* All warps that receive call this. It sends the weights of this rank's tokens to the ranks that answer
 * them. */
WP_FN enum wp_status send_weights(const struct mail *mail)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    const struct wp_ll_weights_sender sender = {mail->run, mail->args->late_weights,
                                                weights_memory(warp, &ll->plan), mail->number};
    const struct wp_ll_turns turns = wp_ll_turns_to_receive(warp, ll);
    const int32_t end = wp_ll_half_of(mail->run, mail->result).tokens.end;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t token = turns.first; token < end; token += turns.step) {
        uint32_t ranks = answering_ranks(mail, token, load_target(warp, ll, token, 1));
        wp_ll_load_weights(&sender, token);
        for (int32_t rank = 0; ranks != 0 && status == WP_STATUS_OK; rank++, ranks >>= 1)
            if (ranks & 1u)
                status = send_weights_to(mail, &sender, token, rank);
    }
    return status;
}

/* All warps call this. It sends weights. A wait for weights counts as a wait for answers, so the first
 * block receives the words of all ranks before it waits. */
WP_FN enum wp_status begin_weighing(const struct mail *mail)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const enum wp_status status = send_weights(mail);
    return status == WP_STATUS_OK && wp_block_idx(mail->run->op.warp) == 0 && ll->waited_ns != NULL
               ? wp_ll_hear_all(mail->run, WP_LL_ANSWERS, mail->number, ll->waited_ns)
               : status;
}

/* Warp-wide, by expert: whether the item's token has a choice here. */
WP_FN int is_here(const struct mail *mail, struct wp_ll_unit unit,
                  const struct answered_choice *first)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    int has_choice = of_half(ll, first->packed, mail->result) != WP_LL_NOT_HERE;
    for (int32_t k = WP_WARP_SIZE + wp_lane_idx(warp); k < ll->plan.num_topk; k += WP_WARP_SIZE)
        has_choice |= wp_ll_packed_choices(ll, mail->result, unit.rank, unit.token)[k].packed !=
                      WP_LL_NOT_HERE;
    return wp_ballot(warp, has_choice) != 0;
}

/* Warp-wide: waits for the weights of the item's token, unless its rank is left out. */
WP_FN enum wp_status take_weights(const struct mail *mail, struct wp_ll_unit unit)
{
    struct wp_ll_run *run = mail->run;
    float *memory = weights_memory(run->op.warp, &mail->args->ll.plan);
    const struct wp_wait_site site = wp_ll_weights_site(run, mail->number, unit.rank);
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, mail->number);
    do {
        status = wp_ll_take_weights(run, &site, unit.token, memory);
        wait.progress.missing = 1u << unit.rank;
    } while (wp_ll_waits_again(run, &wait, status) && !wp_ll_leaves_out(run, unit.rank));
    return status;
}

/* ------------------------------------------------------------------ answers by expert */

/* By expert: whether a token has a choice here, and how many of the caller's rows, as the warp's
 * pointers. */
struct answering_rows {
    int is_here;
    int32_t num;
};

/* Warp-wide: lists them from the part's first element on, with their weights. Weights that come late
 * have been taken. */
WP_FN struct answering_rows find_rows(const struct mail *mail, struct wp_ll_unit unit,
                                      const struct answered_choice *first)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency_combine_args *args = mail->args;
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_elements elements =
        wp_ll_part_elements(&ll->plan, ll->plan.answer_parts, unit.part);
    const int32_t first_weight = of_half(ll, first->weight, mail->result);
    struct wp_ll_packed_choice choice = {of_half(ll, first->packed, mail->result), 0.0f};
    struct answering_rows rows = {0, 0};
    memcpy(&choice.weight, &first_weight, sizeof choice.weight);
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t i = 0; i < ll->plan.num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        if (i > 0 && k < ll->plan.num_topk)
            choice = wp_ll_packed_choices(ll, mail->result, unit.rank, unit.token)[k];
        const int32_t packed = k < ll->plan.num_topk ? choice.packed : WP_LL_NOT_HERE;
        rows.is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
        if (wp_ll_weighs_late(&ll->plan)) {
            choice.weight = k < ll->plan.num_topk ? weights_memory(warp, &ll->plan)[k] : 0.0f;
            wp_warp_sync(warp); /* all have loaded what is overwritten now, here or further up */
        }
        const int32_t place = wp_ll_list(warp, &rows.num, packed >= 0);
        if (packed < 0)
            continue;
        wp_warp_pointers(warp)[place] = args->rows +
                                        (uint64_t)(uint32_t)packed * args->row_stride_bytes +
                                        ((uint64_t)elements.first << ll->plan.element_bytes_log2);
        weights_memory(warp, &ll->plan)[place] = choice.weight;
    }
    wp_warp_sync(warp);
    return rows;
}

/* Sends the sum of the listed rows. */
WP_FN void send_sum(const struct mail *mail, struct wp_packet_targets to, int32_t num_rows,
                    int32_t num_elements)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    const void *const *rows = wp_warp_pointers(warp);
    const float *weights = weights_memory(warp, plan);
    const struct wp_weighted_sum how = {plan->dtype, plan->dtype, WP_READ_SOON};
    wp_packets_send_weighted_sum(warp, &mail->packets, to, rows, weights, num_rows, how,
                                 num_elements);
}

/* By expert: sends the sum of the caller's rows for the choices of a token here, if it has any. If no
 * expert had room for it, the sum is zeros. */
WP_FN enum wp_status answer_choices(const struct mail *mail, struct wp_ll_unit unit,
                                    const struct answered_choice *first)
{
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_weighs_late(plan) && is_here(mail, unit, first))
        status = take_weights(mail, unit);
    if (status != WP_STATUS_OK) /* a token whose weights do not come is not answered */
        return wp_ll_unless_absent(status);
    const struct answering_rows rows = find_rows(mail, unit, first);
    if (rows.is_here)
        send_sum(mail, answer_targets(mail, unit, unit.token), rows.num,
                 wp_ll_part_elements(plan, plan->answer_parts, unit.part).num);
    return status;
}

WP_FN enum wp_status answer_unit(const struct mail *mail, struct wp_ll_unit unit,
                                 const struct answered *answered)
{
    const enum wp_status status = await_room(mail, unit.rank);
    if (status != WP_STATUS_OK || wp_ll_leaves_out(mail->run, unit.rank))
        return status;
    if (mail->args->ll.plan.is_by_expert)
        return answer_choices(mail, unit, &answered->choice);
    answer_row(mail, unit, &answered->row);
    return status;
}

/* All warps call this. It signals that this rank has answered. */
WP_FN void tell_answering(const struct mail *mail)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    if (wp_block_idx(warp) != 0 || !wp_ll_is_leader_warp(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < ll->exchange.num_ranks; rank += WP_WARP_SIZE)
        if (!wp_ll_leaves_out(mail->run, rank))
            wp_tell(warp, rank,
                    wp_ll_comes_word(ll, rank, WP_LL_ANSWERS, mail->number, ll->exchange.rank),
                    wp_ll_comes_at_least(mail->number));
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args,
                          struct answered answered)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_ll_numbers *numbers = &run->numbers;
    const uint64_t number = numbers->answers_sent + 1;
    const uint64_t result = numbers->rows_answered + 1;
    const struct mail mail = {run,    args,   wp_ll_answer_packets(&args->ll, number),
                              number, result, wp_ll_is_room_known(run, number, result)};
    const struct wp_ll_turns turns = wp_ll_turns_to_send(warp, &args->ll);
    const int32_t end = num_units_of(&args->ll);
    enum wp_status status = WP_STATUS_OK;
    if (mail.result > numbers->rows_received ||
        number > numbers->answers_received + (uint64_t)plan->num_halves)
        return wp_ll_fail(run, numbers->rows_received, mail.result);
    tell_answering(&mail);
    if (wp_ll_weighs_late(plan))
        status = begin_weighing(&mail);
    for (int32_t i = turns.first; i < end && status == WP_STATUS_OK; i += turns.step) {
        status = answer_unit(&mail, wp_ll_unit_of(&args->ll, plan->answer_parts, i), &answered);
        answered = load_answered(warp, args, i + turns.step);
    }
    struct wp_ll_half half = wp_ll_half_of(run, number);
    half.answered = mail.result;
    half.use = args->use;
    wp_ll_remember(run, number, half);
    numbers->answers_sent = number;
    if (args->use == WP_LL_RESULT_ENDS)
        numbers->rows_answered = mail.result;
    return status;
}

/* ------------------------------------------------------------------ receive */

WP_FN enum wp_status sum_part(const struct mail *mail, struct summed_part summed,
                              struct of_halves target)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency_combine_args *args = mail->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->sum_parts, summed.part);
    char *out =
        args->out + (((uint64_t)summed.token * (uint64_t)plan->hidden + (uint64_t)elements.first)
                     << plan->element_bytes_log2);
    struct wp_packet_rows from = {answering_ranks(mail, summed.token, target),
                                  wp_ll_answer_packet(&args->ll, 0, summed.token, elements),
                                  (uint64_t)plan->max_tokens * plan->answer_bytes /
                                      WP_PACKET_BYTES};
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, mail->number);
    do { /* without those that are missing by now */
        from.ranks = wp_ll_without_masked(mail->run, from.ranks);
        status = wp_packets_sum(warp, &mail->packets, &from, out, plan->dtype,
                                (uint64_t)elements.num, &wait.progress);
    } while (wp_ll_waits_again(mail->run, &wait, status));
    return status;
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_combine_args *args,
                             struct of_halves target)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t number = run->numbers.answers_received;
    const struct wp_ll_half half = wp_ll_half_of(run, number);
    const struct mail mail = {run,    args,          wp_ll_answer_packets(ll, number),
                              number, half.answered, 0};
    const struct wp_ll_turns turns = wp_ll_turns_to_receive(warp, ll);
    const int32_t end = wp_ll_half_of(run, half.answered).tokens.end * ll->plan.sum_parts.num;
    enum wp_status status = WP_STATUS_OK;
    int64_t *waits_ns = wp_block_idx(warp) == 0 ? ll->waited_ns : NULL;
    /* Of many tokens the next launch may come when this one has ended: its blocks would not spread over the SMs before. */
    if (!wp_ll_is_told(&ll->plan) || waits_ns != NULL)
        status = wp_ll_hear_all(run, WP_LL_ANSWERS, number, waits_ns);
    for (int32_t i = turns.first; i < end && status == WP_STATUS_OK; i += turns.step) {
        const struct of_halves next = load_target_of_part(warp, ll, i + turns.step);
        status = sum_part(&mail, summed_part_of(&ll->plan, i), target);
        target = next;
    }
    return status;
}

/* Advances to the answers that are to be received. */
WP_FN enum wp_status begin_receiving(struct wp_ll_run *run)
{
    struct wp_ll_numbers *numbers = &run->numbers;
    const struct wp_ll_half half = wp_ll_half_of(run, ++numbers->answers_received);
    if (numbers->answers_received > numbers->answers_sent)
        return wp_ll_fail(run, numbers->answers_sent, numbers->answers_received);
    if (half.use == WP_LL_RESULT_ENDS)
        numbers->rows_ended = half.answered;
    return WP_STATUS_OK;
}

WP_FN enum wp_status combine(struct wp_warp *warp, const struct wp_low_latency_combine_args *args)
{
    const struct wp_ll_loads remembered = wp_ll_load(warp, &args->ll);
    const struct answered answered = load_answered(
        warp, args,
        args->phases & WP_LL_SEND ? wp_ll_turns_to_send(warp, &args->ll).first : INT32_MAX);
    /* Of many tokens it is loaded when they have been sent: who sends and receives has no registers for it before. */
    const int32_t first = wp_ll_turns_to_receive(warp, &args->ll).first;
    struct of_halves target =
        load_target_of_part(warp, &args->ll, wp_ll_is_told(&args->ll.plan) ? INT32_MAX : first);
    struct wp_ll_run run = wp_ll_begin_loaded(warp, &args->ll, remembered);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    wp_ll_tell_taken(&run);
    wp_ll_begin_missing(&run, args->phases & WP_LL_RECEIVE ? args->missing_ranks : NULL);
    if (args->phases & WP_LL_SEND)
        status = send(&run, args, answered);
    if (wp_ll_is_told(&args->ll.plan))
        target = load_target_of_part(warp, &args->ll, first);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = begin_receiving(&run);
    status = wp_ll_commit_early(&run, status);
    if (status != WP_STATUS_OK || !(args->phases & WP_LL_RECEIVE))
        return status;
    return wp_ll_end_committed(&run, receive(&run, args, target));
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(packet_low_latency_combine, warp, args)
{
    return combine(warp, &args->combine);
}
#endif
