/* SPDX-License-Identifier: MIT */
/*
 * Dispatch in packets: a launch begins to load, sends parts of rows, and receives parts. Programs
 * of few and of many tokens differ in their routes: in how a sender finds where rows go, and in how
 * a target hears that. Each program includes this file, and defines the functions route_* that are
 * declared here.
 */
#pragma once

/* Between nodes there are no packets. */
#define WP_LL_HAS_NODES(plan) 0
#define WP_ROWS_ARE_MADE_NEAR

#include "programs/low_latency/ll_pack.h"
#include "programs/low_latency/ll_packets.h"

/* The rows of a number that are sent, or received. */
struct wp_ll_packet_rows {
    struct wp_ll_taker taker;
    struct wp_packets packets;
    uint32_t credited_ranks; /* ranks that are known to have room: a bit for each */
};

/* A warp loads this before it needs it. */
enum { WP_LL_CHOICES_TOGETHER = 4 };
struct wp_ll_route_loads {
    int32_t taken; /* what the lane's rank has taken (wp_ll_note_received) */
    int64_t experts[WP_LL_CHOICES_TOGETHER]; /* of some choices of all tokens */
    /* For the next work item that is sent: */
    int64_t expert; /* of the lane's choice of the token, */
    float weight;   /* and its weight */
    struct wp_packet_row row;
};

/* ================== routes */

/* By each warp, before all else: begins to load what it sends first. */
WP_FN struct wp_ll_route_loads route_load(struct wp_warp *warp,
                                          const struct wp_low_latency_dispatch_args *args);

/* By all warps: sends parts of rows and the numbers of rows, by expert also heads. Notes in
 * row_targets which tokens go to which ranks. */
WP_FN enum wp_status route_send(struct wp_ll_packet_rows *rows, struct wp_ll_route_loads loads);

/* By expert: the packed row of choice k of the unit's token. */
WP_FN int32_t route_packed_choice(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                  int32_t k);

/* By expert, when a part of the unit's token has been received: lets route_packed_choice know the
 * choices once more. */
WP_FN enum wp_status route_recall_choices(const struct wp_ll_packet_rows *rows,
                                          struct wp_ll_unit unit);

/* Receives work item i: the number of a source's rows, or a part of a row. By rank a part goes to
 * its slot, by expert to where it is packed. Keeps what combine needs. */
WP_FN enum wp_status route_receive(const struct wp_ll_packet_rows *rows, int32_t i);

/* ================== what routes have in common */

/* ------------------------------------------------------------------ choices */

/* Returns the expert of choice i, counted over all tokens; -1: none. */
WP_FN int64_t wp_ll_load_choice(const struct wp_low_latency_dispatch_args *args, int32_t i)
{
    return i < args->num_tokens * args->ll.plan.num_topk
               ? wp_expert_id_now(args->topk_idx, args->index_type, i)
               : -1;
}

/* ------------------------------------------------------------------ parts */

/* Begins to load a part of a token that is sent. */
WP_FN struct wp_packet_row wp_ll_load_part(struct wp_warp *warp,
                                           const struct wp_low_latency_dispatch_args *args,
                                           struct wp_ll_unit part)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->row_parts, part.part);
    return wp_packets_load(warp,
                           args->tokens + (uint64_t)part.token * args->token_stride_bytes +
                               ((uint64_t)elements.first << plan->element_bytes_log2),
                           (uint64_t)elements.num << plan->element_bytes_log2);
}

/* The bytes in a slot, in whole packets, of a part's elements; behind parts, of scales. */
WP_FN struct wp_ll_span wp_ll_unit_bytes(const struct wp_ll_plan *plan, struct wp_ll_parts parts,
                                         int32_t part)
{
    const int32_t part_bytes = WP_LL_PART_BYTES, i = part - parts.num;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, parts, part);
    const struct wp_ll_span of_elements = {(uint32_t)elements.first
                                               << plan->sent_element_bytes_log2,
                                           (uint32_t)elements.num << plan->sent_element_bytes_log2};
    const int32_t begin = (int32_t)plan->slot.scales_offset + i * part_bytes;
    const int32_t num_left = (int32_t)plan->slot.token_offset - begin;
    const struct wp_ll_span of_scales = {(uint32_t)begin,
                                         (uint32_t)(num_left < part_bytes ? num_left : part_bytes)};
    return i < 0 ? of_elements : of_scales;
}

/* Returns 1 if an item has, or keeps, what is known of choices: the last item of a row. */
WP_FN int wp_ll_has_choices(struct wp_ll_parts parts, int32_t part)
{
    return part == parts.num_units - 1;
}

/* Warp-wide: sends the unit's elements, with their scales, or its choices, which have been loaded,
 * as that row. `there` says to which ranks. */
WP_FN void wp_ll_send_loaded(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                             struct wp_packet_targets there, int32_t row,
                             const struct wp_packet_row *loaded)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency *ll = &rows->taker.args->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    const int32_t own = ll->exchange.rank;
    const struct wp_ll_elements elements = wp_ll_part_elements(plan, plan->row_parts, unit.part);
    const int are_elements = unit.part < plan->row_parts.num;
    there.slot =
        wp_ll_row_packet(ll, own, row,
                         are_elements ? (uint64_t)elements.first << plan->sent_element_bytes_log2
                                      : plan->slot.token_offset);
    if (!are_elements || !wp_ll_is_quantised(plan)) {
        wp_packets_send(warp, &rows->packets, there, loaded);
        return;
    }
    const int32_t first_scale = elements.first / plan->quantisation.group_elements;
    const uint64_t scales = plan->slot.scales_offset + (uint64_t)first_scale * sizeof(float);
    wp_packets_send_quantised(warp, &rows->packets, there, wp_ll_row_packet(ll, own, row, scales),
                              loaded, plan->quantisation, elements.num);
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

/* One lane calls this. It sends a rank the number of its rows. */
WP_FN void wp_ll_send_count(const struct wp_ll_packet_rows *rows, int32_t rank, int32_t num_rows)
{
    const struct wp_ll_run *run = rows->taker.run;
    const uint64_t number = rows->taker.number;
    const uint32_t num_behind = (uint32_t)(number - run->numbers.rows_received);
    wp_credit(run->op.warp, rank,
              wp_ll_comes_word(run->ll, rank, WP_LL_ROWS, number, run->ll->exchange.rank),
              wp_ll_comes(number, num_rows, num_behind));
}

/* Warp-wide: receives the number of rows of a source. By expert, the first block has waited for the
 * source before, and all blocks have agreed on heads. */
WP_FN enum wp_status wp_ll_receive_count(const struct wp_ll_packet_rows *rows, int32_t source)
{
    struct wp_ll_run *run = rows->taker.run;
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t number = rows->taker.number;
    const int is_first_lane = wp_lane_idx(run->op.warp) == 0;
    if (ll->plan.is_by_expert)
        wp_ll_look_at_masks(run);
    struct wp_ll_wait wait =
        wp_ll_wait_to_receive(run, WP_LL_ROWS, is_first_lane ? source : WP_NO_RANK, number,
                              ll->plan.is_by_expert ? NULL : ll->waited_ns);
    const enum wp_status status = wp_ll_await_lanes(run, &wait, number);
    int32_t num_rows = 0;
    if (!is_first_lane || status != WP_STATUS_OK)
        return status;
    if (!wp_ll_leaves_out(run, source)) {
        num_rows = wp_ll_note_received(ll, source, number, wait.seen);
        ll->num_rows[wp_ll_rank_of_buffer(ll, number, source)] = num_rows;
    }
    if (args->num_rows_per_rank != NULL)
        args->num_rows_per_rank[source] = num_rows;
    return status;
}

/* ------------------------------------------------------------------ rows that may not come */

/* Begins to look for bytes of the slot of the unit's token. */
WP_FN struct wp_expected_row wp_ll_expect(const struct wp_ll_packet_rows *rows,
                                          struct wp_ll_unit unit, struct wp_ll_span bytes)
{
    const struct wp_ll_run *run = rows->taker.run;
    return wp_packets_expect(run->op.warp, &rows->packets, unit.rank,
                             wp_ll_row_packet(run->ll, unit.rank, unit.token, bytes.begin),
                             bytes.bytes);
}

/* Receives an expected row to some places, unless its rank goes missing. */
WP_FN enum wp_status wp_ll_take_each(const struct wp_ll_packet_rows *rows,
                                     const struct wp_expected_row *row, const void *const *dsts,
                                     int32_t num_dsts)
{
    struct wp_ll_run *run = rows->taker.run;
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    wp_ll_begin_packet_wait(&wait, rows->taker.number);
    do
        status = wp_packets_receive_each(run->op.warp, &rows->packets, row, dsts, num_dsts,
                                         &wait.progress);
    while (wp_ll_waits_again(run, &wait, status) && !wp_ll_leaves_out(run, row->from));
    return status;
}

/* ------------------------------------------------------------------ heads */

/* All warps of a block call this, and meet afterwards. A block that has all heads knows where each
 * part of a row goes before the part comes. With masks, all blocks must use the same heads. The
 * last warps receive, since they have least other work. */
WP_FN enum wp_status wp_ll_receive_heads(const struct wp_ll_packet_rows *rows)
{
    struct wp_ll_run *run = rows->taker.run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t source = wp_num_warps(warp) - 1 - wp_warp_idx(warp);
         source < ll->exchange.num_ranks && status == WP_STATUS_OK; source += wp_num_warps(warp)) {
        status = wp_ll_take_head(&rows->taker, source, wp_ll_leaves_out(run, source));
        wp_ll_leave_out(run, status == WP_STATUS_ABSENT ? 1u << source : 0);
        status = wp_ll_unless_absent(status);
    }
    return status;
}

/* ------------------------------------------------------------------ where rows are packed */

/* The packed row of the choice of a source that has `order` choices for the expert before it. */
WP_FN int32_t wp_ll_packed_choice_at(const struct wp_ll_packet_rows *rows, int32_t source,
                                     int32_t expert, uint32_t order)
{
    uint32_t position = order;
    for (int32_t before = 0; before < source; before++)
        position += wp_ll_pair_count(wp_ll_head_of(&rows->taker, before), expert);
    return wp_ll_packed_at(&rows->taker.args->ll.plan, expert, (int32_t)position);
}

/* Warp-wide: lists the places of what begins there in the slot of the unit's token, as the warp's
 * pointers: those of elements, or where all scales of the packed row begin. Or keeps where each
 * choice is packed, if it is to. Returns the number of places; -1: the token has no choice here. */
WP_FN int32_t wp_ll_find_places(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                uint64_t begin, struct wp_ll_packed_choice *kept)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t num_topk = plan->num_topk;
    const int are_scales = wp_ll_is_quantised(plan) && begin >= plan->slot.scales_offset;
    int32_t num = 0;
    int is_here = 0;
    wp_warp_sync(warp); /* the pointers before have been used, and what is in memory of the warp */
    for (int32_t i = 0; wp_ll_has_more_choices(plan, i); i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int is_choice = k < num_topk;
        const int32_t found = route_packed_choice(rows, unit, is_choice ? k : 0);
        const int32_t packed = is_choice ? found : WP_LL_NOT_HERE;
        is_here |= wp_ballot(warp, packed != WP_LL_NOT_HERE) != 0;
        const int32_t place = wp_ll_list(warp, &num, packed >= 0);
        if (kept != NULL && is_choice)
            kept[k].packed = packed;
        else if (packed >= 0)
            wp_warp_pointers(warp)[place] =
                are_scales ? wp_ll_packed_scales(&rows->taker, packed)
                           : args->rows + (uint64_t)(uint32_t)packed * plan->row_bytes + begin;
    }
    wp_warp_sync(warp);
    return is_here ? num : -1;
}

/* Words of a row's scales, which are in memory of the warp. They begin there in the slot, and go to
 * so many places. */
WP_FN void wp_ll_pack_scale_words(const struct wp_ll_packet_rows *rows, uint32_t begin,
                                  int32_t num_places)
{
    enum { MOST_WORDS = WP_LL_PART_BYTES / sizeof(uint32_t) };
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_ll_scales *to = &rows->taker.args->scales;
    const uint32_t *words = (const uint32_t *)wp_warp_shared(warp);
    const uint32_t bytes_before = begin - (uint32_t)rows->taker.args->ll.plan.slot.scales_offset;
    const int32_t first = (int32_t)(bytes_before / sizeof(uint32_t));
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = wp_lane_idx(warp); i < MOST_WORDS && first + i < to->num_words;
         i += WP_WARP_SIZE)
        for (int32_t j = 0; j < num_places; j++)
            ((uint32_t *)(uintptr_t)dsts[j])[(first + i) * to->word_stride] = words[i];
}

/* The weights of a token's choices, which are in memory of the warp behind its index (struct
 * wp_ll_slot), for combine; and src_tokens for the caller. */
WP_FN void wp_ll_keep_weights(const struct wp_ll_packet_rows *rows, int32_t token,
                              struct wp_ll_packed_choice *kept)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_ll_slot *at = &args->ll.plan.slot;
    const char *memory = (const char *)wp_warp_shared(warp);
    const float *weights =
        (const float *)(const void *)(memory + at->weights_offset - at->token_offset);
    for (int32_t k = wp_lane_idx(warp); k < args->ll.plan.num_topk; k += WP_WARP_SIZE) {
        kept[k].weight = weights[k];
        if (kept[k].packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[kept[k].packed] = token;
    }
}

/* Bytes of the slot of the unit's token to where it is packed, if it comes. Scales may lie in
 * columns there, so they come by way of memory of the warp; so do choices, which are kept. */
WP_FN enum wp_status wp_ll_pack_bytes(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                      struct wp_ll_span bytes, struct wp_ll_packed_choice *kept)
{
    struct wp_ll_run *run = rows->taker.run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &rows->taker.args->ll.plan;
    const int are_scales = wp_ll_is_quantised(plan) && bytes.begin >= plan->slot.scales_offset;
    const void *const memory[] = {wp_warp_shared(warp)};
    const struct wp_expected_row row = wp_ll_expect(rows, unit, bytes);
    const int32_t num_places = wp_ll_find_places(rows, unit, bytes.begin, kept);
    if (num_places < 0 || wp_ll_leaves_out(run, unit.rank))
        return WP_STATUS_OK;
    if (kept == NULL && !are_scales)
        return wp_ll_take_each(rows, &row, wp_warp_pointers(warp), num_places);
    const enum wp_status status = wp_ll_take_each(rows, &row, memory, 1);
    if (status != WP_STATUS_OK)
        return status;
    wp_warp_sync(warp);
    if (kept != NULL)
        wp_ll_keep_weights(rows, unit.token, kept);
    else
        wp_ll_pack_scale_words(rows, bytes.begin, num_places);
    wp_warp_join(warp); /* by expert a step of 16 tokens takes 0.25 us less (4 H200, 2026-11-27) */
    return status;
}

/* Tells the experts of a row that work item i of it, which has been received, is there. */
WP_FN enum wp_status wp_ll_tell_unit(const struct wp_ll_packet_rows *rows, int32_t i)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_unit unit = wp_ll_counted_unit_of(&args->ll, plan->taken_parts, i);
    if (unit.token == WP_LL_COUNTED || wp_ll_leaves_out(rows->taker.run, unit.rank))
        return WP_STATUS_OK;
    const enum wp_status status = route_recall_choices(rows, unit);
    wp_warp_sync(warp); /* all lanes have received: packets are stored by the lanes themselves */
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk && status == WP_STATUS_OK;
         k += WP_WARP_SIZE) {
        const int32_t packed = route_packed_choice(rows, unit, k);
        if (packed >= 0)
            wp_ll_count_parts(warp, args, packed / plan->capacity, 1);
    }
    return wp_ll_unless_absent(status);
}

/* ================== a launch */

WP_FN struct wp_ll_packet_rows wp_ll_packet_rows_of(struct wp_ll_run *run,
                                                    const struct wp_low_latency_dispatch_args *args,
                                                    uint64_t number)
{
    char *memory = (char *)wp_block_shared(run->op.warp) + WP_BLOCK_WORDS_BYTES;
    const struct wp_ll_taker taker = {run,
                                      args,
                                      number,
                                      (uint32_t *)(void *)memory,
                                      wp_ll_num_head_words(&args->ll.plan),
                                      wp_ll_num_pairs(&args->ll.plan),
                                      1};
    const struct wp_ll_packet_rows rows = {taker, wp_ll_packets_of(&args->ll, WP_LL_ROWS, number),
                                           0};
    return rows;
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args,
                          struct wp_ll_route_loads loads)
{
    struct wp_warp *warp = run->op.warp;
    const uint64_t number = run->numbers.rows_sent + 1;
    const uint64_t num_outstanding = run->numbers.rows_sent - run->numbers.rows_ended;
    const uint64_t num_buffers = (uint64_t)args->ll.plan.num_buffers;
    struct wp_ll_packet_rows rows = wp_ll_packet_rows_of(run, args, number);
    if (num_outstanding >= num_buffers)
        return wp_ll_fail(run, num_buffers, num_outstanding + 1);
    /* Only credit that an earlier launch received counts. Credit that another block of this launch
     * receives is not ordered before this block's stores. */
    const uint32_t known = (uint32_t)loads.taken >> wp_ll_taken_shift(number - 1);
    const int16_t num_lacking = (int16_t)((uint32_t)wp_ll_number_before(run, number) - known);
    rows.credited_ranks =
        wp_ballot(warp, num_lacking <= 0 && wp_lane_idx(warp) < args->ll.exchange.num_ranks);
    const enum wp_status status = route_send(&rows, loads);
    struct wp_ll_buffer buffer = wp_ll_buffer_state(run, number);
    buffer.tokens.begin = 0;
    buffer.tokens.end = args->num_tokens;
    wp_ll_remember(run, number, buffer);
    run->numbers.rows_sent = number;
    return status;
}

/* By all warps. By expert, the block meets once, when its last warps have heard all heads. */
WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t number = ++run->numbers.rows_received;
    const struct wp_ll_packet_rows rows = wp_ll_packet_rows_of(run, args, number);
    const struct wp_ll_turns turns = wp_ll_turns_to(WP_LL_RECEIVE, warp, ll);
    const int32_t num_units = wp_ll_num_taken_units(&ll->plan, ll->exchange.num_ranks);
    enum wp_status status = WP_STATUS_OK;
    if (number > run->numbers.rows_sent)
        status = wp_ll_fail(run, run->numbers.rows_sent, number);
    else if (ll->plan.is_by_expert && wp_block_idx(warp) < wp_ll_num_receiving_blocks(warp, ll))
        status = wp_ll_receive_heads(&rows);
    status = wp_ll_commit(run, wp_block_status(warp, status));
    if (status != WP_STATUS_OK)
        return status;
    if (ll->plan.is_by_expert && ll->plan.is_told)
        wp_ll_look_at_masks(run); /* whom other warps of the block have heard nothing of */
    else if (ll->plan.is_by_expert)
        wp_admit_next(warp); /* all ranks have started */
    if (ll->plan.is_by_expert && wp_block_idx(warp) == 0)
        wp_ll_send_experts(&rows.taker);
    for (int32_t i = turns.first; i < num_units && status == WP_STATUS_OK; i += turns.step) {
        status = wp_ll_unless_absent(route_receive(&rows, i));
        if (wp_ll_has_expert_signals(args) && status == WP_STATUS_OK)
            status = wp_ll_tell_unit(&rows, i);
    }
    if (wp_block_idx(warp) == 0 && wp_ll_thread_idx(warp) == 0)
        *ll->received_buffer = (int32_t)wp_ll_buffer(&ll->plan, number);
    return wp_ll_end_committed(run, status);
}

WP_FN enum wp_status run_phases(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args)
{
    const int receives = (args->phases & WP_LL_RECEIVE) != 0;
    const struct wp_ll_loads remembered = wp_ll_load(warp, &args->ll);
    const struct wp_ll_route_loads loads = route_load(warp, args);
    struct wp_ll_run run = wp_ll_begin_loaded(warp, &args->ll, remembered);
    enum wp_status status = WP_STATUS_OK;
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_ll_send_taken(&run, receives ? args->missing_ranks : NULL);
    if (args->phases & WP_LL_SEND)
        status = send(&run, args, loads);
    return status == WP_STATUS_OK && receives ? receive(&run, args)
                                              : wp_ll_commit(&run, wp_block_status(warp, status));
}

WP_FN enum wp_status dispatch(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args)
{
    const enum wp_status status = run_phases(warp, args);
    wp_ll_end_expert_signals(warp, args);
    return status;
}
