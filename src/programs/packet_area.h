/* SPDX-License-Identifier: MIT */
/*
 * How collectives use packets (machine/packets.h).
 *
 * Each rank has an area in its heap: two buffers of slots, used in turn, and the escape words of each.
 * In a buffer every rank has a header's slots, then a region of its own for what it sends:
 *
 *     [headers of all ranks][region of rank 0][region of rank 1]...
 *
 * In every operation, every rank sends every other a header, which tells its call, beside its data, and
 * takes all headers and data that it is sent. Two buffers suffice: a rank sends in operation n + 2 into
 * the slots of operation n only after its launch of n + 1 has taken the peer's header; the peer sent
 * that after its launch of n had ended, hence after it had emptied the slots of n.
 *
 * The number of the operation is in memory of the device, and told to each block by a ticket, so that a
 * captured launch can be replayed.
 */
#ifndef WEFT_PROGRAMS_PACKET_AREA_H
#define WEFT_PROGRAMS_PACKET_AREA_H

#include "programs/exchange.h"

/* What a rank says of its call to one other. */
struct weft_call_header {
    uint8_t program; /* enum weft_program */
    uint8_t collective;
    uint8_t dtype;
    uint8_t op;
    uint32_t root;
    uint64_t num_bytes; /* that go from the one rank to the other */
};

/* The fields of a message (exchange.h) that say the same, and more. */
enum weft_collective_field {
    WEFT_CALL_PIECES =
        WEFT_CALL_ROW_BYTES, /* whether this is one of several pieces, which are staged */
    WEFT_CALL_BYTES_LOW,
    WEFT_CALL_BYTES_HIGH,
    WEFT_CALL_COLLECTIVE,
    WEFT_CALL_OP,
    WEFT_CALL_ROOT
};

struct weft_packet_area {
    struct weft_exchange exchange; /* for its state, and its name in reports */
    uint64_t region_bytes;         /* a multiple of 2 * WEFT_PACKET_BYTES */
    char *areas[WEFT_COLL_MAX_RANKS];
};

enum { WEFT_HEADER_SLOTS = sizeof(struct weft_call_header) / WEFT_PACKET_BYTES };

/* ------------------------------------------------------------------ layout */

WEFT_FN uint64_t weft_packet_buffer_bytes(int32_t num_ranks, uint64_t region_bytes)
{
    return (uint64_t)num_ranks * (sizeof(struct weft_call_header) + region_bytes);
}

WEFT_FN uint64_t weft_packet_escapes_bytes(int32_t num_ranks, uint64_t region_bytes)
{
    return weft_packet_buffer_bytes(num_ranks, region_bytes) / WEFT_PACKET_BYTES * sizeof(uint64_t);
}

WEFT_FN uint64_t weft_packet_area_bytes(int32_t num_ranks, uint64_t region_bytes)
{
    return 2 * (weft_packet_buffer_bytes(num_ranks, region_bytes) +
                weft_packet_escapes_bytes(num_ranks, region_bytes));
}

WEFT_FN uint64_t weft_header_slot(int32_t rank)
{
    return (uint64_t)rank * WEFT_HEADER_SLOTS;
}

WEFT_FN uint64_t weft_region_slots(const struct weft_packet_area *area)
{
    return area->region_bytes / WEFT_PACKET_BYTES;
}

/* Where what `rank` sends begins. */
WEFT_FN uint64_t weft_region_slot(const struct weft_packet_area *area, int32_t rank)
{
    return weft_header_slot(area->exchange.num_ranks) + (uint64_t)rank * weft_region_slots(area);
}

/* ------------------------------------------------------------------ begin and end */

enum { WEFT_TICKETS_PER_OPERATION = 1 << 16 };

/* Lane 0 of warp 0 of each of num_takers blocks calls this once per operation, whose number it returns.
 * The last one turns to the next operation's tickets. Relaxed: it is one word, and launches are ordered. */
WEFT_FN uint64_t weft_take_ticket(uint64_t *num_tickets, int32_t num_takers)
{
    const uint64_t ticket = weft_add_relaxed_u64(num_tickets, 1);
    if (ticket % WEFT_TICKETS_PER_OPERATION + 1 == (uint64_t)num_takers)
        weft_add_relaxed_u64(num_tickets, WEFT_TICKETS_PER_OPERATION - (uint64_t)num_takers);
    return ticket / WEFT_TICKETS_PER_OPERATION + 1;
}

WEFT_FN struct weft_packets weft_packets_of(const struct weft_packet_area *area, uint64_t sequence)
{
    const int32_t num_ranks = area->exchange.num_ranks;
    const uint64_t buffer_bytes = weft_packet_buffer_bytes(num_ranks, area->region_bytes);
    const uint64_t escapes_bytes = weft_packet_escapes_bytes(num_ranks, area->region_bytes);
    const struct weft_packets packets = {area->exchange.rank,
                                         num_ranks,
                                         area->areas,
                                         sequence % 2 * buffer_bytes,
                                         2 * buffer_bytes + sequence % 2 * escapes_bytes,
                                         sequence,
                                         area->exchange.mailbox_offset};
    return packets;
}

/* Called by every warp first. Fails if an operation before has failed: its packets may still come. */
WEFT_FN enum weft_status weft_packets_begin(struct weft_warp *warp,
                                            const struct weft_packet_area *area,
                                            struct weft_packets *packets)
{
    enum { FAILED = 0 }; /* no operation has that number */
    struct weft_exchange_state *state = area->exchange.state;
    uint64_t *shared = (uint64_t *)weft_block_shared(warp);
    if (weft_warp_idx(warp) == 0 && weft_lane_idx(warp) == 0) {
        const int32_t num_failures = weft_add_relaxed(&state->num_failures, 0);
        const uint64_t sequence = weft_take_ticket(&state->num_tickets, weft_num_blocks(warp));
        *shared = num_failures == 0 ? sequence : FAILED;
    }
    weft_block_sync(warp);
    *packets = weft_packets_of(area, *shared);
    return packets->sequence != FAILED ? WEFT_STATUS_OK : WEFT_STATUS_FAILED;
}

WEFT_FN enum weft_status weft_packets_end(struct weft_warp *warp,
                                          const struct weft_packet_area *area,
                                          enum weft_status status)
{
    weft_exchange_note(warp, &area->exchange, status);
    return status;
}

/* ------------------------------------------------------------------ headers */

/* The ranks whose headers a warp sends and takes. */
struct weft_header_duty {
    int32_t first_rank;
    int32_t rank_step;
};

/* In block 0, the ranks are shared among its warps, from the last one on, which have the least data. */
WEFT_FN struct weft_header_duty weft_header_duty(struct weft_warp *warp)
{
    const struct weft_header_duty duty = {weft_block_idx(warp) == 0
                                              ? weft_num_warps(warp) - 1 - weft_warp_idx(warp)
                                              : WEFT_COLL_MAX_RANKS,
                                          weft_num_warps(warp)};
    return duty;
}

/* Behind the word of weft_packets_begin: of each rank, the header that goes there and the one that
 * comes. */
WEFT_FN struct weft_call_header *weft_shared_headers(struct weft_warp *warp, int32_t rank)
{
    return (struct weft_call_header *)weft_block_shared(warp) + 1 + 2 * rank;
}

WEFT_FN void weft_header_send(struct weft_warp *warp, const struct weft_packets *packets,
                              int32_t rank, struct weft_call_header header)
{
    const struct weft_packet_targets to = {rank, rank + 1, weft_header_slot(packets->rank)};
    struct weft_call_header *shared = weft_shared_headers(warp, rank);
    if (weft_lane_idx(warp) == 0)
        *shared = header;
    weft_warp_sync(warp);
    weft_packets_send(warp, packets, to, shared, sizeof header);
}

/* The first field in which what a rank said differs from what it should have said, with both values. */
WEFT_FN struct weft_failure weft_header_difference(const struct weft_call_header *expected,
                                                   const struct weft_call_header *theirs)
{
    struct weft_failure failure = {WEFT_FAILURE_MISMATCH, {WEFT_PHASE_START, 0, 0, 0}, 0, 0, 0};
#define COMPARE(call_field, member)                                                                \
    if (failure.expected == failure.seen) {                                                        \
        failure.field = (call_field);                                                              \
        failure.expected = expected->member;                                                       \
        failure.seen = theirs->member;                                                             \
    }
    COMPARE(WEFT_CALL_PROGRAM, program)
    COMPARE(WEFT_CALL_COLLECTIVE, collective)
    COMPARE(WEFT_CALL_DTYPE, dtype)
    COMPARE(WEFT_CALL_OP, op)
    COMPARE(WEFT_CALL_ROOT, root)
    COMPARE(WEFT_CALL_NUM_BYTES, num_bytes)
#undef COMPARE
    return failure;
}

/* Waits for what `rank` says of its call, and compares it with what it should be. */
WEFT_FN enum weft_status weft_header_check(struct weft_warp *warp,
                                           const struct weft_packets *packets, int32_t rank,
                                           struct weft_call_header expected)
{
    struct weft_call_header *shared = weft_shared_headers(warp, rank) + 1;
    const enum weft_status status =
        weft_packets_receive(warp, packets, rank, weft_header_slot(rank), shared, sizeof *shared);
    weft_warp_sync(warp);
    if (status != WEFT_STATUS_OK)
        return status;
    struct weft_failure failure = weft_header_difference(&expected, shared);
    if (failure.expected == failure.seen)
        return WEFT_STATUS_OK;
    failure.site.rank = rank;
    failure.site.sequence = packets->sequence;
    failure.site.exchange = packets->exchange;
    return weft_fail(warp, &failure);
}

/* The same header for all. */
WEFT_FN void weft_headers_send(struct weft_warp *warp, const struct weft_packets *packets,
                               struct weft_header_duty duty, struct weft_call_header header)
{
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step) {
        if (rank != packets->rank)
            weft_header_send(warp, packets, rank, header);
    }
}

WEFT_FN enum weft_status weft_headers_check(struct weft_warp *warp,
                                            const struct weft_packets *packets,
                                            struct weft_header_duty duty,
                                            struct weft_call_header expected)
{
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks && status == WEFT_STATUS_OK;
         rank += duty.rank_step) {
        if (rank != packets->rank)
            status = weft_header_check(warp, packets, rank, expected);
    }
    return status;
}

/* ------------------------------------------------------------------ shares of a row */

struct weft_row_span {
    uint64_t begin;
    uint64_t bytes;
};

/* Share `idx` of `num_shares` of a row: whole packets for every lane, and for all but the last. */
WEFT_FN struct weft_row_span weft_share_row(uint64_t row_bytes, int32_t idx, int32_t num_shares)
{
    enum { STEP_BYTES = WEFT_WARP_SIZE * WEFT_PACKET_BYTES };
    const uint64_t num_steps = (row_bytes + STEP_BYTES - 1) / STEP_BYTES;
    const uint64_t share_bytes =
        (num_steps + (uint64_t)num_shares - 1) / (uint64_t)num_shares * STEP_BYTES;
    const uint64_t begin = (uint64_t)idx * share_bytes;
    const uint64_t rest = begin < row_bytes ? row_bytes - begin : 0;
    const struct weft_row_span span = {begin, rest < share_bytes ? rest : share_bytes};
    return span;
}

/* This warp's share of a row that all warps of the launch share. */
WEFT_FN struct weft_row_span weft_warp_share(struct weft_warp *warp, uint64_t row_bytes)
{
    /* One warp of each block before a second of any. */
    const int32_t idx = weft_warp_idx(warp) * weft_num_blocks(warp) + weft_block_idx(warp);
    return weft_share_row(row_bytes, idx, weft_num_blocks(warp) * weft_num_warps(warp));
}

#endif
