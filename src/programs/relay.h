/* SPDX-License-Identifier: MIT */
/*
 * The parts that dispatch and combine between nodes share: some warps of a launch have a ring each,
 * to send or to receive, and the others move the rows of this node's ranks.
 */
#pragma once

#include "programs/ring.h"
#include "programs/share.h"

/* The load of a ring in an operation. */
struct wp_relay {
    struct wp_ring ring;
    const struct wp_operation *op;
    int32_t num_rows;
    int32_t rows_per_chunk;
    uint64_t row_bytes; /* on the wire */
};

/* The relay's i-th chunk: rows [begin, end) of all that go between the two nodes. */
struct wp_relay_chunk {
    int32_t begin;
    int32_t end;
};

WP_FN struct wp_relay_chunk wp_relay_chunk(const struct wp_relay *relay, int32_t i)
{
    const struct wp_ring *ring = &relay->ring;
    const int32_t idx = i * ring->rings->num_channels + ring->channel;
    const int32_t begin = idx * relay->rows_per_chunk;
    const int32_t num_left = relay->num_rows - begin;
    const struct wp_relay_chunk chunk = {
        begin, begin + (num_left < relay->rows_per_chunk ? num_left : relay->rows_per_chunk)};
    return chunk;
}

WP_FN int32_t wp_relay_num_chunks(const struct wp_relay *relay)
{
    return wp_num_chunks(relay->ring.rings, relay->num_rows, relay->rows_per_chunk,
                         relay->ring.channel);
}

/* Where row i of a chunk is in its slot. */
WP_FN uint64_t wp_relay_row_offset(const struct wp_relay *relay, int32_t i)
{
    return WP_CHUNK_HEADER_BYTES + (uint64_t)i * relay->row_bytes;
}

/* Warp-wide: the slot for the rows of a chunk, with what this rank calls, for wp_relay_check.
 * NULL if it did not become free. */
WP_FN char *wp_relay_reserve(const struct wp_relay *relay, uint64_t number)
{
    char *slot = wp_ring_out_slot(&relay->ring, number);
    if (wp_ring_reserve(relay->op, &relay->ring, number) != WP_STATUS_OK)
        return NULL;
    wp_call_write(relay->op->warp, (struct wp_call *)(void *)slot, &relay->op->message->call);
    return slot;
}

/* The call of a chunk's sender. */
WP_FN const struct wp_call *wp_relay_call(const char *slot)
{
    return (const struct wp_call *)(const void *)slot;
}

/* Warp-wide: whether the sender of a chunk has called the same. */
WP_FN enum wp_status wp_relay_check(const struct wp_relay *relay, const char *slot)
{
    const struct wp_wait_site site =
        wp_operation_site(relay->op, WP_PHASE_START, relay->ring.partner);
    return wp_call_check(relay->op->warp, site, &relay->op->message->call, wp_relay_call(slot));
}

/* ------------------------------------------------------------------ who does what */

enum wp_duty_kind { WP_DUTY_SEND, WP_DUTY_RECEIVE, WP_DUTY_LOCAL };

struct wp_duty {
    enum wp_duty_kind kind;
    int32_t hops; /* to or from the other node */
    int32_t channel;
    int32_t local_idx; /* among those that are local */
    int32_t num_local; /* warps */
};

/* Rings to send come first, then as many to receive if these have warps of their own. */
WP_FN struct wp_duty wp_warp_duty(struct wp_warp *warp, const struct wp_rings *rings,
                                  int32_t num_directions)
{
    const int32_t idx = wp_launch_warp_idx(warp);
    const int32_t num_rings = (rings->nodes.num_nodes - 1) * rings->num_channels;
    const int32_t num_duties = num_directions * num_rings;
    struct wp_duty duty = {WP_DUTY_LOCAL, 1 + idx % num_rings / rings->num_channels,
                           idx % rings->num_channels, idx - num_duties,
                           wp_num_launch_warps(warp) - num_duties};
    if (idx < num_duties)
        duty.kind = idx < num_rings ? WP_DUTY_SEND : WP_DUTY_RECEIVE;
    return duty;
}

/* The first unit of the warp: local warps have a unit each, others take one when their ring is
 * done. */
WP_FN int32_t wp_duty_first_unit(struct wp_warp *warp, const struct wp_duty *duty,
                                 const struct wp_share *share)
{
    return duty->kind == WP_DUTY_LOCAL ? duty->local_idx
                                       : wp_taken_unit(warp, wp_take_unit(warp, share));
}

/* Called by every warp last, with how its own part ended: as wp_operation_finish, if all of the
 * block's did well. */
WP_FN enum wp_status wp_relay_finish(const struct wp_operation *op, enum wp_status own_status)
{
    const enum wp_status status = wp_block_status(op->warp, own_status);
    if (status != WP_STATUS_OK)
        return wp_operation_end(op, status);
    return wp_operation_finish(op, WP_BLOCKS_AS_TOLD);
}
