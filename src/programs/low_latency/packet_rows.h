/* SPDX-License-Identifier: MIT */
/* What both dispatches in packets do: they send and receive rows, and, by expert, heads. */
#pragma once

#include "programs/low_latency/pack.h"
#include "programs/low_latency/packets.h"

/* ------------------------------------------------------------------ choices */

/* Returns the expert of choice i, counted over all tokens; -1: none. */
WP_FN int64_t wp_ll_load_choice(const struct wp_low_latency_dispatch_args *args, int32_t i)
{
    return i < args->num_tokens * args->ll.plan.num_topk
               ? wp_expert_id_now(args->topk_idx, args->index_type, i)
               : -1;
}

/* Returns which of a rank's experts the expert of choice i is, or -1. */
WP_FN int32_t wp_ll_choice_among(const struct wp_low_latency_dispatch_args *args,
                                 struct wp_experts_of_rank experts, int64_t expert, int32_t i)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t token = (int32_t)wp_divide((uint32_t)i, ll->plan.topk_reciprocal);
    return wp_expert_among(&ll->placement, experts, expert, ll->exchange.rank, token);
}

/* Returns the rank of the expert of choice i, and its index there. */
WP_FN struct wp_place_of_expert
wp_ll_place_of_choice(const struct wp_low_latency_dispatch_args *args, int64_t expert, int32_t i)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t token = (int32_t)wp_divide((uint32_t)i, ll->plan.topk_reciprocal);
    return wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
}

/* ------------------------------------------------------------------ parts */

/* A part of a token before it is sent. */
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

/* The bytes of some elements. */
WP_FN struct wp_ll_slot_bytes wp_ll_element_bytes(const struct wp_ll_plan *plan,
                                                  struct wp_ll_elements elements)
{
    const struct wp_ll_slot_bytes bytes = {(uint64_t)elements.first
                                               << plan->sent_element_bytes_log2,
                                           (uint64_t)elements.num << plan->sent_element_bytes_log2};
    return bytes;
}

enum { WP_LL_COUNTED = -1 }; /* as a unit's token */

/* Work item i of those for all ranks. The first items count rows, one for each rank. */
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

/* The rows of a number that are sent, or received. */
struct wp_ll_mail_of_rows {
    struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    struct wp_packets packets;
    uint64_t number;
};

/* One lane calls this. It sends a rank the number of its rows. */
WP_FN void wp_ll_tell_count(const struct wp_ll_mail_of_rows *mail, int32_t rank, int32_t num_rows)
{
    const struct wp_low_latency *ll = &mail->args->ll;
    const uint32_t num_behind = (uint32_t)(mail->number - mail->run->numbers.rows_received);
    wp_credit(mail->run->op.warp, rank,
              wp_ll_comes_word(ll, rank, WP_LL_ROWS, mail->number, ll->exchange.rank),
              wp_ll_comes(mail->number, num_rows, num_behind));
}

/* Warp-wide: receives the number of rows of a source. By expert, the first block has waited for the
 * source before. */
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

/* Receives an expected row to some places, unless its rank goes missing. */
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

/* By rank: a part of a row, its packets and its place. */
struct wp_ll_placed_part {
    int32_t source;
    uint64_t packet;
    char *dst;
    uint64_t bytes;
};

/* Receives such a part. */
WP_FN enum wp_status wp_ll_take_part(const struct wp_ll_mail_of_rows *mail,
                                     struct wp_ll_placed_part part)
{
    const struct wp_expected_row row =
        wp_packets_expect(mail->run->op.warp, &mail->packets, part.source, part.packet, part.bytes);
    const void *const dsts[] = {part.dst};
    return wp_ll_take_each(mail, &row, dsts, 1);
}

/* Receives such a part of a row that may not come: a word tells so. */
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

/* All warps call this. It remembers that the rows of all tokens have been sent. */
WP_FN void wp_ll_note_sent(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args,
                           uint64_t number)
{
    struct wp_ll_half half = wp_ll_half_of(run, number);
    half.tokens.begin = 0;
    half.tokens.end = args->num_tokens;
    wp_ll_remember(run, number, half);
    run->numbers.rows_sent = number;
}

/* Advances to the number that is to be received. */
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

/* ================== heads */

/*
 * Heads of sources, by expert. A head has the number of the source's choices for each expert here, two
 * in a word. A block that has all heads knows where each part of a row goes before the part comes. With
 * masks, all blocks must use the same heads.
 */

struct wp_ll_hearer {
    struct wp_ll_taker taker; /* without bases */
    uint32_t *heads;          /* in memory of the block: [num_ranks][num_words] */
    int32_t num_words;
};

WP_FN struct wp_ll_hearer wp_ll_hearer_of(struct wp_ll_run *run,
                                          const struct wp_low_latency_dispatch_args *args,
                                          uint64_t number, int32_t num_words)
{
    char *memory = (char *)wp_block_shared(run->op.warp) + WP_BLOCK_WORDS_BYTES;
    const struct wp_ll_hearer hearer = {
        {run, args, NULL, number}, (uint32_t *)(void *)memory, num_words};
    return hearer;
}

WP_FN uint32_t *wp_ll_head_of(const struct wp_ll_hearer *hearer, int32_t source)
{
    return hearer->heads + (ptrdiff_t)source * hearer->num_words;
}

/* ------------------------------------------------------------------ hearing them */

/* Warp-wide: receives the head of a source, a tagged row. */
WP_FN enum wp_status wp_ll_take_packet_head(const struct wp_ll_hearer *hearer, int32_t source,
                                            const struct wp_wait_site *site)
{
    const struct wp_low_latency *ll = &hearer->taker.args->ll;
    const char *head = wp_ll_head(ll, ll->exchange.rank, hearer->taker.number, source);
    return wp_tagged_take_relaxed(hearer->taker.run->op.warp, head, wp_ll_head_of(hearer, source),
                                  hearer->num_words, site);
}

/* Warp-wide, with masks: waits for the head, unless the source is left out. */
WP_FN enum wp_status wp_ll_await_packet_head(const struct wp_ll_hearer *hearer, int32_t source,
                                             const struct wp_wait_site *site)
{
    struct wp_ll_run *run = hearer->taker.run;
    struct wp_ll_packet_wait wait;
    enum wp_status status = WP_STATUS_ABSENT;
    wp_ll_begin_packet_wait(&wait, hearer->taker.number);
    while (!wp_ll_leaves_out(run, source)) {
        status = wp_ll_take_packet_head(hearer, source, site);
        wait.progress.missing = 1u << source;
        if (!wp_ll_waits_again(run, &wait, status))
            break;
        wp_warp_sync(run->op.warp); /* parts of it may have been taken */
    }
    return status;
}

/* Warp-wide, with masks, after the wait: all blocks agree whether the head counts. */
WP_FN enum wp_status wp_ll_settle_packet_head(const struct wp_ll_hearer *hearer, int32_t source,
                                              enum wp_status status, struct wp_wait_site site)
{
    struct wp_ll_run *run = hearer->taker.run;
    const struct wp_ll_head_words to = {wp_ll_head_of(hearer, source), hearer->num_words,
                                        wp_ll_num_pairs(&run->ll->plan)};
    const int counts = wp_ll_agree_on_head(&hearer->taker, source, status, to);
    site.absent_after_ms = 0; /* what counts is there */
    if (counts && status == WP_STATUS_ABSENT)
        return wp_ll_take_packet_head(hearer, source, &site);
    if (!counts)
        wp_ll_leave_out(run, 1u << source);
    return WP_STATUS_OK;
}

/* Warp-wide: receives a head. The head of a source that is left out has no choices. */
WP_FN enum wp_status wp_ll_hear_head(const struct wp_ll_hearer *hearer, int32_t source)
{
    const struct wp_ll_run *run = hearer->taker.run;
    const int has_masks = wp_ll_has_masks(&run->ll->masks);
    int64_t *waited_ns = wp_lane_idx(run->op.warp) == 0 ? wp_ll_waited_ns(run, source) : NULL;
    const uint64_t begin_ns = wp_ll_begin_waiting(run, waited_ns);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, source);
    site.sequence = hearer->taker.number; /* which it carries */
    const enum wp_status status = has_masks ? wp_ll_await_packet_head(hearer, source, &site)
                                            : wp_ll_take_packet_head(hearer, source, &site);
    wp_ll_end_waiting(run, waited_ns, begin_ns);
    return has_masks && status != WP_STATUS_FAILED
               ? wp_ll_settle_packet_head(hearer, source, status, site)
               : status;
}

/* The first source whose head the warp receives. The last warps do so, since they have least other work. */
WP_FN int32_t wp_ll_first_heard(struct wp_warp *warp)
{
    return wp_num_warps(warp) - 1 - wp_warp_idx(warp);
}

/* All warps of a block call this, and meet afterwards. */
WP_FN enum wp_status wp_ll_hear_heads(const struct wp_ll_hearer *hearer)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_ranks = hearer->taker.args->ll.exchange.num_ranks;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t source = wp_ll_first_heard(warp); source < num_ranks && status == WP_STATUS_OK;
         source += wp_num_warps(warp))
        status = wp_ll_hear_head(hearer, source);
    return status;
}

/* ------------------------------------------------------------------ what they tell */

/* The source to blame that an expert lacks room. */
WP_FN int32_t wp_ll_heard_exceeding(const struct wp_ll_hearer *hearer, int32_t expert)
{
    int32_t source = 0;
    while (!wp_ll_exceeds_share(&hearer->taker,
                                (int32_t)wp_ll_pair_count(wp_ll_head_of(hearer, source), expert)))
        source++;
    return source;
}

/* One lane of the first block calls this. It writes the counts of an expert for the caller. */
WP_FN void wp_ll_tell_heard_expert(const struct wp_ll_hearer *hearer, int32_t expert)
{
    const struct wp_ll_taker *taker = &hearer->taker;
    int32_t first = 0;
    for (int32_t rank = 0; rank < taker->args->ll.exchange.num_ranks; rank++) {
        const int32_t num_rows = (int32_t)wp_ll_pair_count(wp_ll_head_of(hearer, rank), expert);
        wp_ll_tell_expert(taker, expert, rank, first, num_rows);
        first += num_rows;
    }
    wp_ll_tell_expert_total(taker, expert, first);
    if (wp_ll_lacks_room(taker, first))
        wp_ll_fail_for_room(taker, expert, wp_ll_heard_exceeding(hearer, expert), first);
}

/* The packed row of the choice of a source that has `order` choices for the expert before it. */
WP_FN int32_t wp_ll_packed_choice_at(const struct wp_ll_hearer *hearer, int32_t source,
                                     int32_t expert, uint32_t order)
{
    uint32_t position = order;
    for (int32_t before = 0; before < source; before++)
        position += wp_ll_pair_count(wp_ll_head_of(hearer, before), expert);
    return wp_ll_packed_at(&hearer->taker.args->ll.plan, expert, (int32_t)position);
}

/* ------------------------------------------------------------------ scales */

enum { WP_LL_UNIT_SCALE_WORDS = WP_LL_PART_BYTES / sizeof(uint32_t) /* at most */ };

/* Words of a row's scales, from `first` on, to so many places. */
WP_FN void wp_ll_pack_scale_words(const struct wp_ll_hearer *hearer, int32_t first,
                                  int32_t num_places, const uint32_t *words)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_scales *to = &hearer->taker.args->scales;
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < WP_LL_UNIT_SCALE_WORDS && first + i < to->num_words;
         i += WP_WARP_SIZE)
        for (int32_t j = 0; j < num_places; j++)
            ((uint32_t *)(uintptr_t)dsts[j])[(first + i) * to->word_stride] = words[i];
}
