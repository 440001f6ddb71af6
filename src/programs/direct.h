/* SPDX-License-Identifier: MIT */
/*
 * Collectives that access the inputs and outputs of other ranks where they are. They start and finish as
 * all operations of an exchange do; they also send headers, as those do that use packets, so that ranks
 * find out when they do not call the same.
 */
#ifndef WEFT_PROGRAMS_DIRECT_H
#define WEFT_PROGRAMS_DIRECT_H

#include "programs/packet_area.h"
#include "programs/share.h"
#include "programs/window.h"

enum weft_direct_array { WEFT_DIRECT_IN, WEFT_DIRECT_OUT }; /* of the message; places */

struct weft_direct {
    struct weft_packet_area area;
    struct weft_call_header header; /* num_bytes is compared by the messages */
    struct weft_message message;
    uint64_t chunk_bytes; /* of a row that a warp takes at a time; a multiple of 16 */
};

/* Warp 0 of block 0: tells all ranks, and checks that their calls are of the same kind. */
WEFT_FN enum weft_status weft_direct_announce(struct weft_warp *warp,
                                              const struct weft_direct *direct,
                                              const struct weft_private_message *private_messages)
{
    const struct weft_exchange *exchange = &direct->area.exchange;
    const struct weft_header_duty all = {0, 1};
    uint64_t *shared = (uint64_t *)weft_block_shared(warp);
    if (weft_lane_idx(warp) == 0)
        *shared = weft_take_ticket(&exchange->state->num_tickets, 1);
    weft_warp_sync(warp);
    const struct weft_packets packets = weft_packets_of(&direct->area, *shared);
    weft_headers_send(warp, &packets, all, direct->header);
    weft_exchange_announce(warp, exchange, &direct->message, private_messages);
    return weft_headers_check(warp, &packets, all, direct->header);
}

/* Called by every warp first, as weft_exchange_start is. */
WEFT_FN enum weft_status weft_direct_start(struct weft_warp *warp, const struct weft_direct *direct,
                                           const struct weft_private_message *private_messages)
{
    const struct weft_exchange *exchange = &direct->area.exchange;
    enum weft_status status = WEFT_STATUS_OK;
    if (weft_warp_idx(warp) == 0) {
        status = weft_exchange_check(warp, exchange);
        if (weft_block_idx(warp) == 0 && status == WEFT_STATUS_OK)
            status = weft_direct_announce(warp, direct, private_messages);
        if (status == WEFT_STATUS_OK)
            status = weft_exchange_meet(warp, exchange, &direct->message);
        weft_exchange_note(warp, exchange, status);
    }
    return (enum weft_status)weft_block_broadcast(warp, (uint32_t)status);
}

WEFT_FN enum weft_status weft_direct_finish(struct weft_warp *warp,
                                            const struct weft_direct *direct)
{
    return weft_exchange_finish(warp, &direct->area.exchange);
}

/* The rows of an operation, cut into chunks, which the warps take as share.h says. */
WEFT_FN struct weft_share weft_direct_share(struct weft_warp *warp,
                                            const struct weft_direct *direct, uint64_t row_bytes,
                                            int32_t num_rows)
{
    const uint64_t num_chunks = (row_bytes + direct->chunk_bytes - 1) / direct->chunk_bytes;
    return weft_share_rows(warp, (int32_t)num_chunks * num_rows,
                           &direct->area.exchange.state->num_units_taken);
}

/* What a unit covers of a row: a part of chunk `chunk`. */
WEFT_FN struct weft_span weft_direct_span(const struct weft_direct *direct,
                                          const struct weft_share *share, uint64_t row_bytes,
                                          uint64_t chunk, int32_t part)
{
    const uint64_t begin = chunk * direct->chunk_bytes;
    const uint64_t rest = begin < row_bytes ? row_bytes - begin : 0;
    struct weft_span span =
        weft_part_span(share, part, rest < direct->chunk_bytes ? rest : direct->chunk_bytes);
    span.begin += begin;
    return span;
}

#endif
