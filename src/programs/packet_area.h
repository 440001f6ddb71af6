/* SPDX-License-Identifier: MIT */
/*
 * How collectives use packets (machine/packets.h).
 *
 * Each rank has an area in its heap: two buffers of slots, used in turn, and the escape words of each.
 * In a buffer every rank has a header's slots for every block, then a region of its own for what it sends:
 *
 *     [headers of all ranks to block 0][to block 1]...[region of rank 0][region of rank 1]...
 *
 * In every operation, every rank sends every other a header, which tells its call, beside its data, and
 * takes all headers and data that it is sent. So the buffers are the halves of parity.h: slots that are
 * sent to were emptied.
 */
#ifndef WEFT_PROGRAMS_PACKET_AREA_H
#define WEFT_PROGRAMS_PACKET_AREA_H

#include "programs/exchange.h"
#include "programs/share.h"

/* What a rank says to one other in an operation. */
struct weft_call_header {
    struct weft_call_head call;
    uint64_t input;  /* places (window.h): what the other may read, */
    uint64_t output; /* and where it shall write */
};

struct weft_packet_area {
    struct weft_exchange exchange; /* its name is in reports */
    uint64_t region_bytes;         /* a multiple of 2 * WEFT_PACKET_BYTES */
    char *areas[WEFT_COLL_MAX_RANKS];
};

/* What goes between this rank and each other: parts of its input and output. */
struct weft_exchanged_rows {
    struct weft_span sent[WEFT_COLL_MAX_RANKS];
    struct weft_span received[WEFT_COLL_MAX_RANKS];
};

enum { WEFT_HEADER_SLOTS = sizeof(struct weft_call_header) / WEFT_PACKET_BYTES };

/* ------------------------------------------------------------------ layout */

WEFT_FN uint64_t weft_packet_buffer_bytes(const struct weft_packet_area *area)
{
    return (uint64_t)area->exchange.num_ranks *
           ((uint64_t)area->exchange.max_blocks * sizeof(struct weft_call_header) +
            area->region_bytes);
}

WEFT_FN uint64_t weft_packet_escapes_bytes(const struct weft_packet_area *area)
{
    return weft_packet_buffer_bytes(area) / WEFT_PACKET_BYTES * sizeof(uint64_t);
}

/* Two buffers, then their escape words: as much or more than any machine needs, on the host. */
WEFT_FN uint64_t weft_packet_area_bytes(const struct weft_packet_area *area)
{
    return WEFT_NUM_HALVES * (weft_packet_buffer_bytes(area) + weft_packet_escapes_bytes(area));
}

/* Where `rank` sends its header to block `block_idx`. */
WEFT_FN uint64_t weft_header_slot(int32_t num_ranks, int32_t block_idx, int32_t rank)
{
    return (uint64_t)(block_idx * num_ranks + rank) * WEFT_HEADER_SLOTS;
}

WEFT_FN uint64_t weft_region_slots(const struct weft_packet_area *area)
{
    return area->region_bytes / WEFT_PACKET_BYTES;
}

/* Where what `rank` sends begins. */
WEFT_FN uint64_t weft_region_slot(const struct weft_packet_area *area, int32_t rank)
{
    return weft_header_slot(area->exchange.num_ranks, area->exchange.max_blocks, 0) +
           (uint64_t)rank * weft_region_slots(area);
}

/* ------------------------------------------------------------------ begin and end */

WEFT_FN struct weft_packets weft_packets_of(const struct weft_packet_area *area, uint64_t sequence)
{
    const int32_t num_ranks = area->exchange.num_ranks;
    const uint64_t half = weft_half(sequence);
    const uint64_t buffer_bytes = weft_packet_buffer_bytes(area);
    const uint64_t escapes_bytes = weft_packet_escapes_bytes(area);
    const struct weft_packets packets = {area->exchange.rank,
                                         num_ranks,
                                         area->areas,
                                         half * buffer_bytes,
                                         WEFT_NUM_HALVES * buffer_bytes + half * escapes_bytes,
                                         sequence,
                                         area->exchange.mailbox_offset};
    return packets;
}

/* As weft_operation_begin. */
WEFT_FN struct weft_packets weft_packets_begin(struct weft_warp *warp,
                                               const struct weft_packet_area *area)
{
    return weft_packets_of(area, weft_operation_begin(warp, &area->exchange, NULL).sequence);
}

/* The operation that the packets are of. */
WEFT_FN struct weft_operation weft_packets_operation(struct weft_warp *warp,
                                                     const struct weft_packet_area *area,
                                                     const struct weft_packets *packets)
{
    const struct weft_operation op = {warp, &area->exchange, NULL, packets->sequence};
    return op;
}

/* As weft_operation_end. */
WEFT_FN enum weft_status weft_packets_end(struct weft_warp *warp,
                                          const struct weft_packet_area *area,
                                          const struct weft_packets *packets,
                                          enum weft_status status)
{
    const struct weft_operation op = weft_packets_operation(warp, area, packets);
    return weft_operation_end(&op, status);
}

/* ------------------------------------------------------------------ headers */

/* The ranks whose headers a warp sends and takes. */
struct weft_header_duty {
    int32_t first_rank;
    int32_t rank_step;
};

/* The ranks are shared among the warps of a block, from the last one on, which have the least data. */
WEFT_FN struct weft_header_duty weft_header_duty(struct weft_warp *warp)
{
    const struct weft_header_duty duty = {weft_num_warps(warp) - 1 - weft_warp_idx(warp),
                                          weft_num_warps(warp)};
    return duty;
}

/* Where the first block alone has headers. */
WEFT_FN struct weft_header_duty weft_header_duty_of_first_block(struct weft_warp *warp)
{
    const struct weft_header_duty none = {WEFT_COLL_MAX_RANKS, 1};
    return weft_block_idx(warp) == 0 ? weft_header_duty(warp) : none;
}

/* The halves of a header are rows of their own. */
WEFT_FN struct weft_packet_targets weft_header_targets(struct weft_warp *warp,
                                                       const struct weft_packets *packets,
                                                       int32_t begin, int32_t end, int32_t half)
{
    const struct weft_packet_targets to = {
        begin, end,
        weft_header_slot(packets->num_ranks, weft_block_idx(warp), packets->rank) +
            (uint64_t)half * WEFT_HEADER_SLOTS / 2};
    return to;
}

/* The first half, which is all that is needed where no arrays of others are accessed. */
WEFT_FN void weft_header_send(struct weft_warp *warp, const struct weft_packets *packets,
                              int32_t begin, int32_t end, struct weft_call_header header)
{
    const uint64_t words[] = {header.call.kind, header.call.num_bytes};
    weft_packets_send_words(warp, packets, weft_header_targets(warp, packets, begin, end, 0),
                            words);
}

/* The second. */
WEFT_FN void weft_header_send_places(struct weft_warp *warp, const struct weft_packets *packets,
                                     int32_t begin, int32_t end, struct weft_call_header header)
{
    const uint64_t words[] = {header.input, header.output};
    weft_packets_send_words(warp, packets, weft_header_targets(warp, packets, begin, end, 1),
                            words);
}

/* Waits for the first half of what `rank` says, and compares it with what it should be. */
WEFT_FN enum weft_status weft_header_check(struct weft_warp *warp,
                                           const struct weft_packets *packets, int32_t rank,
                                           const struct weft_call_header *expected)
{
    uint64_t words[2];
    const enum weft_status status = weft_packets_take_words(
        warp, packets, rank, weft_header_slot(packets->num_ranks, weft_block_idx(warp), rank),
        words);
    const struct weft_call_head *call = &expected->call;
    if (status != WEFT_STATUS_OK || (words[0] == call->kind && words[1] == call->num_bytes))
        return status;
    const struct weft_wait_site site = {WEFT_PHASE_START, rank, packets->sequence,
                                        packets->exchange};
    const struct weft_call_head seen = {words[0], words[1]};
    return weft_call_head_fail(warp, site, call, &seen);
}

/* The second half. */
WEFT_FN enum weft_status weft_header_take_places(struct weft_warp *warp,
                                                 const struct weft_packets *packets, int32_t rank,
                                                 uint64_t places[2])
{
    return weft_packets_take_words(
        warp, packets, rank,
        weft_header_slot(packets->num_ranks, weft_block_idx(warp), rank) + WEFT_HEADER_SLOTS / 2,
        places);
}

/* Sends the same header to all, by the warp that has the first rank. */
WEFT_FN void weft_headers_send(struct weft_warp *warp, const struct weft_packets *packets,
                               struct weft_header_duty duty, struct weft_call_header header)
{
    if (duty.first_rank == 0)
        weft_header_send(warp, packets, 0, packets->num_ranks, header);
}

/* Checks those of the ranks that are this warp's duty. */
WEFT_FN enum weft_status weft_headers_check(struct weft_warp *warp,
                                            const struct weft_packets *packets,
                                            struct weft_header_duty duty,
                                            const struct weft_call_header *expected)
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

/* Share `idx` of `num_shares` of a row: whole packets for every lane, and for all but the last. */
WEFT_FN struct weft_span weft_share_row(uint64_t row_bytes, int32_t idx, int32_t num_shares)
{
    enum { STEP_BYTES = WEFT_WARP_SIZE * WEFT_PACKET_BYTES };
    const uint64_t num_steps = (row_bytes + STEP_BYTES - 1) / STEP_BYTES;
    /* Short rows are spared the division. */
    const uint64_t share_steps =
        num_steps <= (uint64_t)num_shares ? 1 : (num_steps - 1) / (uint64_t)num_shares + 1;
    return weft_span_of_row(row_bytes, (uint64_t)idx * share_steps * STEP_BYTES,
                            share_steps * STEP_BYTES);
}

/* This warp's share of a row that all warps of the launch share. */
WEFT_FN struct weft_span weft_warp_share(struct weft_warp *warp, uint64_t row_bytes)
{
    return weft_share_row(row_bytes, weft_launch_warp_idx(warp), weft_num_launch_warps(warp));
}

#endif
