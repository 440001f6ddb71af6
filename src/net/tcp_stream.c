/* SPDX-License-Identifier: MIT */
#include "net/tcp_stream.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(offsetof(struct weft__net_header, source) == WEFT__NONCE_BYTES,
               "the secret is in front, and stays here");

void weft__tcp_stream_init(struct weft__tcp_stream *stream, struct weft__net *net, int32_t rank)
{
    *stream = (struct weft__tcp_stream){.net = net, .rank = rank};
}

void weft__tcp_stream_destroy(struct weft__tcp_stream *stream)
{
    free(stream->gathered);
    stream->gathered = NULL;
    stream->state = WEFT__TCP_BROKEN;
}

static void break_off(struct weft__tcp_stream *stream, const char *why)
{
    stream->state = WEFT__TCP_BROKEN;
    if (why != NULL)
        weft__net_fail_peer(stream->net, stream->rank, "rank %d %s", stream->rank, why);
}

/* A payload that is not here as a whole. */
static void expect_payload(struct weft__tcp_stream *stream)
{
    void *place = NULL;
    stream->num_left = stream->header.num_bytes;
    switch (weft__net_announce(stream->net, stream->rank, &stream->header, &place)) {
    case WEFT__NET_LANDS:
        stream->state = WEFT__TCP_LANDING;
        stream->place = place;
        break;
    case WEFT__NET_GATHERED:
        stream->state = WEFT__TCP_GATHERING;
        stream->place = stream->gathered = malloc(stream->header.num_bytes);
        if (stream->gathered == NULL)
            break_off(stream, "sent a message for which there is no memory");
        break;
    default:
        break_off(stream, NULL); /* it has failed, and for what */
        break;
    }
}

/* With its payload, if the `num_bytes` that are here have all of it; returns how many of them it
 * took. */
static size_t begin_message(struct weft__tcp_stream *stream, const unsigned char *bytes,
                            size_t num_bytes)
{
    const struct weft__net_header *header = &stream->header;
    stream->header_bytes = 0;
    if (header->num_bytes > WEFT__TCP_MAX_MESSAGE_BYTES) {
        break_off(stream, "sent a message that makes no sense: its length is wrong");
        return 0;
    }
    if (header->num_bytes > num_bytes) {
        expect_payload(stream);
        return 0;
    }
    weft__net_receive(stream->net, stream->rank, header, sizeof(*header), bytes, header->num_bytes);
    return header->num_bytes;
}

static size_t take_header(struct weft__tcp_stream *stream, const unsigned char *bytes,
                          size_t num_bytes)
{
    size_t num_taken = WEFT__TCP_HEADER_BYTES - stream->header_bytes;
    if (num_taken > num_bytes)
        num_taken = num_bytes;
    memcpy(weft__tcp_wire_header(&stream->header) + stream->header_bytes, bytes, num_taken);
    stream->header_bytes += (uint32_t)num_taken;
    if (stream->header_bytes == WEFT__TCP_HEADER_BYTES)
        num_taken += begin_message(stream, bytes + num_taken, num_bytes - num_taken);
    return num_taken;
}

static size_t take_payload(struct weft__tcp_stream *stream, const unsigned char *bytes,
                           size_t num_bytes)
{
    const size_t num_taken = num_bytes < stream->num_left ? num_bytes : stream->num_left;
    memcpy(stream->place, bytes, num_taken);
    weft__tcp_stream_landed(stream, num_taken);
    return num_taken;
}

void weft__tcp_stream_take(struct weft__tcp_stream *stream, const void *taken, size_t num_bytes)
{
    const unsigned char *bytes = taken;
    while (num_bytes > 0 && stream->state != WEFT__TCP_BROKEN) {
        const size_t num_taken = stream->state == WEFT__TCP_IN_HEADER
                                     ? take_header(stream, bytes, num_bytes)
                                     : take_payload(stream, bytes, num_bytes);
        bytes += num_taken;
        num_bytes -= num_taken;
    }
}

void weft__tcp_stream_landed(struct weft__tcp_stream *stream, size_t num_bytes)
{
    const struct weft__net_header *header = &stream->header;
    stream->place += num_bytes;
    stream->num_left -= num_bytes;
    if (stream->num_left > 0)
        return;
    if (stream->state == WEFT__TCP_LANDING)
        weft__net_landed(stream->net, stream->rank, header);
    else
        weft__net_receive(stream->net, stream->rank, header, sizeof(*header), stream->gathered,
                          header->num_bytes);
    free(stream->gathered);
    stream->gathered = NULL;
    stream->state = WEFT__TCP_IN_HEADER;
}
