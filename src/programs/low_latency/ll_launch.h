/* SPDX-License-Identifier: MIT */
/*
 * How a launch of low latency begins and ends, what a block remembers from launch to launch, and
 * what it signals to other ranks. ll_protocol.h says what the words mean, ll_waits.h how it waits.
 */
#pragma once

#include "programs/low_latency/ll_layout.h"

/* The steps of a launch are for ranks of one node. A program between nodes includes ll_internode.h
 * before its steps, which lists the functions that `remote` calls. Elsewhere nothing of `remote` is
 * compiled. */
#ifndef WP_LL_NODES
#define WP_LL_NODES(remote, near) (near)
#endif

struct wp_ll_run { /* what a warp knows */
    struct wp_operation op;
    const struct wp_low_latency *ll;
    struct wp_ll_numbers numbers;                /* as they will be after the launch */
    struct wp_ll_buffer buffers[WP_NUM_BUFFERS]; /* as well */
    /* With masks, in packets (ll_packets.h): a bit for each rank that the warp goes on without; and
     * where the caller wants to know of these, or NULL. */
    uint32_t masked;
    int32_t *missing_ranks;
};

/* ------------------------------------------------------------------ the block */

WP_FN int32_t wp_ll_thread_idx(struct wp_warp *warp)
{
    return wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
}

WP_FN int32_t wp_ll_num_threads(struct wp_warp *warp)
{
    return wp_num_warps(warp) * WP_WARP_SIZE;
}

/* Memory of the block at [begin, end), if it has so much; else `far`. */
WP_FN void *wp_ll_near_or(struct wp_warp *warp, uint64_t begin, uint64_t end, void *far)
{
    return wp_ll_is_near(end) ? (char *)wp_block_shared(warp) + WP_BLOCK_WORDS_BYTES + begin
                              : (char *)far;
}

/* Returns 1 in the leader warp of a block. That is the last warp, which has the least other work.
 * The leader signals the other ranks, and with masks waits for all of them. */
WP_FN int wp_ll_is_leader_warp(struct wp_warp *warp)
{
    return wp_warp_idx(warp) == wp_num_warps(warp) - 1;
}

/* [num_ranks] The ranks that this block goes on without. The leader warp finds them when the launch
 * begins, and whenever it waits for all. */
WP_FN int32_t *wp_ll_missing(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const int64_t num_ranks = run->ll->exchange.num_ranks;
    return (int32_t *)wp_ll_near_or(warp, 0, (uint64_t)num_ranks * sizeof(int32_t),
                                    run->ll->masks.missing + wp_block_idx(warp) * num_ranks);
}

/* With signals only. */
WP_FN int wp_ll_is_missing(const struct wp_ll_run *run, int32_t rank)
{
    return wp_ll_has_masks(&run->ll->masks) && wp_ll_missing(run)[rank] != 0;
}

/* In packets only, with at most WP_LL_NEAR_RANKS ranks: each warp goes by what it knows. */
WP_FN int wp_ll_leaves_out(const struct wp_ll_run *run, int32_t rank)
{
    return wp_ll_has_masks(&run->ll->masks) && (run->masked >> rank & 1u) != 0;
}

/* Notes the ranks that are masked by now. */
WP_FN void wp_ll_miss_masked(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    if (!wp_ll_has_masks(&run->ll->masks) || wp_ll_has_packets(&run->ll->plan) ||
        !wp_ll_is_leader_warp(warp))
        return;
    for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks; rank += WP_WARP_SIZE)
        wp_ll_missing(run)[rank] = wp_ll_is_masked(&run->ll->masks, rank);
    wp_warp_sync(warp);
}

/* ------------------------------------------------------------------ begin and end */

/* Warp-wide: a bit for each masked rank. Lane n has loaded the mask of rank n, if there is one. On
 * GPUs there are no more ranks than lanes. */
WP_FN uint32_t wp_ll_find_masked(struct wp_warp *warp, const struct wp_low_latency *ll,
                                 int32_t is_masked)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    uint32_t masked = 0;
    if (!wp_ll_has_masks(&ll->masks))
        return masked;
    masked = wp_ballot(warp, is_masked);
    for (int32_t rank = WP_WARP_SIZE; rank < WP_LL_NEAR_RANKS && rank < num_ranks; rank++)
        masked |= (uint32_t)wp_ll_is_masked(&ll->masks, rank) << rank;
    return masked;
}

/* The first loads of a launch. All of them are under way at once, and others can follow. */
struct wp_ll_loads {
    struct wp_ll_block block;
    struct wp_operation_loads operation;
    int32_t is_masked; /* the lane's rank */
};

WP_FN struct wp_ll_loads wp_ll_load(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    enum { NUM_WORDS = sizeof(struct wp_ll_block) / sizeof(uint64_t) };
    const uint64_t *from = (const uint64_t *)(const void *)&ll->blocks[wp_block_idx(warp)];
    uint64_t words[NUM_WORDS];
    struct wp_ll_loads loads;
    for (int32_t i = 0; i < NUM_WORDS; i++)
        words[i] = wp_load_now(from + i);
    memcpy(&loads.block, words, sizeof words);
    loads.operation = wp_operation_load(warp, &ll->exchange);
    loads.is_masked = wp_lane_idx(warp) < ll->exchange.num_ranks &&
                      wp_ll_is_masked(&ll->masks, wp_lane_idx(warp));
    return loads;
}

WP_FN struct wp_ll_run wp_ll_begin_loaded(struct wp_warp *warp, const struct wp_low_latency *ll,
                                          struct wp_ll_loads loads)
{
    const struct wp_ll_run run = {wp_operation_of(warp, &ll->exchange, NULL, loads.operation),
                                  ll,
                                  loads.block.numbers,
                                  {loads.block.buffers[0], loads.block.buffers[1]},
                                  wp_ll_find_masked(warp, ll, loads.is_masked),
                                  NULL};
    return run;
}

/* As wp_operation_begin. */
WP_FN struct wp_ll_run wp_ll_begin(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    const struct wp_ll_run run = wp_ll_begin_loaded(warp, ll, wp_ll_load(warp, ll));
    wp_ll_miss_masked(&run);
    return run;
}

/* All warps of a block call this with the same status. If it is WP_STATUS_OK, they have met since
 * they began, so all have read what was remembered before. The block remembers the launch. Then a
 * launch may still receive packets, so that no warp waits for another at the end; if the launch
 * fails, nothing that is remembered counts any more. Another status ends the launch. */
WP_FN enum wp_status wp_ll_commit(const struct wp_ll_run *run, enum wp_status status)
{
    struct wp_warp *warp = run->op.warp;
    struct wp_ll_block *block = &run->ll->blocks[wp_block_idx(warp)];
    if (status != WP_STATUS_OK)
        return wp_operation_end(&run->op, status);
    wp_operation_advance(&run->op);
    if (wp_warp_idx(warp) != 0 || wp_lane_idx(warp) != 0)
        return status;
    block->numbers = run->numbers;
    block->buffers[0] = run->buffers[0];
    block->buffers[1] = run->buffers[1];
    return status;
}

/* With signals: nobody is awaited any more. */
WP_FN enum wp_status wp_ll_end(const struct wp_ll_run *run, enum wp_status status)
{
    if (status == WP_STATUS_OK)
        wp_admit_next(run->op.warp);
    return wp_ll_commit(run, status);
}

/* Warp-wide: an operation that does not fit what is outstanding. In graphs the host cannot see
 * it. */
WP_FN enum wp_status wp_ll_fail(const struct wp_ll_run *run, uint64_t expected, uint64_t seen)
{
    const struct wp_failure failure = {WP_FAILURE_OUTSTANDING,
                                       wp_operation_site(&run->op, WP_PHASE_START, WP_NO_RANK), 0,
                                       expected, seen};
    return wp_fail(run->op.warp, &failure);
}

/* ------------------------------------------------------------------ what is told */

/* Every block calls this once, when it waits for nobody any more. The leader warp of the last block
 * writes missing_ranks, if the caller wants them, while the others go on. Returns 1 in that
 * warp. */
WP_FN int wp_ll_send_missing(const struct wp_ll_run *run, int32_t *missing_ranks)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_masks *masks = &run->ll->masks;
    uint32_t is_last = 0;
    if (!wp_ll_has_masks(masks) || !wp_ll_is_leader_warp(warp))
        return 0;
    if (wp_lane_idx(warp) == 0)
        is_last = (uint32_t)wp_is_done_last(warp, masks->num_blocks_done);
    is_last = wp_max_u32(warp, is_last);
    wp_warp_sync(warp); /* the first lane has met the other blocks */
    if (!is_last)
        return 0;
    for (int32_t rank = wp_lane_idx(warp); rank < run->ll->exchange.num_ranks; rank += WP_WARP_SIZE)
        if (missing_ranks != NULL)
            missing_ranks[rank] = wp_ll_is_masked(masks, rank);
    return 1;
}

/* Returns what is remembered of a number. The choice keeps it in registers: GPUs keep an array in
 * memory if its index is not a constant. */
WP_FN struct wp_ll_buffer wp_ll_buffer_state(const struct wp_ll_run *run, uint64_t number)
{
    return wp_ll_buffer(&run->ll->plan, number) == 0 ? run->buffers[0] : run->buffers[1];
}

WP_FN void wp_ll_remember(struct wp_ll_run *run, uint64_t number, struct wp_ll_buffer buffer)
{
    if (wp_ll_buffer(&run->ll->plan, number) == 0)
        run->buffers[0] = buffer;
    else
        run->buffers[1] = buffer;
}

/* The number that must have been credited before `number` can be sent. */
WP_FN uint64_t wp_ll_number_before(const struct wp_ll_run *run, uint64_t number)
{
    const uint64_t num_buffers = (uint64_t)run->ll->plan.num_buffers;
    return number > num_buffers ? number - num_buffers : 0;
}

/* Returns 1 if the slots for answers `number` to `result` are known to be free, without a look at
 * the credit. The answers before them in these slots ended a result, as all ranks know. A rank that
 * has sent the rows of `result` had ended that earlier result by then. So where one result follows
 * another, no rank looks. In packets this holds with masks, too: a rank that had gone on without
 * this one would have sent it no rows. */
WP_FN int wp_ll_is_credit_known(const struct wp_ll_run *run, uint64_t number, uint64_t result)
{
    if (WP_LL_HAS_NODES(&run->ll->plan) ||
        (wp_ll_has_masks(&run->ll->masks) && !wp_ll_has_packets(&run->ll->plan)))
        return 0;
    const struct wp_ll_buffer before = wp_ll_buffer_state(run, number);
    return before.use == WP_LL_RESULT_ENDS && before.answered <= wp_ll_number_before(run, result);
}

/* All warps of the block call this when they have written `number`. It signals all ranks of this
 * node. On GPUs the leader warp waits until all stores have left. */
WP_FN void wp_ll_send_arrived(const struct wp_ll_run *run, enum wp_ll_payload payload,
                              uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    wp_block_sync(warp);
    if (!wp_ll_is_leader_warp(warp))
        return;
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (!wp_ll_is_remote(ll, rank) && !wp_ll_is_missing(run, rank))
            wp_signal(warp, rank, wp_ll_word(ll, rank, WP_LL_ARRIVED, payload, own, block), number);
    }
}

/* The credit of a rank that leaves. */
#define WP_LL_NEEDS_NOTHING (UINT64_MAX >> 1)

/* The leader warp calls this. */
WP_FN void wp_ll_give_node_credit(const struct wp_ll_run *run, struct wp_ll_credit credit)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        if (wp_ll_is_remote(ll, rank) || wp_ll_is_missing(run, rank))
            continue;
        if (credit.answers > 0)
            wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_CREDIT, WP_LL_ANSWERS, own, block),
                      credit.answers);
        if (credit.rows > 0)
            wp_credit(warp, rank, wp_ll_word(ll, rank, WP_LL_CREDIT, WP_LL_ROWS, own, block),
                      credit.rows);
    }
}

/* All warps of the block call this. They have met since they last needed rows and answers up to
 * these numbers. It gives credit to all ranks. */
WP_FN void wp_ll_give_credit(const struct wp_ll_run *run, struct wp_ll_credit credit)
{
    struct wp_warp *warp = run->op.warp;
    WP_LL_NODES(wp_ll_give_remote_credit(warp, run->ll, credit), (void)0);
    if (wp_ll_is_leader_warp(warp))
        wp_ll_give_node_credit(run, credit);
}

/* ------------------------------------------------------------------ rows that have come */

/* The slots that a block of `source` has filled, once its word has come. */
WP_FN struct wp_ll_range wp_ll_range(const struct wp_low_latency *ll, uint64_t number,
                                     int32_t source, int32_t block)
{
    return WP_LL_NODES(wp_ll_told_range(ll, number, source, block),
                       *wp_ll_range_of(ll, ll->exchange.rank, number, source, block));
}

/* The slot at its source for the answer to a row, or for the first one. */
WP_FN int32_t wp_ll_answer_to_row(const struct wp_low_latency *ll, uint64_t number, int32_t source,
                                  int32_t row)
{
    return *wp_ll_slot_words(wp_ll_row(ll, ll->exchange.rank, number, source, row),
                             ll->plan.slot.answer_offset);
}

/* In memory of the warp, behind what is found about each choice of a row: the ranges of some
 * sources. */
enum { WP_LL_RANGES_OFFSET = WEFT_MAX_TOPK * sizeof(int32_t) };
WP_FN struct wp_ll_range *wp_ll_warp_ranges(struct wp_warp *warp)
{
    return (struct wp_ll_range *)((char *)wp_warp_shared(warp) + WP_LL_RANGES_OFFSET);
}
WP_STATIC_ASSERT(WP_LL_RANGES_OFFSET + WP_WARP_SIZE * sizeof(struct wp_ll_range) <=
                     WP_WARP_SHARED_BYTES,
                 "a range for each lane");

/* The i-th source: first the ranks after this one, last this rank itself. So answers to other ranks
 * are under way while this rank's own are written. */
WP_FN int32_t wp_ll_source(const struct wp_low_latency *ll, int32_t i)
{
    return wp_rank_after(&ll->exchange, i + 1);
}

/* Lane n gets the range of source i + n. */
WP_FN struct wp_ll_range wp_ll_range_for_lane(const struct wp_ll_run *run, uint64_t number,
                                              int32_t i)
{
    const struct wp_low_latency *ll = run->ll;
    const struct wp_ll_range none = {0, 0};
    const int32_t mine = i + wp_lane_idx(run->op.warp);
    if (mine >= ll->exchange.num_ranks || wp_ll_is_missing(run, wp_ll_source(ll, mine)))
        return none;
    return wp_ll_range(ll, number, wp_ll_source(ll, mine), wp_block_idx(run->op.warp));
}

/* Warp-wide: keeps ranges, one for each lane. The ranges before have been used. */
WP_FN void wp_ll_keep_ranges(struct wp_warp *warp, struct wp_ll_range of_lane)
{
    wp_ll_warp_ranges(warp)[wp_lane_idx(warp)] = of_lane;
    wp_warp_sync(warp);
}

/* Elements of a part of a row. */
struct wp_ll_elements {
    int32_t first;
    int32_t num;
};
WP_FN struct wp_ll_elements wp_ll_elements_of(const struct wp_ll_plan *plan, struct wp_ll_span span)
{
    const struct wp_ll_elements elements = {(int32_t)(span.begin >> plan->element_bytes_log2),
                                            (int32_t)(span.bytes >> plan->element_bytes_log2)};
    return elements;
}

/* Part of a row of dtype. */
WP_FN struct wp_ll_span wp_ll_row_span(const struct wp_ll_plan *plan,
                                       const struct wp_ll_share *share, int32_t part)
{
    return wp_ll_part_span(share, part, (uint32_t)plan->hidden << plan->element_bytes_log2);
}

/* Warp-wide: appends the entries of the lanes that have one to a list. Returns the lane's place. */
WP_FN int32_t wp_ll_list(struct wp_warp *warp, int32_t *num_listed, int has_one)
{
    const uint32_t lanes = wp_ballot(warp, has_one);
    const int32_t place = *num_listed + wp_lanes_below(warp, lanes);
    *num_listed += wp_popcount(lanes);
    return place;
}

WP_FN int wp_ll_is_quantised(const struct wp_ll_plan *plan)
{
    return plan->quantisation.dst_dtype != plan->dtype;
}
