/* SPDX-License-Identifier: MIT */
/*
 * Bytes of a peer that has proved who it is, as messages. A message is its header without the
 * secret, then its payload:
 *
 *     64 bytes: struct weft__net_header from `source` on | num_bytes of it
 *
 * A payload that is not here as a whole goes straight to its place, if it has one: the header is
 * checked before.
 */
#pragma once

#include "net/engine.h"

enum {
    WEFT__TCP_HEADER_BYTES = sizeof(struct weft__net_header) - WEFT__NONCE_BYTES,
    WEFT__TCP_MAX_MESSAGE_BYTES = 256 * 1024
};

struct weft__tcp_stream {
    struct weft__net *net;
    int32_t rank; /* the peer */
    struct weft__net_header header;
    uint32_t header_bytes; /* of it that are here, unless it is complete */
    enum { WEFT__TCP_IN_HEADER, WEFT__TCP_LANDING, WEFT__TCP_GATHERING, WEFT__TCP_BROKEN } state;
    unsigned char *place; /* of what comes next of the payload */
    uint64_t num_left;    /* bytes of it, more than 0 */
    unsigned char *gathered;
};

/* The part of a header that goes over the wire. */
static inline unsigned char *weft__tcp_wire_header(struct weft__net_header *header)
{
    return (unsigned char *)&header->source;
}

void weft__tcp_stream_init(struct weft__tcp_stream *stream, struct weft__net *net, int32_t rank);
void weft__tcp_stream_destroy(struct weft__tcp_stream *stream);

/* The next thing that came. */
void weft__tcp_stream_take(struct weft__tcp_stream *stream, const void *bytes, size_t num_bytes);
/* The same of what has been put at `place` already, num_left at most. */
void weft__tcp_stream_landed(struct weft__tcp_stream *stream, size_t num_bytes);
