/* SPDX-License-Identifier: MIT */
/*
 * How the ranks, or those of a node among themselves, start and finish an operation together.
 *
 * The operations of one exchange are numbered. The number of the last one is in memory of the
 * device, so that a captured launch can be replayed, and once for each block, so that each can read
 * its own and write it without waiting for others. Each rank has a mailbox in its heap:
 *
 *     messages[half][r]           what rank r said when it started: a tagged row (half: parity.h)
 *     finished[block][m]          last operation of which that block of member m finished its part
 *
 * start:  the first block of every rank sends its message to all, and every block takes all
 *         messages. Whoever has taken that of rank r knows that r's stream has reached the
 *         operation: r's outputs may be written, r's inputs read, at the places that the message
 *         tells. Since everybody sees every message, ranks whose calls do not fit together find
 *         out before anything is moved.
 * finish: a block that has done its part signals finished to all, and waits for its share of their
 *         blocks. When all blocks of a launch have done so, all blocks of all ranks are done with
 *         this rank's memory.
 *
 * What a warp has of all this is struct weft_operation, which every step of a program is given.
 */
#ifndef WEFT_PROGRAMS_EXCHANGE_H
#define WEFT_PROGRAMS_EXCHANGE_H

#include <stddef.h>

#include "programs/block.h"
#include "programs/call.h"
#include "programs/parity.h"

/* Arrays of the sender that the receiver of the message will access, as heap offsets; those of
 * collectives as places (window.h). */
enum weft_message_array {
    WEFT_ARRAY_PLANE = 0, /* plane 0; the others follow */
    WEFT_ARRAY_TOPK_IDX = WEFT_MAX_PLANES,
    WEFT_ARRAY_TOPK_WEIGHTS,
    WEFT_ARRAY_SRC_TOKEN, /* offset 0, where no array can be, if the rank does not want it */
    WEFT_NUM_MESSAGE_ARRAYS
};

struct weft_message {
    struct weft_call call;
    int32_t capacity;   /* rows that the arrays hold */
    int32_t num_blocks; /* of the rank's launch */
    uint64_t array_offsets[WEFT_NUM_MESSAGE_ARRAYS];
};

struct weft_exchange_state {                  /* local to the rank, zero at first */
    int32_t num_units_taken[WEFT_NUM_HALVES]; /* share.h */
    int32_t num_failures;                     /* nonzero: some operation did not end */
    int32_t failed_sequence;                  /* of the first, in 32 bits */
    uint64_t block_sequences[]; /* [max_blocks] of the last operation that ended here */
};

struct weft_exchange {
    int32_t rank;
    int32_t num_ranks;
    int32_t
        num_members; /* who exchange messages and signals: all ranks, or those of this rank's node */
    int32_t member_idx;     /* of this rank */
    const int32_t *members; /* [num_members] their ranks; NULL: all */
    int32_t max_blocks;     /* of any launch, on any rank */
    struct weft_exchange_state *state;
    char *const
        *bases; /* [windows][num_ranks] where they are mapped here; the first row: the heaps */
    uint64_t mailbox_offset; /* in every heap, zero at first */
};

/* The i-th rank after the own one. */
WEFT_FN int32_t weft_rank_after(const struct weft_exchange *exchange, int32_t i)
{
    const int32_t rank = exchange->rank + i;
    return rank < exchange->num_ranks ? rank : rank - exchange->num_ranks;
}

WEFT_FN int32_t weft_member(const struct weft_exchange *exchange, int32_t idx)
{
    return exchange->members == NULL ? idx : exchange->members[idx];
}

/* The index of the i-th member after this rank. */
WEFT_FN int32_t weft_member_idx_after(const struct weft_exchange *exchange, int32_t i)
{
    const int32_t idx = exchange->member_idx + i;
    return idx < exchange->num_members ? idx : idx - exchange->num_members;
}

/* ------------------------------------------------------------------ layout */

#define WEFT_WORD_OF(type, member) ((int32_t)(offsetof(type, member) / sizeof(uint32_t)))

enum {
    WEFT_MESSAGE_WORDS = sizeof(struct weft_message) / sizeof(uint32_t),
    WEFT_MESSAGE_SLOT_BYTES = 256, /* as many or more than any machine needs */
    /* In memory of the block, behind the words of weft_block_max. */
    WEFT_MESSAGES_OFFSET = 128,
    WEFT_NUM_MESSAGES = 32 /* as a block has warps at most: weft.h */
};

WEFT_STATIC_ASSERT(WEFT_TAGGED_BYTES(WEFT_MESSAGE_WORDS) <= WEFT_MESSAGE_SLOT_BYTES,
                   "a message fits its slot");
WEFT_STATIC_ASSERT(WEFT_NUM_MESSAGES * sizeof(uint32_t) <= WEFT_MESSAGES_OFFSET &&
                       WEFT_MESSAGES_OFFSET + WEFT_NUM_MESSAGES * sizeof(struct weft_message) <=
                           WEFT_BLOCK_SHARED_BYTES,
                   "they fit the memory of a block");

/* A multiple of a message's slot: what follows may be slots of packets, which are aligned on
 * every machine. */
WEFT_FN uint64_t weft_mailbox_bytes(int32_t num_ranks, int32_t num_members, int32_t max_blocks)
{
    const uint64_t finished_bytes = (uint64_t)num_members * (uint64_t)max_blocks * sizeof(uint64_t);
    const uint64_t num_slots =
        WEFT_NUM_HALVES * (uint64_t)num_ranks +
        (finished_bytes + WEFT_MESSAGE_SLOT_BYTES - 1) / WEFT_MESSAGE_SLOT_BYTES;
    return num_slots * WEFT_MESSAGE_SLOT_BYTES;
}

/* In the mailbox of `owner`: the message of `writer`. */
WEFT_FN char *weft_mailbox_message(const struct weft_exchange *exchange, uint64_t sequence,
                                   int32_t owner, int32_t writer)
{
    const uint64_t slot = weft_half(sequence) * (uint64_t)exchange->num_ranks + (uint64_t)writer;
    return exchange->bases[owner] + exchange->mailbox_offset + slot * WEFT_MESSAGE_SLOT_BYTES;
}

/* In the mailbox of `owner`: the last operation that block `block_idx` of a member has finished. */
WEFT_FN uint64_t *weft_mailbox_finished(const struct weft_exchange *exchange, int32_t owner,
                                        int32_t block_idx, int32_t writer_idx)
{
    char *words = exchange->bases[owner] + exchange->mailbox_offset +
                  WEFT_NUM_HALVES * (uint64_t)exchange->num_ranks * WEFT_MESSAGE_SLOT_BYTES;
    return (uint64_t *)(void *)words + (int64_t)block_idx * exchange->num_members + writer_idx;
}

/* ------------------------------------------------------------------ begin and end */

/* What a warp knows of the operation that it runs. */
struct weft_operation {
    struct weft_warp *warp;
    const struct weft_exchange *exchange;
    const struct weft_message *message; /* what this rank says; NULL where packets say it */
    uint64_t sequence;                  /* its number */
};

/* In place of a number: an operation before has failed. What it has left undone, others could
 * take for done. */
enum { WEFT_SEQUENCE_FAILED = 0 };

/* Called by every warp first. If the number is WEFT_SEQUENCE_FAILED, the program fails without a
 * word. */
WEFT_FN struct weft_operation weft_operation_begin(struct weft_warp *warp,
                                                   const struct weft_exchange *exchange,
                                                   const struct weft_message *message)
{
    /* Both loads are under way together. */
    const uint64_t sequence = exchange->state->block_sequences[weft_block_idx(warp)] + 1;
    const int32_t failed = weft_load_relaxed(&exchange->state->failed_sequence);
    /* A failure of this very operation does not count, so that all warps see the same. */
    const int is_sound = failed == 0 || failed == (int32_t)sequence;
    const struct weft_operation op = {warp, exchange, message,
                                      is_sound ? sequence : (uint64_t)WEFT_SEQUENCE_FAILED};
    return op;
}

/* Warp-wide: how the operation ended here. */
WEFT_FN void weft_operation_note(const struct weft_operation *op, enum weft_status status)
{
    struct weft_exchange_state *state = op->exchange->state;
    if (status != WEFT_STATUS_OK && weft_lane_idx(op->warp) == 0 &&
        weft_add_relaxed(&state->num_failures, 1) == 0)
        weft_add_relaxed(&state->failed_sequence, (int32_t)op->sequence);
}

/* How many units of an operation's work have been taken (share.h). */
WEFT_FN int32_t *weft_units_taken(const struct weft_exchange *exchange, uint64_t sequence)
{
    return &exchange->state->num_units_taken[weft_half(sequence)];
}

/* By every warp of the block, once all of them have read the number: writes it for the block,
 * and the block's share of those for blocks that did not run. By one warp it takes 0.13 us
 * longer on H200. */
WEFT_FN void weft_operation_advance(const struct weft_operation *op)
{
    struct weft_warp *warp = op->warp;
    const int32_t lane = weft_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    const int32_t num_blocks = weft_num_blocks(warp);
    for (int32_t i = weft_block_idx(warp) + lane * num_blocks; i < op->exchange->max_blocks;
         i += weft_num_warps(warp) * WEFT_WARP_SIZE * num_blocks)
        op->exchange->state->block_sequences[i] = op->sequence;
    if (weft_block_idx(warp) == 0 && lane == 0)
        *weft_units_taken(op->exchange, op->sequence + 1) = 0;
}

/* Called by every warp last, by operations that failed, or after which nobody touches another
 * rank's memory. */
WEFT_FN enum weft_status weft_operation_end(const struct weft_operation *op,
                                            enum weft_status status)
{
    weft_operation_note(op, status);
    weft_block_sync(op->warp);
    weft_admit_next(op->warp); /* the block waits for nothing more */
    weft_operation_advance(op);
    return status;
}

/* ------------------------------------------------------------------ start */

/* Where there are not too many ranks, the block keeps their messages, which is nearer than the
 * mailbox. */
WEFT_FN int weft_exchange_keeps(const struct weft_exchange *exchange)
{
    return exchange->num_ranks <= WEFT_NUM_MESSAGES;
}

/* The message of the rank, with addresses in place of offsets; where they are not kept, the one
 * that the warp has taken last. */
WEFT_FN struct weft_message *weft_operation_message(const struct weft_operation *op, int32_t rank)
{
    char *messages = (char *)weft_block_shared(op->warp) + WEFT_MESSAGES_OFFSET;
    return (struct weft_message *)(void *)messages +
           (weft_exchange_keeps(op->exchange) ? rank : weft_warp_idx(op->warp));
}

/* Where this operation waits for `rank`. */
WEFT_FN struct weft_wait_site weft_operation_site(const struct weft_operation *op,
                                                  enum weft_phase phase, int32_t rank)
{
    const struct weft_wait_site site = {phase, rank, op->sequence, op->exchange->mailbox_offset};
    return site;
}

/* Warp-wide: waits for the message of `rank`; *mismatch tells what differs from what it should
 * be, if anything does. */
WEFT_FN enum weft_status weft_operation_hear(const struct weft_operation *op, int32_t rank,
                                             struct weft_failure *mismatch)
{
    const struct weft_exchange *exchange = op->exchange;
    const struct weft_wait_site site = weft_operation_site(op, WEFT_PHASE_START, rank);
    const struct weft_call *expected = &op->message->call;
    struct weft_message *taken = weft_operation_message(op, rank);
    const uint64_t base = (uint64_t)(uintptr_t)exchange->bases[rank];
    if (!weft_exchange_keeps(exchange))
        weft_warp_sync(op->warp); /* the one before has been read */
    if (weft_tagged_take(op->warp,
                         weft_mailbox_message(exchange, op->sequence, exchange->rank, rank), taken,
                         WEFT_MESSAGE_WORDS, &site) != WEFT_STATUS_OK)
        return WEFT_STATUS_FAILED;
    weft_warp_sync(op->warp); /* the lanes have taken parts of it, and acquired */
    const int32_t field = weft_call_difference(op->warp, expected, &taken->call);
    if (field < WEFT_NUM_CALL_FIELDS)
        *mismatch = weft_call_mismatch(site, field, weft_call_value(expected, field),
                                       weft_call_value(&taken->call, field));
    for (int32_t i = weft_lane_idx(op->warp); i < WEFT_NUM_MESSAGE_ARRAYS; i += WEFT_WARP_SIZE)
        taken->array_offsets[i] += taken->array_offsets[i] != 0 ? base : 0;
    return WEFT_STATUS_OK;
}

/* Which warp of a block tells how the start failed: one whose wait failed before any that has
 * found a mismatch, and of these the one that has the lowest rank's, so that it is always the
 * same. 0: nothing failed. */
WEFT_FN uint32_t weft_start_urgency(const struct weft_operation *op, enum weft_status status,
                                    const struct weft_failure *mismatch)
{
    if (status != WEFT_STATUS_OK)
        return UINT32_MAX;
    if (mismatch->kind == WEFT_FAILURE_NONE)
        return 0;
    return (uint32_t)(op->exchange->num_ranks - mismatch->site.rank);
}

/* Called by every warp: the first block sends the rank's message. The ranks are shared among its
 * warps. */
WEFT_FN void weft_operation_tell(const struct weft_operation *op)
{
    const struct weft_exchange *exchange = op->exchange;
    const int32_t num_members = exchange->num_members;
    if (weft_block_idx(op->warp) != 0)
        return;
    for (int32_t i = 1 + weft_warp_idx(op->warp); i <= num_members; i += weft_num_warps(op->warp)) {
        /* Not all to rank 0 first. */
        const int32_t rank = weft_member(exchange, weft_member_idx_after(exchange, i));
        weft_tagged_send(op->warp, rank,
                         weft_mailbox_message(exchange, op->sequence, rank, exchange->rank),
                         op->message, WEFT_MESSAGE_WORDS, op->sequence);
    }
}

/* Called by every warp. When it returns OK, all ranks have started the same call. */
WEFT_FN enum weft_status weft_operation_meet(const struct weft_operation *op)
{
    const struct weft_exchange *exchange = op->exchange;
    struct weft_failure mismatch = {WEFT_FAILURE_NONE, {WEFT_PHASE_START, 0, 0, 0}, 0, 0, 0};
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = weft_warp_idx(op->warp);
         i < exchange->num_members && status == WEFT_STATUS_OK &&
         mismatch.kind == WEFT_FAILURE_NONE;
         i += weft_num_warps(op->warp))
        status = weft_operation_hear(op, weft_member(exchange, i), &mismatch);
    const uint32_t own = weft_start_urgency(op, status, &mismatch);
    const uint32_t most = weft_block_max(op->warp, own);
    if (most > 0 && own == most && status == WEFT_STATUS_OK)
        weft_fail(op->warp, &mismatch);
    return most == 0 ? WEFT_STATUS_OK : WEFT_STATUS_FAILED;
}

/* What `rank` said in word `word`, where its message is not kept. */
WEFT_FN uint32_t weft_operation_word(const struct weft_operation *op, int32_t rank, int32_t word)
{
    return weft_tagged_word(
        weft_mailbox_message(op->exchange, op->sequence, op->exchange->rank, rank), word);
}

/* The following are valid after weft_operation_meet. */

WEFT_FN int32_t weft_operation_capacity(const struct weft_operation *op, int32_t rank)
{
    if (weft_exchange_keeps(op->exchange))
        return weft_operation_message(op, rank)->capacity;
    return (int32_t)weft_operation_word(op, rank, WEFT_WORD_OF(struct weft_message, capacity));
}

/* How many blocks the launch of `rank` has. */
WEFT_FN int32_t weft_operation_num_blocks(const struct weft_operation *op, int32_t rank)
{
    if (weft_exchange_keeps(op->exchange))
        return weft_operation_message(op, rank)->num_blocks;
    return (int32_t)weft_operation_word(op, rank, WEFT_WORD_OF(struct weft_message, num_blocks));
}

/* Array `array` of `rank`; NULL if it has none. */
WEFT_FN char *weft_operation_array(const struct weft_operation *op, int32_t rank, int array)
{
    if (weft_exchange_keeps(op->exchange))
        return (char *)(uintptr_t)weft_operation_message(op, rank)->array_offsets[array];
    const int32_t word = WEFT_WORD_OF(struct weft_message, array_offsets) + 2 * array;
    const uint64_t offset = (uint64_t)weft_operation_word(op, rank, word + 1) << 32 |
                            weft_operation_word(op, rank, word);
    return offset != 0 ? op->exchange->bases[rank] + offset : NULL;
}

/* ------------------------------------------------------------------ finish */

/* Warp-wide: tells all others that this block has done its part. */
WEFT_FN void weft_operation_signal(const struct weft_operation *op)
{
    const struct weft_exchange *exchange = op->exchange;
    for (int32_t i = 1 + weft_lane_idx(op->warp); i < exchange->num_members; i += WEFT_WARP_SIZE) {
        const int32_t rank = weft_member(exchange, weft_member_idx_after(exchange, i));
        weft_signal(
            op->warp, rank,
            weft_mailbox_finished(exchange, rank, weft_block_idx(op->warp), exchange->member_idx),
            op->sequence);
    }
}

/* How many blocks another rank's launch has. */
enum weft_other_blocks { WEFT_BLOCKS_AS_TOLD /* in its message */, WEFT_BLOCKS_AS_HERE };

/* Waits for those of a member's blocks that are this block's to wait for. */
WEFT_FN enum weft_status weft_operation_await_member(const struct weft_operation *op, int32_t idx,
                                                     int32_t num_blocks)
{
    const struct weft_exchange *exchange = op->exchange;
    const struct weft_wait_site site =
        weft_operation_site(op, WEFT_PHASE_FINISH, weft_member(exchange, idx));
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = weft_block_idx(op->warp); i < num_blocks && status == WEFT_STATUS_OK;
         i += weft_num_blocks(op->warp))
        status = weft_wait(op->warp, weft_mailbox_finished(exchange, exchange->rank, i, idx),
                           op->sequence, &site);
    return status;
}

/* Warp-wide: waits for this block's share of all others' blocks. */
WEFT_FN enum weft_status weft_operation_await(const struct weft_operation *op,
                                              enum weft_other_blocks blocks)
{
    const struct weft_exchange *exchange = op->exchange;
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = 1 + weft_lane_idx(op->warp);
         i < exchange->num_members && status == WEFT_STATUS_OK; i += WEFT_WARP_SIZE) {
        const int32_t idx = weft_member_idx_after(exchange, i);
        const int32_t num_blocks = blocks == WEFT_BLOCKS_AS_HERE
                                       ? weft_num_blocks(op->warp)
                                       : weft_operation_num_blocks(op, weft_member(exchange, idx));
        status = weft_operation_await_member(op, idx, num_blocks);
    }
    return (enum weft_status)weft_max_u32(op->warp, (uint32_t)status);
}

/* Called by every warp last, instead of weft_operation_end, where ranks write into each other's
 * outputs or read each other's inputs. */
WEFT_FN enum weft_status weft_operation_finish(const struct weft_operation *op,
                                               enum weft_other_blocks blocks)
{
    enum weft_status status = WEFT_STATUS_OK;
    weft_block_sync(op->warp);
    if (weft_warp_idx(op->warp) == 0)
        weft_operation_signal(op);
    weft_operation_advance(op); /* while the signals are under way */
    if (weft_warp_idx(op->warp) == 0) {
        status = weft_operation_await(op, blocks);
        weft_operation_note(op, status);
    }
    return status;
}

#endif
