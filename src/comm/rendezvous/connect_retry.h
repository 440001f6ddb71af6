/* SPDX-License-Identifier: MIT */
#pragma once

#include "comm/failure/status.h"
#include "comm/rendezvous/wire.h"
#include "weft.h"

/* Waits for a frame until deadline_ns, or until what is watched fails; WEFT__WIRE_EMPTY: none
 * came. */
enum weft__wire_result weft__next_frame(const struct weft__watch *watch, struct weft__wire *wire,
                                        int64_t deadline_ns, struct weft__frame *frame);

/* Connects to a rendezvous and takes its greeting. TIMEOUT: none comes. SYSTEM:
 * nobody listens there, or somebody else. */
weft_result weft__connect_to_rendezvous(const struct weft__meeting_point *point,
                                        uint64_t max_body_bytes, int64_t deadline_ns,
                                        struct weft__wire *wire);

struct weft__connection_request {
    struct weft__meeting_point *point; /* has the port of the rendezvous once that is found */
    const struct weft__hello *hello;
    struct weft__watch watch; /* ends the meeting */
};

/* Meets the other ranks: on WEFT_OK the wire is connected, `server` tells the process of the
 * rendezvous and table[num_ranks of the hello] the ranks. */
weft_result weft__connect(const struct weft__connection_request *request, struct weft__wire *wire,
                          struct weft__identity *server, struct weft__identity *table);
