/* SPDX-License-Identifier: MIT */
/*
 * How the ranks start and finish an operation together.
 *
 * The operations of one exchange are numbered by `sequence`, which lives in device memory and is
 * advanced by the programs themselves, so that a captured launch can be replayed. Each rank has a
 * mailbox in its heap, and every other rank a line of its own in it:
 *
 *     started[r]    sequence of the last operation that rank r started
 *     finished[r]   sequence of the last operation whose part rank r finished
 *     messages[sequence % 2][r]   what rank r said when it started
 *
 * start:  every rank writes its message to all, then signals started. Whoever has seen `started`
 *         from rank r knows that r's stream has reached the operation: r's outputs may be written,
 *         r's inputs read, at the places that its message tells. Since everybody sees every message,
 *         ranks whose calls do not fit together find out before anything is moved.
 * finish: the last block of a rank to be done signals finished to all and waits for all of them.
 *
 * Two messages per rank suffice: r starts operation n + 2 only after it has seen every rank start
 * n + 1, and a rank starts n + 1 only when its launch for n, the only reader of the messages of n,
 * has ended.
 */
#ifndef WEFT_PROGRAMS_EXCHANGE_H
#define WEFT_PROGRAMS_EXCHANGE_H

#include <string.h>

#include "programs/block.h"

/* What all ranks must agree on. Names for messages: ops/failure.c. */
enum weft_call_field {
    WEFT_CALL_PROGRAM = 0, /* enum weft_program */
    WEFT_CALL_NUM_TOPK,
    WEFT_CALL_DTYPE,
    WEFT_CALL_OPTIONS, /* bits of enum weft_call_option */
    WEFT_CALL_NUM_PLANES,
    WEFT_CALL_ROW_BYTES, /* of plane 0; those of the others follow */
    WEFT_NUM_CALL_FIELDS = WEFT_CALL_ROW_BYTES + WEFT_MAX_PLANES
};

enum weft_call_option {
    WEFT_OPTION_TOPK_IDX = 1,
    WEFT_OPTION_TOPK_WEIGHTS = 2,
    WEFT_OPTION_INT64 = 4,
    /* The rank neither sends nor holds rows: whatever options the others use suit it. */
    WEFT_OPTION_NO_ROWS = 8
};

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
    uint32_t call[WEFT_NUM_CALL_FIELDS];
    int32_t capacity; /* rows that the arrays hold */
    uint64_t array_offsets[WEFT_NUM_MESSAGE_ARRAYS];
};

struct weft_exchange_state { /* local to the rank, zero at first */
    uint64_t sequence;       /* of the last operation that ended here */
    uint32_t num_blocks_done;
    int32_t num_units_taken; /* share.h */
    int32_t num_failures;    /* nonzero: some operation did not end */
    int32_t failed_sequence; /* of the first, in 32 bits */
};

struct weft_exchange {
    int32_t rank;
    int32_t num_ranks;
    struct weft_exchange_state *state;
    char *const
        *bases; /* [windows][num_ranks] where they are mapped here; the first row: the heaps */
    uint64_t mailbox_offset; /* in every heap, zero at first */
};

/* A line per writer, so that ranks do not share cache lines. */
enum { WEFT_MAILBOX_LINE_BYTES = 64, WEFT_MESSAGE_BYTES = 192 };

#ifdef __cplusplus
static_assert(sizeof(struct weft_message) <= WEFT_MESSAGE_BYTES, "a message fits its slot");
static_assert(sizeof(struct weft_message) % sizeof(uint64_t) == 0, "a message is made of words");
#else
_Static_assert(sizeof(struct weft_message) <= WEFT_MESSAGE_BYTES, "a message fits its slot");
_Static_assert(sizeof(struct weft_message) % sizeof(uint64_t) == 0, "a message is made of words");
#endif

/* The mailbox's layout; num_ranks gives one past its end. */
enum weft_mailbox_part { WEFT_MAILBOX_STARTED, WEFT_MAILBOX_FINISHED, WEFT_MAILBOX_MESSAGES };

WEFT_FN uint64_t weft_mailbox_part_offset(int32_t num_ranks, enum weft_mailbox_part part)
{
    return (uint64_t)part * (uint64_t)num_ranks * WEFT_MAILBOX_LINE_BYTES;
}

WEFT_FN uint64_t weft_mailbox_bytes(int32_t num_ranks)
{
    return weft_mailbox_part_offset(num_ranks, WEFT_MAILBOX_MESSAGES) +
           2 * (uint64_t)num_ranks * WEFT_MESSAGE_BYTES;
}

/* In the mailbox of `owner`, the line that `writer` writes. */
WEFT_FN uint64_t *weft_mailbox_word(const struct weft_exchange *exchange,
                                    enum weft_mailbox_part part, int32_t owner, int32_t writer)
{
    char *mailbox = exchange->bases[owner] + exchange->mailbox_offset;
    return (uint64_t *)(void *)(mailbox + weft_mailbox_part_offset(exchange->num_ranks, part) +
                                (uint64_t)writer * WEFT_MAILBOX_LINE_BYTES);
}

WEFT_FN struct weft_message *weft_mailbox_message(const struct weft_exchange *exchange,
                                                  uint64_t sequence, int32_t owner, int32_t writer)
{
    char *mailbox = exchange->bases[owner] + exchange->mailbox_offset;
    const uint64_t slot = (sequence % 2) * (uint64_t)exchange->num_ranks + (uint64_t)writer;
    return (struct weft_message *)(void *)(mailbox +
                                           weft_mailbox_part_offset(exchange->num_ranks,
                                                                    WEFT_MAILBOX_MESSAGES) +
                                           slot * WEFT_MESSAGE_BYTES);
}

/* The number of the operation that is running. Stable until the last block ends it. */
WEFT_FN uint64_t weft_exchange_sequence(const struct weft_exchange *exchange)
{
    return exchange->state->sequence + 1;
}

/* What rank `writer` said; valid after weft_exchange_start. */
WEFT_FN const struct weft_message *weft_exchange_message(const struct weft_exchange *exchange,
                                                         int32_t writer)
{
    return weft_mailbox_message(exchange, weft_exchange_sequence(exchange), exchange->rank, writer);
}

/* Array `array` in the heap of `rank`, as it told in its message. */
WEFT_FN char *weft_exchange_array(const struct weft_exchange *exchange, int32_t rank, int array)
{
    return exchange->bases[rank] + weft_exchange_message(exchange, rank)->array_offsets[array];
}

/* Word by word, so that on GPUs the lanes together store whole lines. */
WEFT_FN void weft_exchange_send_message(struct weft_warp *warp,
                                        const struct weft_exchange *exchange, uint64_t sequence,
                                        const struct weft_message *message)
{
    enum { WORDS = sizeof(struct weft_message) / sizeof(uint64_t) };
    for (int32_t i = weft_lane_idx(warp); i < exchange->num_ranks * WORDS; i += WEFT_WARP_SIZE) {
        const uint64_t offset = (uint64_t)(i % WORDS) * sizeof(uint64_t);
        char *target =
            (char *)weft_mailbox_message(exchange, sequence, i / WORDS, exchange->rank) + offset;
        memcpy(target, (const char *)message + offset, sizeof(uint64_t));
    }
}

WEFT_FN void weft_exchange_announce(struct weft_warp *warp, const struct weft_exchange *exchange,
                                    const struct weft_message *message)
{
    const uint64_t sequence = weft_exchange_sequence(exchange);
    weft_exchange_send_message(warp, exchange, sequence, message);
    weft_warp_sync(warp);
    for (int32_t i = weft_lane_idx(warp); i < exchange->num_ranks; i += WEFT_WARP_SIZE) {
        /* Starting with the next rank spreads the load: not everybody signals rank 0 first. */
        const int32_t rank = (exchange->rank + 1 + i) % exchange->num_ranks;
        weft_signal(warp, rank,
                    weft_mailbox_word(exchange, WEFT_MAILBOX_STARTED, rank, exchange->rank),
                    sequence);
    }
}

WEFT_FN int weft_calls_fit(const uint32_t *ours, const uint32_t *theirs, uint32_t field)
{
    if (field == WEFT_CALL_OPTIONS && ((ours[field] | theirs[field]) & WEFT_OPTION_NO_ROWS))
        return 1;
    return ours[field] == theirs[field];
}

/* The first field in which the calls differ, or WEFT_NUM_CALL_FIELDS. All fields are looked at, so that
 * they are loaded together. */
WEFT_FN uint32_t weft_first_difference(const uint32_t *ours, const uint32_t *theirs)
{
    uint32_t first = WEFT_NUM_CALL_FIELDS;
    for (uint32_t field = WEFT_NUM_CALL_FIELDS; field-- > 0;)
        first = weft_calls_fit(ours, theirs, field) ? first : field;
    return first;
}

WEFT_FN enum weft_status weft_exchange_compare(struct weft_warp *warp,
                                               const struct weft_exchange *exchange, int32_t rank,
                                               const struct weft_message *message)
{
    const struct weft_message *theirs = weft_exchange_message(exchange, rank);
    const uint32_t field = weft_first_difference(message->call, theirs->call);
    if (field == WEFT_NUM_CALL_FIELDS)
        return WEFT_STATUS_OK;
    struct weft_failure failure = {
        WEFT_FAILURE_MISMATCH,
        {WEFT_PHASE_START, rank, weft_exchange_sequence(exchange), exchange->mailbox_offset},
        field,
        message->call[field],
        theirs->call[field]};
    return weft_fail(warp, &failure);
}

/* Warp-wide: waits until every rank has set its word in `part` of this rank's mailbox. */
WEFT_FN enum weft_status weft_exchange_await(struct weft_warp *warp,
                                             const struct weft_exchange *exchange,
                                             enum weft_mailbox_part part, enum weft_phase phase)
{
    const uint64_t sequence = weft_exchange_sequence(exchange);
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t rank = weft_lane_idx(warp); rank < exchange->num_ranks && status == WEFT_STATUS_OK;
         rank += WEFT_WARP_SIZE) {
        const struct weft_wait_site site = {phase, rank, sequence, exchange->mailbox_offset};
        status = weft_wait(warp, weft_mailbox_word(exchange, part, exchange->rank, rank), sequence,
                           &site);
    }
    return (enum weft_status)weft_max_u32(warp, (uint32_t)status);
}

/* Warp-wide. What an operation that failed has left undone, others could take for done, since the next
 * would have its number: so there is no next. */
WEFT_FN enum weft_status weft_exchange_check(struct weft_warp *warp,
                                             const struct weft_exchange *exchange)
{
    uint32_t num_failures = 0;
    if (weft_lane_idx(warp) == 0)
        num_failures = (uint32_t)weft_load_relaxed(&exchange->state->num_failures);
    return weft_max_u32(warp, num_failures) == 0 ? WEFT_STATUS_OK : WEFT_STATUS_FAILED;
}

/* Warp-wide: how the operation with this number ended here. */
WEFT_FN void weft_exchange_note(struct weft_warp *warp, const struct weft_exchange *exchange,
                                uint64_t sequence, enum weft_status status)
{
    if (status != WEFT_STATUS_OK && weft_lane_idx(warp) == 0 &&
        weft_add_relaxed(&exchange->state->num_failures, 1) == 0)
        weft_add_relaxed(&exchange->state->failed_sequence, (int32_t)sequence);
}

/* Called by every warp first. When it returns OK, all ranks have started the same call and their
 * messages can be read. What the warps of block 0 wrote to peers before is visible there then. */
WEFT_FN enum weft_status weft_exchange_start(struct weft_warp *warp,
                                             const struct weft_exchange *exchange,
                                             const struct weft_message *message)
{
    enum weft_status status = WEFT_STATUS_OK;
    weft_block_sync(warp);
    if (weft_warp_idx(warp) == 0) {
        status = weft_exchange_check(warp, exchange);
        if (weft_block_idx(warp) == 0 && status == WEFT_STATUS_OK)
            weft_exchange_announce(warp, exchange, message);
        if (status == WEFT_STATUS_OK)
            status = weft_exchange_await(warp, exchange, WEFT_MAILBOX_STARTED, WEFT_PHASE_START);
        for (int32_t rank = weft_lane_idx(warp);
             rank < exchange->num_ranks && status == WEFT_STATUS_OK; rank += WEFT_WARP_SIZE)
            status = weft_exchange_compare(warp, exchange, rank, message);
        status = (enum weft_status)weft_max_u32(warp, (uint32_t)status);
        weft_exchange_note(warp, exchange, weft_exchange_sequence(exchange), status);
    }
    return (enum weft_status)weft_block_broadcast(warp, (uint32_t)status);
}

/* The next launch on this exchange is ordered after this one by its stream. */
WEFT_FN void weft_exchange_advance(struct weft_warp *warp, const struct weft_exchange *exchange)
{
    if (weft_warp_idx(warp) == 0 && weft_lane_idx(warp) == 0) {
        exchange->state->sequence++;
        exchange->state->num_units_taken = 0;
    }
}

/* Called by every warp last, by operations after which nobody touches another rank's memory. */
WEFT_FN enum weft_status weft_exchange_end(struct weft_warp *warp,
                                           const struct weft_exchange *exchange)
{
    if (weft_is_last_block(warp, &exchange->state->num_blocks_done))
        weft_exchange_advance(warp, exchange);
    return WEFT_STATUS_OK;
}

/* Called by every warp last, instead of weft_exchange_end, where ranks write into each other's
 * outputs or read each other's inputs: when it returns OK, all of them are done with this rank's
 * memory and what they wrote is visible. */
WEFT_FN enum weft_status weft_exchange_finish(struct weft_warp *warp,
                                              const struct weft_exchange *exchange)
{
    if (!weft_is_last_block(warp, &exchange->state->num_blocks_done))
        return WEFT_STATUS_OK;
    enum weft_status status = WEFT_STATUS_OK;
    if (weft_warp_idx(warp) == 0) {
        const uint64_t sequence = weft_exchange_sequence(exchange);
        for (int32_t i = weft_lane_idx(warp); i < exchange->num_ranks; i += WEFT_WARP_SIZE) {
            const int32_t rank = (exchange->rank + 1 + i) % exchange->num_ranks;
            weft_signal(warp, rank,
                        weft_mailbox_word(exchange, WEFT_MAILBOX_FINISHED, rank, exchange->rank),
                        sequence);
        }
        status = weft_exchange_await(warp, exchange, WEFT_MAILBOX_FINISHED, WEFT_PHASE_FINISH);
        weft_exchange_note(warp, exchange, sequence, status);
    }
    status = (enum weft_status)weft_block_broadcast(warp, (uint32_t)status);
    if (status == WEFT_STATUS_OK)
        weft_exchange_advance(warp, exchange);
    return status;
}

#endif
