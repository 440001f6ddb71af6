/* SPDX-License-Identifier: MIT */
#pragma once

#include "comm/meeting_point.h"
#include "weft.h"

enum weft__listen_on {
    WEFT__LISTEN_ON_ADDRESS, /* the point's address, or not at all */
    /* The same, but not a name that others cannot mean the same by. */
    WEFT__LISTEN_FOR_OTHER_HOSTS,
    /* The point's address if it is this host's, and the others can mean the same by it: a number,
     * localhost, or a name that is not this host itself again (127.0.1.1, say). Else all
     * addresses. */
    WEFT__LISTEN_ON_REACHABLE
};

/* A nonblocking listening socket for `point`, which then has the port that it listens on: port 0 is
 * replaced by the one that the system chose, and a drawn one that is taken by the next of its
 * sequence. While all are taken it tries again, for patience_ms. */
weft_result weft__listener_open(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                                int64_t patience_ms, int *fd);

/* The other end of a connection, for messages: "192.0.2.1, port 4242". */
enum { WEFT__PEER_NAME_BYTES = 72 };
void weft__listener_name_peer(int fd, char name[WEFT__PEER_NAME_BYTES]);
