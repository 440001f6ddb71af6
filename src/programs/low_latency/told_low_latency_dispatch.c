/* SPDX-License-Identifier: MIT */
/*
 * told_low_latency_dispatch: low_latency_dispatch of many tokens in packets (low_latency/packets.h). These lie in slots of
 * tokens, whence rows go where ranks have told each other meanwhile (low_latency/routes_many.h): by rank to slots without gaps, by
 * expert to where they are packed.
 */

/* Between nodes there are no packets. */
#define WP_LL_HAS_NODES(plan) 0
#define WP_ROWS_ARE_MADE_NEAR

#include "programs/low_latency/routes_many.h"

struct wp_told_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

/* ------------------------------------------------------------------ send */

/* What a warp has on its way when it begins. */
struct first_loads {
    int32_t taken; /* what the lane's rank has taken (wp_ll_note_heard_taken) */
    struct wp_ll_thread_choices choices;
    struct wp_ll_many_unit_loads unit;
};

struct sender {
    struct wp_ll_mail_of_rows mail;
    uint32_t roomy; /* of the ranks, those that are known to have room: a bit for each */
};

/* Of the lanes' ranks. */
WP_FN uint32_t find_roomy(const struct wp_ll_mail_of_rows *mail, int32_t taken)
{
    struct wp_warp *warp = mail->run->op.warp;
    return wp_ballot(warp, wp_ll_is_known_to_have_room(mail->run, taken, mail->number) &&
                               wp_lane_idx(warp) < mail->args->ll.exchange.num_ranks);
}

/* Warp-wide. */
WP_FN enum wp_status await_room(struct sender *sender, uint32_t ranks)
{
    enum wp_status status = WP_STATUS_OK;
    uint32_t left = wp_ll_without_masked(sender->mail.run, ranks & ~sender->roomy);
    for (int32_t rank = 0; left != 0 && status == WP_STATUS_OK; rank++, left >>= 1)
        if (left & 1u)
            status = wp_ll_await_taken(sender->mail.run, WP_LL_ROWS, rank, sender->mail.number);
    sender->roomy |= ranks;
    return status;
}

/* Where ranks get bytes of a row, from `byte` of its slot on. */
WP_FN struct wp_packet_targets targets_of(const struct wp_ll_mail_of_rows *mail, uint32_t ranks,
                                          int32_t token, uint64_t byte)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const struct wp_packet_targets there = {0, ll->exchange.num_ranks,
                                            wp_ll_row_packet(ll, ll->exchange.rank, token, byte),
                                            WP_PACKETS_TO_SOME, ranks};
    return there;
}

WP_FN void send_part(const struct wp_ll_mail_of_rows *mail, struct wp_ll_sent_unit unit,
                     uint32_t ranks, const struct wp_ll_many_unit_loads *loads)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    const int32_t first = wp_ll_part_elements(plan, plan->row_parts, unit.part).first;
    const struct wp_packet_targets elements =
        targets_of(mail, ranks, unit.token, (uint64_t)first << plan->sent_element_bytes_log2);
    if (!wp_ll_is_quantised(plan)) {
        wp_packets_send(warp, &mail->packets, elements, &loads->row);
        return;
    }
    const uint64_t scales = plan->slot.scales_offset + wp_ll_part_scales_bytes(plan, first);
    wp_packets_send_quantised(
        warp, &mail->packets, elements, targets_of(mail, ranks, unit.token, scales).slot,
        &loads->row, plan->quantisation, wp_ll_part_elements(plan, plan->row_parts, unit.part).num);
}

/* Warp-wide. */
WP_FN enum wp_status send_unit(struct sender *sender, struct wp_ll_sent_unit unit,
                               const struct wp_ll_many_unit_loads *loads)
{
    const struct wp_ll_mail_of_rows *mail = &sender->mail;
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    const uint32_t found = wp_ll_find_ranks(warp, mail->args, unit.token, loads->expert);
    const enum wp_status status = await_room(sender, found);
    if (status != WP_STATUS_OK)
        return status;
    const uint32_t ranks = wp_ll_without_masked(mail->run, found);
    for (int32_t rank = wp_lane_idx(warp); rank < ll->exchange.num_ranks && unit.part == 0;
         rank += WP_WARP_SIZE)
        ll->row_targets[wp_ll_token_idx(ll, mail->number, rank, unit.token)] =
            (int32_t)(ranks >> rank & 1u);
    send_part(mail, unit, ranks, loads);
    return status;
}

WP_FN enum wp_status send_units(struct sender *sender, struct wp_ll_turns turns,
                                struct wp_ll_many_unit_loads loads)
{
    const struct wp_low_latency_dispatch_args *args = sender->mail.args;
    struct wp_warp *warp = sender->mail.run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t num_units = args->num_tokens * plan->row_parts.num;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = turns.first; i < num_units && status == WP_STATUS_OK; i += turns.step) {
        if (i > turns.first)
            loads = wp_ll_many_load_unit(warp, args, i);
        status = send_unit(sender, wp_ll_sent_unit_of(plan, i), &loads);
    }
    return status;
}

/* ------------------------------------------------------------------ tell */

/* Warp-wide: unit i of what is told. The first ones tell of all tokens. */
WP_FN enum wp_status tell_unit(struct sender *sender, int32_t i)
{
    const struct wp_ll_mail_of_rows *mail = &sender->mail;
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    const int32_t before = (int32_t)wp_divide((uint32_t)i, ll->plan.row_parts.ranks_reciprocal);
    const struct wp_ll_before all = {i, ll->plan.max_tokens};
    const struct wp_ll_before token = {i - before * num_ranks, before - 1};
    const enum wp_status status = await_room(sender, 1u << token.rank);
    if (status != WP_STATUS_OK || wp_ll_leaves_out(mail->run, token.rank))
        return status;
    if (before > 0) {
        wp_ll_tell_token(warp, mail->args, token, mail->number);
        return status;
    }
    if (ll->plan.is_by_expert)
        wp_ll_many_tell_choices(warp, ll, i, mail->number);
    const int32_t num_rows = wp_ll_count_before(warp, ll, all);
    if (wp_lane_idx(warp) == 0)
        wp_ll_tell_count(mail, i, num_rows);
    return status;
}

/* By all warps of blocks that do. */
WP_FN enum wp_status tell_units(struct sender *sender, struct wp_ll_turns turns,
                                struct wp_ll_thread_choices choices)
{
    struct wp_warp *warp = sender->mail.run->op.warp;
    const struct wp_low_latency *ll = &sender->mail.args->ll;
    const int32_t num_units = wp_ll_num_told_units(&ll->plan, ll->exchange.num_ranks);
    enum wp_status status = WP_STATUS_OK;
    wp_ll_many_find_places(warp, sender->mail.args, choices);
    for (int32_t i = turns.first; i < num_units && status == WP_STATUS_OK; i += turns.step)
        status = tell_unit(sender, i);
    return status;
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args,
                          const struct first_loads *loads)
{
    struct wp_warp *warp = run->op.warp;
    const uint64_t number = run->numbers.rows_sent + 1;
    struct sender sender = {{run, args, wp_ll_row_packets(&args->ll, number), number}, 0};
    const uint64_t num_outstanding = run->numbers.rows_sent - run->numbers.rows_ended;
    const uint64_t num_halves = (uint64_t)args->ll.plan.num_halves;
    enum wp_status status = WP_STATUS_OK;
    if (num_outstanding >= num_halves)
        return wp_ll_fail(run, num_halves, num_outstanding + 1);
    sender.roomy = find_roomy(&sender.mail, loads->taken);
    if (wp_ll_receives(warp, &args->ll))
        status = tell_units(&sender, wp_ll_turns_to_receive(warp, &args->ll), loads->choices);
    if (status == WP_STATUS_OK)
        status = send_units(&sender, wp_ll_turns_to_send_parts(warp, &args->ll), loads->unit);
    wp_ll_note_sent(run, args, number);
    return status;
}

/* ------------------------------------------------------------------ receive */

/* Of a token that comes: the packet of a byte of its slot. */
WP_FN uint64_t packet_at(const struct wp_ll_mail_of_rows *mail, struct wp_ll_unit unit,
                         uint64_t byte)
{
    return wp_ll_row_packet(&mail->args->ll, unit.rank, unit.token, byte);
}

/* By rank: bytes of a row to its slot. */
WP_FN enum wp_status place_bytes(const struct wp_ll_mail_of_rows *mail, struct wp_ll_unit unit,
                                 char *slot, uint64_t begin, uint64_t end)
{
    const struct wp_ll_placed_part part = {unit.rank, packet_at(mail, unit, begin), slot + begin,
                                           end - begin};
    return begin == end ? WP_STATUS_OK : wp_ll_take_part(mail, part);
}

/* By rank: what the unit has of a row, to the row's slot. Scales are behind the last elements, mostly next to them. */
WP_FN enum wp_status place_unit(const struct wp_ll_mail_of_rows *mail,
                                const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                int32_t row)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const struct wp_ll_slot_bytes bytes = wp_ll_many_unit_bytes(&ll->plan, unit.part);
    const int has_rest = wp_ll_has_rest(&ll->plan, unit.part);
    const uint64_t scales = ll->plan.slot.scales_offset, rest = ll->plan.slot.token_offset;
    const uint64_t end = bytes.begin + bytes.num;
    char *slot = wp_ll_row(ll, ll->exchange.rank, mail->number, unit.rank, row);
    if (has_rest)
        wp_ll_keep_in_slot(hearer, unit, slot);
    if (has_rest && end == scales)
        return place_bytes(mail, unit, slot, bytes.begin, rest);
    const enum wp_status status = place_bytes(mail, unit, slot, bytes.begin, end);
    return status == WP_STATUS_OK && has_rest ? place_bytes(mail, unit, slot, scales, rest)
                                              : status;
}

/* By expert, if there are scales. They may lie in columns there, so they come by way of memory of the warp. */
WP_FN enum wp_status pack_scales(const struct wp_ll_mail_of_rows *mail,
                                 const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    const int32_t num_places = wp_ll_find_packed_places(hearer, unit, WP_LL_SCALES);
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t begin = plan->slot.scales_offset;
         begin < plan->slot.token_offset && status == WP_STATUS_OK; begin += WP_LL_PART_BYTES) {
        const uint64_t num_left = plan->slot.token_offset - begin;
        const struct wp_ll_placed_part part = {
            unit.rank, packet_at(mail, unit, begin), (char *)wp_warp_shared(warp),
            num_left < WP_LL_PART_BYTES ? num_left : WP_LL_PART_BYTES};
        status = wp_ll_take_part(mail, part);
        wp_warp_sync(warp);
        if (status == WP_STATUS_OK)
            wp_ll_pack_scale_words(hearer,
                                   (int32_t)((begin - plan->slot.scales_offset) / sizeof(uint32_t)),
                                   num_places, (const uint32_t *)wp_warp_shared(warp));
        wp_warp_sync(warp); /* they have been read */
    }
    return status;
}

/* By expert: elements, to where they are packed. */
WP_FN enum wp_status pack_elements(const struct wp_ll_mail_of_rows *mail,
                                   const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_slot_bytes bytes = wp_ll_many_unit_bytes(&mail->args->ll.plan, unit.part);
    const struct wp_expected_row row = wp_packets_expect(
        warp, &mail->packets, unit.rank, packet_at(mail, unit, bytes.begin), bytes.num);
    const int32_t num_places = wp_ll_find_packed_places(hearer, unit, WP_LL_ELEMENTS);
    return wp_ll_take_each(mail, &row, wp_warp_pointers(warp), num_places);
}

WP_FN enum wp_status receive_unit(const struct wp_ll_mail_of_rows *mail,
                                  const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_ll_plan *plan = &mail->args->ll.plan;
    const int32_t num_of_places = plan->is_by_expert ? 1 + plan->num_topk : 1;
    if (unit.token == WP_LL_COUNTED)
        return wp_ll_hear_count(mail, unit.rank);
    if (wp_ll_leaves_out(mail->run, unit.rank))
        return WP_STATUS_OK;
    const int has_rest = wp_ll_has_rest(plan, unit.part);
    const enum wp_status status =
        wp_ll_hear_token(hearer, unit, has_rest ? wp_ll_num_told_words(plan) : num_of_places);
    if (status != WP_STATUS_OK)
        return status;
    const uint32_t row = wp_ll_told_memory(warp)[0];
    if (plan->is_by_expert && has_rest)
        wp_ll_keep_packed(hearer, unit);
    if (row == WP_LL_TOLD_NOT_HERE)
        return status;
    if (!plan->is_by_expert)
        return place_unit(mail, hearer, unit, (int32_t)row);
    return unit.part < plan->taken_parts.num ? pack_elements(mail, hearer, unit)
                                             : pack_scales(mail, hearer, unit);
}

/* By all warps. By expert the block meets when its last warps have heard how many choices there are. */
WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t number = run->numbers.rows_received;
    const struct wp_ll_mail_of_rows mail = {run, args, wp_ll_row_packets(ll, number), number};
    const struct wp_ll_hearer hearer =
        wp_ll_hearer_of(run, args, number, wp_ll_num_pairs(&ll->plan));
    const struct wp_ll_turns turns = wp_ll_turns_to_receive(warp, ll);
    const int32_t num_units = wp_ll_num_taken_units(&ll->plan, ll->exchange.num_ranks);
    enum wp_status status = WP_STATUS_OK;
    if (ll->plan.is_by_expert && wp_ll_receives(warp, ll))
        status = wp_ll_hear_heads(&hearer);
    status = wp_ll_commit_early(run, status);
    if (status != WP_STATUS_OK)
        return status;
    if (ll->plan.is_by_expert) /* whom other warps of the block have heard nothing of */
        wp_ll_look_at_masks(run);
    if (ll->plan.is_by_expert && wp_block_idx(warp) == 0)
        wp_ll_many_tell_experts(&hearer);
    for (int32_t i = turns.first; i < num_units && status == WP_STATUS_OK; i += turns.step)
        status = wp_ll_unless_absent(receive_unit(&mail, &hearer, wp_ll_taken_unit_of(ll, i)));
    wp_ll_tell_received_half(&mail);
    return wp_ll_end_committed(run, status);
}

/* ------------------------------------------------------------------ both */

WP_FN struct first_loads load_first(struct wp_warp *warp,
                                    const struct wp_low_latency_dispatch_args *args)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t lane = wp_lane_idx(warp);
    struct first_loads loads = {0, {{-1, -1, -1, -1}}, wp_ll_many_load_unit(warp, args, INT32_MAX)};
    if (!(args->phases & WP_LL_SEND))
        return loads;
    if (lane < ll->exchange.num_ranks)
        loads.taken = wp_load_relaxed(&ll->rows_taken[lane]);
    if (wp_ll_receives(warp, ll))
        loads.choices = wp_ll_load_thread_choices(warp, args, 0);
    loads.unit = wp_ll_many_load_unit(warp, args, wp_ll_turns_to_send_parts(warp, ll).first);
    return loads;
}

WP_FN enum wp_status dispatch(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args)
{
    const struct wp_ll_loads remembered = wp_ll_load(warp, &args->ll);
    const struct first_loads loads = load_first(warp, args);
    struct wp_ll_run run = wp_ll_begin_loaded(warp, &args->ll, remembered);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    wp_ll_tell_taken(&run);
    wp_ll_begin_missing(&run, args->phases & WP_LL_RECEIVE ? args->missing_ranks : NULL);
    if (args->phases & WP_LL_SEND)
        status = send(&run, args, &loads);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = wp_ll_begin_receiving(&run);
    return status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE)
               ? receive(&run, args)
               : wp_ll_commit_early(&run, status);
}

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(told_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
#endif
