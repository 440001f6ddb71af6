/* SPDX-License-Identifier: MIT */
#ifndef WEFT_COMM_LISTENER_H
#define WEFT_COMM_LISTENER_H

#include "comm/meeting_point.h"
#include "weft.h"

enum weft__listen_on {
    WEFT__LISTEN_ON_ADDRESS, /* the point's address, or not at all */
    /* The point's address if it is a number (or localhost) and this host's; else all addresses,
     * because a name may mean another address to the other hosts. */
    WEFT__LISTEN_ON_REACHABLE
};

/* A nonblocking listening socket for `point`; port 0 is replaced by the one that the system chose. */
weft_result weft__listener_open(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                                int *fd);

#endif
