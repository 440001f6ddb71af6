/* SPDX-License-Identifier: MIT */
/* One end of a connection that shows each second that it is alive, and expects the same of the
 * other: a stopped process and a cut link keep a connection open. Anything that is received
 * counts. */
#pragma once

#include <stdint.h>

enum { WEFT__HEARTBEAT_MIN_LIMIT_MS = 100 };

struct weft__heartbeat {
    int32_t local_pid;     /* pid of the other process if it is on this host, else 0 */
    uint32_t limit_ms;     /* 0: there is none */
    uint64_t num_received; /* bytes, when it last looked */
    int64_t heard_ns;      /* when they had come */
    int64_t looked_ns;     /* when it last looked */
    int64_t next_beat_ns;
};

void weft__heartbeat_start(struct weft__heartbeat *heartbeat, uint32_t limit_ms, int32_t local_pid,
                           int64_t now_ns);
/* 1: the other end has been silent for too long. `num_received` is the number of bytes of the
 * connection, including all that can be read. A process that was stopped itself, perhaps with all
 * others, listens for the whole limit again. A process of this host counts as silent only if it is
 * stopped, or after a far longer time: with many ranks on few cores it may not have run. */
int weft__heartbeat_is_silent(struct weft__heartbeat *heartbeat, uint64_t num_received,
                              int64_t now_ns);
/* Whether it is time to send something. */
int weft__heartbeat_is_due(struct weft__heartbeat *heartbeat, int64_t now_ns);
/* When to ask again at the latest; INT64_MAX: never. */
int64_t weft__heartbeat_deadline_ns(const struct weft__heartbeat *heartbeat);
