/* SPDX-License-Identifier: MIT */
/*
 * packet_low_latency_dispatch: low_latency_dispatch of few tokens, in packets (low_latency/packets.h). Each warp finds out by
 * itself where its tokens go. By rank a row is in the slot of those before it, where it stays; by expert in that of its token,
 * whence it is packed (low_latency/routes_few.h).
 */

/* Between nodes there are no packets. */
#define WP_LL_HAS_NODES(plan) 0
#define WP_ROWS_ARE_MADE_NEAR

#include "programs/low_latency/routes_few.h"

struct wp_packet_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

/* ------------------------------------------------------------------ send */

/* Of a token, as that row of the unit's rank. */
WP_FN void send_part(const struct wp_ll_mail_of_rows *mail, struct wp_ll_unit unit, int32_t row,
                     const struct wp_ll_few_unit_loads *loads)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = mail->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const enum wp_ll_unit_kind kind = wp_ll_kind_of(plan, unit.part);
    const struct wp_packet_targets there = {
        unit.rank, unit.rank + 1,
        wp_ll_row_packet(&args->ll, args->ll.exchange.rank, row,
                         wp_ll_few_unit_bytes(plan, unit.part).begin),
        WP_PACKETS_TO_ALL, 0};
    if (kind == WP_LL_UNIT_SCALES) /* which go with each part */
        return;
    if (kind == WP_LL_UNIT_ELEMENTS && wp_ll_is_quantised(plan)) {
        const uint64_t scales =
            plan->slot.scales_offset + (uint64_t)unit.part * WP_LL_PART_SCALES_BYTES;
        wp_packets_send_quantised(warp, &mail->packets, there,
                                  wp_ll_row_packet(&args->ll, args->ll.exchange.rank, row, scales),
                                  &loads->row, plan->quantisation,
                                  wp_ll_part_elements(plan, plan->row_parts, unit.part).num);
        return;
    }
    const struct wp_packet_row made =
        kind == WP_LL_UNIT_CHOICES ? wp_ll_make_choices(warp, args, unit, loads) : loads->row;
    wp_packets_send(warp, &mail->packets, there, &made);
}

/* Warp-wide. */
WP_FN enum wp_status await_room(const struct wp_ll_mail_of_rows *mail, struct wp_ll_unit unit,
                                const struct wp_ll_few_unit_loads *loads)
{
    return wp_ll_leaves_out(mail->run, unit.rank) ||
                   wp_ll_is_known_to_have_room(mail->run, loads->taken, mail->number)
               ? WP_STATUS_OK
               : wp_ll_await_taken(mail->run, WP_LL_ROWS, unit.rank, mail->number);
}

/* Warp-wide: how many rows the unit's rank gets, by expert after what these depend on. */
WP_FN enum wp_status send_count(const struct wp_ll_mail_of_rows *mail,
                                struct wp_ll_lane_choices choices, struct wp_ll_unit unit,
                                const struct wp_ll_few_unit_loads *loads)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = mail->args;
    const enum wp_status status = await_room(mail, unit, loads);
    if (status != WP_STATUS_OK || wp_ll_leaves_out(mail->run, unit.rank))
        return status;
    if (args->ll.plan.is_by_expert)
        wp_ll_few_tell_choices(warp, args, choices, unit.rank, mail->number);
    const struct wp_ll_going going =
        wp_ll_find_going(warp, args, choices, unit.rank, args->num_tokens);
    if (wp_lane_idx(warp) == 0)
        wp_ll_tell_count(mail, unit.rank, going.num_before);
    return status;
}

/* Warp-wide: whether the unit's token goes to its rank, and as which row: by expert of its own number. */
WP_FN struct wp_ll_going find_going(const struct wp_ll_mail_of_rows *mail,
                                    struct wp_ll_lane_choices choices, struct wp_ll_unit unit,
                                    const struct wp_ll_few_unit_loads *loads)
{
    struct wp_warp *warp = mail->run->op.warp;
    if (!mail->args->ll.plan.is_by_expert)
        return wp_ll_find_going(warp, mail->args, choices, unit.rank, unit.token);
    const struct wp_ll_going going = {
        wp_ll_goes(warp, mail->args, loads->expert, unit.rank, unit.token), unit.token};
    return going;
}

/* Warp-wide. */
WP_FN enum wp_status send_unit(const struct wp_ll_mail_of_rows *mail,
                               struct wp_ll_lane_choices choices, struct wp_ll_unit unit,
                               const struct wp_ll_few_unit_loads *loads)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    if (unit.token == WP_LL_COUNTED)
        return send_count(mail, choices, unit, loads);
    const struct wp_ll_going going = find_going(mail, choices, unit, loads);
    const enum wp_status status = await_room(mail, unit, loads);
    if (status != WP_STATUS_OK)
        return status;
    const int goes = going.goes && !wp_ll_leaves_out(mail->run, unit.rank);
    if (goes)
        send_part(mail, unit, going.num_before, loads);
    if (unit.part == 0 && wp_lane_idx(warp) == 0)
        ll->row_targets[wp_ll_token_idx(ll, mail->number, unit.rank, unit.token)] = goes;
    return status;
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args,
                          struct wp_ll_lane_choices choices, struct wp_ll_few_unit_loads loads)
{
    struct wp_warp *warp = run->op.warp;
    const uint64_t number = run->numbers.rows_sent + 1;
    const struct wp_ll_mail_of_rows mail = {run, args, wp_ll_row_packets(&args->ll, number),
                                            number};
    const uint64_t num_outstanding = run->numbers.rows_sent - run->numbers.rows_ended;
    const uint64_t num_halves = (uint64_t)args->ll.plan.num_halves;
    const int32_t num_units = wp_ll_num_units_of(&args->ll);
    enum wp_status status = WP_STATUS_OK;
    if (num_outstanding >= num_halves)
        return wp_ll_fail(run, num_halves, num_outstanding + 1);
    for (int32_t i = wp_ll_first_row_unit(warp, &args->ll);
         i < num_units && status == WP_STATUS_OK;) {
        status = send_unit(&mail, choices, wp_ll_row_unit_of(&args->ll, i), &loads);
        i += wp_ll_row_unit_step(warp, &args->ll);
        if (i < num_units) {
            wp_warp_sync(warp); /* what was made before has been sent */
            loads = wp_ll_few_load_unit(warp, args, wp_ll_row_unit_of(&args->ll, i));
        }
    }
    wp_ll_note_sent(run, args, number);
    return status;
}

/* ------------------------------------------------------------------ receive */

WP_FN uint64_t packet_of_unit(const struct wp_ll_mail_of_rows *mail, struct wp_ll_unit unit)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    return wp_ll_row_packet(ll, unit.rank, unit.token,
                            wp_ll_few_unit_bytes(&ll->plan, unit.part).begin);
}

/* By rank: a part of a row of the unit's rank, to its slot, if there is such a row. */
WP_FN enum wp_status receive_unit(const struct wp_ll_mail_of_rows *mail, struct wp_ll_unit unit)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const struct wp_packet_told told = {
        wp_ll_comes_word(ll, ll->exchange.rank, WP_LL_ROWS, mail->number, unit.rank),
        wp_ll_comes_at_least(mail->number), wp_ll_comes(mail->number, unit.token, 0)};
    if (unit.token == WP_LL_COUNTED)
        return wp_ll_hear_count(mail, unit.rank);
    if (wp_ll_leaves_out(mail->run, unit.rank))
        return WP_STATUS_OK;
    const struct wp_ll_slot_bytes bytes = wp_ll_few_unit_bytes(&ll->plan, unit.part);
    const struct wp_ll_placed_part part = {
        unit.rank, packet_of_unit(mail, unit),
        wp_ll_row(ll, ll->exchange.rank, mail->number, unit.rank, unit.token) + bytes.begin,
        bytes.num};
    return wp_ll_unless_absent(wp_ll_take_told_part(mail, part, &told));
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const uint64_t number = run->numbers.rows_received;
    const struct wp_ll_mail_of_rows mail = {run, args, wp_ll_row_packets(&args->ll, number),
                                            number};
    const int32_t num_units = wp_ll_num_units_of(&args->ll);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_ll_first_row_unit(warp, &args->ll); i < num_units && status == WP_STATUS_OK;
         i += wp_ll_row_unit_step(warp, &args->ll))
        status = receive_unit(&mail, wp_ll_row_unit_of(&args->ll, i));
    wp_ll_tell_received_half(&mail);
    return wp_ll_end_committed(run, status);
}

/* ------------------------------------------------------------------ receive, by expert */

/* By way of memory of the warp: scales, or choices. */
WP_FN enum wp_status pack_rest(const struct wp_ll_mail_of_rows *mail,
                               const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                               int32_t num_places, const struct wp_expected_row *row)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    const char *memory = wp_ll_part_memory(warp);
    const void *const dsts[] = {memory};
    const enum wp_status status = wp_ll_take_each(mail, row, dsts, 1);
    if (status != WP_STATUS_OK)
        return status;
    wp_warp_sync(warp);
    if (wp_ll_kind_of(plan, unit.part) == WP_LL_UNIT_SCALES)
        wp_ll_pack_scale_words(hearer, wp_ll_first_scale(plan, unit.part), num_places,
                               (const uint32_t *)(const void *)memory);
    else
        wp_ll_keep_choices(hearer, unit,
                           (const float *)(const void *)(memory + plan->slot.weights_offset -
                                                         plan->slot.token_offset));
    wp_warp_join(warp); /* by expert a step of 16 tokens takes 0.25 us less (4 H200, 2026-11-27) */
    return status;
}

/* A part of the row of a source's token to where it is packed, if it comes. */
WP_FN enum wp_status pack_unit(const struct wp_ll_mail_of_rows *mail,
                               const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    if (unit.token == WP_LL_COUNTED)
        return wp_ll_hear_count(mail, unit.rank);
    const struct wp_expected_row row =
        wp_packets_expect(warp, &mail->packets, unit.rank, packet_of_unit(mail, unit),
                          wp_ll_few_unit_bytes(plan, unit.part).num);
    const struct wp_ll_places places = wp_ll_few_find_places(hearer, unit);
    if (!places.is_here || wp_ll_leaves_out(mail->run, unit.rank))
        return WP_STATUS_OK;
    return wp_ll_kind_of(plan, unit.part) != WP_LL_UNIT_ELEMENTS
               ? pack_rest(mail, hearer, unit, places.num, &row)
               : wp_ll_take_each(mail, &row, wp_warp_pointers(warp), places.num);
}

/* The block meets once, when its last warps have heard of all choices. */
WP_FN enum wp_status receive_packed(struct wp_ll_run *run,
                                    const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const uint64_t number = run->numbers.rows_received;
    const struct wp_ll_mail_of_rows mail = {run, args, wp_ll_row_packets(&args->ll, number),
                                            number};
    const struct wp_ll_hearer hearer =
        wp_ll_hearer_of(run, args, number, wp_ll_num_chosen_words(&args->ll.plan));
    const int32_t num_units = wp_ll_num_units_of(&args->ll);
    enum wp_status status = wp_ll_commit_early(run, wp_ll_hear_heads(&hearer));
    if (status != WP_STATUS_OK)
        return status;
    wp_admit_next(warp); /* all ranks have started */
    wp_ll_few_tell_experts(&hearer);
    for (int32_t i = wp_ll_first_row_unit(warp, &args->ll); i < num_units && status == WP_STATUS_OK;
         i += wp_ll_row_unit_step(warp, &args->ll))
        status = wp_ll_unless_absent(pack_unit(&mail, &hearer, wp_ll_row_unit_of(&args->ll, i)));
    wp_ll_tell_received_half(&mail);
    return wp_ll_end_committed(run, status);
}

/* ------------------------------------------------------------------ both */

WP_FN enum wp_status dispatch(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args)
{
    const struct wp_ll_loads remembered = wp_ll_load(warp, &args->ll);
    const struct wp_ll_lane_choices choices = wp_ll_load_choices(warp, args);
    const struct wp_ll_few_unit_loads loads = wp_ll_few_load_unit(
        warp, args, wp_ll_row_unit_of(&args->ll, wp_ll_first_row_unit(warp, &args->ll)));
    struct wp_ll_run run = wp_ll_begin_loaded(warp, &args->ll, remembered);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    wp_ll_tell_taken(&run);
    wp_ll_begin_missing(&run, args->phases & WP_LL_RECEIVE ? args->missing_ranks : NULL);
    if (args->phases & WP_LL_SEND)
        status = send(&run, args, choices, loads);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = wp_ll_begin_receiving(&run);
    const int receives = status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE);
    if (receives && args->ll.plan.is_by_expert)
        return receive_packed(&run, args);
    status = wp_ll_commit_early(&run, status);
    if (!receives || args->ll.plan.is_by_expert || status != WP_STATUS_OK)
        return status;
    return receive(&run, args);
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(packet_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
#endif
