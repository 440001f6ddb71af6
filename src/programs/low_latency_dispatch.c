/* SPDX-License-Identifier: MIT */
/*
 * low_latency_dispatch: a block finds where its tokens go, writes each row once to every rank that
 * has one of its experts, into the slots that are the sender's there, and signals. Whoever takes
 * rows waits for what each block has sent, and packs them by expert, if they are wanted so.
 *
 * Rows of an expert are in (source rank, token) order. For that every rank tells every other, in a
 * head that comes before the rows, how many selections of each of its experts it has; and each row
 * carries, for each choice, how many selections of the expert its source has before.
 */
#include "programs/low_latency_dispatch.h"

/* ------------------------------------------------------------------ where tokens go */

struct sender {
    const struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    struct wp_ll_choice *choices; /* of this block: [tokens up to its last][num_topk] */
    struct wp_ll_tokens tokens;   /* of this block */
    uint64_t number;
};

WP_FN int32_t thread_idx(struct wp_warp *warp)
{
    return wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
}

WP_FN int32_t num_threads(struct wp_warp *warp)
{
    return wp_num_warps(warp) * WP_WARP_SIZE;
}

/* By all warps of the block: where the choices of its tokens, and of those before, are. */
WP_FN void find_choices(const struct sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = sender->args;
    const struct wp_placement *placement = &args->ll.placement;
    const int32_t num_topk = args->ll.plan.num_topk;
    for (int32_t i = thread_idx(warp); i < sender->tokens.end * num_topk; i += num_threads(warp)) {
        const int32_t entry =
            wp_placement_entry(placement, wp_expert_id(args->topk_idx, args->index_type, i),
                               args->ll.exchange.rank, i / num_topk);
        struct wp_ll_choice choice = {-1, -1};
        if (entry >= 0) {
            choice.rank = placement->entry_ranks[entry];
            choice.local_expert = placement->entry_local[entry];
        }
        sender->choices[i] = choice;
    }
    wp_block_sync(warp);
}

WP_FN const struct wp_ll_choice *choices_of(const struct sender *sender, int32_t token)
{
    return sender->choices + (int64_t)token * sender->args->ll.plan.num_topk;
}

/* Whether no choice before k is at the same rank. */
WP_FN int is_first_of_rank(const struct wp_ll_choice *choices, int32_t k)
{
    int is_first = choices[k].rank >= 0;
    for (int32_t before = 0; before < k; before++)
        is_first &= choices[before].rank != choices[k].rank;
    return is_first;
}

WP_FN int goes_to(const struct wp_ll_choice *choices, int32_t num_topk, int32_t rank)
{
    int goes = 0;
    for (int32_t k = 0; k < num_topk; k++)
        goes |= choices[k].rank == rank;
    return goes;
}

/* Warp-wide: how many of the tokens [begin, end) go to a rank. */
WP_FN int32_t count_tokens(const struct sender *sender, int32_t begin, int32_t end, int32_t rank)
{
    struct wp_warp *warp = sender->run->op.warp;
    int32_t num_tokens = 0, total;
    for (int32_t token = begin + wp_lane_idx(warp); token < end; token += WP_WARP_SIZE)
        num_tokens += goes_to(choices_of(sender, token), sender->args->ll.plan.num_topk, rank);
    (void)wp_prefix_sum(warp, num_tokens, &total);
    return total;
}

/* Warp-wide: how many selections before choice k of the token have the same expert. */
WP_FN int32_t count_selections(const struct sender *sender, int32_t token, int32_t k)
{
    struct wp_warp *warp = sender->run->op.warp;
    const int32_t num_topk = sender->args->ll.plan.num_topk;
    const struct wp_ll_choice choice = choices_of(sender, token)[k];
    int32_t num_selections = 0, total;
    for (int32_t i = wp_lane_idx(warp); i < token * num_topk + k; i += WP_WARP_SIZE)
        num_selections += sender->choices[i].rank == choice.rank &&
                          sender->choices[i].local_expert == choice.local_expert;
    (void)wp_prefix_sum(warp, num_selections, &total);
    return total;
}

/* ------------------------------------------------------------------ send */

/* In memory of the warp: of each choice of the token. */
struct routes {
    int32_t rows[WEFT_MAX_TOPK];   /* at the choice's rank; -1: a choice before has the same rank */
    int32_t orders[WEFT_MAX_TOPK]; /* selections of the expert before */
};
WP_STATIC_ASSERT(sizeof(struct routes) <= WP_WARP_SHARED_BYTES, "the routes of a token");

/* Warp-wide. */
WP_FN void find_routes(const struct sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_plan *plan = &sender->args->ll.plan;
    const struct wp_ll_choice *choices = choices_of(sender, token);
    struct routes *routes = (struct routes *)wp_warp_shared(warp);
    wp_warp_sync(warp); /* those of the token before have been used */
    for (int32_t k = 0; k < plan->num_topk; k++) {
        int32_t row = -1, order = 0;
        if (is_first_of_rank(choices, k))
            row = count_tokens(sender, 0, token, choices[k].rank);
        if (plan->is_by_expert && choices[k].rank >= 0)
            order = count_selections(sender, token, k);
        if (wp_lane_idx(warp) == 0) {
            routes->rows[k] = row;
            routes->orders[k] = order;
        }
    }
    wp_warp_sync(warp);
}

/* The slot of the token at the rank of choice k; NULL if that choice has none of its own. */
WP_FN char *slot_of(const struct sender *sender, int32_t token, int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct routes *routes = (const struct routes *)wp_warp_shared(sender->run->op.warp);
    const int32_t row = routes->rows[k];
    if (row < 0)
        return NULL;
    return wp_ll_row(ll, choices_of(sender, token)[k].rank, sender->number, ll->exchange.rank, row);
}

/* The row, or a part of it, to all its slots. */
WP_FN void send_elements(const struct sender *sender, int32_t token, struct wp_span span)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = sender->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const uint64_t element_bytes = wp_dtype_bytes(plan->dtype);
    const int64_t first = (int64_t)(span.begin / element_bytes);
    const uint64_t sent_begin = (uint64_t)first * wp_dtype_bytes(plan->row_dtype);
    const char *src = args->tokens + (uint64_t)token * args->token_stride_bytes + span.begin;
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        char *slot = slot_of(sender, token, k);
        dsts[k] = slot == NULL ? NULL : slot + sent_begin;
    }
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, plan->num_topk, src, span.bytes);
}

/* What goes with the row: to slot j, about choice k. */
WP_FN void send_choice(const struct sender *sender, int32_t token, int32_t j, int32_t k)
{
    const struct wp_low_latency_dispatch_args *args = sender->args;
    const struct wp_ll_slot *at = &args->ll.plan.slot;
    const struct wp_ll_choice *choices = choices_of(sender, token);
    const struct routes *routes = (const struct routes *)wp_warp_shared(sender->run->op.warp);
    char *slot = slot_of(sender, token, j);
    if (slot == NULL)
        return;
    const int is_there = choices[k].rank == choices[j].rank;
    const int64_t weight_idx = (int64_t)token * args->ll.plan.num_topk + k;
    const float weight = args->topk_weights == NULL ? 1.0f : args->topk_weights[weight_idx];
    ((int32_t *)(void *)(slot + at->experts_offset))[k] = is_there ? choices[k].local_expert : -1;
    ((float *)(void *)(slot + at->weights_offset))[k] = is_there ? weight : 0.0f;
    if (args->ll.plan.is_by_expert)
        ((int32_t *)(void *)(slot + at->order_offset))[k] = routes->orders[k];
    if (k == 0)
        *(int32_t *)(void *)(slot + at->token_offset) = token;
}

WP_FN void send_choices(const struct sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_topk = ll->plan.num_topk;
    const struct wp_ll_choice *choices = choices_of(sender, token);
    int32_t *answering = wp_ll_answering(ll, sender->number, token);
    for (int32_t i = wp_lane_idx(warp); i < num_topk * num_topk; i += WP_WARP_SIZE)
        send_choice(sender, token, i / num_topk, i % num_topk);
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int answers =
            ll->plan.answers_are_rows ? choices[k].rank >= 0 : is_first_of_rank(choices, k);
        answering[k] = answers ? choices[k].rank : -1;
    }
}

WP_FN void send_tokens(const struct sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_ll_plan *plan = &sender->args->ll.plan;
    const uint64_t token_bytes = (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype);
    const struct wp_share share = wp_ll_share(warp, sender->tokens.end - sender->tokens.begin);
    for (int32_t unit = wp_warp_idx(warp); unit < share.num_units; unit += wp_num_warps(warp)) {
        const struct wp_part part = wp_unit_part(&share, unit);
        const int32_t token = sender->tokens.begin + part.token;
        const struct wp_span span = wp_part_span(&share, part.part, token_bytes);
        find_routes(sender, token);
        if (span.bytes > 0)
            send_elements(sender, token, span);
        if (part.part == 0)
            send_choices(sender, token);
    }
}

/* Tells each rank which of this block's rows are there. */
WP_FN void send_ranges(const struct sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    for (int32_t rank = wp_warp_idx(warp); rank < ll->exchange.num_ranks;
         rank += wp_num_warps(warp)) {
        const int32_t first = count_tokens(sender, 0, sender->tokens.begin, rank);
        const struct wp_ll_range range = {
            first, count_tokens(sender, sender->tokens.begin, sender->tokens.end, rank)};
        if (wp_lane_idx(warp) == 0)
            *wp_ll_range_of(ll, rank, sender->number, ll->exchange.rank, wp_block_idx(warp)) =
                range;
    }
}

/* ------------------------------------------------------------------ heads */

/* Warp-wide: nobody at the rank reads the head any more that this one goes over. */
WP_FN enum wp_status await_head_room(const struct sender *sender, int32_t rank)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const uint64_t num_halves = (uint64_t)ll->plan.num_halves;
    const struct wp_wait_site site = wp_operation_site(&sender->run->op, WP_PHASE_FINISH, rank);
    enum wp_status status = WP_STATUS_OK;
    if (sender->number <= num_halves)
        return status;
    for (int32_t block = wp_lane_idx(warp); block < ll->plan.num_blocks && status == WP_STATUS_OK;
         block += WP_WARP_SIZE)
        status =
            wp_wait(warp, wp_ll_word(ll, ll->exchange.rank, WP_LL_ROOM, WP_LL_ROWS, rank, block),
                    sender->number - num_halves, &site);
    status = (enum wp_status)wp_max_u32(warp, (uint32_t)status);
    wp_warp_sync(warp);
    return status;
}

/* By all warps of the last block, which knows all choices: counts the selections of each expert,
 * and tells its rank. The counters are zero again afterwards. */
WP_FN enum wp_status send_heads(const struct sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const int32_t num_selections = sender->tokens.end * ll->plan.num_topk;
    const int64_t max_local = ll->plan.max_local_experts;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = thread_idx(warp); i < num_selections; i += num_threads(warp)) {
        const struct wp_ll_choice choice = sender->choices[i];
        if (choice.rank >= 0)
            wp_add_relaxed(&ll->expert_counts[choice.rank * max_local + choice.local_expert], 1);
    }
    wp_block_sync(warp);
    for (int32_t rank = wp_warp_idx(warp); rank < ll->exchange.num_ranks && status == WP_STATUS_OK;
         rank += wp_num_warps(warp)) {
        int32_t *counts = ll->expert_counts + rank * max_local;
        status = await_head_room(sender, rank);
        if (status != WP_STATUS_OK)
            break;
        wp_tagged_send(warp, rank, wp_ll_head(ll, rank, sender->number, ll->exchange.rank), counts,
                       (int32_t)max_local, sender->number);
        wp_warp_sync(warp); /* the counts have been read */
        for (int32_t i = wp_lane_idx(warp); i < (int32_t)max_local; i += WP_WARP_SIZE)
            counts[i] = 0;
    }
    return status;
}

WP_FN enum wp_status send(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int32_t block = wp_block_idx(warp);
    const struct sender sender = {
        run, args, args->ll.choices + (int64_t)block * plan->max_tokens * plan->num_topk,
        wp_ll_tokens_of(args->num_tokens, block, plan->num_blocks), run->block.rows_sent + 1};
    const uint64_t num_outstanding = run->block.rows_sent - run->block.rows_ended;
    if (num_outstanding >= (uint64_t)plan->num_halves)
        return wp_ll_fail(run, (uint64_t)plan->num_halves, num_outstanding + 1);
    find_choices(&sender);
    enum wp_status status = WP_STATUS_OK;
    if (plan->is_by_expert && block == plan->num_blocks - 1)
        status = send_heads(&sender);
    if (status == WP_STATUS_OK)
        status = wp_ll_await_room(run, WP_LL_ROWS, sender.number);
    if (status == WP_STATUS_OK) {
        send_tokens(&sender);
        send_ranges(&sender);
    }
    status = (enum wp_status)wp_block_max(warp, (uint32_t)status);
    if (status != WP_STATUS_OK)
        return status;
    wp_ll_tell_all(run, WP_LL_ARRIVED, WP_LL_ROWS, sender.number);
    run->block.rows_sent = sender.number;
    run->block.num_tokens[wp_ll_half(plan, sender.number)] = args->num_tokens;
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ take */

struct taker {
    struct wp_ll_run *run;
    const struct wp_low_latency_dispatch_args *args;
    int32_t *bases; /* of this block: [num_ranks][max_local_experts] */
    uint64_t number;
};

/* How many rows each source has sent, which the first block waits for if anybody wants to know. */
WP_FN enum wp_status count_rows(const struct taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    if (wp_block_idx(warp) != 0 || taker->args->num_rows_per_rank == NULL)
        return WP_STATUS_OK;
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t own = ll->exchange.rank;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_warp_idx(warp); i < ll->exchange.num_ranks && status == WP_STATUS_OK;
         i += wp_num_warps(warp)) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        const struct wp_wait_site site = wp_operation_site(&taker->run->op, WP_PHASE_DATA, rank);
        int32_t num_rows = 0, total;
        for (int32_t block = wp_lane_idx(warp);
             block < ll->plan.num_blocks && status == WP_STATUS_OK; block += WP_WARP_SIZE) {
            status = wp_wait(warp, wp_ll_word(ll, own, WP_LL_ARRIVED, WP_LL_ROWS, rank, block),
                             taker->number, &site);
            if (status == WP_STATUS_OK)
                num_rows += wp_ll_range_of(ll, own, taker->number, rank, block)->num_rows;
        }
        (void)wp_prefix_sum(warp, num_rows, &total);
        status = (enum wp_status)wp_max_u32(warp, (uint32_t)status);
        if (status == WP_STATUS_OK && wp_lane_idx(warp) == 0)
            taker->args->num_rows_per_rank[rank] = total;
    }
    return status;
}

/* By all warps: takes the heads of all sources. */
WP_FN enum wp_status take_heads(const struct taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_warp_idx(warp); i < ll->exchange.num_ranks && status == WP_STATUS_OK;
         i += wp_num_warps(warp)) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        struct wp_wait_site site = wp_operation_site(&taker->run->op, WP_PHASE_DATA, rank);
        site.sequence = taker->number; /* which the head carries */
        status = wp_tagged_take(warp, wp_ll_head(ll, ll->exchange.rank, taker->number, rank),
                                taker->bases + (int64_t)rank * ll->plan.max_local_experts,
                                ll->plan.max_local_experts, &site);
    }
    return status;
}

/* Of an expert, by one lane of the first block: what the caller wants to know. */
WP_FN void tell_expert(const struct taker *taker, int32_t expert, int32_t rank, int32_t first,
                       int32_t num_rows)
{
    const struct wp_low_latency_dispatch_args *args = taker->args;
    if (wp_block_idx(taker->run->op.warp) == 0 && args->row_ranges != NULL)
        args->row_ranges[(int64_t)expert * args->ll.exchange.num_ranks + rank] =
            (int64_t)((uint64_t)(uint32_t)first << 32 | (uint32_t)num_rows);
}

WP_FN void tell_expert_total(const struct taker *taker, int32_t expert, int32_t num_rows)
{
    const struct wp_low_latency_dispatch_args *args = taker->args;
    if (wp_block_idx(taker->run->op.warp) != 0)
        return;
    if (args->num_rows_per_expert != NULL)
        args->num_rows_per_expert[expert] = num_rows;
    if (args->cumulative_rows != NULL)
        args->cumulative_rows[expert] += num_rows;
}

/* By all warps, when all have heads: counts become the rows at which the sources begin. */
WP_FN void sum_heads(const struct taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const int64_t max_local = ll->plan.max_local_experts;
    const int32_t own = ll->exchange.rank;
    const int32_t num_local = ll->placement.rank_offsets[own + 1] - ll->placement.rank_offsets[own];
    for (int32_t expert = thread_idx(warp); expert < num_local; expert += num_threads(warp)) {
        int32_t first = 0;
        for (int32_t rank = 0; rank < ll->exchange.num_ranks; rank++) {
            int32_t *base = &taker->bases[rank * max_local + expert];
            const int32_t num_rows = *base;
            *base = first;
            tell_expert(taker, expert, rank, first, num_rows);
            first += num_rows;
        }
        tell_expert_total(taker, expert, first);
    }
    wp_block_sync(warp);
}

/* A row that has come. */
struct taken_row {
    int32_t source;
    int32_t idx;
    const char *slot;
};

/* Where the row goes for choice k, counted over all local experts; -1: nowhere. */
WP_FN int64_t packed_row(const struct taker *taker, struct taken_row row, int32_t k)
{
    const struct wp_ll_plan *plan = &taker->args->ll.plan;
    const int32_t expert =
        ((const int32_t *)(const void *)(row.slot + plan->slot.experts_offset))[k];
    if (expert < 0)
        return -1;
    const int32_t order = ((const int32_t *)(const void *)(row.slot + plan->slot.order_offset))[k];
    const int32_t position =
        taker->bases[(int64_t)row.source * plan->max_local_experts + expert] + order;
    return position < plan->capacity ? (int64_t)expert * plan->capacity + position : -1;
}

/* Elements of the row, or a part of them, for all its choices here. */
WP_FN void pack_elements(const struct taker *taker, struct taken_row row, struct wp_span span)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const void **dsts = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        const int64_t packed = packed_row(taker, row, k);
        dsts[k] = packed < 0 ? NULL : args->rows + (uint64_t)packed * plan->row_bytes + span.begin;
    }
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, plan->num_topk, row.slot + span.begin, span.bytes);
}

WP_FN void pack_scales(const struct taker *taker, struct taken_row row, int64_t packed)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const char *scales = row.slot + plan->slot.scales_offset;
    const int64_t expert = packed / plan->capacity, position = packed % plan->capacity;
    const int32_t num_scales = (int32_t)(plan->scales_bytes / args->scale_bytes);
    const int64_t first = expert * args->scale_expert_stride + position * args->scale_row_stride;
    for (int32_t i = wp_lane_idx(warp); i < num_scales; i += WP_WARP_SIZE) {
        const int64_t at = first + i * args->scale_group_stride;
        if (args->scale_bytes == sizeof(float))
            ((float *)(void *)args->scales)[at] = ((const float *)(const void *)scales)[i];
        else
            args->scales[at] = scales[i];
    }
}

/* All but the elements, by one warp. */
WP_FN void pack_rest(const struct taker *taker, struct taken_row row)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency_dispatch_args *args = taker->args;
    const struct wp_ll_plan *plan = &args->ll.plan;
    int32_t *packed_rows = wp_ll_packed(&args->ll, taker->number, row.source, row.idx);
    const int32_t token = *(const int32_t *)(const void *)(row.slot + plan->slot.token_offset);
    for (int32_t k = wp_lane_idx(warp); k < plan->num_topk; k += WP_WARP_SIZE) {
        const int64_t packed = packed_row(taker, row, k);
        packed_rows[k] = (int32_t)packed;
        if (packed >= 0 && args->src_tokens != NULL)
            args->src_tokens[packed] = token;
    }
    if (plan->scales_bytes == 0)
        return;
    for (int32_t k = 0; k < plan->num_topk; k++) {
        const int64_t packed = packed_row(taker, row, k);
        if (packed >= 0)
            pack_scales(taker, row, packed);
    }
}

/* The rows of this block of one source. */
WP_FN void pack_rows(const struct taker *taker, int32_t source, struct wp_ll_range range,
                     const struct wp_share *share)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    for (int32_t unit = wp_warp_idx(warp); unit < range.num_rows * share->num_parts;
         unit += wp_num_warps(warp)) {
        const struct wp_part part = wp_unit_part(share, unit);
        const int32_t idx = range.first + part.token;
        const struct taken_row row = {source, idx,
                                      wp_ll_row(ll, ll->exchange.rank, taker->number, source, idx)};
        const struct wp_span span = wp_part_span(share, part.part, ll->plan.row_bytes);
        if (span.bytes > 0)
            pack_elements(taker, row, span);
        if (part.part == 0)
            pack_rest(taker, row);
    }
}

WP_FN void pack_all(const struct taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const struct wp_low_latency *ll = &taker->args->ll;
    const int32_t num_ranks = ll->exchange.num_ranks;
    const struct wp_share share = wp_ll_share_of_sources(warp, &ll->plan);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (i % WP_WARP_SIZE == 0)
            wp_ll_read_ranges(taker->run, taker->number, i);
        pack_rows(taker, wp_rank_after(&ll->exchange, i), wp_ll_warp_ranges(warp)[i % WP_WARP_SIZE],
                  &share);
    }
}

/* By all warps: where the rows of this block go. */
WP_FN enum wp_status prepare_packing(const struct taker *taker)
{
    struct wp_warp *warp = taker->run->op.warp;
    const enum wp_status status = (enum wp_status)wp_block_max(warp, (uint32_t)take_heads(taker));
    if (status == WP_STATUS_OK)
        sum_heads(taker);
    return status;
}

WP_FN enum wp_status receive(struct wp_ll_run *run, const struct wp_low_latency_dispatch_args *args)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_plan *plan = &args->ll.plan;
    const int64_t num_bases = (int64_t)args->ll.exchange.num_ranks * plan->max_local_experts;
    const struct taker taker = {run, args, args->ll.expert_bases + wp_block_idx(warp) * num_bases,
                                run->block.rows_received + 1};
    if (taker.number > run->block.rows_sent)
        return wp_ll_fail(run, run->block.rows_sent, taker.number);
    enum wp_status status = plan->is_by_expert ? prepare_packing(&taker) : WP_STATUS_OK;
    if (status == WP_STATUS_OK)
        status = wp_ll_await_all(run, WP_LL_ARRIVED, WP_LL_ROWS, taker.number);
    if (status == WP_STATUS_OK) {
        wp_admit_next(warp); /* all ranks have started */
        if (plan->is_by_expert)
            pack_all(&taker);
        status = count_rows(&taker);
    }
    status = (enum wp_status)wp_block_max_again(warp, (uint32_t)status);
    if (status != WP_STATUS_OK)
        return status;
    run->block.rows_received = taker.number;
    if (wp_block_idx(warp) == 0 && thread_idx(warp) == 0)
        *args->ll.received_half = (int32_t)wp_ll_half(plan, taker.number);
    return WP_STATUS_OK;
}

WP_PROGRAM(low_latency_dispatch, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = WP_STATUS_OK;
    if (args->phases & WP_LL_SEND)
        status = send(&run, args);
    if (status == WP_STATUS_OK && (args->phases & WP_LL_RECEIVE))
        status = receive(&run, args);
    return wp_ll_end(&run, status);
}
