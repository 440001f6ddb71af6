/* SPDX-License-Identifier: MIT */
/*
 * told_low_latency_dispatch: low_latency_dispatch of many tokens, in packets. The packets of a row
 * lie in the slot of its token, so rows need not wait for anything to be counted. While rows are
 * under way, a rank sends each target, in a tagged row for each token that there may be, which row
 * it is there and which of the target's experts its choices are for; and how many rows there are,
 * by expert how many each expert has. So the target knows where rows go: by rank to slots without
 * gaps, by expert to where they are packed.
 */
#include "programs/low_latency/ll_packet_dispatch.h"

/* ================== what is told */

/* ------------------------------------------------------------------ choices */

/* Places have 16 bits (ll_layout.h). */
WP_STATIC_ASSERT(WP_LL_NEAR_RANKS < 1 << (16 - WP_LL_PLACE_EXPERT_BITS), "ranks, and none");

/* The first choices that a thread looks at, from `first` on: every n-th of all, among n threads. */
WP_FN void load_choices(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                        int32_t first, int64_t *experts)
{
    for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++)
        experts[i] =
            wp_ll_load_choice(args, first + wp_ll_thread_idx(warp) + i * wp_ll_num_threads(warp));
}

/* In memory of the block, behind the counts that it receives: by expert the counts that it sends,
 * of the choices for each expert of a rank, two in a word. */
WP_FN uint32_t *counts_to_tell(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank)
{
    char *memory = (char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES;
    return (uint32_t *)(void *)memory +
           (ptrdiff_t)(ll->exchange.num_ranks + rank) * wp_ll_num_pairs(&ll->plan);
}

/* Behind these, the place of each choice. */
WP_FN uint16_t *places_of(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return (uint16_t *)(void *)counts_to_tell(warp, ll, ll->exchange.num_ranks);
}

/* All warps of a block call this, with their first choices, and meet. It finds the places of all
 * choices, and makes the counts that the block sends: work item i sends them to rank i. Mostly
 * there are as many blocks as ranks, and nothing is divided, which takes GPUs long. */
WP_FN void find_places(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                       int64_t *experts)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t num_choices = ll->plan.max_tokens * ll->plan.num_topk,
                  num_ranks = ll->exchange.num_ranks;
    const int32_t num_threads = wp_ll_num_threads(warp);
    const int32_t block = wp_block_idx(warp), num_blocks = wp_ll_num_receiving_blocks(warp, ll);
    const int tells_counts = ll->plan.is_by_expert && block < num_ranks;
    uint16_t *places = places_of(warp, ll);
    if (tells_counts) {
        uint32_t *counts = counts_to_tell(warp, ll, 0);
        for (int32_t i = wp_ll_thread_idx(warp); i < num_ranks * wp_ll_num_pairs(&ll->plan);
             i += num_threads)
            counts[i] = 0;
        wp_block_sync(warp);
    }
    for (int32_t first = 0; first < num_choices; first += WP_LL_CHOICES_TOGETHER * num_threads) {
        if (first > 0)
            load_choices(warp, args, first, experts);
        for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++) {
            const int32_t choice = first + wp_ll_thread_idx(warp) + i * num_threads;
            if (choice >= num_choices)
                break;
            const struct wp_place_of_expert place =
                wp_place_expert(&ll->placement, experts[i], ll->exchange.rank,
                                (int32_t)wp_divide((uint32_t)choice, ll->plan.topk_reciprocal));
            places[choice] =
                place.rank < 0
                    ? 0
                    : (uint16_t)((place.rank + 1) << WP_LL_PLACE_EXPERT_BITS | place.local_expert);
            if (tells_counts && place.rank >= 0 &&
                (num_blocks >= num_ranks ? place.rank : place.rank % num_blocks) == block)
                wp_ll_add_to_pair(counts_to_tell(warp, ll, place.rank), place.local_expert, 1);
        }
    }
    wp_block_sync(warp);
}

/* ------------------------------------------------------------------ what is before a token */

/* Warp-wide: how many of this rank's first tokens go to a rank. */
WP_FN int32_t count_before(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank,
                           int32_t num_tokens)
{
    const uint16_t *places = places_of(warp, ll);
    const int32_t num_topk = ll->plan.num_topk;
    int32_t num_going = 0;
    for (int32_t first = 0; first < num_tokens; first += WP_WARP_SIZE) {
        const int32_t token = first + wp_lane_idx(warp);
        int goes = 0;
        for (int32_t k = 0; k < num_topk && token < num_tokens; k++)
            goes |= places[token * num_topk + k] >> WP_LL_PLACE_EXPERT_BITS == rank + 1;
        num_going += wp_popcount(wp_ballot(warp, goes));
    }
    return num_going;
}

/* Warp-wide: how many of the first num_choices choices have the place. Each lane loads several
 * pairs of places together. */
WP_FN uint32_t count_place(struct wp_warp *warp, const struct wp_low_latency *ll, uint16_t place,
                           int32_t num_choices)
{
    const uint16_t *places = places_of(warp, ll);
    const uint32_t pair = (uint32_t)place << 16 | place;
    const int32_t num_pairs = num_choices / 2, lane = wp_lane_idx(warp);
    uint32_t num = num_choices % 2 != 0 && lane == 0 && places[num_choices - 1] == place;
    for (int32_t first = lane; first < num_pairs; first += WP_LL_CHOICES_TOGETHER * WP_WARP_SIZE) {
        uint32_t pairs[WP_LL_CHOICES_TOGETHER];
        for (int32_t j = 0; j < WP_LL_CHOICES_TOGETHER; j++) {
            const int32_t i = first + j * WP_WARP_SIZE;
            pairs[j] = ~pair;
            if (i < num_pairs)
                memcpy(&pairs[j], places + (ptrdiff_t)2 * i, sizeof pairs[j]);
        }
        for (int32_t j = 0; j < WP_LL_CHOICES_TOGETHER; j++)
            num += ((pairs[j] ^ pair) & UINT16_MAX) == 0;
        for (int32_t j = 0; j < WP_LL_CHOICES_TOGETHER; j++)
            num += (pairs[j] ^ pair) >> 16 == 0;
    }
    return wp_sum_u32(warp, num);
}

/* All lanes call this, with the choices from `begin` on. A lane whose choice counts gets the number
 * of choices before it with the same place. */
WP_FN uint32_t find_order(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t begin,
                          int counts)
{
    const uint16_t *places = places_of(warp, ll);
    const int32_t lane = wp_lane_idx(warp);
    uint32_t order = (uint32_t)wp_same_below(warp, counts ? places[begin + lane] : 0u);
    for (uint32_t left = wp_ballot(warp, counts); left != 0; left &= left - 1) {
        const int32_t other = wp_popcount(~left & (left - 1));
        const uint32_t num = count_place(warp, ll, places[begin + other], begin);
        order += other == lane ? num : 0;
    }
    return order;
}

/* ------------------------------------------------------------------ the metadata of a token */

/* Warp-wide: makes the metadata of a token for a rank, in memory of the warp. */
WP_FN uint32_t *make_told(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                          int32_t rank, int32_t token)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const uint16_t *places = places_of(warp, &args->ll);
    const int32_t num_topk = plan->num_topk, first = token * num_topk;
    const int32_t row = plan->is_by_expert ? 0 : count_before(warp, &args->ll, rank, token);
    uint32_t *told = (uint32_t *)wp_warp_shared(warp);
    int is_there = 0;
    for (int32_t i = 0; wp_ll_has_more_choices(plan, i); i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int is_at = k < num_topk && places[first + k] >> WP_LL_PLACE_EXPERT_BITS == rank + 1;
        const int32_t expert =
            is_at ? places[first + k] & ((1 << WP_LL_PLACE_EXPERT_BITS) - 1) : -1;
        const uint32_t order =
            plan->is_by_expert ? find_order(warp, &args->ll, first + i, is_at) : 0;
        float weight = 0.0f;
        if (is_at)
            weight = args->topk_weights == NULL ? 1.0f : args->topk_weights[first + k];
        if (k < num_topk) {
            told[1 + k] = is_at ? order << 16 | (uint32_t)expert : WP_LL_TOLD_NOT_HERE;
            memcpy(&told[1 + num_topk + k], &weight, sizeof weight);
        }
        is_there |= wp_ballot(warp, is_at) != 0;
    }
    if (wp_lane_idx(warp) == 0)
        told[0] = is_there ? (uint32_t)row : WP_LL_TOLD_NOT_HERE;
    wp_warp_sync(warp);
    return told;
}

/* Warp-wide: unit i of what is told. The first units tell ranks of all tokens, by expert with the
 * counts that this block has made; others send a rank the metadata of one token. */
WP_FN enum wp_status post_unit(struct wp_ll_packet_rows *rows, int32_t i)
{
    struct wp_ll_run *run = rows->taker.run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = &rows->taker.args->ll;
    const int32_t own = ll->exchange.rank;
    const uint64_t number = rows->taker.number;
    const int32_t num_before = (int32_t)wp_divide((uint32_t)i, ll->plan.row_parts.ranks_reciprocal);
    const int32_t rank = i - num_before * ll->exchange.num_ranks, token = num_before - 1;
    const enum wp_status status = rows->credited_ranks >> rank & 1u
                                      ? WP_STATUS_OK
                                      : wp_ll_await_credit(run, WP_LL_ROWS, rank, number);
    rows->credited_ranks |= 1u << rank;
    if (status != WP_STATUS_OK || wp_ll_leaves_out(run, rank))
        return status;
    if (token >= 0) {
        const uint32_t *told = make_told(warp, rows->taker.args, rank, token);
        wp_tagged_send(warp, rank, wp_ll_told(ll, rank, number, own, token), told,
                       wp_ll_num_told_words(&ll->plan), number);
        wp_warp_sync(warp); /* it has been read */
        return status;
    }
    if (ll->plan.is_by_expert)
        wp_tagged_send(warp, rank, wp_ll_head(ll, rank, number, own),
                       counts_to_tell(warp, ll, rank), wp_ll_num_pairs(&ll->plan), number);
    const int32_t num_rows = count_before(warp, ll, rank, ll->plan.max_tokens);
    if (wp_lane_idx(warp) == 0)
        wp_ll_send_count(rows, rank, num_rows);
    return status;
}

/* ================== send */

/* ------------------------------------------------------------------ what is loaded first */

/* The work items that send parts. Warps that also send metadata do that first. */
WP_FN struct wp_ll_turns turns_to_send_parts(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const int32_t num_told =
        ll->num_receivers > 0 ? 0 : wp_ll_num_told_units(&ll->plan, ll->exchange.num_ranks);
    struct wp_ll_turns turns = wp_ll_turns_to(WP_LL_SEND, warp, ll);
    while (turns.first < num_told)
        turns.first += turns.step;
    turns.first -= num_told;
    return turns;
}

/* Begins to load for item i of those that send parts, if there is one. */
WP_FN void load_unit(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                     int32_t i, struct wp_ll_route_loads *loads)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_unit part = wp_ll_part_of(plan->row_parts, i);
    const int32_t lane = wp_lane_idx(warp);
    loads->expert = -1;
    loads->row = wp_packets_load(warp, NULL, 0);
    if (i >= args->num_tokens * plan->row_parts.num)
        return;
    if (lane < plan->num_topk)
        loads->expert = wp_ll_load_choice(args, part.token * plan->num_topk + lane);
    loads->row = wp_ll_load_part(warp, args, part);
}

WP_FN struct wp_ll_route_loads route_load(struct wp_warp *warp,
                                          const struct wp_low_latency_dispatch_args *args)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t lane = wp_lane_idx(warp);
    const int sends = (args->phases & WP_LL_SEND) != 0;
    struct wp_ll_route_loads loads = {
        0, {-1, -1, -1, -1}, -1, 0.0f, wp_packets_load(warp, NULL, 0)};
    if (!sends)
        return loads;
    if (lane < ll->exchange.num_ranks)
        loads.taken = wp_load_relaxed(&ll->rows_taken[lane]);
    if (wp_ll_turns_to(WP_LL_RECEIVE, warp, ll).step > 0)
        load_choices(warp, args, 0, loads.experts);
    load_unit(warp, args, turns_to_send_parts(warp, ll).first, &loads);
    return loads;
}

/* ------------------------------------------------------------------ parts */

/* Warp-wide: a bit for each rank that the token goes to. Lane n has the expert of choice n. */
WP_FN uint32_t find_ranks(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                          int32_t token, int64_t expert)
{
    const struct wp_low_latency *ll = &args->ll;
    uint32_t of_lane = 0;
    for (int32_t first = 0; wp_ll_has_more_choices(&ll->plan, first); first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        if (first > 0)
            expert =
                k < ll->plan.num_topk ? wp_ll_load_choice(args, token * ll->plan.num_topk + k) : -1;
        const struct wp_place_of_expert place =
            wp_place_expert(&ll->placement, expert, ll->exchange.rank, token);
        of_lane |= place.rank < 0 ? 0 : 1u << place.rank;
    }
    return wp_or_u32(warp, of_lane);
}

/* Warp-wide. */
WP_FN enum wp_status send_unit(struct wp_ll_packet_rows *rows, struct wp_ll_unit part,
                               const struct wp_ll_route_loads *loads)
{
    struct wp_ll_run *run = rows->taker.run;
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const uint32_t found = find_ranks(warp, rows->taker.args, part.token, loads->expert);
    uint32_t left = found & ~rows->credited_ranks & ~run->masked;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = 0; left != 0 && status == WP_STATUS_OK; rank++, left >>= 1)
        if (left & 1u)
            status = wp_ll_await_credit(run, WP_LL_ROWS, rank, rows->taker.number);
    rows->credited_ranks |= found;
    if (status != WP_STATUS_OK)
        return status;
    const uint32_t ranks = found & ~run->masked;
    for (int32_t rank = wp_lane_idx(warp); rank < ll->exchange.num_ranks && part.part == 0;
         rank += WP_WARP_SIZE)
        ll->row_targets[wp_ll_token_idx(ll, rows->taker.number, rank, part.token)] =
            (int32_t)(ranks >> rank & 1u);
    const struct wp_packet_targets there = {0, ll->exchange.num_ranks, 0, WP_PACKETS_TO_SOME,
                                            ranks};
    wp_ll_send_loaded(rows, part, there, part.token, &loads->row);
    return status;
}

WP_FN enum wp_status route_send(struct wp_ll_packet_rows *rows, struct wp_ll_route_loads loads)
{
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_ll_turns told = wp_ll_turns_to(WP_LL_RECEIVE, warp, &args->ll);
    const int32_t num_told = wp_ll_num_told_units(plan, args->ll.exchange.num_ranks);
    const struct wp_ll_turns sent = turns_to_send_parts(warp, &args->ll);
    const int32_t num_sent = args->num_tokens * plan->row_parts.num;
    enum wp_status status = WP_STATUS_OK;
    if (told.step > 0)
        find_places(warp, args, loads.experts);
    for (int32_t i = told.first; i < num_told && status == WP_STATUS_OK; i += told.step)
        status = post_unit(rows, i);
    for (int32_t i = sent.first; i < num_sent && status == WP_STATUS_OK; i += sent.step) {
        if (i > sent.first)
            load_unit(warp, args, i, &loads);
        status = send_unit(rows, wp_ll_part_of(plan->row_parts, i), &loads);
    }
    return status;
}

/* ================== receive */

/* ------------------------------------------------------------------ the metadata of a token */

/* Warp-wide: receives so many words of the metadata, in memory of the warp. WP_STATUS_ABSENT: the
 * source is missing. */
WP_FN enum wp_status receive_token(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                   int32_t num_words)
{
    struct wp_ll_run *run = rows->taker.run;
    struct wp_warp *warp = run->op.warp;
    const uint64_t number = rows->taker.number;
    const char *told = wp_ll_told(run->ll, run->ll->exchange.rank, number, unit.rank, unit.token);
    struct wp_ll_patience patience = wp_ll_patience_about(number, run->ll->exchange.num_ranks);
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, unit.rank);
    enum wp_status status;
    site.sequence = number; /* which it carries */
    do {
        wp_warp_sync(warp); /* what was there has been read */
        status = wp_tagged_take_relaxed(warp, told, wp_warp_shared(warp), num_words, &site);
        wp_warp_sync(warp);
    } while (wp_ll_warp_waits_on(run, unit.rank, status, &patience));
    wp_ll_leave_out(run, status == WP_STATUS_ABSENT ? 1u << unit.rank : 0);
    return status;
}

/* The token has been heard of. */
WP_FN int32_t route_packed_choice(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                  int32_t k)
{
    const uint32_t *told = (const uint32_t *)wp_warp_shared(rows->taker.run->op.warp);
    const uint32_t choice = told[1 + k];
    return choice == WP_LL_TOLD_NOT_HERE
               ? WP_LL_NOT_HERE
               : wp_ll_packed_choice_at(rows, unit.rank, (int32_t)(choice & UINT16_MAX),
                                        choice >> 16);
}

/* Keeps what the metadata say of choices: by expert what combine needs, and src_tokens for the
 * caller; by rank, in the row's slot, what is behind elements and scales. */
WP_FN void keep_choices(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit, char *slot)
{
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    struct wp_warp *warp = rows->taker.run->op.warp;
    const uint32_t *told = (const uint32_t *)wp_warp_shared(warp);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        struct wp_ll_packed_choice choice;
        memcpy(&choice.weight, told + 1 + plan->num_topk + k, sizeof choice.weight);
        if (!plan->is_by_expert) {
            ((int32_t *)(void *)(slot + plan->slot.experts_offset))[k] = (int32_t)told[1 + k];
            ((float *)(void *)(slot + plan->slot.weights_offset))[k] = choice.weight;
            continue;
        }
        choice.packed = route_packed_choice(rows, unit, k);
        wp_ll_packed_choices(&args->ll, rows->taker.number, unit.rank, unit.token)[k] = choice;
        if (choice.packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[choice.packed] = unit.token;
    }
    if (!plan->is_by_expert && wp_lane_idx(warp) == 0) {
        *(int32_t *)(void *)(slot + plan->slot.token_offset) = unit.token;
        *(int32_t *)(void *)(slot + plan->slot.answer_offset) = unit.token;
    }
}

/* ------------------------------------------------------------------ parts */

/* Receives bytes of the slot of the unit's token to one place. */
WP_FN enum wp_status take_bytes(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                struct wp_ll_span bytes, char *dst)
{
    const struct wp_expected_row row = wp_ll_expect(rows, unit, bytes);
    const void *const dsts[] = {dst};
    return wp_ll_take_each(rows, &row, dsts, 1);
}

/* By rank: receives what the unit has of a row, to the row's slot. Scales are behind the last
 * elements, mostly next to them. */
WP_FN enum wp_status place_unit(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                int32_t row)
{
    const struct wp_low_latency *ll = &rows->taker.args->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    const int is_last = wp_ll_has_choices(ll->plan.taken_parts, unit.part);
    const struct wp_ll_span scales = {(uint32_t)at->scales_offset,
                                      (uint32_t)(at->token_offset - at->scales_offset)};
    struct wp_ll_span bytes = wp_ll_unit_bytes(&ll->plan, ll->plan.taken_parts, unit.part);
    const int are_next = bytes.begin + bytes.bytes == scales.begin;
    char *slot = wp_ll_row(ll, ll->exchange.rank, rows->taker.number, unit.rank, row);
    if (is_last)
        keep_choices(rows, unit, slot);
    if (is_last && are_next)
        bytes.bytes += scales.bytes;
    const enum wp_status status = take_bytes(rows, unit, bytes, slot + bytes.begin);
    return status == WP_STATUS_OK && is_last && !are_next && wp_ll_is_quantised(&ll->plan)
               ? take_bytes(rows, unit, scales, slot + scales.begin)
               : status;
}

/* The metadata stay where they came to. Scales may have been received over their copy. */
WP_FN enum wp_status route_recall_choices(const struct wp_ll_packet_rows *rows,
                                          struct wp_ll_unit unit)
{
    return receive_token(rows, unit, 1 + rows->taker.args->ll.plan.num_topk);
}

WP_FN enum wp_status route_receive(const struct wp_ll_packet_rows *rows, int32_t i)
{
    const struct wp_low_latency *ll = &rows->taker.args->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    const struct wp_ll_unit unit = wp_ll_counted_unit_of(ll, plan->taken_parts, i);
    const int keeps = wp_ll_has_choices(plan->taken_parts, unit.part);
    const int32_t num_of_places = plan->is_by_expert ? 1 + plan->num_topk : 1;
    if (unit.token == WP_LL_COUNTED)
        return wp_ll_receive_count(rows, unit.rank);
    if (wp_ll_leaves_out(rows->taker.run, unit.rank))
        return WP_STATUS_OK;
    const enum wp_status status =
        receive_token(rows, unit, keeps ? wp_ll_num_told_words(plan) : num_of_places);
    if (status != WP_STATUS_OK)
        return status;
    const uint32_t row = *(const uint32_t *)wp_warp_shared(rows->taker.run->op.warp);
    if (plan->is_by_expert && keeps)
        keep_choices(rows, unit, NULL);
    if (row == WP_LL_TOLD_NOT_HERE)
        return status;
    if (!plan->is_by_expert)
        return place_unit(rows, unit, (int32_t)row);
    return wp_ll_pack_bytes(rows, unit, wp_ll_unit_bytes(plan, plan->taken_parts, unit.part), NULL);
}

/* ================== the program */

struct wp_told_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(told_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
#endif
