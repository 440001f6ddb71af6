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
 * What a warp has of all this is struct wp_operation, which every step of a program is given.
 */
#pragma once

#include <stddef.h>

#include "programs/block.h"
#include "programs/call.h"
#include "programs/parity.h"
#include "programs/window.h"

/* Arrays of the sender that the receiver of the message will access, as places (window.h). */
enum wp_message_array {
    WP_ARRAY_PLANE = 0, /* plane 0; the others follow */
    WP_ARRAY_TOPK_IDX = WEFT_MAX_PLANES,
    WP_ARRAY_TOPK_WEIGHTS,
    WP_ARRAY_SRC_TOKEN, /* place 0, where no array can be, if the rank does not want it */
    WP_NUM_MESSAGE_ARRAYS
};
/* The arrays of collectives. */
enum wp_collective_array { WP_ARRAY_INPUT = 0, WP_ARRAY_OUTPUT = 1 };

struct wp_message {
    struct wp_call call;
    int32_t capacity;   /* rows that the arrays hold */
    int32_t num_blocks; /* of the rank's launch */
    int32_t num_tokens;
    int32_t is_staged; /* the arrays hold slots of rounds (rounds.h) in place of rows */
    uint64_t arrays[WP_NUM_MESSAGE_ARRAYS];
};

struct wp_exchange_state {                   /* local to the rank, zero at first */
    int32_t num_units_taken[WP_NUM_BUFFERS]; /* share.h */
    int32_t num_failures;                    /* nonzero: some operation did not end */
    int32_t failed_sequence;                 /* of the first, in 32 bits */
    uint64_t block_sequences[]; /* [max_blocks] of the last operation that ended here */
};

struct wp_exchange {
    int32_t rank;
    int32_t num_ranks;
    int32_t num_members;    /* who exchange messages and signals: all ranks, or those of this rank's
                        node */
    int32_t most_members;   /* of any rank's exchange: mailboxes are laid out for as many */
    int32_t member_idx;     /* of this rank */
    const int32_t *members; /* [num_members] their ranks; NULL: all */
    const int32_t *member_idxs; /* [num_ranks] the way back; NULL: all */
    int32_t max_blocks;         /* of any launch, on any rank */
    struct wp_exchange_state *state;
    char *const
        *bases; /* [windows][num_ranks] where they are mapped here; the first row: the heaps */
    uint64_t mailbox_offset; /* in every heap, zero at first */
};

/* The i-th rank after the own one. */
WP_FN int32_t wp_rank_after(const struct wp_exchange *exchange, int32_t i)
{
    const int32_t rank = exchange->rank + i;
    return rank < exchange->num_ranks ? rank : rank - exchange->num_ranks;
}

WP_FN int32_t wp_member(const struct wp_exchange *exchange, int32_t idx)
{
    return exchange->members == NULL ? idx : exchange->members[idx];
}

/* The index of the i-th member after this rank. */
WP_FN int32_t wp_member_idx_after(const struct wp_exchange *exchange, int32_t i)
{
    const int32_t idx = exchange->member_idx + i;
    return idx < exchange->num_members ? idx : idx - exchange->num_members;
}

/* ------------------------------------------------------------------ layout */

#define WP_WORD_OF(type, member) ((int32_t)(offsetof(type, member) / sizeof(uint32_t)))

enum {
    WP_MESSAGE_WORDS = sizeof(struct wp_message) / sizeof(uint32_t),
    WP_MESSAGE_SLOT_BYTES = 256, /* as many or more than any machine needs */
    /* In memory of the block, behind the words of wp_block_max. */
    WP_MESSAGES_OFFSET = WP_BLOCK_WORDS_BYTES,
    WP_NUM_MESSAGES = 32 /* as a block has warps at most: weft.h */
};

WP_STATIC_ASSERT(WP_TAGGED_BYTES(WP_MESSAGE_WORDS) <= WP_MESSAGE_SLOT_BYTES,
                 "a message fits its slot");
WP_STATIC_ASSERT(WP_MESSAGES_OFFSET + WP_NUM_MESSAGES * sizeof(struct wp_message) <=
                     WP_BLOCK_SHARED_BYTES,
                 "they fit the memory of a block");

/* A multiple of a message's slot: what follows may be slots of packets, which are aligned on
 * every machine. */
WP_FN uint64_t wp_mailbox_bytes(int32_t num_members, int32_t max_blocks)
{
    const uint64_t finished_bytes = (uint64_t)num_members * (uint64_t)max_blocks * sizeof(uint64_t);
    const uint64_t num_slots = WP_NUM_BUFFERS * (uint64_t)num_members +
                               (finished_bytes + WP_MESSAGE_SLOT_BYTES - 1) / WP_MESSAGE_SLOT_BYTES;
    return num_slots * WP_MESSAGE_SLOT_BYTES;
}

/* In the mailbox of `owner`: the message of `writer`. */
WP_FN char *wp_mailbox_message(const struct wp_exchange *exchange, uint64_t sequence, int32_t owner,
                               int32_t writer)
{
    const int32_t idx = exchange->member_idxs == NULL ? writer : exchange->member_idxs[writer];
    const uint64_t slot = wp_parity(sequence) * (uint64_t)exchange->most_members + (uint64_t)idx;
    return exchange->bases[owner] + exchange->mailbox_offset + slot * WP_MESSAGE_SLOT_BYTES;
}

/* In the mailbox of `owner`: the last operation that block `block_idx` of a member has finished. */
WP_FN uint64_t *wp_mailbox_finished(const struct wp_exchange *exchange, int32_t owner,
                                    int32_t block_idx, int32_t writer_idx)
{
    char *words = exchange->bases[owner] + exchange->mailbox_offset +
                  WP_NUM_BUFFERS * (uint64_t)exchange->most_members * WP_MESSAGE_SLOT_BYTES;
    return (uint64_t *)(void *)words + (int64_t)block_idx * exchange->num_members + writer_idx;
}

/* ------------------------------------------------------------------ begin and end */

/* The operation that a warp runs. */
struct wp_operation {
    struct wp_warp *warp;
    const struct wp_exchange *exchange;
    const struct wp_message *message; /* what this rank says; NULL where packets say it */
    uint64_t sequence;                /* its number */
};

/* In place of a number: an operation before has failed. What it has left undone, others could
 * take for done. */
enum { WP_SEQUENCE_FAILED = 0 };

/* The first loads of a launch: the number of the last operation, and of the first that failed. */
struct wp_operation_loads {
    uint64_t last;
    int32_t failed;
};

/* On its way from here on. */
WP_FN struct wp_operation_loads wp_operation_load(struct wp_warp *warp,
                                                  const struct wp_exchange *exchange)
{
    const struct wp_operation_loads loads = {
        wp_load_now(&exchange->state->block_sequences[wp_block_idx(warp)]),
        wp_load_relaxed(&exchange->state->failed_sequence)};
    return loads;
}

WP_FN struct wp_operation wp_operation_of(struct wp_warp *warp, const struct wp_exchange *exchange,
                                          const struct wp_message *message,
                                          struct wp_operation_loads loads)
{
    const uint64_t sequence = loads.last + 1;
    /* A failure of this very operation does not count, so that all warps see the same. */
    const int is_sound = loads.failed == 0 || loads.failed == (int32_t)sequence;
    const struct wp_operation op = {warp, exchange, message,
                                    is_sound ? sequence : (uint64_t)WP_SEQUENCE_FAILED};
    return op;
}

/* Called by every warp first. If the number is WP_SEQUENCE_FAILED, the program fails without a
 * word. */
WP_FN struct wp_operation wp_operation_begin(struct wp_warp *warp,
                                             const struct wp_exchange *exchange,
                                             const struct wp_message *message)
{
    /* Both loads are under way together. */
    const struct wp_operation_loads loads = {exchange->state->block_sequences[wp_block_idx(warp)],
                                             wp_load_relaxed(&exchange->state->failed_sequence)};
    return wp_operation_of(warp, exchange, message, loads);
}

/* Warp-wide: how the operation ended here. */
WP_FN void wp_operation_note(const struct wp_operation *op, enum wp_status status)
{
    struct wp_exchange_state *state = op->exchange->state;
    if (status != WP_STATUS_OK && wp_lane_idx(op->warp) == 0 &&
        wp_add_relaxed(&state->num_failures, 1) == 0)
        wp_add_relaxed(&state->failed_sequence, (int32_t)op->sequence);
}

/* How many units of an operation's work have been taken (share.h). */
WP_FN int32_t *wp_units_taken(const struct wp_exchange *exchange, uint64_t sequence)
{
    return &exchange->state->num_units_taken[wp_parity(sequence)];
}

/* By every warp of the block, once all of them have read the number: writes it for the block,
 * and the block's share of those for blocks that did not run. By one warp it takes 0.13 us
 * longer on H200. */
WP_FN void wp_operation_advance(const struct wp_operation *op)
{
    struct wp_warp *warp = op->warp;
    const int32_t lane = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_blocks = wp_num_blocks(warp);
    for (int32_t i = wp_block_idx(warp) + lane * num_blocks; i < op->exchange->max_blocks;
         i += wp_num_warps(warp) * WP_WARP_SIZE * num_blocks)
        op->exchange->state->block_sequences[i] = op->sequence;
    if (wp_block_idx(warp) == 0 && lane == 0)
        *wp_units_taken(op->exchange, op->sequence + 1) = 0;
}

/* Called by every warp last, by operations that failed, or after which nobody touches another
 * rank's memory. */
WP_FN enum wp_status wp_operation_end(const struct wp_operation *op, enum wp_status status)
{
    wp_operation_note(op, status);
    wp_block_sync(op->warp);
    wp_admit_next(op->warp); /* the block waits for nothing more */
    wp_operation_advance(op);
    return status;
}

/* ------------------------------------------------------------------ start */

/* Where there are not too many ranks, the block keeps their messages, which is nearer than the
 * mailbox. */
WP_FN int wp_exchange_keeps(const struct wp_exchange *exchange)
{
    return exchange->num_ranks <= WP_NUM_MESSAGES;
}

/* The message of the rank, with addresses in place of places; where they are not kept, the one
 * that the warp has taken last. */
WP_FN struct wp_message *wp_operation_message(const struct wp_operation *op, int32_t rank)
{
    char *messages = (char *)wp_block_shared(op->warp) + WP_MESSAGES_OFFSET;
    return (struct wp_message *)(void *)messages +
           (wp_exchange_keeps(op->exchange) ? rank : wp_warp_idx(op->warp));
}

/* Where this operation waits for `rank`. */
WP_FN struct wp_wait_site wp_operation_site(const struct wp_operation *op, enum wp_phase phase,
                                            int32_t rank)
{
    const struct wp_wait_site site = {phase, rank, op->sequence, op->exchange->mailbox_offset, 0};
    return site;
}

/* Addresses in place of the places in a message of `rank`, whose heap begins at heap_base: most
 * places are there. */
WP_FN void wp_message_find_arrays(const struct wp_operation *op, int32_t rank,
                                  const char *heap_base, struct wp_message *taken)
{
    const struct wp_exchange *exchange = op->exchange;
    for (int32_t i = wp_lane_idx(op->warp); i < WP_NUM_MESSAGE_ARRAYS; i += WP_WARP_SIZE) {
        const uint64_t place = taken->arrays[i];
        const char *array =
            wp_place_is_in_heap(place)
                ? heap_base + place
                : wp_place_address(exchange->bases, exchange->num_ranks, rank, place);
        taken->arrays[i] = place == 0 ? 0 : (uint64_t)(uintptr_t)array;
    }
}

/* Warp-wide: waits for the message of `rank`; *mismatch tells what differs from what it should
 * be, if anything does. */
WP_FN enum wp_status wp_operation_receive(const struct wp_operation *op, int32_t rank,
                                          struct wp_failure *mismatch)
{
    const struct wp_exchange *exchange = op->exchange;
    const struct wp_wait_site site = wp_operation_site(op, WP_PHASE_START, rank);
    const struct wp_call *expected = &op->message->call;
    struct wp_message *taken = wp_operation_message(op, rank);
    const char *heap_base = exchange->bases[rank];
    if (!wp_exchange_keeps(exchange))
        wp_warp_sync(op->warp); /* the one before has been read */
    if (wp_tagged_take(op->warp, wp_mailbox_message(exchange, op->sequence, exchange->rank, rank),
                       taken, WP_MESSAGE_WORDS, &site) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    wp_warp_sync(op->warp); /* the lanes have taken parts of it, and acquired */
    const int32_t field = wp_call_difference(op->warp, expected, &taken->call);
    if (field < WP_NUM_CALL_FIELDS)
        *mismatch =
            wp_call_mismatch(site, field, expected->head.kind, wp_call_value(expected, field),
                             wp_call_value(&taken->call, field));
    wp_message_find_arrays(op, rank, heap_base, taken);
    return WP_STATUS_OK;
}

/* Which warp of a block tells how the start failed: one whose wait failed before any that has
 * found a mismatch, and of these the one that has the lowest rank's, so that it is always the
 * same. 0: nothing failed. */
WP_FN uint32_t wp_start_urgency(const struct wp_operation *op, enum wp_status status,
                                const struct wp_failure *mismatch)
{
    if (status != WP_STATUS_OK)
        return UINT32_MAX;
    if (mismatch->kind == WP_FAILURE_NONE)
        return 0;
    return (uint32_t)(op->exchange->num_ranks - mismatch->site.rank);
}

/* Called by every warp: the first block sends the rank's message. The ranks are shared among its
 * warps. */
WP_FN void wp_operation_send(const struct wp_operation *op)
{
    const struct wp_exchange *exchange = op->exchange;
    const int32_t num_members = exchange->num_members;
    if (wp_block_idx(op->warp) != 0)
        return;
    for (int32_t i = 1 + wp_warp_idx(op->warp); i <= num_members; i += wp_num_warps(op->warp)) {
        /* Not all to rank 0 first. */
        const int32_t rank = wp_member(exchange, wp_member_idx_after(exchange, i));
        wp_tagged_send(op->warp, rank,
                       wp_mailbox_message(exchange, op->sequence, rank, exchange->rank),
                       op->message, WP_MESSAGE_WORDS, op->sequence);
    }
}

/* Called by every warp. When it returns OK, all ranks have started the same call. */
WP_FN enum wp_status wp_operation_meet(const struct wp_operation *op)
{
    const struct wp_exchange *exchange = op->exchange;
    struct wp_failure mismatch = {WP_FAILURE_NONE, {WP_PHASE_START, 0, 0, 0, 0}, 0, 0, 0};
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_warp_idx(op->warp);
         i < exchange->num_members && status == WP_STATUS_OK && mismatch.kind == WP_FAILURE_NONE;
         i += wp_num_warps(op->warp))
        status = wp_operation_receive(op, wp_member(exchange, i), &mismatch);
    const uint32_t own = wp_start_urgency(op, status, &mismatch);
    const uint32_t most = wp_block_max(op->warp, own);
    if (most > 0 && own == most && status == WP_STATUS_OK)
        wp_fail(op->warp, &mismatch);
    return most == 0 ? WP_STATUS_OK : WP_STATUS_FAILED;
}

/* Word `word` of the message of `rank`, where the message is not kept. */
WP_FN uint32_t wp_operation_word(const struct wp_operation *op, int32_t rank, int32_t word)
{
    return wp_tagged_word(wp_mailbox_message(op->exchange, op->sequence, op->exchange->rank, rank),
                          word);
}

/* The following are valid after wp_operation_meet. */

WP_FN int32_t wp_operation_capacity(const struct wp_operation *op, int32_t rank)
{
    if (wp_exchange_keeps(op->exchange))
        return wp_operation_message(op, rank)->capacity;
    return (int32_t)wp_operation_word(op, rank, WP_WORD_OF(struct wp_message, capacity));
}

/* How many blocks the launch of `rank` has. */
WP_FN int32_t wp_operation_num_blocks(const struct wp_operation *op, int32_t rank)
{
    if (wp_exchange_keeps(op->exchange))
        return wp_operation_message(op, rank)->num_blocks;
    return (int32_t)wp_operation_word(op, rank, WP_WORD_OF(struct wp_message, num_blocks));
}

WP_FN int32_t wp_operation_num_tokens(const struct wp_operation *op, int32_t rank)
{
    if (wp_exchange_keeps(op->exchange))
        return wp_operation_message(op, rank)->num_tokens;
    return (int32_t)wp_operation_word(op, rank, WP_WORD_OF(struct wp_message, num_tokens));
}

WP_FN int32_t wp_operation_is_staged(const struct wp_operation *op, int32_t rank)
{
    if (wp_exchange_keeps(op->exchange))
        return wp_operation_message(op, rank)->is_staged;
    return (int32_t)wp_operation_word(op, rank, WP_WORD_OF(struct wp_message, is_staged));
}

/* Array `array` of `rank`; NULL if it has none. */
WP_FN char *wp_operation_array(const struct wp_operation *op, int32_t rank, int array)
{
    if (wp_exchange_keeps(op->exchange))
        return (char *)(uintptr_t)wp_operation_message(op, rank)->arrays[array];
    const int32_t word = WP_WORD_OF(struct wp_message, arrays) + 2 * array;
    const uint64_t place =
        (uint64_t)wp_operation_word(op, rank, word + 1) << 32 | wp_operation_word(op, rank, word);
    return place != 0 ? wp_place_address(op->exchange->bases, op->exchange->num_ranks, rank, place)
                      : NULL;
}

/* ------------------------------------------------------------------ finish */

/* Warp-wide: tells all others that this block has done its part. */
WP_FN void wp_operation_signal(const struct wp_operation *op)
{
    const struct wp_exchange *exchange = op->exchange;
    for (int32_t i = 1 + wp_lane_idx(op->warp); i < exchange->num_members; i += WP_WARP_SIZE) {
        const int32_t rank = wp_member(exchange, wp_member_idx_after(exchange, i));
        wp_signal(op->warp, rank,
                  wp_mailbox_finished(exchange, rank, wp_block_idx(op->warp), exchange->member_idx),
                  op->sequence);
    }
}

/* How many blocks another rank's launch has. */
enum wp_other_blocks { WP_BLOCKS_AS_TOLD /* in its message */, WP_BLOCKS_AS_HERE };

/* Waits for those of a member's blocks that are this block's to wait for. */
WP_FN enum wp_status wp_operation_await_member(const struct wp_operation *op, int32_t idx,
                                               int32_t num_blocks)
{
    const struct wp_exchange *exchange = op->exchange;
    const struct wp_wait_site site =
        wp_operation_site(op, WP_PHASE_FINISH, wp_member(exchange, idx));
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = wp_block_idx(op->warp); i < num_blocks && status == WP_STATUS_OK;
         i += wp_num_blocks(op->warp))
        status = wp_wait(op->warp, wp_mailbox_finished(exchange, exchange->rank, i, idx),
                         op->sequence, &site);
    return status;
}

/* Warp-wide: waits for this block's share of all others' blocks. */
WP_FN enum wp_status wp_operation_await(const struct wp_operation *op, enum wp_other_blocks blocks)
{
    const struct wp_exchange *exchange = op->exchange;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = 1 + wp_lane_idx(op->warp); i < exchange->num_members && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const int32_t idx = wp_member_idx_after(exchange, i);
        const int32_t num_blocks = blocks == WP_BLOCKS_AS_HERE
                                       ? wp_num_blocks(op->warp)
                                       : wp_operation_num_blocks(op, wp_member(exchange, idx));
        status = wp_operation_await_member(op, idx, num_blocks);
    }
    return (enum wp_status)wp_max_u32(op->warp, (uint32_t)status);
}

/* Called by every warp last, instead of wp_operation_end, where ranks write into each other's
 * outputs or read each other's inputs. */
WP_FN enum wp_status wp_operation_finish(const struct wp_operation *op, enum wp_other_blocks blocks)
{
    enum wp_status status = WP_STATUS_OK;
    wp_block_sync(op->warp);
    if (wp_warp_idx(op->warp) == 0)
        wp_operation_signal(op);
    wp_operation_advance(op); /* while the signals are under way */
    if (wp_warp_idx(op->warp) == 0) {
        status = wp_operation_await(op, blocks);
        wp_operation_note(op, status);
    }
    return status;
}
