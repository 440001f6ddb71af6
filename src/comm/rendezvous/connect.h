/* SPDX-License-Identifier: MIT */
#pragma once

#include "comm/failure/status.h"
#include "comm/rendezvous/wire.h"
#include "weft.h"

struct weft__connection_request {
    struct weft__meeting_point *point; /* has the port of the rendezvous once that is found */
    const struct weft__hello *hello;
    struct weft__status *watched; /* when it fails, so does the meeting; NULL: none */
};

/* Meets the other ranks: on WEFT_OK the wire is connected, `server` tells the process of the
 * rendezvous and table[num_ranks of the hello] the ranks. */
weft_result weft__connect(const struct weft__connection_request *request, struct weft__wire *wire,
                          struct weft__identity *server, struct weft__identity *table);
