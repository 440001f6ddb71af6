/* SPDX-License-Identifier: MIT */
/* Sends messages to a rendezvous that no rank would send, each on a connection of its own: noise,
 * frames of every kind and any length, and introductions with other secrets. None may be welcomed.
 * usage: garbage ADDRESS PORT COUNT SEED */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rendezvous/wire.h"
#include "workload/rng.h"

struct message {
    size_t num_bytes;
    unsigned char bytes[512];
};

static void add_noise(struct message *message, struct rng *rng, size_t num_bytes)
{
    while (num_bytes-- > 0)
        message->bytes[message->num_bytes++] = (unsigned char)rng_below(rng, 256);
}

static void add(struct message *message, const void *bytes, size_t num_bytes)
{
    memcpy(message->bytes + message->num_bytes, bytes, num_bytes);
    message->num_bytes += num_bytes;
}

/* What any field of 8 bytes may be. */
static uint64_t draw_length(struct rng *rng)
{
    static const uint64_t lengths[] = {
        0, 1, sizeof(struct weft__hello), 1 << 20, UINT32_MAX, INT64_MAX, UINT64_MAX};
    const uint64_t drawn = rng_below(rng, 8);
    return drawn < 7 ? lengths[drawn] : rng_next(rng);
}

static void add_frame(struct message *message, struct rng *rng)
{
    const struct weft__frame_header header = {
        .type = (uint32_t)rng_below(rng, WEFT__NUM_FRAME_TYPES + 2),
        .unused = (uint32_t)rng_below(rng, 2),
        .body_bytes = draw_length(rng)};
    add(message, &header, sizeof(header));
    add_noise(message, rng, (size_t)rng_below(rng, 200));
}

/* A rank's introduction but for the secret, perhaps cut short, perhaps with a byte changed. */
static void add_hello(struct message *message, struct rng *rng)
{
    const struct weft__frame_header header = {.type = WEFT__FRAME_HELLO,
                                              .body_bytes = sizeof(struct weft__hello)};
    struct weft__hello hello = {.magic = WEFT__HELLO_MAGIC,
                                .version = WEFT__HELLO_VERSION,
                                .rank = (int32_t)rng_below(rng, 6),
                                .num_ranks = 6,
                                .timeout_ms = 30000,
                                .identity = {.pid = (int32_t)rng_below(rng, 5000)}};
    for (size_t i = 0; i < sizeof(hello.nonce); i++)
        hello.nonce[i] = (uint8_t)rng_below(rng, 256);
    add(message, &header, sizeof(header));
    add(message, &hello, sizeof(hello));
    if (rng_below(rng, 2))
        message->bytes[rng_below(rng, (uint32_t)message->num_bytes)] ^=
            (unsigned char)rng_below(rng, 256);
    if (rng_below(rng, 2))
        message->num_bytes = (size_t)rng_below(rng, (uint32_t)message->num_bytes);
}

static void draw(struct message *message, struct rng *rng)
{
    message->num_bytes = 0;
    switch (rng_below(rng, 3)) {
    case 0:
        add_noise(message, rng, (size_t)rng_below(rng, 300));
        break;
    case 1:
        add_frame(message, rng);
        break;
    default:
        add_hello(message, rng);
        break;
    }
}

/* Whether the server says anything before it closes the connection, which it must when no more can
 * come. It may say to who introduces itself with another secret that it is another one. */
static int is_answered(int fd)
{
    struct weft__frame_header header;
    struct weft__greeting greeting; /* sent to every client */
    shutdown(fd, SHUT_WR);
    if (recv(fd, &header, sizeof(header), MSG_WAITALL) != sizeof(header) ||
        recv(fd, &greeting, sizeof(greeting), MSG_WAITALL) != sizeof(greeting))
        return 0;
    const ssize_t num_bytes = recv(fd, &header, sizeof(header), MSG_WAITALL);
    return num_bytes > 0 && (num_bytes != sizeof(header) || header.type != WEFT__FRAME_FAILED);
}

static int knock(const struct sockaddr_in *address)
{
    const struct linger reset = {.l_onoff = 1}; /* leaves no port that waits */
    const struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* One message of 16 waits for the end of the connection, the others are gone at once. */
static int send_message(const struct sockaddr_in *address, struct rng *rng)
{
    struct message message;
    draw(&message, rng);
    int fd = knock(address);
    if (fd < 0) {
        perror("garbage: connect");
        return -1;
    }
    (void)!send(fd, message.bytes, message.num_bytes, MSG_NOSIGNAL);
    const int is_wrong = rng_below(rng, 16) == 0 && is_answered(fd);
    close(fd);
    if (is_wrong)
        fprintf(stderr, "garbage: the rendezvous has answered\n");
    return is_wrong ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (argc != 5 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
        return 2;
    address.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
    const unsigned long count = strtoul(argv[3], NULL, 10);
    struct rng rng = {.state = strtoull(argv[4], NULL, 10)};
    for (unsigned long i = 0; i < count; i++)
        if (send_message(&address, &rng) != 0) {
            fprintf(stderr, "garbage: message %lu\n", i);
            return 1;
        }
    printf("sent %lu messages\n", count);
    return 0;
}
