/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/dispatch.h"
#include "programs/ring.h"

/* Whether a dispatch runs: one of combine's, without rows, only if none has told the routes since
 * notify. That cannot be known when it is enqueued, since graphs run later, and any number of
 * times. */
enum wp_relay_when { WP_RELAY_ALWAYS, WP_RELAY_IF_NEEDED };

struct wp_internode_dispatch_args {
    struct wp_dispatch_args dispatch; /* its exchange is of the node */
    struct wp_rings rings;
    enum wp_relay_when when;
};

/* A token on the wire: where its rows go at the ranks of the other node, its choices, and its
 * planes. */
struct wp_wire_token {
    int32_t token;
    int32_t num_rows;
};
struct wp_wire_row {
    int32_t local_idx; /* of the rank in its node */
    int32_t slot;      /* among the rows of the token's rank there */
};

WP_FN uint64_t wp_wire_header_bytes(int32_t max_rows, int32_t num_topk)
{
    return wp_wire_round_up(sizeof(struct wp_wire_token) +
                            (uint64_t)max_rows * sizeof(struct wp_wire_row) +
                            (uint64_t)num_topk * (sizeof(int32_t) + sizeof(float)));
}

/* Where a plane begins; that behind the last one is the size of all. */
WP_FN uint64_t wp_wire_plane_offset(const struct wp_call *call, int32_t max_rows, int32_t plane)
{
    uint64_t offset = wp_wire_header_bytes(max_rows, wp_call_num_topk(call));
    for (int32_t i = 0; i < plane; i++)
        offset += wp_wire_round_up(call->row_bytes[i]);
    return offset;
}

WP_FN uint64_t wp_wire_dispatch_bytes(const struct wp_call *call, int32_t max_rows)
{
    return wp_wire_plane_offset(call, max_rows, wp_call_num_planes(call));
}
