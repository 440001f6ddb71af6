/* SPDX-License-Identifier: MIT */
#include "net_puppet.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000 };

struct weft__tcp_addresses puppet_addresses(const struct weft__net_blob *blob)
{
    struct weft__tcp_addresses addresses = {.num = 0};
    size_t num_bytes = sizeof(addresses);
    /* They are the blob's end, as long as their number says. */
    for (uint32_t num = 1; num <= WEFT__TCP_MAX_ADDRESSES; num++) {
        num_bytes = offsetof(struct weft__tcp_addresses, at) + num * sizeof(addresses.at[0]);
        memcpy(&addresses, (const char *)blob->bytes + blob->num_bytes - num_bytes, num_bytes);
        if (addresses.num == num)
            break;
    }
    return addresses;
}

struct weft__net_blob puppet_blob(const struct weft__net_blob *blob,
                                  const struct weft__tcp_addresses *addresses, unsigned char *bytes)
{
    const struct weft__tcp_addresses own = puppet_addresses(blob);
    const size_t own_bytes = weft__tcp_addresses_bytes(&own);
    const uint32_t num_bytes = (uint32_t)weft__tcp_addresses_bytes(addresses);
    const size_t before = blob->num_bytes - own_bytes;
    memcpy(bytes, blob->bytes, before);
    /* Behind the magic, the engine, and the rank: the length of the address. */
    memcpy(bytes + 20, &num_bytes, sizeof(num_bytes));
    memcpy(bytes + before, addresses, num_bytes);
    return (struct weft__net_blob){bytes, before + num_bytes};
}

int puppet_listen(struct weft__tcp_address *address)
{
    union weft__tcp_sockaddr own;
    socklen_t own_bytes;
    *address = (struct weft__tcp_address){.family = AF_INET, .bytes = {127, 0, 0, 1}};
    own_bytes = weft__tcp_sockaddr_of(address, &own);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, &own.any, own_bytes) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, &own.any, &own_bytes) != 0)
        return -1;
    address->port = ntohs(own.v4.sin_port);
    return fd;
}

int puppet_dial(const struct weft__tcp_address *address)
{
    union weft__tcp_sockaddr to;
    const socklen_t to_bytes = weft__tcp_sockaddr_of(address, &to);
    const int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    /* What is written has left, whatever becomes of the connection. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, &to.any, to_bytes) == 0)
        return fd;
    close(fd);
    return -1;
}

int puppet_read(int fd, struct weft__net *net, void *bytes, size_t num_bytes)
{
    size_t num_read = 0;
    for (int ms = 0; num_read < num_bytes && ms < PATIENCE_MS; ms++) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (net != NULL)
            weft__net_progress(net);
        if (poll(&readable, 1, 1) <= 0)
            continue;
        const ssize_t num_now =
            recv(fd, (char *)bytes + num_read, num_bytes - num_read, MSG_DONTWAIT);
        if (num_now <= 0)
            return 0;
        num_read += (size_t)num_now;
    }
    return num_read == num_bytes;
}

int puppet_write(int fd, const void *bytes, size_t num_bytes)
{
    return send(fd, bytes, num_bytes, MSG_NOSIGNAL) == (ssize_t)num_bytes;
}

void puppet_hang_up(int fd)
{
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
}

struct weft__tcp_hello puppet_hello(int32_t from, int32_t to, int32_t num_ranks)
{
    return (struct weft__tcp_hello){.magic = WEFT__TCP_MAGIC,
                                    .from = from,
                                    .to = to,
                                    .num_ranks = num_ranks,
                                    .header_bytes = WEFT__TCP_HEADER_BYTES,
                                    .nonce = {7}};
}

int puppet_join(const struct weft__tcp_address *address, struct weft__net *net,
                const struct weft__tcp_hello *hello, const uint8_t secret[WEFT__NONCE_BYTES])
{
    struct weft__tcp_talk talk = {.hello = *hello};
    uint8_t proof[WEFT__MAC_BYTES], expected[WEFT__MAC_BYTES];
    const int fd = puppet_dial(address);
    if (fd < 0)
        return -1;
    if (puppet_write(fd, hello, sizeof(*hello)) &&
        puppet_read(fd, net, &talk.challenge, sizeof(talk.challenge))) {
        weft__tcp_prove(secret, WEFT__TCP_DIALER, &talk, proof);
        weft__tcp_prove(secret, WEFT__TCP_ACCEPTOR, &talk, expected);
        if (puppet_write(fd, proof, sizeof(proof)) && puppet_read(fd, net, proof, sizeof(proof)) &&
            weft__mac_equal(proof, expected))
            return fd;
    }
    puppet_hang_up(fd);
    return -1;
}

int puppet_send(int fd, struct weft__net_header header, const void *payload, size_t num_bytes)
{
    return puppet_write(fd, weft__tcp_wire_header(&header), WEFT__TCP_HEADER_BYTES) &&
           (num_bytes == 0 || puppet_write(fd, payload, num_bytes));
}
