/* SPDX-License-Identifier: MIT */
/*
 * A queue of messages in shared memory, from one source to one target. Counters run on, in bytes; each side
 * keeps its own to itself and publishes it, so that what the other side does to the memory cannot lead it out
 * of the ring.
 *
 *     taken            published        taken + WEFT__RING_BYTES
 *       |<-- records -->|<---- free ---->|        record: bytes, header, payload, filled up to 8 bytes
 */
#ifndef WEFT_NET_SHM_RING_H
#define WEFT_NET_SHM_RING_H

#include "net/engine.h"

enum {
    WEFT__RING_BYTES = 256 * 1024,
    WEFT__RING_MAX_PAYLOAD_BYTES = 64 * 1024,
    WEFT__RING_LINE_BYTES = 64 /* what the two sides write lies on different cache lines */
};

struct weft__ring {
    _Alignas(WEFT__RING_LINE_BYTES) _Atomic uint64_t published; /* by the source */
    _Atomic uint32_t source_waits;                              /* for room: the target wakes it */
    _Alignas(WEFT__RING_LINE_BYTES) _Atomic uint64_t taken;     /* by the target */
    _Alignas(WEFT__RING_LINE_BYTES) unsigned char records[WEFT__RING_BYTES];
};

struct weft__record {
    uint64_t payload_bytes;
    struct weft__net_header header;
};

/* 0 if there is no room. `own` is the source's count. */
int weft__ring_put(struct weft__ring *ring, uint64_t *own, const struct weft__net_header *header,
                   const void *payload);

enum weft__ring_result { WEFT__RING_EMPTY, WEFT__RING_RECORD, WEFT__RING_BROKEN };

/* The next record, which stays until weft__ring_take. `own` is the target's count. */
enum weft__ring_result weft__ring_next(struct weft__ring *ring, uint64_t *own,
                                       const struct weft__record **record, size_t *payload_bytes);
void weft__ring_take(struct weft__ring *ring, uint64_t *own, size_t payload_bytes);
int weft__ring_is_empty(const struct weft__ring *ring, uint64_t own);

#endif
