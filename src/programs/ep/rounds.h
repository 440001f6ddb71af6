/* SPDX-License-Identifier: MIT */
/*
 * Dispatch and combine where some rank has arrays that the others do not reach, and its staging
 * block cannot hold all their rows. Its message says so; then all ranks go in rounds.
 *
 * Round k is about the tokens [k T, (k + 1) T) of every rank. The staging block has a slot for each
 * of them, whichever rank's, in each array; and every heap has a word for each slot, which the
 * owner of the token sets to its row there, counted from 1, and the rank that stages clears.
 *
 *     dispatch   the owner writes rows to slots, and the words; all meet; whoever stages copies
 *                from the slots to its arrays; all meet
 *     combine    the owner writes the words; all meet; whoever stages copies from its arrays to the
 *                slots; all meet; the owner reads the slots
 *
 * Of a rank that does not stage, rows are written and read where they are.
 *
 * To meet, every block signals to all blocks of all ranks, its own among them, and waits for them:
 * so what was done before by any block is ordered before what any does after. Each meeting takes a
 * number of the exchange, and an operation an odd number of them: the next one's half is the other
 * one (parity.h).
 */
#pragma once

#include "programs/ep/targets.h"

struct wp_rounds {
    int32_t round_tokens;  /* T, the same on all ranks */
    uint64_t words_offset; /* in every heap: int32_t [num_ranks][T], zero between operations */
    char *arrays[WP_NUM_MESSAGE_ARRAYS]; /* of this rank, if it stages; NULL: it has none such */
};

/* Little is kept from round to round, since a GPU's registers are needed for rows. */
struct wp_round {
    const struct wp_operation *op; /* that has met */
    const struct wp_rounds *rounds;
    const struct wp_routing *routing;
    int32_t max_tokens; /* of a rank in a round: T, or all if nobody stages */
    int32_t idx;
};

/* After the start. */
WP_FN int wp_some_rank_stages(const struct wp_operation *op)
{
    uint32_t is_staged = 0;
    for (int32_t rank = wp_lane_idx(op->warp); rank < op->exchange->num_ranks; rank += WP_WARP_SIZE)
        is_staged |= (uint32_t)wp_operation_is_staged(op, rank);
    return wp_max_u32(op->warp, is_staged) != 0;
}

WP_FN struct wp_round wp_first_round(const struct wp_operation *op, const struct wp_rounds *rounds,
                                     const struct wp_routing *routing)
{
    const struct wp_round round = {op, rounds, routing,
                                   wp_some_rank_stages(op) ? rounds->round_tokens : INT32_MAX, 0};
    return round;
}

WP_FN int wp_round_is_staged(const struct wp_round *round)
{
    return round->max_tokens != INT32_MAX;
}

/* Whether some rank has tokens beyond this round. */
WP_FN int wp_round_is_last(const struct wp_round *round)
{
    const struct wp_operation *op = round->op;
    const int64_t end = ((int64_t)round->idx + 1) * round->max_tokens;
    uint32_t goes_on = 0;
    for (int32_t rank = wp_lane_idx(op->warp); rank < op->exchange->num_ranks; rank += WP_WARP_SIZE)
        goes_on |= wp_operation_num_tokens(op, rank) > end;
    return wp_max_u32(op->warp, goes_on) == 0;
}

/* The first token of this rank in the round. */
WP_FN int32_t wp_round_first_token(const struct wp_round *round)
{
    const int64_t first = (int64_t)round->idx * round->max_tokens;
    return first < round->routing->num_tokens ? (int32_t)first : round->routing->num_tokens;
}

WP_FN int32_t wp_round_num_tokens(const struct wp_round *round)
{
    const int32_t rest = round->routing->num_tokens - wp_round_first_token(round);
    return rest < round->max_tokens ? rest : round->max_tokens;
}

/* The operation with the number of a part of the round: each round has two. */
WP_FN struct wp_operation wp_round_part(const struct wp_round *round, int32_t part)
{
    struct wp_operation op = *round->op;
    op.sequence += 2 * (uint64_t)round->idx + (uint64_t)part;
    return op;
}

/* ------------------------------------------------------------------ meetings */

/* `part`: the operation with the number of the meeting. */
WP_FN void wp_round_signal(const struct wp_operation *part)
{
    const struct wp_exchange *exchange = part->exchange;
    for (int32_t i = wp_lane_idx(part->warp); i < exchange->num_members; i += WP_WARP_SIZE) {
        const int32_t rank = wp_member(exchange, wp_member_idx_after(exchange, i));
        wp_signal(
            part->warp, rank,
            wp_mailbox_finished(exchange, rank, wp_block_idx(part->warp), exchange->member_idx),
            part->sequence);
    }
}

/* Waits for all blocks of a member, of which the messages of op tell the number. */
WP_FN enum wp_status wp_round_await_member(const struct wp_operation *op,
                                           const struct wp_operation *part, int32_t idx)
{
    const struct wp_exchange *exchange = part->exchange;
    const int32_t rank = wp_member(exchange, idx);
    const int32_t num_blocks = wp_operation_num_blocks(op, rank);
    const struct wp_wait_site site = wp_operation_site(part, WP_PHASE_FINISH, rank);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t block = 0; block < num_blocks && status == WP_STATUS_OK; block++)
        status = wp_wait(part->warp, wp_mailbox_finished(exchange, exchange->rank, block, idx),
                         part->sequence, &site);
    return status;
}

WP_FN enum wp_status wp_round_await(const struct wp_operation *op, const struct wp_operation *part)
{
    const struct wp_exchange *exchange = part->exchange;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_lane_idx(part->warp); i < exchange->num_members && status == WP_STATUS_OK;
         i += WP_WARP_SIZE)
        status = wp_round_await_member(op, part, wp_member_idx_after(exchange, i));
    return (enum wp_status)wp_max_u32(part->warp, (uint32_t)status);
}

/* Called by every warp, at the end of a part of a round. */
WP_FN enum wp_status wp_round_meet(const struct wp_round *round, int32_t part_idx)
{
    const struct wp_operation part = wp_round_part(round, part_idx);
    struct wp_warp *warp = part.warp;
    enum wp_status status = WP_STATUS_OK;
    wp_operation_advance(&part); /* first: after the signals the next part begins */
    wp_block_sync(warp);
    if (wp_warp_idx(warp) == 0) {
        wp_round_signal(&part);
        status = wp_round_await(round->op, &part);
        wp_operation_note(&part, status);
    }
    return wp_block_status(warp, status);
}

/* ------------------------------------------------------------------ slots */

enum wp_slot_words { WP_WORDS_AS_THEY_ARE, WP_WORDS_WRITTEN };

/* The slot of a token of the round in place of its row, at targets that stage. */
WP_FN void wp_round_use_slots(const struct wp_round *round, int32_t token, int32_t num_targets,
                              enum wp_slot_words words)
{
    const struct wp_operation *op = round->op;
    const struct wp_exchange *exchange = op->exchange;
    const int32_t slot =
        exchange->rank * round->rounds->round_tokens + (token - wp_round_first_token(round));
    struct wp_target *targets = wp_warp_targets(op->warp);
    for (int32_t i = wp_lane_idx(op->warp); i < num_targets; i += WP_WARP_SIZE) {
        const int32_t rank = targets[i].rank, row = targets[i].row;
        if (!wp_operation_is_staged(op, rank))
            continue; /* as all are where nobody stages */
        const int is_there = row < wp_operation_capacity(op, rank);
        targets[i].rank = is_there ? rank : WP_NO_ROUTE;
        targets[i].row = wp_slot_row(slot);
        if (is_there && words == WP_WORDS_WRITTEN)
            *((int32_t *)(void *)(exchange->bases[rank] + round->rounds->words_offset) + slot) =
                row + 1;
    }
}

enum wp_slot_way { WP_SLOTS_TO_ARRAYS, WP_ARRAYS_TO_SLOTS };

WP_FN uint64_t wp_array_row_bytes(const struct wp_call *call, int32_t array)
{
    const uint64_t num_topk = (uint64_t)wp_call_num_topk(call);
    if (array < WEFT_MAX_PLANES)
        return call->row_bytes[array];
    if (array == WP_ARRAY_TOPK_IDX)
        return num_topk * wp_expert_id_bytes(wp_call_options(call));
    return array == WP_ARRAY_TOPK_WEIGHTS ? num_topk * sizeof(float) : sizeof(int32_t);
}

WP_FN void wp_round_copy_slot(const struct wp_round *round, int32_t slot, int32_t row,
                              enum wp_slot_way way)
{
    const struct wp_operation *op = round->op;
    const struct wp_message *message = op->message;
    const char *heap = op->exchange->bases[op->exchange->rank];
    struct wp_warp *warp = op->warp;
    const void **dsts = wp_warp_pointers(warp);
    for (int32_t i = 0; i < WP_NUM_MESSAGE_ARRAYS; i++) {
        if (round->rounds->arrays[i] == NULL)
            continue;
        const uint64_t row_bytes = wp_array_row_bytes(&message->call, i);
        const char *there = heap + message->arrays[i] + (uint64_t)slot * row_bytes;
        const char *here = round->rounds->arrays[i] + (uint64_t)row * row_bytes;
        wp_warp_sync(warp); /* the pointer before has been used */
        if (wp_lane_idx(warp) == 0)
            dsts[0] = way == WP_SLOTS_TO_ARRAYS ? here : there;
        wp_warp_sync(warp);
        wp_row_copy(warp, dsts, 1, way == WP_SLOTS_TO_ARRAYS ? there : here, row_bytes);
    }
}

/* Copies the slots of this rank whose words are set, if it stages, and clears these words. */
WP_FN void wp_round_copy_slots(const struct wp_round *round, enum wp_slot_way way)
{
    const struct wp_operation *op = round->op;
    const struct wp_exchange *exchange = op->exchange;
    struct wp_warp *warp = op->warp;
    const int32_t num_slots =
        op->message->is_staged ? exchange->num_ranks * round->rounds->round_tokens : 0;
    int32_t *words =
        (int32_t *)(void *)(exchange->bases[exchange->rank] + round->rounds->words_offset);
    for (int32_t slot = wp_launch_warp_idx(warp); slot < num_slots;
         slot += wp_num_launch_warps(warp)) {
        const int32_t word = words[slot];
        if (word == 0)
            continue;
        wp_warp_sync(warp); /* all lanes have read it */
        if (wp_lane_idx(warp) == 0)
            words[slot] = 0;
        wp_round_copy_slot(round, slot, word - 1, way);
    }
}
