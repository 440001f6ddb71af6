/* SPDX-License-Identifier: MIT */
/*
 * Collectives that access the inputs and outputs of other ranks where they are.
 *
 * The launches of all ranks have the same number of blocks.
 *
 * start:  every block exchanges headers with the blocks of the same number on all ranks. Who has taken a
 *         rank's header knows that its stream has reached the operation, and where its arrays are; after an
 *         acquire, it may read its inputs and write its outputs.
 * finish: a block that has done its part signals to the blocks of the same number, and waits for them. When
 *         all blocks of a launch have done so, all blocks of all ranks are done with this rank's arrays.
 */
#ifndef WEFT_PROGRAMS_DIRECT_H
#define WEFT_PROGRAMS_DIRECT_H

#include "programs/packet_area.h"
#include "programs/share.h"
#include "programs/window.h"

/* An operation has no more chunks, so that their numbers, and as many more as there are warps,
 * fit 31 bits. */
enum { WEFT_DIRECT_MAX_CHUNKS = 1 << 30 };

struct weft_direct {
    struct weft_packet_area area;
    struct weft_call_header header;
    uint64_t chunk_bytes; /* of a row that a warp takes at a time; a multiple of 16 */
};

/* In memory of the block, of each rank. */
struct weft_direct_peer {
    uint64_t places[2]; /* input and output */
    uint64_t status;    /* of taking its header: enum weft_status */
};

WEFT_FN struct weft_direct_peer *weft_direct_peer(struct weft_warp *warp, int32_t rank)
{
    return (struct weft_direct_peer *)weft_block_shared(warp) + rank;
}

/* Takes the header of a rank that is this warp's duty; this rank needs none. */
WEFT_FN void weft_direct_check(struct weft_warp *warp, const struct weft_packets *packets,
                               int32_t rank, const struct weft_call_header *expected)
{
    uint64_t places[2] = {expected->input, expected->output};
    enum weft_status status = WEFT_STATUS_OK;
    if (rank != packets->rank)
        status = weft_header_check(warp, packets, rank, expected);
    if (rank != packets->rank && status == WEFT_STATUS_OK)
        status = weft_header_take_places(warp, packets, rank, places);
    if (weft_lane_idx(warp) == 0) {
        struct weft_direct_peer *peer = weft_direct_peer(warp, rank);
        peer->places[0] = places[0];
        peer->places[1] = places[1];
        peer->status = (uint64_t)status;
    }
}

/* The worst status that any warp has found in a header. */
WEFT_FN enum weft_status weft_direct_worst(struct weft_warp *warp,
                                           const struct weft_packets *packets)
{
    uint32_t worst = WEFT_STATUS_OK;
    for (int32_t rank = weft_lane_idx(warp); rank < packets->num_ranks; rank += WEFT_WARP_SIZE) {
        const uint32_t status = (uint32_t)weft_direct_peer(warp, rank)->status;
        worst = status > worst ? status : worst;
    }
    return (enum weft_status)weft_max_u32(warp, worst);
}

/* Called by every warp once it has sent and checked the headers that are its duty: tells how all warps of
 * the block have fared. */
WEFT_FN enum weft_status weft_direct_met(struct weft_warp *warp, const struct weft_packets *packets)
{
    weft_acquire_packets(warp); /* what peers did in launches before they sent their headers */
    weft_block_sync(warp);
    return weft_direct_worst(warp, packets);
}

/* Where the input and the output of a rank are. */
WEFT_FN char *weft_direct_input(struct weft_warp *warp, const struct weft_direct *direct,
                                int32_t rank)
{
    return weft_place_address(&direct->area.exchange, rank,
                              weft_direct_peer(warp, rank)->places[0]);
}
WEFT_FN char *weft_direct_output(struct weft_warp *warp, const struct weft_direct *direct,
                                 int32_t rank)
{
    return weft_place_address(&direct->area.exchange, rank,
                              weft_direct_peer(warp, rank)->places[1]);
}

/* Called by every warp last. */
WEFT_FN enum weft_status weft_direct_finish(struct weft_warp *warp,
                                            const struct weft_direct *direct,
                                            const struct weft_packets *packets)
{
    const struct weft_operation op = weft_packets_operation(warp, &direct->area, packets);
    return weft_operation_finish(&op, WEFT_BLOCKS_AS_HERE);
}

/* The rows of an operation, cut into chunks, which the warps take as share.h says. */
WEFT_FN struct weft_share weft_direct_share(struct weft_warp *warp,
                                            const struct weft_direct *direct,
                                            const struct weft_packets *packets, uint64_t row_bytes,
                                            int32_t num_rows)
{
    const uint64_t num_chunks = (row_bytes + direct->chunk_bytes - 1) / direct->chunk_bytes;
    return weft_share_rows(weft_num_launch_warps(warp), (int32_t)num_chunks * num_rows,
                           weft_units_taken(&direct->area.exchange, packets->sequence));
}

/* What a unit covers of a row: a part of chunk `chunk`. */
WEFT_FN struct weft_span weft_direct_span(const struct weft_direct *direct,
                                          const struct weft_share *share, uint64_t row_bytes,
                                          uint64_t chunk, int32_t part)
{
    const struct weft_span whole =
        weft_span_of_row(row_bytes, chunk * direct->chunk_bytes, direct->chunk_bytes);
    struct weft_span span = weft_part_span(share, part, whole.bytes);
    span.begin += whole.begin;
    return span;
}

#endif
