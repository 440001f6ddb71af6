/* SPDX-License-Identifier: MIT */
/*
 * packet_low_latency_dispatch: low_latency_dispatch of few tokens, in packets. Each warp finds out
 * by itself where its part of a row goes. By rank a row is in the slot after the rows of earlier
 * tokens, where it stays. By expert it is in the slot of its token, and heads say where it is
 * packed.
 */
#include "programs/low_latency/ll_packet_dispatch.h"

/* ================== where tokens go */

/* ------------------------------------------------------------------ choices */

/* How many choices each lane loads first. By expert, a warp needs the choices of all tokens only
 * for a head. */
WP_FN int32_t wp_ll_num_loaded(const struct wp_low_latency_dispatch_args *args)
{
    return !args->ll.plan.is_by_expert &&
                   args->num_tokens * args->ll.plan.num_topk > 2 * WP_WARP_SIZE
               ? WP_LL_CHOICES_TOGETHER
               : 2;
}

/* A bit for each lane whose choice is at the rank. The lanes have the choices from `begin` on. */
WP_FN uint32_t wp_ll_find_choices_at(struct wp_warp *warp,
                                     const struct wp_low_latency_dispatch_args *args,
                                     struct wp_experts_of_rank experts, int32_t begin,
                                     int64_t expert)
{
    const struct wp_low_latency *ll = &args->ll;
    const uint32_t i = (uint32_t)(begin + wp_lane_idx(warp));
    const int32_t token = (int32_t)wp_divide(i, ll->plan.topk_reciprocal);
    return wp_ballot(
        warp, wp_expert_among(&ll->placement, experts, expert, ll->exchange.rank, token) >= 0);
}

/* A bit for each choice, so many in each half. */
struct wp_ll_choice_bits {
    uint64_t low, high;
    int32_t half;
};

/* The next `num` bits, at most half of all; others follow them. */
WP_FN uint64_t wp_ll_bits_from(struct wp_ll_choice_bits bits, int32_t begin, int32_t num)
{
    uint64_t from = begin < bits.half ? bits.low >> begin : bits.high >> (begin - bits.half);
    if (begin < bits.half && begin + num > bits.half)
        from |= bits.high << (bits.half - begin);
    return from;
}

/* ------------------------------------------------------------------ rows */

/* If a token goes to a rank, and how many tokens before it do. */
struct wp_ll_going {
    int goes;
    int32_t num_before;
};

/* Warp-wide. The lanes have loaded all choices, and there is a lane for each token. */
WP_FN struct wp_ll_going wp_ll_find_loaded(struct wp_warp *warp,
                                           const struct wp_low_latency_dispatch_args *args,
                                           const int64_t *loaded, struct wp_experts_of_rank experts,
                                           int32_t token)
{
    const int32_t num_topk = args->ll.plan.num_topk, lane = wp_lane_idx(warp);
    const int32_t num_choices = args->num_tokens * num_topk, num_loaded = wp_ll_num_loaded(args);
    const uint64_t of_token = (UINT64_C(1) << num_topk) - 1;
    uint64_t halves[2] = {0, 0};
    for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++)
        if (i == 0 || (i < num_loaded && num_choices > i * WP_WARP_SIZE))
            halves[i / 2] |=
                (uint64_t)wp_ll_find_choices_at(warp, args, experts, i * WP_WARP_SIZE, loaded[i])
                << i % 2 * WP_WARP_SIZE;
    const struct wp_ll_choice_bits bits = {halves[0], halves[1], 2 * WP_WARP_SIZE};
    const int32_t begin = lane < args->num_tokens ? lane * num_topk : 0;
    const int goes = (wp_ll_bits_from(bits, begin, num_topk) & of_token) != 0;
    const uint32_t going = wp_ballot(warp, lane < args->num_tokens && goes);
    const struct wp_ll_going found = {(int)(going >> token & 1u),
                                      wp_popcount(going & ((1u << token) - 1))};
    return found;
}

/* Warp-wide: the same for any number. Each lane looks at the choices of a token, whose loads are
 * under way together. */
WP_FN struct wp_ll_going wp_ll_find_going(struct wp_warp *warp,
                                          const struct wp_low_latency_dispatch_args *args,
                                          const int64_t *loaded, int32_t rank, int32_t token)
{
    const struct wp_experts_of_rank experts = wp_experts_of(&args->ll.placement, rank);
    const int32_t num_topk = args->ll.plan.num_topk, num_tokens = args->num_tokens;
    struct wp_ll_going found = {0, 0};
    if (num_tokens * num_topk <= wp_ll_num_loaded(args) * WP_WARP_SIZE &&
        num_tokens < WP_WARP_SIZE && num_topk <= 2 * WP_WARP_SIZE)
        return wp_ll_find_loaded(warp, args, loaded, experts, token);
    for (int32_t first = 0; first <= token && first < num_tokens; first += WP_WARP_SIZE) {
        const int32_t own = first + wp_lane_idx(warp);
        int goes = 0;
        for (int32_t begin = 0; begin < num_topk; begin += WP_LL_CHOICES_TOGETHER) {
            int64_t chosen[WP_LL_CHOICES_TOGETHER];
            for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++)
                chosen[i] =
                    begin + i < num_topk ? wp_ll_load_choice(args, own * num_topk + begin + i) : -1;
            for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++)
                goes |= wp_expert_among(&args->ll.placement, experts, chosen[i],
                                        args->ll.exchange.rank, own) >= 0;
        }
        found.num_before += wp_popcount(wp_ballot(warp, goes && own < token));
        found.goes |= wp_ballot(warp, goes && own == token) != 0;
    }
    return found;
}

/* Warp-wide: whether the unit's token goes to its rank, and as which row: by expert that of its own
 * number. Lane n has loaded its choice n. */
WP_FN struct wp_ll_going find_row(struct wp_warp *warp,
                                  const struct wp_low_latency_dispatch_args *args,
                                  struct wp_ll_unit unit, const struct wp_ll_route_loads *loads)
{
    const int32_t num_topk = args->ll.plan.num_topk, begin = unit.token * num_topk;
    if (!args->ll.plan.is_by_expert)
        return wp_ll_find_going(warp, args, loads->experts, unit.rank, unit.token);
    const struct wp_experts_of_rank experts = wp_experts_of(&args->ll.placement, unit.rank);
    int goes = wp_ll_find_choices_at(warp, args, experts, begin, loads->expert) != 0;
    for (int32_t first = WP_WARP_SIZE; wp_ll_has_more_choices(&args->ll.plan, first);
         first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        const int64_t other = k < num_topk ? wp_ll_load_choice(args, begin + k) : -1;
        goes |= wp_ll_find_choices_at(warp, args, experts, begin + first, other) != 0;
    }
    const struct wp_ll_going going = {goes, unit.token};
    return going;
}

/* ================== what a work item has of a row */

/* The bytes in a slot, in whole packets. */
WP_FN struct wp_ll_span bytes_of(const struct wp_ll_plan *plan, int32_t part)
{
    const struct wp_ll_slot *slot = &plan->slot;
    const struct wp_ll_span choices = {(uint32_t)slot->token_offset,
                                       (uint32_t)(slot->order_offset - slot->token_offset)};
    return wp_ll_has_choices(plan->row_parts, part) ? choices
                                                    : wp_ll_unit_bytes(plan, plan->row_parts, part);
}

/* ================== send */

/* ------------------------------------------------------------------ what is loaded first */

/* Begins to load for item i. */
WP_FN void load_unit(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                     int32_t i, struct wp_ll_route_loads *loads)
{
    const struct wp_ll_plan *plan = &args->ll.plan;
    const struct wp_ll_unit unit = wp_ll_counted_unit_of(&args->ll, plan->row_parts, i);
    const int32_t k = wp_lane_idx(warp);
    const int has_choices = wp_ll_has_choices(plan->row_parts, unit.part);
    loads->expert = -1;
    loads->weight = 1.0f;
    loads->row = wp_packets_load(warp, NULL, 0);
    if (unit.token == WP_LL_COUNTED && plan->is_by_expert) /* a head begins as zeros */
        for (int32_t j = wp_lane_idx(warp); j < wp_ll_num_chosen_words(plan); j += WP_WARP_SIZE)
            ((uint32_t *)wp_warp_shared(warp))[j] = 0;
    if (unit.token == WP_LL_COUNTED || unit.token >= args->num_tokens)
        return;
    const int32_t choice = unit.token * plan->num_topk + k;
    if (unit.part < plan->row_parts.num)
        loads->row = wp_ll_load_part(warp, args, unit);
    if ((plan->is_by_expert || has_choices) && k < plan->num_topk)
        loads->expert = wp_ll_load_choice(args, choice);
    if (has_choices && k < plan->num_topk && args->topk_weights != NULL)
        loads->weight = args->topk_weights[choice];
}

WP_FN struct wp_ll_route_loads route_load(struct wp_warp *warp,
                                          const struct wp_low_latency_dispatch_args *args)
{
    const int32_t lane = wp_lane_idx(warp), num_loaded = wp_ll_num_loaded(args);
    struct wp_ll_route_loads loads;
    for (int32_t i = 0; i < WP_LL_CHOICES_TOGETHER; i++)
        loads.experts[i] = i < num_loaded ? wp_ll_load_choice(args, i * WP_WARP_SIZE + lane) : -1;
    loads.taken =
        lane < args->ll.exchange.num_ranks ? wp_load_relaxed(&args->ll.rows_taken[lane]) : 0;
    load_unit(warp, args, wp_ll_turns_to(WP_LL_RECEIVE, warp, &args->ll).first, &loads);
    return loads;
}

/* ------------------------------------------------------------------ heads */

WP_STATIC_ASSERT(WP_BLOCK_WORDS_BYTES + WP_LL_NEAR_RANKS * WP_WARP_SHARED_BYTES <=
                     WP_BLOCK_SHARED_BYTES,
                 "each has been made in memory of a warp");

/* Warp-wide, by expert: makes the head of `number`, in memory of the warp, and sends it to a rank
 * that has given credit. Each lane has its first two choices. */
WP_FN void post_choices(struct wp_warp *warp, const struct wp_low_latency_dispatch_args *args,
                        const int64_t *loaded, int32_t rank, uint64_t number)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_experts_of_rank experts = wp_experts_of(&ll->placement, rank);
    const int32_t num_choices = ll->plan.max_tokens * ll->plan.num_topk;
    uint32_t *counts = (uint32_t *)wp_warp_shared(warp);
    int64_t expert = loaded[0], next = loaded[1];
    wp_warp_sync(warp); /* the head has begun */
    for (int32_t begin = 0; begin < num_choices; begin += WP_WARP_SIZE) {
        const int32_t i = begin + wp_lane_idx(warp);
        const int64_t after_next = wp_ll_load_choice(args, i + 2 * WP_WARP_SIZE);
        const int32_t token = (int32_t)wp_divide((uint32_t)i, ll->plan.topk_reciprocal);
        const int32_t there =
            wp_expert_among(&ll->placement, experts, expert, ll->exchange.rank, token);
        const uint32_t num_below = (uint32_t)wp_same_below(warp, (uint32_t)there);
        const uint32_t order = there < 0 ? 0 : num_below + wp_ll_pair_count(counts, there);
        wp_warp_sync(warp); /* all have seen how many there were before these */
        if (there >= 0)
            wp_ll_add_to_pair(counts, there, 1);
        if (i < num_choices)
            wp_ll_add_to_pair(counts + wp_ll_num_pairs(&ll->plan), i,
                              there < 0 ? WP_LL_CHOSEN_NOT_HERE
                                        : order << WP_LL_CHOSEN_EXPERT_BITS | (uint32_t)there);
        wp_warp_sync(warp);
        expert = next;
        next = after_next;
    }
    wp_tagged_send(warp, rank, wp_ll_head(ll, rank, number, ll->exchange.rank),
                   wp_warp_shared(warp), wp_ll_num_chosen_words(&ll->plan), number);
}

/* ------------------------------------------------------------------ rows */

/* Makes what goes behind a row, in memory of the warp: the token, the slot of its answer, its
 * experts there and weights. */
WP_FN struct wp_packet_row make_choices(struct wp_warp *warp,
                                        const struct wp_low_latency_dispatch_args *args,
                                        struct wp_ll_unit unit,
                                        const struct wp_ll_route_loads *loads)
{
    const struct wp_low_latency *ll = &args->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    const int32_t num_topk = ll->plan.num_topk;
    char *memory = (char *)wp_warp_shared(warp) - at->token_offset; /* of the slot */
    const struct wp_experts_of_rank at_rank = wp_experts_of(&ll->placement, unit.rank);
    int32_t *experts = (int32_t *)(void *)(memory + at->experts_offset);
    float *weights = (float *)(void *)(memory + at->weights_offset);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t i = unit.token * num_topk + k;
        const int64_t expert = k < WP_WARP_SIZE ? loads->expert : wp_ll_load_choice(args, i);
        const float weight = k < WP_WARP_SIZE             ? loads->weight
                             : args->topk_weights == NULL ? 1.0f
                                                          : args->topk_weights[i];
        const int32_t local_expert =
            wp_expert_among(&ll->placement, at_rank, expert, ll->exchange.rank, unit.token);
        experts[k] = local_expert;
        weights[k] = local_expert >= 0 ? weight : 0.0f;
    }
    if (wp_lane_idx(warp) == 0) {
        *(int32_t *)(void *)(memory + at->token_offset) = unit.token;
        *(int32_t *)(void *)(memory + at->answer_offset) = unit.token;
    }
    wp_warp_sync(warp);
    return wp_packets_load(warp, wp_warp_shared(warp), at->order_offset - at->token_offset);
}

/* Sends the unit's part as that row of its rank. */
WP_FN void send_part(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit, int32_t row,
                     const struct wp_ll_route_loads *loads)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int has_choices = wp_ll_has_choices(plan->row_parts, unit.part);
    const struct wp_packet_targets there = {unit.rank, unit.rank + 1, 0, WP_PACKETS_TO_ALL, 0};
    if (!has_choices && unit.part >= plan->row_parts.num) /* scales, which go with each part */
        return;
    const struct wp_packet_row made =
        has_choices ? make_choices(warp, args, unit, loads) : loads->row;
    wp_ll_send_loaded(rows, unit, there, row, &made);
}

/* Warp-wide: sends the unit's part, or how many rows its rank gets: by expert after the head, on
 * which these depend. */
WP_FN enum wp_status send_unit(struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                               const struct wp_ll_route_loads *loads)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency_dispatch_args *args = rows->taker.args;
    const struct wp_low_latency *ll = &args->ll;
    const uint64_t number = rows->taker.number;
    const int counts = unit.token == WP_LL_COUNTED;
    struct wp_ll_going going = {0, 0};
    if (!counts)
        going = find_row(warp, args, unit, loads);
    const enum wp_status status =
        rows->credited_ranks >> unit.rank & 1u
            ? WP_STATUS_OK
            : wp_ll_await_credit(rows->taker.run, WP_LL_ROWS, unit.rank, number);
    if (status != WP_STATUS_OK)
        return status;
    const int is_there = !wp_ll_leaves_out(rows->taker.run, unit.rank);
    if (counts && is_there) {
        if (ll->plan.is_by_expert)
            post_choices(warp, args, loads->experts, unit.rank, number);
        going = wp_ll_find_going(warp, args, loads->experts, unit.rank, args->num_tokens);
        if (wp_lane_idx(warp) == 0)
            wp_ll_send_count(rows, unit.rank, going.num_before);
    }
    if (counts)
        return status;
    if (going.goes && is_there)
        send_part(rows, unit, going.num_before, loads);
    if (unit.part == 0 && wp_lane_idx(warp) == 0)
        ll->row_targets[wp_ll_token_idx(ll, number, unit.rank, unit.token)] =
            going.goes && is_there;
    return status;
}

WP_FN enum wp_status route_send(struct wp_ll_packet_rows *rows, struct wp_ll_route_loads loads)
{
    struct wp_warp *warp = rows->taker.run->op.warp;
    const struct wp_low_latency *ll = &rows->taker.args->ll;
    const struct wp_ll_turns turns = wp_ll_turns_to(WP_LL_RECEIVE, warp, ll);
    const int32_t num_units = wp_ll_num_taken_units(&ll->plan, ll->exchange.num_ranks);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = turns.first; i < num_units && status == WP_STATUS_OK;) {
        status = send_unit(rows, wp_ll_counted_unit_of(ll, ll->plan.row_parts, i), &loads);
        i += turns.step;
        if (i >= num_units)
            break;
        wp_warp_sync(warp); /* what was made before has been sent */
        load_unit(warp, rows->taker.args, i, &loads);
    }
    return status;
}

/* ================== receive */

/* Receives a part of row unit.token of the unit's rank, to its slot, if there is such a row: the
 * count tells. */
WP_FN enum wp_status place_unit(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit)
{
    struct wp_ll_run *run = rows->taker.run;
    const struct wp_low_latency *ll = run->ll;
    const uint64_t number = rows->taker.number;
    const struct wp_packet_told told = {
        wp_ll_comes_word(ll, ll->exchange.rank, WP_LL_ROWS, number, unit.rank),
        wp_ll_comes(number, WP_LL_MOST_ROWS, 0), wp_ll_comes(number, unit.token, 0)};
    const struct wp_ll_span bytes = bytes_of(&ll->plan, unit.part);
    char *slot = wp_ll_row(ll, ll->exchange.rank, number, unit.rank, unit.token);
    struct wp_ll_packet_wait wait;
    enum wp_status status;
    if (wp_ll_leaves_out(run, unit.rank))
        return WP_STATUS_OK;
    wp_ll_begin_packet_wait(&wait, number);
    do
        status = wp_packets_receive_told(run->op.warp, &rows->packets, unit.rank,
                                         wp_ll_row_packet(ll, unit.rank, unit.token, bytes.begin),
                                         &told, slot + bytes.begin, bytes.bytes, &wait.progress);
    while (wp_ll_waits_again(run, &wait, status) && !wp_ll_leaves_out(run, unit.rank));
    return status;
}

/* ------------------------------------------------------------------ by expert */

WP_FN int32_t route_packed_choice(const struct wp_ll_packet_rows *rows, struct wp_ll_unit unit,
                                  int32_t k)
{
    const struct wp_ll_plan *plan = &rows->taker.args->ll.plan;
    const uint32_t *choices = wp_ll_head_of(&rows->taker, unit.rank) + wp_ll_num_pairs(plan);
    const uint32_t chosen = wp_ll_pair_count(choices, unit.token * plan->num_topk + k);
    const int is_here = chosen != WP_LL_CHOSEN_NOT_HERE;
    const int32_t expert = is_here ? (int32_t)(chosen & ((1 << WP_LL_CHOSEN_EXPERT_BITS) - 1)) : 0;
    const int32_t packed =
        wp_ll_packed_choice_at(rows, unit.rank, expert, chosen >> WP_LL_CHOSEN_EXPERT_BITS);
    return is_here ? packed : WP_LL_NOT_HERE;
}

/* They are in the head. */
WP_FN enum wp_status route_recall_choices(const struct wp_ll_packet_rows *rows,
                                          struct wp_ll_unit unit)
{
    (void)rows;
    (void)unit;
    return WP_STATUS_OK;
}

WP_FN enum wp_status route_receive(const struct wp_ll_packet_rows *rows, int32_t i)
{
    const struct wp_low_latency *ll = &rows->taker.args->ll;
    const struct wp_ll_unit unit = wp_ll_counted_unit_of(ll, ll->plan.row_parts, i);
    struct wp_ll_packed_choice *kept = NULL;
    if (unit.token == WP_LL_COUNTED)
        return wp_ll_receive_count(rows, unit.rank);
    if (!ll->plan.is_by_expert)
        return place_unit(rows, unit);
    if (wp_ll_has_choices(ll->plan.row_parts, unit.part))
        kept = wp_ll_packed_choices(ll, rows->taker.number, unit.rank, unit.token);
    return wp_ll_pack_bytes(rows, unit, bytes_of(&ll->plan, unit.part), kept);
}

/* ================== the program */

struct wp_packet_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(packet_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
#endif
