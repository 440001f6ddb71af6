/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/host/error.h"

enum { READ_BYTES = 4096 };

struct weft__queued_message {
    struct weft__queued_message *next;
    struct weft__message *message;
};

struct weft__message *weft__message_create(enum weft__frame_type type, const void *part,
                                           size_t part_bytes, const void *more, size_t more_bytes)
{
    size_t body_bytes = part_bytes + more_bytes;
    struct weft__message *message = calloc(1, sizeof(*message) + body_bytes);
    if (message == NULL)
        return NULL;
    message->num_references = 1;
    message->num_bytes = sizeof(message->header) + body_bytes;
    message->header = (struct weft__frame_header){.type = type, .body_bytes = body_bytes};
    if (part_bytes > 0)
        memcpy(message->body, part, part_bytes);
    if (more != NULL && more_bytes > 0)
        memcpy(message->body + part_bytes, more, more_bytes);
    return message;
}

void weft__message_release(struct weft__message *message)
{
    if (--message->num_references == 0)
        free(message);
}

void weft__wire_init(struct weft__wire *wire, int fd, uint64_t max_body_bytes)
{
    *wire = (struct weft__wire){.fd = fd, .max_body_bytes = max_body_bytes};
}

static void pop_output(struct weft__wire *wire)
{
    struct weft__queued_message *first = wire->out_first;
    wire->out_first = first->next;
    wire->out_sent_bytes = 0;
    if (wire->out_first == NULL)
        wire->out_last = NULL;
    weft__message_release(first->message);
    if (wire->spare == NULL)
        wire->spare = first;
    else
        free(first);
}

enum weft__wire_result weft__wire_keep_spare(struct weft__wire *wire)
{
    if (wire->spare == NULL)
        wire->spare = malloc(sizeof(*wire->spare));
    return wire->spare != NULL ? WEFT__WIRE_OK : WEFT__WIRE_NO_MEMORY;
}

void weft__wire_close(struct weft__wire *wire)
{
    while (wire->out_first != NULL)
        pop_output(wire);
    free(wire->spare);
    free(wire->in);
    if (wire->fd >= 0)
        close(wire->fd);
    *wire = (struct weft__wire){.fd = -1};
}

enum weft__wire_result weft__wire_send(struct weft__wire *wire, struct weft__message *message)
{
    struct weft__queued_message *queued = malloc(sizeof(*queued));
    if (queued == NULL) {
        queued = wire->spare;
        wire->spare = NULL;
    }
    if (queued == NULL)
        return WEFT__WIRE_NO_MEMORY;
    *queued = (struct weft__queued_message){.message = message};
    message->num_references++;
    if (wire->out_last != NULL)
        wire->out_last->next = queued;
    else
        wire->out_first = queued;
    wire->out_last = queued;
    return weft__wire_flush(wire);
}

enum weft__wire_result weft__wire_flush(struct weft__wire *wire)
{
    while (wire->out_first != NULL) {
        const struct weft__message *message = wire->out_first->message;
        const unsigned char *bytes =
            (const unsigned char *)message + offsetof(struct weft__message, header);
        ssize_t sent = send(wire->fd, bytes + wire->out_sent_bytes,
                            message->num_bytes - wire->out_sent_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? WEFT__WIRE_OK : WEFT__WIRE_CLOSED;
        wire->out_sent_bytes += (size_t)sent;
        if (wire->out_sent_bytes == message->num_bytes)
            pop_output(wire);
    }
    return WEFT__WIRE_OK;
}

/* Makes room for `num_bytes` from in_begin on, moving what is there to the front. */
static int reserve_input(struct weft__wire *wire, size_t num_bytes)
{
    if (wire->in_begin + num_bytes <= wire->in_capacity)
        return 1;
    if (wire->in_begin > 0)
        memmove(wire->in, wire->in + wire->in_begin, wire->in_end - wire->in_begin);
    wire->in_end -= wire->in_begin;
    wire->in_begin = 0;
    if (num_bytes <= wire->in_capacity)
        return 1;
    unsigned char *larger = realloc(wire->in, num_bytes);
    if (larger == NULL)
        return 0;
    wire->in = larger;
    wire->in_capacity = num_bytes;
    return 1;
}

/* Reads until at least `num_bytes` are buffered. */
static enum weft__wire_result fill_input(struct weft__wire *wire, size_t num_bytes)
{
    if (!reserve_input(wire, num_bytes > READ_BYTES ? num_bytes : READ_BYTES))
        return WEFT__WIRE_NO_MEMORY;
    while (wire->in_end - wire->in_begin < num_bytes) {
        ssize_t received =
            recv(wire->fd, wire->in + wire->in_end, wire->in_capacity - wire->in_end, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return WEFT__WIRE_EMPTY;
        if (received <= 0)
            return WEFT__WIRE_CLOSED;
        wire->in_end += (size_t)received;
        wire->num_received += (uint64_t)received;
    }
    return WEFT__WIRE_OK;
}

enum weft__wire_result weft__wire_receive(struct weft__wire *wire, struct weft__frame *frame)
{
    struct weft__frame_header header;
    enum weft__wire_result result = fill_input(wire, sizeof(header));
    if (result != WEFT__WIRE_OK)
        return result;
    memcpy(&header, wire->in + wire->in_begin, sizeof(header));
    if (header.type == 0 || header.type >= WEFT__NUM_FRAME_TYPES ||
        header.body_bytes > wire->max_body_bytes)
        return WEFT__WIRE_GARBAGE;
    result = fill_input(wire, sizeof(header) + header.body_bytes);
    if (result != WEFT__WIRE_OK)
        return result;
    *frame = (struct weft__frame){.type = (enum weft__frame_type)header.type,
                                  .body = wire->in + wire->in_begin + sizeof(header),
                                  .body_bytes = header.body_bytes};
    wire->in_begin += sizeof(header) + header.body_bytes;
    return WEFT__WIRE_OK;
}

weft_result weft__socket_prepare(int fd)
{
    const int on = 1, idle_s = 2, interval_s = 1, num_probes = 5;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return weft__system_error("fcntl");
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &num_probes, sizeof(num_probes)) != 0)
        return weft__system_error("setsockopt");
    return WEFT_OK;
}
