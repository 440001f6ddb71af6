/* SPDX-License-Identifier: MIT */
#pragma once

#include "comm/rendezvous/meeting_point.h"
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

/* Opens a nonblocking listening socket for `point` and sets the point's port. Port 0 becomes the
 * port that was chosen. A drawn port that is taken becomes the next of its sequence. While
 * all are taken, tries again for patience_ms. */
weft_result weft__listener_open(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                                int64_t patience_ms, int *fd);

/* The other end of a connection, for messages: "192.0.2.1, port 4242". */
enum { WEFT__PEER_NAME_BYTES = 72 };
void weft__listener_name_peer(int fd, char name[WEFT__PEER_NAME_BYTES]);
