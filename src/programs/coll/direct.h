/* SPDX-License-Identifier: MIT */
/*
 * Collectives that access the inputs and outputs of other ranks where they are.
 *
 * The launches of all ranks have the same number of blocks.
 *
 * start:  every block exchanges headers with the blocks of the same number on all ranks. Who has
 *         taken a rank's header knows that its stream has reached the operation, and where its
 *         arrays are; after an acquire, it may read its inputs and write its outputs.
 * finish: a block that has done its part signals to the blocks of the same number, and waits for
 * them. When
 *         all blocks of a launch have done so, all blocks of all ranks are done with this rank's
 *         arrays.
 */
#pragma once

#include "programs/coll/packet_area.h"
#include "programs/share.h"
#include "programs/window.h"

/* An operation has no more chunks, so that their numbers, and as many more as there are warps,
 * fit 31 bits. */
enum { WP_DIRECT_MAX_CHUNKS = 1 << 30 };

struct wp_direct {
    struct wp_packet_area area;
    struct wp_call_header header;
    uint64_t chunk_bytes; /* of a row that a warp takes at a time; a multiple of 16 */
};

/* In memory of the block, of each rank, behind the words of wp_block_max. */
struct wp_direct_peer {
    uint64_t places[2]; /* input and output */
    uint64_t status;    /* of taking its header: enum wp_status */
};

WP_STATIC_ASSERT(WP_MESSAGES_OFFSET + WEFT_COLL_MAX_RANKS * sizeof(struct wp_direct_peer) <=
                     WP_BLOCK_SHARED_BYTES,
                 "they fit the memory of a block");

WP_FN struct wp_direct_peer *wp_direct_peer(struct wp_warp *warp, int32_t rank)
{
    char *peers = (char *)wp_block_shared(warp) + WP_MESSAGES_OFFSET;
    return (struct wp_direct_peer *)(void *)peers + rank;
}

/* Takes the header of a rank that is this warp's duty; this rank needs none. */
WP_FN void wp_direct_check(struct wp_warp *warp, const struct wp_packets *packets, int32_t rank,
                           const struct wp_call_header *expected)
{
    uint64_t places[2] = {expected->input, expected->output};
    enum wp_status status = WP_STATUS_OK;
    if (rank != packets->rank)
        status = wp_header_check(warp, packets, rank, expected);
    if (rank != packets->rank && status == WP_STATUS_OK)
        status = wp_header_take_places(warp, packets, rank, places);
    if (wp_lane_idx(warp) == 0) {
        struct wp_direct_peer *peer = wp_direct_peer(warp, rank);
        peer->places[0] = places[0];
        peer->places[1] = places[1];
        peer->status = (uint64_t)status;
    }
}

/* The worst status that any warp has found in a header. */
WP_FN enum wp_status wp_direct_worst(struct wp_warp *warp, const struct wp_packets *packets)
{
    uint32_t worst = WP_STATUS_OK;
    for (int32_t rank = wp_lane_idx(warp); rank < packets->num_ranks; rank += WP_WARP_SIZE) {
        const uint32_t status = (uint32_t)wp_direct_peer(warp, rank)->status;
        worst = status > worst ? status : worst;
    }
    return (enum wp_status)wp_max_u32(warp, worst);
}

/* Called by every warp once it has sent and checked the headers that are its duty: tells how all
 * warps of the block have fared. */
WP_FN enum wp_status wp_direct_met(struct wp_warp *warp, const struct wp_packets *packets)
{
    wp_acquire_packets(warp); /* what peers did in launches before they sent their headers */
    wp_block_sync(warp);
    return wp_direct_worst(warp, packets);
}

/* Called by every warp first, where a rank says the same to all others: meets them. */
WP_FN enum wp_status wp_direct_meet(struct wp_warp *warp, const struct wp_direct *direct,
                                    const struct wp_packets *packets)
{
    const struct wp_header_duty duty = wp_header_duty(warp);
    wp_headers_send(warp, packets, duty, direct->header);
    if (duty.first_rank == 0)
        wp_header_send_places(warp, packets, 0, packets->num_ranks, direct->header);
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step)
        wp_direct_check(warp, packets, rank, &direct->header);
    return wp_direct_met(warp, packets);
}

/* Where the input and the output of a rank are. */
WP_FN char *wp_direct_input(struct wp_warp *warp, const struct wp_direct *direct, int32_t rank)
{
    const struct wp_exchange *exchange = &direct->area.exchange;
    return wp_place_address(exchange->bases, exchange->num_ranks, rank,
                            wp_direct_peer(warp, rank)->places[0]);
}
WP_FN char *wp_direct_output(struct wp_warp *warp, const struct wp_direct *direct, int32_t rank)
{
    const struct wp_exchange *exchange = &direct->area.exchange;
    return wp_place_address(exchange->bases, exchange->num_ranks, rank,
                            wp_direct_peer(warp, rank)->places[1]);
}

/* Called by every warp last. */
WP_FN enum wp_status wp_direct_finish(struct wp_warp *warp, const struct wp_direct *direct,
                                      const struct wp_packets *packets)
{
    const struct wp_operation op = wp_packets_operation(warp, &direct->area, packets);
    return wp_operation_finish(&op, WP_BLOCKS_AS_HERE);
}

/* The rows of an operation, cut into chunks, which the warps take as share.h says. */
WP_FN struct wp_share wp_direct_share(struct wp_warp *warp, const struct wp_direct *direct,
                                      const struct wp_packets *packets, uint64_t row_bytes,
                                      int32_t num_rows)
{
    const uint64_t num_chunks = (row_bytes + direct->chunk_bytes - 1) / direct->chunk_bytes;
    return wp_share_rows(wp_num_launch_warps(warp), (int32_t)num_chunks * num_rows,
                         wp_units_taken(&direct->area.exchange, packets->sequence));
}

/* The bytes of a row that a unit covers: a part of chunk `chunk`. */
WP_FN struct wp_span wp_direct_span(const struct wp_direct *direct, const struct wp_share *share,
                                    uint64_t row_bytes, uint64_t chunk, int32_t part)
{
    const struct wp_span whole =
        wp_span_of_row(row_bytes, chunk * direct->chunk_bytes, direct->chunk_bytes);
    struct wp_span span = wp_part_span(share, part, whole.bytes);
    span.begin += whole.begin;
    return span;
}
