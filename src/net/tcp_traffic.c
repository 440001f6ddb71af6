/* SPDX-License-Identifier: MIT */
/* Messages to and from peers that are admitted: out of the memory where they are, and into that
 * where they belong. */
#include <errno.h>
#include <sys/uio.h>

#include "net/tcp_internal.h"

enum {
    MAX_PARTS = 64,               /* of one call: headers and payloads */
    MAX_CALL_BYTES = 1024 * 1024, /* after which no more are added */
    NUM_READS = 16                /* of one peer, before another has its turn */
};

/* ---------------------------------------------------------------- out */

static struct weft__net_operation *next_of(const struct weft__net_operation *operation)
{
    return operation->engine;
}

enum weft__net_start weft__tcp_send(void *state, struct weft__net_operation *operation)
{
    struct weft__tcp *tcp = state;
    struct weft__tcp_peer *peer = &tcp->peers[operation->peer];
    if (peer->state == WEFT__TCP_GONE)
        return WEFT__NET_LOST;
    if (peer->num_queued == WEFT__TCP_MAX_QUEUED)
        return WEFT__NET_FULL;
    operation->engine = NULL;
    if (peer->last != NULL)
        peer->last->engine = operation;
    else
        peer->first = operation;
    peer->last = operation;
    peer->num_queued++;
    weft__tcp_make_busy(tcp, peer);
    return WEFT__NET_STARTED;
}

static void end_first(struct weft__tcp_peer *peer, weft_result result)
{
    struct weft__net_operation *first = peer->first;
    peer->first = next_of(first);
    if (peer->first == NULL)
        peer->last = NULL;
    peer->num_queued--;
    weft__net_done(first, result);
}

void weft__tcp_drop_queue(struct weft__tcp_peer *peer)
{
    while (peer->first != NULL)
        end_first(peer, WEFT_ERROR_RANK_FAILED);
}

/* Sends what is left, as far as one call takes it. */
static size_t list_parts(const struct weft__tcp_peer *peer, struct iovec *parts, size_t *num_bytes)
{
    size_t num_parts = 0, skipped = peer->sent_bytes;
    *num_bytes = 0;
    for (struct weft__net_operation *at = peer->first;
         at != NULL && num_parts + 2 <= MAX_PARTS && *num_bytes < MAX_CALL_BYTES;
         at = next_of(at)) {
        const size_t header_left =
            skipped < WEFT__TCP_HEADER_BYTES ? WEFT__TCP_HEADER_BYTES - skipped : 0;
        const size_t payload_skipped =
            skipped > WEFT__TCP_HEADER_BYTES ? skipped - WEFT__TCP_HEADER_BYTES : 0;
        const size_t payload_left = at->header.num_bytes - payload_skipped;
        if (header_left > 0)
            parts[num_parts++] = (struct iovec){weft__tcp_wire_header(&at->header) +
                                                    WEFT__TCP_HEADER_BYTES - header_left,
                                                header_left};
        if (payload_left > 0)
            parts[num_parts++] = (struct iovec){
                (unsigned char *)(uintptr_t)at->payload + payload_skipped, payload_left};
        *num_bytes += header_left + payload_left;
        skipped = 0;
    }
    return num_parts;
}

static void note_sent(struct weft__tcp_peer *peer, size_t num_bytes)
{
    peer->sent_bytes += num_bytes;
    while (peer->first != NULL) {
        const size_t first_bytes = WEFT__TCP_HEADER_BYTES + peer->first->header.num_bytes;
        if (peer->sent_bytes < first_bytes)
            break;
        peer->sent_bytes -= first_bytes;
        end_first(peer, WEFT_OK);
    }
}

/* Its earlier messages count, a goodbye above all. */
static void lose_output(struct weft__tcp *tcp, struct weft__tcp_peer *peer, int error)
{
    peer->output = WEFT__TCP_NO_ROOM;
    peer->input = WEFT__TCP_AT_END;
    while (peer->state == WEFT__TCP_OPEN && weft__tcp_read_in(tcp, peer) > 0)
        continue;
    weft__tcp_lose(tcp, peer, error);
}

int weft__tcp_write_out(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    int num_events = 0;
    while (peer->first != NULL && peer->output == WEFT__TCP_WRITABLE) {
        struct iovec parts[MAX_PARTS];
        size_t num_bytes;
        const size_t num_parts = list_parts(peer, parts, &num_bytes);
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = num_parts};
        const ssize_t num_sent = sendmsg(peer->watched.fd, &message, MSG_NOSIGNAL);
        if (num_sent < 0 && errno == EINTR)
            continue;
        if (num_sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            peer->output = WEFT__TCP_NO_ROOM; /* until epoll tells of some */
        } else if (num_sent < 0) {
            lose_output(tcp, peer, errno);
            return num_events + 1;
        } else {
            num_events++;
            note_sent(peer, (size_t)num_sent);
        }
    }
    return num_events;
}

/* ---------------------------------------------------------------- in */

/* One read: the rest of a payload to its place, and what follows to the buffer. */
static ssize_t read_once(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    struct weft__tcp_stream *stream = &peer->stream;
    const size_t direct = stream->state == WEFT__TCP_IN_HEADER ? 0 : stream->num_left;
    const size_t buffered = direct > 0 ? WEFT__TCP_BYTES_BEHIND_PAYLOAD : WEFT__TCP_BUFFER_BYTES;
    struct iovec parts[] = {{stream->place, direct}, {tcp->buffer, buffered}};
    const ssize_t num_read = direct > 0 ? readv(peer->watched.fd, parts, 2)
                                        : recv(peer->watched.fd, tcp->buffer, buffered, 0);
    if (num_read <= 0)
        return num_read;
    const size_t landed = (size_t)num_read < direct ? (size_t)num_read : direct;
    if (landed > 0)
        weft__tcp_stream_landed(stream, landed);
    weft__tcp_stream_take(stream, tcp->buffer, (size_t)num_read - landed);
    if ((size_t)num_read < direct + buffered && peer->input == WEFT__TCP_READABLE)
        peer->input = WEFT__TCP_NOTHING_TO_READ; /* epoll will tell of more */
    return num_read;
}

int weft__tcp_read_in(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    int num_reads = 0;
    while (num_reads < NUM_READS && peer->state == WEFT__TCP_OPEN &&
           peer->input != WEFT__TCP_NOTHING_TO_READ && peer->stream.state != WEFT__TCP_BROKEN) {
        const ssize_t num_read = read_once(tcp, peer);
        if (num_read > 0) {
            num_reads++;
        } else if (num_read < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            /* At the end there is nothing more to come, whatever epoll has said. */
            peer->input = WEFT__TCP_NOTHING_TO_READ;
        } else if (num_read == 0 || errno != EINTR) {
            weft__tcp_lose(tcp, peer, num_read == 0 ? 0 : errno);
            return num_reads + 1;
        }
    }
    if (peer->stream.state == WEFT__TCP_BROKEN)
        peer->input = WEFT__TCP_NOTHING_TO_READ; /* it has failed */
    return num_reads;
}
