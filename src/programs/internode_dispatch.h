/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_DISPATCH_H
#define WEFT_PROGRAMS_INTERNODE_DISPATCH_H

#include "programs/dispatch.h"
#include "programs/ring.h"

/* Whether a dispatch runs: one of combine's, without rows, only if none has told the routes since notify.
 * That cannot be known when it is enqueued, since graphs run later, and any number of times. */
enum weft_relay_when { WEFT_RELAY_ALWAYS, WEFT_RELAY_IF_NEEDED };

struct weft_internode_dispatch_args {
    struct weft_dispatch_args dispatch; /* its exchange is of the node */
    struct weft_rings rings;
    enum weft_relay_when when;
};

/* A token on the wire: where its rows go at the ranks of the other node, its choices, and its planes. */
struct weft_wire_token {
    int32_t token;
    int32_t num_rows;
};
struct weft_wire_row {
    int32_t local_idx; /* of the rank in its node */
    int32_t slot;      /* among the rows of the token's rank there */
};

WEFT_FN uint64_t weft_wire_header_bytes(int32_t max_rows, int32_t num_topk)
{
    return weft_wire_round_up(sizeof(struct weft_wire_token) +
                              (uint64_t)max_rows * sizeof(struct weft_wire_row) +
                              (uint64_t)num_topk * (sizeof(int32_t) + sizeof(float)));
}

/* Where a plane begins; that behind the last one is the size of all. */
WEFT_FN uint64_t weft_wire_plane_offset(const struct weft_call *call, int32_t max_rows,
                                        int32_t plane)
{
    uint64_t offset = weft_wire_header_bytes(max_rows, weft_call_num_topk(call));
    for (int32_t i = 0; i < plane; i++)
        offset += weft_wire_round_up(call->row_bytes[i]);
    return offset;
}

WEFT_FN uint64_t weft_wire_dispatch_bytes(const struct weft_call *call, int32_t max_rows)
{
    return weft_wire_plane_offset(call, max_rows, weft_call_num_planes(call));
}

#endif
