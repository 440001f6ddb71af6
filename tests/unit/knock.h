/* SPDX-License-Identifier: MIT */
/* Speaking to a rendezvous by hand. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rendezvous/wire.h"
#include "harness/ranks.h"

static inline struct weft__meeting_point point_of(const struct ranks_context *context)
{
    struct weft__meeting_point point = {.address = ""};
    weft__meeting_point_from_id(&point, &context->id);
    return point;
}

/* Connects to the rendezvous and reads its greeting, if it has room for us. The socket blocks. */
static inline int knock(const struct ranks_context *context)
{
    struct weft__meeting_point point = point_of(context);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(point.port)};
    inet_pton(AF_INET, point.address, &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct {
        struct weft__frame_header header;
        struct weft__greeting greeting;
    } greeting;
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        (void)!recv(fd, &greeting, sizeof(greeting), MSG_WAITALL);
    return fd;
}

static inline struct weft__hello good_hello(const struct ranks_context *context, int32_t rank,
                                            int32_t num_ranks)
{
    struct weft__meeting_point point = point_of(context);
    struct weft__hello hello = {.magic = WEFT__HELLO_MAGIC,
                                .version = WEFT__HELLO_VERSION,
                                .rank = rank,
                                .num_ranks = num_ranks,
                                .timeout_ms = 30000,
                                .identity = {.pid = 4242}};
    memcpy(hello.nonce, point.nonce, sizeof(hello.nonce));
    return hello;
}

static inline void send_hello(int fd, const struct weft__hello *hello, size_t body_bytes)
{
    struct weft__frame_header header = {.type = WEFT__FRAME_HELLO, .body_bytes = body_bytes};
    send(fd, &header, sizeof(header), MSG_NOSIGNAL);
    send(fd, hello, body_bytes < sizeof(*hello) ? body_bytes : sizeof(*hello), MSG_NOSIGNAL);
}
