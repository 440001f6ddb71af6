/* SPDX-License-Identifier: MIT */
/*
 * Of many tokens whose rows go in packets (low_latency/packets.h): what a rank tells the others, while rows are on their way.
 * That is, in a tagged row for each token that there may be, which row it is there and which of the rank's experts its
 * choices are for; and how many rows there are, by expert how many each expert has. So rows need not wait for anything to be
 * counted, and whoever receives them knows where they go.
 */
#pragma once

#include "programs/low_latency/packet_rows.h"

/* ================== what is told */

/* ------------------------------------------------------------------ choices */

/* Places have 16 bits (layout.h). */
WP_STATIC_ASSERT(WP_LL_NEAR_RANKS < 1 << (16 - WP_LL_PLACE_EXPERT_BITS), "ranks, and none");

WP_FN uint16_t wp_ll_place_word(struct wp_place_of_expert place)
{
    return place.rank < 0
               ? 0
               : (uint16_t)((place.rank + 1) << WP_LL_PLACE_EXPERT_BITS | place.local_expert);
}

WP_FN int wp_ll_is_at(uint16_t place, int32_t rank)
{
    return place >> WP_LL_PLACE_EXPERT_BITS == rank + 1;
}

WP_FN int32_t wp_ll_expert_at(uint16_t place)
{
    return place & ((1 << WP_LL_PLACE_EXPERT_BITS) - 1);
}

/* The first choices that a thread looks at: every n-th of all, among n threads. */
enum { WP_LL_CHOICES_TOGETHER = 4 };
struct wp_ll_thread_choices {
    int64_t experts[WP_LL_CHOICES_TOGETHER];
};

WP_FN struct wp_ll_thread_choices
wp_ll_load_thread_choices(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                          int32_t first)
{
    struct wp_ll_thread_choices choices;
    for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++)
        choices.experts[i] =
            wp_ll_load_choice(args, first + wp_ll_thread_idx(warp) + i * wp_ll_num_threads(warp));
    return choices;
}

/* In memory of the block, behind the counts that it receives: by expert the counts that it sends; then the
 * place of each choice. */
WP_FN char *wp_ll_told_block_memory(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return (char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES +
           wp_ll_told_counts_bytes(&ll->plan, ll->exchange.num_ranks);
}

/* The number of choices for each expert of a rank, two in a word. */
WP_FN uint32_t *wp_ll_counts_to_tell(struct wp_warp *warp, const struct wp_low_latency *ll,
                                     int32_t rank)
{
    return (uint32_t *)(void *)wp_ll_told_block_memory(warp, ll) +
           (ptrdiff_t)rank * wp_ll_num_pairs(&ll->plan);
}

WP_FN uint16_t *wp_ll_places(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return (uint16_t *)(void *)(wp_ll_told_block_memory(warp, ll) +
                                wp_ll_told_counts_bytes(&ll->plan, ll->exchange.num_ranks));
}

/* Whether the block sends counts: work item i sends them to rank i. */
WP_FN int wp_ll_tells_counts(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    return ll->plan.is_by_expert && wp_block_idx(warp) < ll->exchange.num_ranks;
}

/* Whether the block sends counts to `rank`. Mostly there are as many blocks as ranks, and nothing is
 * divided, which takes GPUs long. */
WP_FN int wp_ll_tells_counts_of(struct wp_warp *warp, const struct wp_low_latency *ll, int32_t rank)
{
    const int32_t num_blocks = wp_ll_num_receiving_blocks(warp, ll);
    return num_blocks >= ll->exchange.num_ranks ? rank == wp_block_idx(warp)
                                                : rank % num_blocks == wp_block_idx(warp);
}

/* All warps of such a block call this, and meet. */
WP_FN void wp_ll_begin_counts(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const int32_t num_words = ll->exchange.num_ranks * wp_ll_num_pairs(&ll->plan);
    uint32_t *counts = wp_ll_counts_to_tell(warp, ll, 0);
    for (int32_t i = wp_ll_thread_idx(warp); i < num_words; i += wp_ll_num_threads(warp))
        counts[i] = 0;
    wp_block_sync(warp);
}

/* All warps of a block call this, with their first choices, and meet. It finds the places of all choices,
 * and makes the counts that the block sends. */
WP_FN void wp_ll_many_find_places(struct wp_warp *warp,
                                  const struct wp_low_latency_dispatch_args *args,
                                  struct wp_ll_thread_choices choices)
{
    const struct wp_low_latency *ll = &args->ll;
    const int32_t num_choices = wp_ll_num_choices(&ll->plan);
    const int32_t num_threads = wp_ll_num_threads(warp);
    const int tells_counts = wp_ll_tells_counts(warp, ll);
    uint16_t *places = wp_ll_places(warp, ll);
    if (tells_counts)
        wp_ll_begin_counts(warp, ll);
    for (int32_t first = 0; first < num_choices; first += WP_LL_CHOICES_TOGETHER * num_threads) {
        if (first > 0)
            choices = wp_ll_load_thread_choices(warp, args, first);
        for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++) {
            const int32_t choice = first + wp_ll_thread_idx(warp) + i * num_threads;
            if (choice >= num_choices)
                break;
            const struct wp_place_of_expert place =
                wp_ll_place_of_choice(args, choices.experts[i], choice);
            places[choice] = wp_ll_place_word(place);
            if (tells_counts && place.rank >= 0 && wp_ll_tells_counts_of(warp, ll, place.rank))
                wp_ll_add_to_pair(wp_ll_counts_to_tell(warp, ll, place.rank), place.local_expert,
                                  1);
        }
    }
    wp_block_sync(warp);
}

/* ------------------------------------------------------------------ what is before a token */

/* This rank's tokens before `token`, seen from a rank. */
struct wp_ll_before {
    int32_t rank, token;
};

/* Warp-wide: how many of them go to that rank. */
WP_FN int32_t wp_ll_count_before(struct wp_warp *warp, const struct wp_low_latency *ll,
                                 struct wp_ll_before before)
{
    const uint16_t *places = wp_ll_places(warp, ll);
    const int32_t num_topk = ll->plan.num_topk;
    int32_t num_going = 0;
    for (int32_t first = 0; first < before.token; first += WP_WARP_SIZE) {
        const int32_t token = first + wp_lane_idx(warp);
        int goes = 0;
        for (int32_t k = 0; k < num_topk && token < before.token; k++)
            goes |= wp_ll_is_at(places[token * num_topk + k], before.rank);
        num_going += wp_popcount(wp_ballot(warp, goes));
    }
    return num_going;
}

/* Warp-wide: how many of the first num_choices choices have the place. Each lane loads several pairs of
 * places together. */
WP_FN uint32_t wp_ll_count_place(struct wp_warp *warp, const struct wp_low_latency *ll,
                                 uint16_t place, int32_t num_choices)
{
    const uint16_t *places = wp_ll_places(warp, ll);
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

/* All lanes call this, with the choices from `begin` on. A lane whose choice counts gets the number of
 * choices before it with the same place. */
WP_FN uint32_t wp_ll_find_order(struct wp_warp *warp, const struct wp_low_latency *ll,
                                int32_t begin, int counts)
{
    const uint16_t *places = wp_ll_places(warp, ll);
    const int32_t lane = wp_lane_idx(warp);
    uint32_t order = (uint32_t)wp_same_below(warp, counts ? places[begin + lane] : 0u);
    for (uint32_t left = wp_ballot(warp, counts); left != 0; left &= left - 1) {
        const int32_t other = wp_popcount(~left & (left - 1));
        const uint32_t num = wp_ll_count_place(warp, ll, places[begin + other], begin);
        order += other == lane ? num : 0;
    }
    return order;
}

/* ------------------------------------------------------------------ what is told */

/* Warp-wide: makes the metadata of a token for a rank, in memory of the warp. */
WP_FN uint32_t *wp_ll_make_told(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args,
                                struct wp_ll_before before)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const uint16_t *places = wp_ll_places(warp, &args->ll);
    const int32_t num_topk = plan->num_topk, first = before.token * num_topk;
    const int32_t row = plan->is_by_expert ? 0 : wp_ll_count_before(warp, &args->ll, before);
    uint32_t *told = (uint32_t *)wp_warp_shared(warp);
    int is_there = 0;
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int is_at = k < num_topk && wp_ll_is_at(places[first + k], before.rank);
        const int32_t expert = is_at ? wp_ll_expert_at(places[first + k]) : -1;
        const uint32_t order =
            plan->is_by_expert ? wp_ll_find_order(warp, &args->ll, first + i, is_at) : 0;
        float weight = 0.0f;
        if (is_at)
            weight = args->topk_weights == NULL ? 1.0f : args->topk_weights[first + k];
        if (k < num_topk) {
            told[1 + k] = is_at ? wp_ll_told_choice(expert, order) : WP_LL_TOLD_NOT_HERE;
            memcpy(&told[1 + num_topk + k], &weight, sizeof weight);
        }
        is_there |= wp_ballot(warp, is_at) != 0;
    }
    if (wp_lane_idx(warp) == 0)
        told[0] = is_there ? (uint32_t)row : WP_LL_TOLD_NOT_HERE;
    wp_warp_sync(warp);
    return told;
}

/* Warp-wide: sends a rank the metadata of one token. The rank has given credit for `number`. */
WP_FN void wp_ll_tell_token(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                            struct wp_ll_before before, uint64_t number)
{
    const struct wp_low_latency *ll = &args->ll;
    const uint32_t *told = wp_ll_make_told(warp, args, before);
    wp_tagged_send(warp, before.rank,
                   wp_ll_told(ll, before.rank, number, ll->exchange.rank, before.token), told,
                   wp_ll_num_told_words(&ll->plan), number);
    wp_warp_sync(warp); /* it has been read */
}

/* Warp-wide, by expert: sends a rank the counts of its experts, which this block has made. */
WP_FN void wp_ll_many_tell_choices(struct wp_warp *warp, const struct wp_low_latency *ll,
                                   int32_t rank, uint64_t number)
{
    wp_tagged_send(warp, rank, wp_ll_head(ll, rank, number, ll->exchange.rank),
                   wp_ll_counts_to_tell(warp, ll, rank), wp_ll_num_pairs(&ll->plan), number);
}

/* ================== where rows are packed */

/* How the target finds the place of a row: by expert from the counts of all sources and the metadata of
 * the token, so before the row comes. */

/* ------------------------------------------------------------------ what sources tell */

/* All warps of a block call this after they have met. It writes counts of experts for the caller. */
WP_FN void wp_ll_many_tell_experts(const struct wp_ll_hearer *hearer)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_experts = hearer->taker.args->ll.num_local_experts;
    const int32_t num_threads = wp_ll_num_threads(warp);
    /* Whose last warps have heard: these are awake. */
    for (int32_t expert = num_threads - 1 - wp_ll_thread_idx(warp); expert < num_experts;
         expert += num_threads)
        wp_ll_tell_heard_expert(hearer, expert);
}

/* In memory of the warp: the metadata of a source's token. */
WP_FN uint32_t *wp_ll_told_memory(struct wp_warp *warp)
{
    return (uint32_t *)wp_warp_shared(warp);
}

/* Warp-wide: receives so many words of the metadata. WP_STATUS_ABSENT: the source is missing. */
WP_FN enum wp_status wp_ll_hear_token(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                      int32_t num_words)
{
    const struct wp_low_latency *ll = &hearer->taker.args->ll;
    const uint64_t number = hearer->taker.number;
    const char *told = wp_ll_told(ll, ll->exchange.rank, number, unit.rank, unit.token);
    struct wp_ll_run *run = hearer->taker.run;
    struct wp_warp *warp = run->op.warp;
    struct wp_wait_site site = wp_ll_site(run, WP_PHASE_DATA, unit.rank);
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    site.sequence = number; /* which it carries */
    wp_ll_begin_packet_wait(&wait, number);
    do {
        wp_warp_sync(warp); /* what was there has been read */
        status = wp_tagged_take_relaxed(warp, told, wp_ll_told_memory(warp), num_words, &site);
        wp_warp_sync(warp);
        wait.progress.missing = 1u << unit.rank;
    } while (wp_ll_waits_again(run, &wait, status) && !wp_ll_leaves_out(run, unit.rank));
    return status;
}

/* ------------------------------------------------------------------ where rows are packed */

/* The packed row of a source's choice. */
WP_FN int32_t wp_ll_many_packed_choice(const struct wp_ll_hearer *hearer, int32_t source,
                                       uint32_t choice)
{
    return choice == WP_LL_TOLD_NOT_HERE
               ? WP_LL_NOT_HERE
               : wp_ll_packed_choice_at(hearer, source, (int32_t)(choice & UINT16_MAX),
                                        choice >> 16);
}

/* Which part of a row is packed. */
enum wp_ll_packed_what { WP_LL_ELEMENTS, WP_LL_SCALES };

/* The place of the item's elements, or of the row's scales, in a packed row. */
WP_FN char *wp_ll_packed_to(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                            int32_t packed, enum wp_ll_packed_what what)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t first = wp_ll_part_elements(plan, plan->taken_parts, unit.part).first;
    return what == WP_LL_SCALES ? wp_ll_packed_scales(&hearer->taker, packed)
                                : args->rows + (uint64_t)(uint32_t)packed * plan->row_bytes +
                                      ((uint64_t)first << plan->sent_element_bytes_log2);
}

/* Warp-wide, after the metadata has come: lists the places of the item, as the warp's pointers. Returns
 * their number. */
WP_FN int32_t wp_ll_find_packed_places(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit,
                                       enum wp_ll_packed_what what)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const int32_t num_topk = hearer->taker.args->ll.plan.num_topk;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    int32_t num = 0; /* those before had been used when the token was heard of */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int32_t packed =
            k < num_topk ? wp_ll_many_packed_choice(hearer, unit.rank, choices[k]) : WP_LL_NOT_HERE;
        const int32_t place = wp_ll_list(warp, &num, packed >= 0);
        if (packed >= 0)
            wp_warp_pointers(warp)[place] = wp_ll_packed_to(hearer, unit, packed, what);
    }
    wp_warp_sync(warp);
    return num;
}

/* ------------------------------------------------------------------ what is kept of choices */

/* The weight of choice k in the metadata. */
WP_FN float wp_ll_told_weight(struct wp_warp *warp, const struct wp_ll_plan *plan, int32_t k)
{
    float weight;
    memcpy(&weight, wp_ll_told_memory(warp) + 1 + plan->num_topk + k, sizeof weight);
    return weight;
}

/* By expert: keeps what combine needs of a source's token, and writes src_tokens for the caller. */
WP_FN void wp_ll_keep_packed(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit)
{
    const struct wp_low_latency_dispatch_args *args = hearer->taker.args;
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    struct wp_ll_packed_choice *kept =
        wp_ll_packed_choices(&args->ll, hearer->taker.number, unit.rank, unit.token);
    for (int32_t k = wp_lane_idx(warp); k < args->ll.plan.num_topk; k += WP_WARP_SIZE) {
        const struct wp_ll_packed_choice choice = {
            wp_ll_many_packed_choice(hearer, unit.rank, choices[k]),
            wp_ll_told_weight(warp, &args->ll.plan, k)};
        kept[k] = choice;
        if (choice.packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[choice.packed] = unit.token;
    }
}

/* By rank: writes what is behind elements and scales in the row's slot. */
WP_FN void wp_ll_keep_in_slot(const struct wp_ll_hearer *hearer, struct wp_ll_unit unit, char *slot)
{
    struct wp_warp *warp = hearer->taker.run->op.warp;
    const struct wp_ll_plan *plan = &hearer->taker.args->ll.plan;
    const uint32_t *choices = wp_ll_told_memory(warp) + 1;
    int32_t *experts = (int32_t *)(void *)(slot + plan->slot.experts_offset);
    float *weights = (float *)(void *)(slot + plan->slot.weights_offset);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        experts[k] = (int32_t)choices[k];
        weights[k] = wp_ll_told_weight(warp, plan, k);
    }
    if (wp_lane_idx(warp) == 0) {
        *(int32_t *)(void *)(slot + plan->slot.token_offset) = unit.token;
        *(int32_t *)(void *)(slot + plan->slot.answer_offset) = unit.token;
    }
}

/* ================== units */

/* Work items: parts to send, and parts to receive. */

/* ------------------------------------------------------------------ parts that are sent */

/* Warps that also send metadata do that first. */
WP_FN struct wp_ll_turns wp_ll_turns_to_send_parts(struct wp_warp *warp,
                                                   const struct wp_low_latency *ll)
{
    const int32_t num_told =
        ll->num_receivers > 0 ? 0 : wp_ll_num_told_units(&ll->plan, ll->exchange.num_ranks);
    struct wp_ll_turns turns = wp_ll_turns_to_send(warp, ll);
    while (turns.first < num_told)
        turns.first += turns.step;
    turns.first -= num_told;
    return turns;
}

/* Part i of the parts that a rank sends. */
struct wp_ll_sent_unit {
    int32_t token;
    int32_t part;
};

WP_FN struct wp_ll_sent_unit wp_ll_sent_unit_of(const struct wp_ll_plan *plan, int32_t i)
{
    const int32_t token = (int32_t)wp_divide((uint32_t)i, plan->row_parts.units_reciprocal);
    const struct wp_ll_sent_unit unit = {token, i - token * plan->row_parts.num};
    return unit;
}

/* What is being loaded for it. */
struct wp_ll_many_unit_loads {
    int64_t expert; /* of the lane's choice of the token */
    struct wp_packet_row row;
};

/* Begins to load for item i, if there is one. */
WP_FN struct wp_ll_many_unit_loads
wp_ll_many_load_unit(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                     int32_t i)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_sent_unit unit = wp_ll_sent_unit_of(plan, i);
    const int32_t lane = wp_lane_idx(warp);
    struct wp_ll_many_unit_loads loads = {-1, wp_packets_load(warp, NULL, 0)};
    if (i >= args->num_tokens * plan->row_parts.num)
        return loads;
    if (lane < plan->num_topk)
        loads.expert = wp_ll_load_choice(args, unit.token * plan->num_topk + lane);
    loads.row = wp_packets_load(warp, wp_ll_part_of_token(args, unit.token, unit.part),
                                wp_ll_token_part_bytes(plan, unit.part));
    return loads;
}

/* Warp-wide: a bit for each rank that the token goes to. */
WP_FN uint32_t wp_ll_find_ranks(struct wp_warp *warp,
                                const struct wp_low_latency_dispatch_args *args, int32_t token,
                                int64_t expert)
{
    const struct wp_low_latency *ll = &args->ll;
    uint32_t of_lane = 0;
    for (int32_t first = 0; first < ll->plan.num_topk; first += WP_WARP_SIZE) {
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

/* ------------------------------------------------------------------ parts that are received */

/* Work item i of those that receive. */
WP_FN struct wp_ll_unit wp_ll_taken_unit_of(const struct wp_low_latency *ll, int32_t i)
{
    return wp_ll_counted_unit_of(ll, ll->plan.taken_parts, i);
}

WP_FN struct wp_ll_slot_bytes wp_ll_many_unit_bytes(const struct wp_ll_plan *plan, int32_t part)
{
    return wp_ll_element_bytes(plan, wp_ll_part_elements(plan, plan->taken_parts, part));
}

/* Whether the item also has what is behind the elements: it receives scales, and keeps metadata. That is
 * the last item of a row. By expert with scales it has no elements, since scales take as long as a part
 * (docs/measurements.md). */
WP_FN int wp_ll_has_rest(const struct wp_ll_plan *plan, int32_t part)
{
    return part == plan->taken_parts.num_units - 1;
}

/* The bytes of the scales before a part's first element. */
WP_FN uint64_t wp_ll_part_scales_bytes(const struct wp_ll_plan *plan, int32_t first)
{
    return (uint64_t)(first / plan->quantisation.group_elements) * sizeof(float);
}
