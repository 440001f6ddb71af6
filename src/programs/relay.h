/* SPDX-License-Identifier: MIT */
/*
 * What dispatch and combine between nodes have in common: some warps of a launch have a ring each,
 * to send or to receive, and the others move the rows of this node's ranks.
 */
#ifndef WEFT_PROGRAMS_RELAY_H
#define WEFT_PROGRAMS_RELAY_H

#include "programs/ring.h"
#include "programs/share.h"

/* What a ring carries in an operation. */
struct weft_relay {
    struct weft_ring ring;
    const struct weft_operation *op;
    int32_t num_rows;
    int32_t rows_per_chunk;
    uint64_t row_bytes; /* on the wire */
};

/* The relay's i-th chunk: rows [begin, end) of all that go between the two nodes. */
struct weft_relay_chunk {
    int32_t begin;
    int32_t end;
};

WEFT_FN struct weft_relay_chunk weft_relay_chunk(const struct weft_relay *relay, int32_t i)
{
    const struct weft_ring *ring = &relay->ring;
    const int32_t idx = i * ring->rings->num_channels + ring->channel;
    const int32_t begin = idx * relay->rows_per_chunk;
    const int32_t num_left = relay->num_rows - begin;
    const struct weft_relay_chunk chunk = {
        begin, begin + (num_left < relay->rows_per_chunk ? num_left : relay->rows_per_chunk)};
    return chunk;
}

WEFT_FN int32_t weft_relay_num_chunks(const struct weft_relay *relay)
{
    return weft_num_chunks(relay->ring.rings, relay->num_rows, relay->rows_per_chunk,
                           relay->ring.channel);
}

/* Where row i of a chunk is in its slot. */
WEFT_FN uint64_t weft_relay_row_offset(const struct weft_relay *relay, int32_t i)
{
    return WEFT_CHUNK_HEADER_BYTES + (uint64_t)i * relay->row_bytes;
}

/* Warp-wide: the slot for the rows of a chunk, with what this rank calls, for weft_relay_check.
 * NULL if it did not become free. */
WEFT_FN char *weft_relay_reserve(const struct weft_relay *relay, uint64_t number)
{
    char *slot = weft_ring_out_slot(&relay->ring, number);
    if (weft_ring_reserve(relay->op, &relay->ring, number) != WEFT_STATUS_OK)
        return NULL;
    weft_call_write(relay->op->warp, (struct weft_call *)(void *)slot, &relay->op->message->call);
    return slot;
}

/* What the sender of a chunk has called. */
WEFT_FN const struct weft_call *weft_relay_call(const char *slot)
{
    return (const struct weft_call *)(const void *)slot;
}

/* Warp-wide: whether the sender of a chunk has called the same. */
WEFT_FN enum weft_status weft_relay_check(const struct weft_relay *relay, const char *slot)
{
    const struct weft_wait_site site =
        weft_operation_site(relay->op, WEFT_PHASE_START, relay->ring.partner);
    return weft_call_check(relay->op->warp, site, &relay->op->message->call, weft_relay_call(slot));
}

/* ------------------------------------------------------------------ who does what */

enum weft_duty_kind { WEFT_DUTY_SEND, WEFT_DUTY_RECEIVE, WEFT_DUTY_LOCAL };

struct weft_duty {
    enum weft_duty_kind kind;
    int32_t hops; /* to or from the other node */
    int32_t channel;
    int32_t local_idx; /* among those that are local */
    int32_t num_local; /* warps */
};

/* Rings to send come first, then as many to receive if these have warps of their own. */
WEFT_FN struct weft_duty weft_warp_duty(struct weft_warp *warp, const struct weft_rings *rings,
                                        int32_t num_directions)
{
    const int32_t idx = weft_launch_warp_idx(warp);
    const int32_t num_rings = (rings->nodes.num_nodes - 1) * rings->num_channels;
    const int32_t num_duties = num_directions * num_rings;
    struct weft_duty duty = {WEFT_DUTY_LOCAL, 1 + idx % num_rings / rings->num_channels,
                             idx % rings->num_channels, idx - num_duties,
                             weft_num_launch_warps(warp) - num_duties};
    if (idx < num_duties)
        duty.kind = idx < num_rings ? WEFT_DUTY_SEND : WEFT_DUTY_RECEIVE;
    return duty;
}

/* What the warp begins with: local warps have a unit each, others take one when their ring is
 * done. */
WEFT_FN int32_t weft_duty_first_unit(struct weft_warp *warp, const struct weft_duty *duty,
                                     const struct weft_share *share)
{
    return duty->kind == WEFT_DUTY_LOCAL ? duty->local_idx
                                         : weft_taken_unit(warp, weft_take_unit(warp, share));
}

/* Called by every warp last, with how its own part ended: as weft_operation_finish, if all of the
 * block's did well. */
WEFT_FN enum weft_status weft_relay_finish(const struct weft_operation *op,
                                           enum weft_status own_status)
{
    const enum weft_status status =
        (enum weft_status)weft_block_max_again(op->warp, (uint32_t)own_status);
    if (status != WEFT_STATUS_OK)
        return weft_operation_end(op, status);
    return weft_operation_finish(op, WEFT_BLOCKS_AS_TOLD);
}

#endif
