/* SPDX-License-Identifier: MIT */
/*
 * How collectives use packets (machine/packets.h).
 *
 * Each rank has an area in its heap: two buffers of slots, used in turn, and the escape words of
 * each. In a buffer every rank has a header's slots for every block, then a region of its own for
 * what it sends:
 *
 *     [headers of all ranks to block 0][to block 1]...[region of rank 0][region of rank 1]...
 *
 * In every operation, every rank sends every other a header, which tells its call, beside its data,
 * and takes all headers and data that it is sent. So the buffers are the halves of parity.h: slots
 * that are sent to were emptied.
 */
#pragma once

#include "programs/exchange.h"
#include "programs/share.h"

/* The header that a rank sends to one other rank in an operation. */
struct wp_call_header {
    struct wp_call_head call;
    uint64_t input;  /* places (window.h): what the other may read, */
    uint64_t output; /* and where it shall write */
};

struct wp_packet_area {
    struct wp_exchange exchange; /* its name is in reports */
    uint64_t region_bytes;       /* a multiple of 2 * WP_PACKET_BYTES */
    char *areas[WEFT_COLL_MAX_RANKS];
};

/* The parts of its input and output that this rank exchanges with each other rank. */
struct wp_exchanged_rows {
    struct wp_span sent[WEFT_COLL_MAX_RANKS];
    struct wp_span received[WEFT_COLL_MAX_RANKS];
};

enum { WP_HEADER_SLOTS = sizeof(struct wp_call_header) / WP_PACKET_BYTES };

/* ------------------------------------------------------------------ layout */

WP_FN uint64_t wp_packet_buffer_bytes(const struct wp_packet_area *area)
{
    return (uint64_t)area->exchange.num_ranks *
           ((uint64_t)area->exchange.max_blocks * sizeof(struct wp_call_header) +
            area->region_bytes);
}

WP_FN uint64_t wp_packet_escapes_bytes(const struct wp_packet_area *area)
{
    return wp_packet_buffer_bytes(area) / WP_PACKET_BYTES * sizeof(uint64_t);
}

/* Two buffers, then their escape words: as much or more than any machine needs, on the host. */
WP_FN uint64_t wp_packet_area_bytes(const struct wp_packet_area *area)
{
    return WP_NUM_BUFFERS * (wp_packet_buffer_bytes(area) + wp_packet_escapes_bytes(area));
}

/* Where `rank` sends its header to block `block_idx`. */
WP_FN uint64_t wp_header_slot(int32_t num_ranks, int32_t block_idx, int32_t rank)
{
    return (uint64_t)(block_idx * num_ranks + rank) * WP_HEADER_SLOTS;
}

WP_FN uint64_t wp_region_slots(const struct wp_packet_area *area)
{
    return area->region_bytes / WP_PACKET_BYTES;
}

/* Where what `rank` sends begins. */
WP_FN uint64_t wp_region_slot(const struct wp_packet_area *area, int32_t rank)
{
    return wp_header_slot(area->exchange.num_ranks, area->exchange.max_blocks, 0) +
           (uint64_t)rank * wp_region_slots(area);
}

/* ------------------------------------------------------------------ begin and end */

WP_FN struct wp_packets wp_packets_of(const struct wp_packet_area *area, uint64_t sequence)
{
    const int32_t num_ranks = area->exchange.num_ranks;
    const uint64_t parity = wp_parity(sequence);
    const uint64_t buffer_bytes = wp_packet_buffer_bytes(area);
    const uint64_t escapes_bytes = wp_packet_escapes_bytes(area);
    const struct wp_packets packets = {area->exchange.rank,
                                       num_ranks,
                                       area->areas,
                                       parity * buffer_bytes,
                                       WP_NUM_BUFFERS * buffer_bytes + parity * escapes_bytes,
                                       sequence,
                                       area->exchange.mailbox_offset,
                                       0};
    return packets;
}

/* As wp_operation_begin. */
WP_FN struct wp_packets wp_packets_begin(struct wp_warp *warp, const struct wp_packet_area *area)
{
    return wp_packets_of(area, wp_operation_begin(warp, &area->exchange, NULL).sequence);
}

/* The operation that the packets are of. */
WP_FN struct wp_operation wp_packets_operation(struct wp_warp *warp,
                                               const struct wp_packet_area *area,
                                               const struct wp_packets *packets)
{
    const struct wp_operation op = {warp, &area->exchange, NULL, packets->sequence};
    return op;
}

/* As wp_operation_end. */
WP_FN enum wp_status wp_packets_end(struct wp_warp *warp, const struct wp_packet_area *area,
                                    const struct wp_packets *packets, enum wp_status status)
{
    const struct wp_operation op = wp_packets_operation(warp, area, packets);
    return wp_operation_end(&op, status);
}

/* ------------------------------------------------------------------ headers */

/* The ranks whose headers a warp sends and takes. */
struct wp_header_duty {
    int32_t first_rank;
    int32_t rank_step;
};

/* The ranks are shared among the warps of a block, from the last one on, which have the least
 * data. */
WP_FN struct wp_header_duty wp_header_duty(struct wp_warp *warp)
{
    const struct wp_header_duty duty = {wp_num_warps(warp) - 1 - wp_warp_idx(warp),
                                        wp_num_warps(warp)};
    return duty;
}

/* Where the first block alone has headers. */
WP_FN struct wp_header_duty wp_header_duty_of_first_block(struct wp_warp *warp)
{
    const struct wp_header_duty none = {WEFT_COLL_MAX_RANKS, 1};
    return wp_block_idx(warp) == 0 ? wp_header_duty(warp) : none;
}

/* The halves of a header are rows of their own. */
WP_FN struct wp_packet_targets wp_header_targets(struct wp_warp *warp,
                                                 const struct wp_packets *packets, int32_t begin,
                                                 int32_t end, int32_t half)
{
    const struct wp_packet_targets to = {
        begin, end,
        wp_header_slot(packets->num_ranks, wp_block_idx(warp), packets->rank) +
            (uint64_t)half * WP_HEADER_SLOTS / 2,
        WP_PACKETS_TO_OTHERS, 0};
    return to;
}

/* The first half, which is all that is needed where no arrays of others are accessed. */
WP_FN void wp_header_send(struct wp_warp *warp, const struct wp_packets *packets, int32_t begin,
                          int32_t end, struct wp_call_header header)
{
    const uint64_t words[] = {header.call.kind, header.call.num_bytes};
    wp_packets_send_words(warp, packets, wp_header_targets(warp, packets, begin, end, 0), words);
}

/* The second. */
WP_FN void wp_header_send_places(struct wp_warp *warp, const struct wp_packets *packets,
                                 int32_t begin, int32_t end, struct wp_call_header header)
{
    const uint64_t words[] = {header.input, header.output};
    wp_packets_send_words(warp, packets, wp_header_targets(warp, packets, begin, end, 1), words);
}

/* Waits for the first half of what `rank` says, and compares it with what it should be. */
WP_FN enum wp_status wp_header_check(struct wp_warp *warp, const struct wp_packets *packets,
                                     int32_t rank, const struct wp_call_header *expected)
{
    uint64_t words[2];
    const enum wp_status status = wp_packets_take_words(
        warp, packets, rank, wp_header_slot(packets->num_ranks, wp_block_idx(warp), rank), words);
    const struct wp_call_head *call = &expected->call;
    if (status != WP_STATUS_OK || (words[0] == call->kind && words[1] == call->num_bytes))
        return status;
    const struct wp_wait_site site = {WP_PHASE_START, rank, packets->sequence, packets->exchange,
                                      0};
    const struct wp_call_head seen = {words[0], words[1]};
    return wp_call_head_fail(warp, site, call, &seen);
}

/* The second half. */
WP_FN enum wp_status wp_header_take_places(struct wp_warp *warp, const struct wp_packets *packets,
                                           int32_t rank, uint64_t places[2])
{
    return wp_packets_take_words(
        warp, packets, rank,
        wp_header_slot(packets->num_ranks, wp_block_idx(warp), rank) + WP_HEADER_SLOTS / 2, places);
}

/* Sends the same header to all, by the warp that has the first rank. */
WP_FN void wp_headers_send(struct wp_warp *warp, const struct wp_packets *packets,
                           struct wp_header_duty duty, struct wp_call_header header)
{
    if (duty.first_rank == 0)
        wp_header_send(warp, packets, 0, packets->num_ranks, header);
}

/* Checks those of the ranks that are this warp's duty. */
WP_FN enum wp_status wp_headers_check(struct wp_warp *warp, const struct wp_packets *packets,
                                      struct wp_header_duty duty,
                                      const struct wp_call_header *expected)
{
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks && status == WP_STATUS_OK;
         rank += duty.rank_step) {
        if (rank != packets->rank)
            status = wp_header_check(warp, packets, rank, expected);
    }
    return status;
}

/* ------------------------------------------------------------------ shares of a row */

/* Share `idx` of `num_shares` of a row: whole packets for every lane, and for all but the last. */
WP_FN struct wp_span wp_share_row(uint64_t row_bytes, int32_t idx, int32_t num_shares)
{
    enum { STEP_BYTES = WP_WARP_SIZE * WP_PACKET_BYTES };
    const uint64_t num_steps = (row_bytes + STEP_BYTES - 1) / STEP_BYTES;
    /* Short rows are spared the division. */
    const uint64_t share_steps =
        num_steps <= (uint64_t)num_shares ? 1 : (num_steps - 1) / (uint64_t)num_shares + 1;
    return wp_span_of_row(row_bytes, (uint64_t)idx * share_steps * STEP_BYTES,
                          share_steps * STEP_BYTES);
}

/* This warp's share of a row that all warps of the launch share. */
WP_FN struct wp_span wp_warp_share(struct wp_warp *warp, uint64_t row_bytes)
{
    return wp_share_row(row_bytes, wp_launch_warp_idx(warp), wp_num_launch_warps(warp));
}
