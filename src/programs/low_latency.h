/* SPDX-License-Identifier: MIT */
/*
 * Low latency: dispatch and combine in one launch each, without layout, notify, or a word before the
 * rows. Each rank has room for the rows of all others, so a sender needs no answer to know where a
 * row goes: to slot [source rank][index], where index counts the source's tokens for that rank.
 * Answers go to slot [token][choice] of the token's owner.
 *
 * Block b of every rank has the same part of the work: it sends tokens of the b-th share of its
 * rank, takes what block b of the others has sent, and sends the answers to that. So blocks of one
 * rank never wait for each other. Two words for every block of every other rank keep order, both
 * ways in the same manner; their values are numbers of what was sent, which only grow:
 *
 *     arrived[mail][source][block]    the last that has come from there             (the source signals)
 *     room[mail][target][block]       the last that the target needs no more there  (the target signals)
 *
 * Mail is rows or answers. Number n lies in half n % num_halves, and is sent when the target needs
 * number n - num_halves no more: rows are needed until the answers that end their result have been
 * received, or it is released, answers until they have been summed. So nothing that is still read is overwritten, whatever runs on whichever stream.
 */
#ifndef WEFT_PROGRAMS_LOW_LATENCY_H
#define WEFT_PROGRAMS_LOW_LATENCY_H

#include "programs/exchange.h"
#include "programs/low_latency_masks.h"
#include "programs/routing.h"
#include "programs/share.h"

enum wp_ll_mail { WP_LL_ROWS, WP_LL_ANSWERS, WP_LL_NUM_MAILS };

enum wp_ll_phase { WP_LL_SEND = 1, WP_LL_RECEIVE = 2, WP_LL_BOTH = 3 };

/* Whether a result is needed no more when it has been answered. */
enum wp_ll_use { WP_LL_RESULT_ENDS, WP_LL_RESULT_STAYS };

/* A choice of a token: a rank, and one of its experts. */
struct wp_ll_choice {
    int32_t rank; /* -1: nowhere */
    int32_t local_expert;
    int32_t row;   /* there; -1: a choice before is at the same rank */
    int32_t order; /* by expert: selections of the expert before */
};

/* What a block has sent to a rank: rows [first, first + num_rows) of its source there. */
struct wp_ll_range {
    int32_t first;
    int32_t num_rows;
};

/* What a block has done, by numbers of the last one; zero at first. */
struct wp_ll_numbers {
    uint64_t rows_sent;
    uint64_t rows_received;
    uint64_t rows_answered; /* the last result that has been answered for the last time */
    uint64_t rows_ended;    /* the same, and this rank has received its answers */
    uint64_t answers_sent;
    uint64_t answers_received;
};

struct wp_ll_half {
    int32_t num_tokens; /* of this rank, in the result of this half */
    enum wp_ll_use use; /* whether the answers of this half end a result, */
    uint64_t answered;  /* and which */
};

/* What a block remembers from launch to launch. */
struct wp_ll_block {
    struct wp_ll_numbers numbers;
    struct wp_ll_half halves[WP_NUM_HALVES];
};

/* A row in its slot: elements, scales, then whence it comes and which experts it is for. */
struct wp_ll_slot {
    uint64_t scales_offset;
    uint64_t token_offset;   /* int32_t: its index at the source */
    uint64_t experts_offset; /* int32_t [num_topk], -1 where the choice is not here */
    uint64_t weights_offset; /* float [num_topk] */
    uint64_t
        order_offset; /* int32_t [num_topk]: how many of the source's rows the expert has before */
    uint64_t bytes;
};

/* Where answers lie, in slots: one for each choice of a token. With masks each rank has its own, since
 * one that was masked may still write. */
struct wp_ll_answer_slots {
    int32_t per_half;
    int32_t rank_stride, token_stride, choice_stride;
};

struct wp_ll_plan { /* the same on all ranks */
    int32_t max_tokens;
    int32_t num_topk;
    int32_t num_halves;
    int32_t num_blocks;        /* of every launch */
    int32_t max_local_experts; /* of any rank */
    int32_t is_by_expert;      /* rows are packed by expert as they are taken; else they stay */
    int32_t answers_are_rows;  /* of each expert; else their sums */
    struct wp_ll_answer_slots answer_slots;
    int32_t capacity; /* rows that an expert has room for, by expert */
    int64_t hidden;
    weft_dtype dtype;        /* of tokens, and of what comes back */
    weft_dtype answer_dtype; /* on their way back */
    /* On their way there, from dtype; the same dst_dtype: as they are. */
    struct wp_quantisation quantisation;
    int32_t max_row_parts; /* of a row that is sent: 1 where parts would cut words of scales */
    uint64_t row_bytes;    /* of a row's elements */
    uint64_t scales_bytes;
    uint64_t answer_bytes; /* between slots of answers */
    struct wp_ll_slot slot;
};

struct wp_low_latency {
    struct wp_exchange exchange; /* numbers the launches, and is what reports name */
    struct wp_ll_plan plan;
    struct wp_placement placement;
    uint64_t area_offset; /* in every heap, zero at first */
    /* Of this rank: */
    struct wp_ll_block *blocks;   /* [num_blocks] */
    struct wp_ll_choice *choices; /* [num_blocks][max_tokens][num_topk] */
    int32_t *answering;    /* [halves][max_tokens][num_topk] who answers in this slot; -1: nobody */
    int32_t *counters;     /* [num_blocks][wp_ll_num_counters] */
    int32_t *expert_bases; /* [num_blocks][num_ranks][max_local_experts] */
    char *sums;            /* [num_blocks][num_warps] rows of plan.dtype that become logarithms */
    int32_t *received_half; /* [1] of the result that was received last */
    int32_t *packed_rows;   /* [halves][num_ranks][max_tokens][num_topk] by expert; -1: none */
    struct wp_ll_masks masks;
};

/* ------------------------------------------------------------------ the area in each heap */

WP_FN uint64_t wp_ll_align(uint64_t bytes)
{
    enum { ALIGNMENT = 128 };
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The last only with masks: that a rank comes back, in two steps (low_latency_unmask.c). */
enum wp_ll_words { WP_LL_ARRIVED, WP_LL_ROOM, WP_LL_RETURNED, WP_LL_NUM_WORDS };

WP_FN uint64_t wp_ll_words_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_align((uint64_t)WP_LL_NUM_WORDS * WP_LL_NUM_MAILS * (uint64_t)num_ranks *
                       (uint64_t)plan->num_blocks * sizeof(uint64_t));
}

WP_FN uint64_t wp_ll_ranges_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)num_ranks *
                       (uint64_t)plan->num_blocks * sizeof(struct wp_ll_range));
}

/* As much as any machine needs, since the host's has allocated it. */
WP_FN uint64_t wp_ll_head_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align(((uint64_t)plan->max_local_experts + 2) * sizeof(uint64_t));
}

WP_FN uint64_t wp_ll_heads_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return plan->is_by_expert
               ? (uint64_t)plan->num_halves * (uint64_t)num_ranks * wp_ll_head_bytes(plan)
               : 0;
}

WP_FN uint64_t wp_ll_rows_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)num_ranks *
                       (uint64_t)plan->max_tokens * plan->slot.bytes);
}

WP_FN uint64_t wp_ll_answers_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)plan->answer_slots.per_half *
                       plan->answer_bytes);
}

WP_FN uint64_t wp_ll_area_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_words_bytes(plan, num_ranks) + wp_ll_ranges_bytes(plan, num_ranks) +
           wp_ll_heads_bytes(plan, num_ranks) + wp_ll_rows_bytes(plan, num_ranks) +
           wp_ll_answers_bytes(plan);
}

WP_FN uint64_t wp_ll_half(const struct wp_ll_plan *plan, uint64_t number)
{
    return number & (uint64_t)(plan->num_halves - 1); /* of one or two */
}

/* Bytes of an answer's first elements. */
WP_FN uint64_t wp_ll_answer_bytes(const struct wp_ll_plan *plan, int64_t num_elements)
{
    return plan->answer_dtype == WEFT_LOG_10BIT
               ? wp_log_row_bytes(num_elements)
               : (uint64_t)num_elements * wp_dtype_bytes(plan->answer_dtype);
}

/* The area of `owner`. */
WP_FN char *wp_ll_area(const struct wp_low_latency *ll, int32_t owner)
{
    return ll->exchange.bases[owner] + ll->area_offset;
}

/* In the area of `owner`: the word of a block of another rank. */
WP_FN uint64_t *wp_ll_word(const struct wp_low_latency *ll, int32_t owner, enum wp_ll_words words,
                           enum wp_ll_mail mail, int32_t rank, int32_t block)
{
    const int64_t num_ranks = ll->exchange.num_ranks;
    const int64_t idx =
        ((words * (int64_t)WP_LL_NUM_MAILS + mail) * num_ranks + rank) * ll->plan.num_blocks +
        block;
    return (uint64_t *)(void *)wp_ll_area(ll, owner) + idx;
}

WP_FN struct wp_ll_range *wp_ll_range_of(const struct wp_low_latency *ll, int32_t owner,
                                         uint64_t number, int32_t source, int32_t block)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    char *ranges = wp_ll_area(ll, owner) + wp_ll_words_bytes(&ll->plan, num_ranks);
    const uint64_t row = wp_ll_half(&ll->plan, number) * (uint64_t)num_ranks + (uint64_t)source;
    return (struct wp_ll_range *)(void *)ranges + row * (uint64_t)ll->plan.num_blocks + block;
}

/* How many selections of each of the owner's experts a source has: a tagged row. */
WP_FN char *wp_ll_head(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                       int32_t source)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    const uint64_t idx = wp_ll_half(&ll->plan, number) * (uint64_t)num_ranks + (uint64_t)source;
    return wp_ll_area(ll, owner) + wp_ll_words_bytes(&ll->plan, num_ranks) +
           wp_ll_ranges_bytes(&ll->plan, num_ranks) + idx * wp_ll_head_bytes(&ll->plan);
}

/* Where rows begin in every area. */
WP_FN uint64_t wp_ll_rows_offset(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_words_bytes(plan, num_ranks) + wp_ll_ranges_bytes(plan, num_ranks) +
           wp_ll_heads_bytes(plan, num_ranks);
}

WP_FN char *wp_ll_row(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                      int32_t source, int32_t row)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    const uint64_t idx = (wp_ll_half(&ll->plan, number) * (uint64_t)num_ranks + (uint64_t)source) *
                             (uint64_t)ll->plan.max_tokens +
                         (uint64_t)row;
    return wp_ll_area(ll, owner) + wp_ll_rows_offset(&ll->plan, num_ranks) +
           idx * ll->plan.slot.bytes;
}

/* Of a choice, by the rank that answers it. */
WP_FN char *wp_ll_answer(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                         int32_t answering, int32_t token, int32_t choice)
{
    const int32_t num_ranks = ll->exchange.num_ranks;
    const struct wp_ll_answer_slots *slots = &ll->plan.answer_slots;
    const uint64_t idx = wp_ll_half(&ll->plan, number) * (uint64_t)slots->per_half +
                         (uint64_t)(answering * slots->rank_stride + token * slots->token_stride +
                                    choice * slots->choice_stride);
    return wp_ll_area(ll, owner) + wp_ll_rows_offset(&ll->plan, num_ranks) +
           wp_ll_rows_bytes(&ll->plan, num_ranks) + idx * ll->plan.answer_bytes;
}

/* ------------------------------------------------------------------ memory of this rank */

/* What a block counts: for each rank rows, twice, and selections of its experts. */
WP_FN int32_t wp_ll_num_counters(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return num_ranks * (2 + (plan->is_by_expert ? plan->max_local_experts : 0));
}

/* Who answers token's choices of a result: [num_topk]. */
WP_FN int32_t *wp_ll_answering(const struct wp_low_latency *ll, uint64_t number, int32_t token)
{
    const uint64_t row =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.max_tokens + (uint64_t)token;
    return ll->answering + row * (uint64_t)ll->plan.num_topk;
}

/* Where the row of a source has been packed, by choice: [num_topk]. */
WP_FN int32_t *wp_ll_packed(const struct wp_low_latency *ll, uint64_t number, int32_t source,
                            int32_t row)
{
    const uint64_t rank_row =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->exchange.num_ranks + (uint64_t)source;
    return ll->packed_rows +
           (rank_row * (uint64_t)ll->plan.max_tokens + (uint64_t)row) * (uint64_t)ll->plan.num_topk;
}

/* The tokens of a block: [begin, end). */
struct wp_ll_tokens {
    int32_t begin;
    int32_t end;
};

WP_FN struct wp_ll_tokens wp_ll_tokens_of(int32_t num_tokens, int32_t block, int32_t num_blocks)
{
    /* Divided in 32 bits, which GPUs do in place: neither number has more than 16. */
    const uint32_t all = (uint32_t)num_tokens, blocks = (uint32_t)num_blocks;
    const struct wp_ll_tokens tokens = {(int32_t)(all * (uint32_t)block / blocks),
                                        (int32_t)(all * ((uint32_t)block + 1) / blocks)};
    return tokens;
}

/* ------------------------------------------------------------------ begin and end */

struct wp_ll_run { /* what a warp knows */
    struct wp_operation op;
    const struct wp_low_latency *ll;
    struct wp_ll_block *block;
    struct wp_ll_numbers numbers; /* as they will be after the launch */
};

/* As wp_operation_begin. */
WP_FN struct wp_ll_run wp_ll_begin(struct wp_warp *warp, const struct wp_low_latency *ll)
{
    struct wp_ll_block *block = &ll->blocks[wp_block_idx(warp)];
    const struct wp_ll_run run = {wp_operation_begin(warp, &ll->exchange, NULL), ll, block,
                                  block->numbers};
    return run;
}

/* As wp_operation_end; the warps of a block have the same status. */
WP_FN enum wp_status wp_ll_end(const struct wp_ll_run *run, enum wp_status status)
{
    struct wp_warp *warp = run->op.warp;
    wp_operation_end(&run->op, status);
    if (status == WP_STATUS_OK && wp_warp_idx(warp) == 0 && wp_lane_idx(warp) == 0)
        run->block->numbers = run->numbers;
    return status;
}

/* Warp-wide: an operation that does not fit what is outstanding. In graphs the host cannot see it. */
WP_FN enum wp_status wp_ll_fail(const struct wp_ll_run *run, uint64_t expected, uint64_t seen)
{
    const struct wp_failure failure = {WP_FAILURE_OUTSTANDING,
                                       wp_operation_site(&run->op, WP_PHASE_START, WP_NO_RANK), 0,
                                       expected, seen};
    return wp_fail(run->op.warp, &failure);
}

/* ------------------------------------------------------------------ arrived and room */

/* Where the launch waits for `rank`. */
WP_FN struct wp_wait_site wp_ll_site(const struct wp_ll_run *run, enum wp_phase phase, int32_t rank)
{
    struct wp_wait_site site = wp_operation_site(&run->op, phase, rank);
    site.absent_after_ms = run->ll->masks.absent_after_ms;
    return site;
}

/* Waits for a word of `rank`, and masks the rank if it does not come. WP_STATUS_ABSENT: it is masked. */
WP_FN enum wp_status wp_ll_await_word(const struct wp_ll_run *run, const uint64_t *word,
                                      uint64_t at_least, const struct wp_wait_site *site)
{
    const struct wp_ll_masks *masks = &run->ll->masks;
    if (wp_ll_is_masked(masks, site->rank))
        return WP_STATUS_ABSENT;
    const enum wp_status status = wp_wait(run->op.warp, word, at_least, site);
    if (status == WP_STATUS_ABSENT)
        wp_ll_mask_out(masks, site->rank);
    return status;
}

/* Warp-wide: waits until the words of this block, of all ranks, are `at_least`. Each lane has acquired
 * what some ranks did: the lanes meet before they touch rows, anyway. Masked ranks, and those that become
 * so, are not awaited; `missing` tells who they are, unless NULL. */
WP_FN enum wp_status wp_ll_await_all(const struct wp_ll_run *run, enum wp_ll_words words,
                                     enum wp_ll_mail mail, uint64_t at_least, int32_t *missing)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t own = ll->exchange.rank;
    const enum wp_phase phase = words == WP_LL_ARRIVED ? WP_PHASE_DATA : WP_PHASE_FINISH;
    enum wp_status status = WP_STATUS_OK;
    if (at_least == 0 && missing == NULL)
        return WP_STATUS_OK; /* nothing has been sent before */
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        struct wp_wait_site site = wp_ll_site(run, phase, rank);
        if (words == WP_LL_ARRIVED && mail == WP_LL_ANSWERS)
            site.absent_after_ms += site.absent_after_ms / 2;
        status = wp_ll_await_word(run, wp_ll_word(ll, own, words, mail, rank, wp_block_idx(warp)),
                                  at_least, &site);
        if (missing != NULL && status != WP_STATUS_FAILED)
            missing[rank] = status == WP_STATUS_ABSENT;
        if (status == WP_STATUS_ABSENT)
            status = WP_STATUS_OK; /* without it */
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* The ranks that this block goes on without: [num_ranks]. */
WP_FN int32_t *wp_ll_missing(const struct wp_ll_run *run)
{
    return run->ll->masks.missing +
           (int64_t)wp_block_idx(run->op.warp) * run->ll->exchange.num_ranks;
}

/* By all warps of the block: the same, each warp for itself. With masks the first one finds out for all
 * who is missing. */
WP_FN enum wp_status wp_ll_await_block(const struct wp_ll_run *run, enum wp_ll_words words,
                                       enum wp_ll_mail mail, uint64_t at_least)
{
    struct wp_warp *warp = run->op.warp;
    enum wp_status status = WP_STATUS_OK;
    if (!wp_ll_has_masks(&run->ll->masks))
        return wp_ll_await_all(run, words, mail, at_least, NULL);
    wp_block_sync(warp); /* what was missing before has been read */
    if (wp_warp_idx(warp) == 0)
        status = wp_ll_await_all(run, words, mail, at_least, wp_ll_missing(run));
    return (enum wp_status)wp_block_max_again(warp, (uint32_t)status);
}

/* By all warps of the blocks of a launch that receives, when they are done: the last block tells who is
 * missing. What was counted of these may be there in part, and counts as nothing. */
WP_FN void wp_ll_tell_missing(const struct wp_ll_run *run, int32_t *missing_ranks,
                              int32_t *num_rows_per_rank)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_masks *masks = &run->ll->masks;
    if (!wp_ll_has_masks(masks) || !wp_is_last_block(warp, masks->num_blocks_done))
        return;
    for (int32_t rank = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
         rank < run->ll->exchange.num_ranks; rank += wp_num_warps(warp) * WP_WARP_SIZE) {
        const int is_masked = wp_ll_is_masked(masks, rank);
        if (missing_ranks != NULL)
            missing_ranks[rank] = is_masked;
        if (num_rows_per_rank != NULL && is_masked)
            num_rows_per_rank[rank] = 0;
    }
}

/* By one warp: of a half, for later launches, and for this one once its block has met. */
WP_FN void wp_ll_remember_tokens(const struct wp_ll_run *run, uint64_t number, int32_t num_tokens)
{
    if (wp_warp_idx(run->op.warp) == 0 && wp_lane_idx(run->op.warp) == 0)
        run->block->halves[wp_ll_half(&run->ll->plan, number)].num_tokens = num_tokens;
}

WP_FN void wp_ll_remember_answers(const struct wp_ll_run *run, uint64_t number, uint64_t result,
                                  enum wp_ll_use use)
{
    struct wp_ll_half *half = &run->block->halves[wp_ll_half(&run->ll->plan, number)];
    if (wp_warp_idx(run->op.warp) == 0 && wp_lane_idx(run->op.warp) == 0) {
        half->answered = result;
        half->use = use;
    }
}

/* What a rank must need no more before `number` can be sent. */
WP_FN uint64_t wp_ll_number_before(const struct wp_ll_run *run, uint64_t number)
{
    const uint64_t num_halves = (uint64_t)run->ll->plan.num_halves;
    return number > num_halves ? number - num_halves : 0;
}

/* By all warps of the block, when they are done with `number`: tells all ranks. */
WP_FN void wp_ll_tell_all(const struct wp_ll_run *run, enum wp_ll_words words, enum wp_ll_mail mail,
                          uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    wp_block_sync(warp);
    if (wp_warp_idx(warp) != 0)
        return;
    for (int32_t i = wp_lane_idx(warp); i < ll->exchange.num_ranks; i += WP_WARP_SIZE) {
        const int32_t rank = wp_rank_after(&ll->exchange, i);
        uint64_t *word = wp_ll_word(ll, rank, words, mail, ll->exchange.rank, wp_block_idx(warp));
        if (wp_ll_is_masked(&ll->masks, rank))
            continue;
        if (words == WP_LL_ARRIVED)
            wp_signal(warp, rank, word, number);
        else
            wp_credit(warp, rank, word, number);
    }
}

/* ------------------------------------------------------------------ rows that have come */

/* In memory of the warp: what a block of the i-th of some sources has sent. Behind what is found out
 * about each choice of a row. */
enum { WP_LL_RANGES_OFFSET = WEFT_MAX_TOPK * sizeof(int32_t) };
WP_FN struct wp_ll_range *wp_ll_warp_ranges(struct wp_warp *warp)
{
    return (struct wp_ll_range *)((char *)wp_warp_shared(warp) + WP_LL_RANGES_OFFSET);
}
WP_STATIC_ASSERT(WP_LL_RANGES_OFFSET + WP_WARP_SIZE * sizeof(struct wp_ll_range) <=
                     WP_WARP_SHARED_BYTES,
                 "a range for each lane");

/* Warp-wide: reads the ranges of this block of the sources from the i-th on, one for each lane. */
WP_FN void wp_ll_read_ranges(const struct wp_ll_run *run, uint64_t number, int32_t i)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_low_latency *ll = run->ll;
    const int32_t mine = i + wp_lane_idx(warp);
    const struct wp_ll_range none = {0, 0};
    wp_warp_sync(warp); /* those before have been used */
    if (mine < ll->exchange.num_ranks) {
        const int32_t source = wp_rank_after(&ll->exchange, mine);
        const int is_missing = wp_ll_has_masks(&ll->masks) && wp_ll_missing(run)[source] != 0;
        wp_ll_warp_ranges(warp)[wp_lane_idx(warp)] =
            is_missing ? none
                       : *wp_ll_range_of(ll, ll->exchange.rank, number, source, wp_block_idx(warp));
    }
    wp_warp_sync(warp);
}

WP_FN int wp_ll_is_quantised(const struct wp_ll_plan *plan)
{
    return plan->quantisation.dst_dtype != plan->dtype;
}

/* In how many parts a block's warps share so many rows. */
WP_FN struct wp_share wp_ll_share(struct wp_warp *warp, int32_t num_rows)
{
    return wp_share_rows(wp_num_warps(warp), num_rows, NULL);
}

/* The warp's first unit of a source, where those of the sources before were num_before: the warps go
 * on where these ended. */
WP_FN int32_t wp_ll_first_unit(struct wp_warp *warp, int32_t num_before)
{
    const int32_t num_warps = wp_num_warps(warp);
    const int32_t first = wp_warp_idx(warp) - num_before % num_warps;
    return first < 0 ? first + num_warps : first;
}

/* As many rows as a block has of each source at most: what is taken and answered is shared so. */
WP_FN struct wp_share wp_ll_share_of_sources(struct wp_warp *warp, const struct wp_ll_plan *plan)
{
    return wp_ll_share(warp, (plan->max_tokens + plan->num_blocks - 1) / plan->num_blocks);
}

#endif
