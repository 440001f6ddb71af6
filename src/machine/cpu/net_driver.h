/* SPDX-License-Identifier: MIT */
/*
 * Who moves the network on while a launch runs: the stream's thread, which sends what its fibers
 * have posted and, while they wait, takes what comes; or the progress thread beside it. The first
 * is sooner, since to wake a thread takes ten times as long as a small message; the second pays
 * when there is much to send, and a core for it.
 */
#pragma once

#include "comm/comm.h"
#include "comm/host/cores.h"
#include "net/progress.h"

struct weft__net_driver {
    weft_comm *comm;
    enum weft__cores cores;
    uint64_t num_bytes; /* posted by the launch */
    int has_posted;     /* what is to start at once, since it has sent last */
};

enum weft__posted_for { WEFT__POSTED_FOR_THIS_THREAD, WEFT__POSTED_FOR_ANOTHER };

/* Who posted for this thread should give way to it soon. */
enum weft__posted_for weft__net_driver_post(struct weft__net_driver *driver,
                                            const struct wp_access *access, uint64_t *number);
/* Like weft__net_driver_post, for an access that is posted to the NIC already. The thread that
 * drives the network also moves the NIC on. */
enum weft__posted_for weft__net_driver_ring(struct weft__net_driver *driver,
                                            const struct wp_access *access);

/* The thread's turn: fibers may have posted; it has nothing to do but wait; it is about to
 * sleep. */
void weft__net_driver_send(struct weft__net_driver *driver);
void weft__net_driver_poll(const struct weft__net_driver *driver);
void weft__net_driver_rest(const struct weft__net_driver *driver);
