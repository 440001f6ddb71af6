/* SPDX-License-Identifier: MIT */
/* What both dispatches in packets do: of choices, of parts of tokens, and of how many rows come. */
#pragma once

#include "programs/low_latency/low_latency_dispatch.h"
#include "programs/low_latency/packets.h"

/* ------------------------------------------------------------------ choices */

/* Choice i of those of all tokens. */
WP_FN int64_t wp_ll_load_choice(const struct wp_low_latency_dispatch_args *args, int32_t i)
{
    return i < args->num_tokens * args->ll.plan.num_topk
               ? wp_expert_id_now(args->topk_idx, args->index_type, i)
               : -1;
}

/* Of an expert that is choice i: which of a rank's experts it is, or none. */
WP_FN int32_t wp_ll_choice_among(const struct wp_low_latency_dispatch_args *args,
                                 struct wp_experts_of_rank experts, int64_t expert, int32_t i)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t token = (int32_t)wp_divide((uint32_t)i, ll->plan.topk_reciprocal);
    return wp_expert_among(&ll->placement, experts, expert, ll->exchange.rank, token);
}

/* Where it is. */
WP_FN struct wp_place_of_expert
wp_ll_place_of_choice(const struct wp_low_latency_dispatch_args *args, int64_t expert, int32_t i)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t token = (int32_t)wp_divide((uint32_t)i, ll->plan.topk_reciprocal);
    return wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
}

/* ------------------------------------------------------------------ parts */

/* Of a token, as it is before it is sent. */
WP_FN const char *wp_ll_part_of_token(const struct wp_low_latency_dispatch_args *args,
                                      int32_t token, int32_t part)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->row_parts, part);
    return args->tokens + (uint64_t)token * args->token_stride_bytes +
           ((uint64_t)elements.first << plan->element_bytes_log2);
}

WP_FN uint64_t wp_ll_token_part_bytes(const struct wp_ll_plan *plan, int32_t part)
{
    return (uint64_t)wp_ll_part_elements(plan, plan->row_parts, part).num
           << plan->element_bytes_log2;
}

/* Bytes of a slot, in whole packets. */
struct wp_ll_slot_bytes {
    uint64_t begin, num;
};

/* Of elements. */
WP_FN struct wp_ll_slot_bytes wp_ll_element_bytes(const struct wp_ll_plan *plan,
                                                  struct wp_ll_elements elements)
{
    const struct wp_ll_slot_bytes bytes = {(uint64_t)elements.first
                                               << plan->sent_element_bytes_log2,
                                           (uint64_t)elements.num << plan->sent_element_bytes_log2};
    return bytes;
}

enum { WP_LL_COUNTED = -1 }; /* as a unit's token */

/* Unit i of those for all ranks, of which the first ones count rows. */
WP_FN struct wp_ll_unit wp_ll_counted_unit_of(const struct wp_low_latency *ll,
                                              struct wp_ll_parts parts, int32_t i)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    const int counts = i < num_ranks;
    const struct wp_ll_unit row = wp_ll_unit_of(ll, parts, counts ? 0 : i - num_ranks);
    const struct wp_ll_unit unit = {counts ? WP_LL_COUNTED : row.token, row.part,
                                    counts ? i : row.rank};
    return unit;
}

/* ------------------------------------------------------------------ how many rows come */

/* Rows of a number that are sent, or received. */
struct wp_ll_mail_of_rows {
    struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    struct wp_packets packets;
    uint64_t number;
};

/* By a lane: tells a rank how many rows it gets. */
WP_FN void wp_ll_tell_count(const struct wp_ll_mail_of_rows *mail, int32_t rank, int32_t num_rows)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const uint32_t num_behind = (uint32_t)(mail->number - mail->run->numbers.rows_received);
    wp_credit(mail->run->op.warp, rank,
              wp_ll_comes_word(ll, rank, WP_LL_ROWS, mail->number, ll->exchange.rank),
              wp_ll_comes(mail->number, num_rows, num_behind));
}

/* Warp-wide: hears how many rows a source has sent. By expert the first block has waited for the source before. */
WP_FN enum wp_status wp_ll_hear_count(const struct wp_ll_mail_of_rows *mail, int32_t source)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    int64_t *waits_ns = ll->plan.is_by_expert ? NULL : ll->waited_ns;
    uint64_t word = 0;
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_has_masks(&ll->masks) && ll->plan.is_by_expert) /* heads have been agreed on */
        wp_ll_look_at_masks(mail->run);
    if (wp_ll_has_masks(&ll->masks)) {
        const struct wp_ll_heard heard =
            wp_ll_hear_if_there(mail->run, WP_LL_ROWS, wp_lane_idx(warp) == 0 ? source : WP_NO_RANK,
                                mail->number, waits_ns);
        status = heard.status;
        word = heard.word;
    } else if (wp_lane_idx(warp) == 0) {
        status = wp_ll_hear(mail->run, WP_LL_ROWS, source, mail->number, &word, waits_ns);
    }
    if (wp_ll_leaves_out(mail->run, source)) {
        if (wp_lane_idx(warp) == 0 && mail->args->num_rows_per_rank != NULL)
            mail->args->num_rows_per_rank[source] = 0;
        return status;
    }
    if (wp_lane_idx(warp) == 0 && status == WP_STATUS_OK) {
        wp_ll_note_heard_taken(ll, source, mail->number, wp_ll_heard_taken(word));
        ll->num_rows[wp_ll_rank_of_half(ll, mail->number, source)] = wp_ll_num_coming(word);
        if (mail->args->num_rows_per_rank != NULL)
            mail->args->num_rows_per_rank[source] = wp_ll_num_coming(word);
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* ------------------------------------------------------------------ rows that may not come */

/* Of a source, as it is expected: to some places, unless its rank goes missing. */
WP_FN enum wp_status wp_ll_take_each(const struct wp_ll_mail_of_rows *mail,
                                     const struct wp_expected_row *row, const void *const *dsts,
                                     int32_t num_dsts)
{
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, mail->number);
    do
        status = wp_packets_receive_each(mail->run->op.warp, &mail->packets, row, dsts, num_dsts,
                                         &wait.progress);
    while (wp_ll_waits_again(mail->run, &wait, status) && !wp_ll_leaves_out(mail->run, row->from));
    return status;
}

/* By rank, a part of a row: whence, and where it is to be. */
struct wp_ll_placed_part {
    int32_t source;
    uint64_t packet;
    char *dst;
    uint64_t bytes;
};

/* The same of such a part. */
WP_FN enum wp_status wp_ll_take_part(const struct wp_ll_mail_of_rows *mail,
                                     struct wp_ll_placed_part part)
{
    const struct wp_expected_row row =
        wp_packets_expect(mail->run->op.warp, &mail->packets, part.source, part.packet, part.bytes);
    const void *const dsts[] = {part.dst};
    return wp_ll_take_each(mail, &row, dsts, 1);
}

/* And of one of a row of which a word tells whether it comes. */
WP_FN enum wp_status wp_ll_take_told_part(const struct wp_ll_mail_of_rows *mail,
                                          struct wp_ll_placed_part part,
                                          const struct wp_packet_told *told)
{
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, mail->number);
    do
        status = wp_packets_receive_told(mail->run->op.warp, &mail->packets, part.source,
                                         part.packet, told, part.dst, part.bytes, &wait.progress);
    while (wp_ll_waits_again(mail->run, &wait, status) &&
           !wp_ll_leaves_out(mail->run, part.source));
    return status;
}

/* What does not come is no failure. */
WP_FN enum wp_status wp_ll_unless_absent(enum wp_status status)
{
    return status == WP_STATUS_ABSENT ? WP_STATUS_OK : status;
}

/* By all warps: the rows that are sent are those of all tokens. */
WP_FN void wp_ll_note_sent(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args,
                           uint64_t number)
{
    struct wp_ll_half half = wp_ll_half_of(run, number);
    half.tokens.begin = 0;
    half.tokens.end = args->num_tokens;
    wp_ll_remember(run, number, half);
    run->numbers.rows_sent = number;
}

/* Counts what is to be received. */
WP_FN enum wp_status wp_ll_begin_receiving(struct wp_ll_run *run)
{
    struct wp_ll_numbers *numbers = &run->numbers;
    numbers->rows_received++;
    return numbers->rows_received > numbers->rows_sent
               ? wp_ll_fail(run, numbers->rows_sent, numbers->rows_received)
               : WP_STATUS_OK;
}

WP_FN void wp_ll_tell_received_half(const struct wp_ll_mail_of_rows *mail)
{
    struct wp_warp *warp = mail->run->op.warp;
    const struct wp_low_latency *ll = &mail->args->ll;
    if (wp_launch_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0)
        *ll->received_half = (int32_t)wp_ll_half(&ll->plan, mail->number);
}
