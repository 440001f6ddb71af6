/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "comm/host/thread.h"

static int open_at(const struct addrinfo *at)
{
    const int on = 1, off = 0;
    int fd =
        weft__descriptor_keep(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

/* The first of the host's addresses that go by this name; NULL: all addresses, IPv6 first because
 * that socket takes IPv4 too. */
static weft_result open_named(const char *name, uint16_t port, int *fd)
{
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int reason = getaddrinfo(name, service, &hints, &found);
    if (reason != 0)
        return weft__invalid("cannot listen on address \"%s\": %s", name != NULL ? name : "any",
                             gai_strerror(reason));
    *fd = -1;
    for (const struct addrinfo *at = found; at != NULL && *fd < 0; at = at->ai_next)
        if (name != NULL || at->ai_family == AF_INET6)
            *fd = open_at(at);
    for (const struct addrinfo *at = found; at != NULL && *fd < 0; at = at->ai_next)
        *fd = open_at(at);
    int open_errno = errno;
    freeaddrinfo(found);
    errno = open_errno;
    return *fd < 0 ? weft__system_error("cannot listen on address %s, port %u",
                                        name != NULL ? name : "any", port)
                   : WEFT_OK;
}

static int is_number(const char *address)
{
    struct in6_addr number;
    return inet_pton(AF_INET, address, &number) == 1 || inet_pton(AF_INET6, address, &number) == 1;
}

static int is_loopback(const struct sockaddr *address)
{
    const uint32_t loopback_net = 127;
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == loopback_net;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Whether another host can mean this one by the name as this one knows it; if it knows none,
 * *resolver says why. */
static int is_known_outside(const char *name, int *resolver)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *resolver = getaddrinfo(name, NULL, &hints, &found);
    if (*resolver != 0)
        return 0;
    int is_known = 1;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next)
        if (is_loopback(at->ai_addr))
            is_known = 0;
    freeaddrinfo(found);
    return is_known;
}

static weft_result open_point(const struct weft__meeting_point *point,
                              enum weft__listen_on listen_on, int *fd)
{
    const char *address = point->address;
    int resolver = 0;
    int can_be_named = listen_on == WEFT__LISTEN_ON_ADDRESS || is_number(address) ||
                       strcmp(address, "localhost") == 0 || is_known_outside(address, &resolver);
    if (!can_be_named && listen_on == WEFT__LISTEN_FOR_OTHER_HOSTS)
        return weft__invalid(
            "cannot listen on address %s: %s; other hosts need one that means the same to them",
            address,
            resolver != 0 ? gai_strerror(resolver) : "to this host it is a loopback address");
    weft_result result = open_named(can_be_named ? address : NULL, point->port, fd);
    if (result == WEFT_ERROR_SYSTEM && errno == EADDRNOTAVAIL &&
        listen_on == WEFT__LISTEN_ON_REACHABLE) {
        can_be_named = 0;
        result = open_named(NULL, point->port, fd);
    }
    if (result == WEFT_OK && !can_be_named)
        weft__log(
            WEFT__LOG_WARN, WEFT__LOG_NO_RANK,
            "the rendezvous listens on all addresses: %s is none that is this host's and means "
            "the same to others; WEFT_ADDR can name one",
            address);
    return result;
}

void weft__listener_name_peer(int fd, char name[WEFT__PEER_NAME_BYTES])
{
    struct sockaddr_storage address = {0};
    socklen_t address_bytes = sizeof(address);
    char host[WEFT__PEER_NAME_BYTES - 16], service[8];
    if (getpeername(fd, (struct sockaddr *)&address, &address_bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, address_bytes, host, sizeof(host), service,
                    sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(name, WEFT__PEER_NAME_BYTES, "somebody who is gone");
    else
        snprintf(name, WEFT__PEER_NAME_BYTES, "%s, port %s", host, service);
}

/* Opens a port of WEFT_PORTS, or any port if that is not set. */
static weft_result open_any_port(const struct weft__meeting_point *point,
                                 enum weft__listen_on listen_on, int *fd)
{
    struct weft__port_range ports;
    struct weft__meeting_point at = *point;
    WEFT__TRY(weft__setting_ports(&ports));
    if (ports.first == 0)
        return open_point(point, listen_on, fd);
    for (int port = ports.first; port <= ports.last; port++) {
        at.port = (uint16_t)port;
        const weft_result result = open_point(&at, listen_on, fd);
        if (result != WEFT_ERROR_SYSTEM || (errno != EADDRINUSE && errno != EACCES))
            return result;
    }
    return weft__system_error(
        "cannot listen on address %s: none of the ports of %s, %u-%u, is free", point->address,
        weft__settings[WEFT__SETTING_PORTS].name, ports.first, ports.last);
}

/* Opens the first of the point's ports that is free. */
static weft_result open_port(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                             int *fd)
{
    struct weft__meeting_point at;
    weft_result result = WEFT_ERROR_SYSTEM;
    for (int i = 0; weft__meeting_point_at_port(point, i, &at); i++) {
        result = open_point(&at, listen_on, fd);
        if (result == WEFT_OK)
            *point = at;
        if (result != WEFT_ERROR_SYSTEM || errno != EADDRINUSE)
            break;
    }
    return result;
}

static weft_result read_port(int fd, uint16_t *port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {.v6 = {0}};
    socklen_t bound_bytes = sizeof(bound);
    if (getsockname(fd, &bound.any, &bound_bytes) != 0)
        return weft__system_error("getsockname");
    *port = ntohs(bound.any.sa_family == AF_INET ? bound.v4.sin_port : bound.v6.sin6_port);
    return WEFT_OK;
}

weft_result weft__listener_open(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                                int64_t patience_ms, int *fd)
{
    enum { PAUSE_MS = 20 };
    const int64_t deadline_ns = weft__now_ns() + patience_ms * WEFT__NS_PER_MS;
    weft_result result =
        point->port == 0 ? open_any_port(point, listen_on, fd) : open_port(point, listen_on, fd);
    /* An outgoing connection, or this job's last rank 0, may have the port for a moment. */
    while (point->port != 0 && result == WEFT_ERROR_SYSTEM && errno == EADDRINUSE &&
           weft__now_ns() < deadline_ns) {
        poll(NULL, 0, PAUSE_MS);
        result = open_port(point, listen_on, fd);
    }
    if (result != WEFT_OK)
        return result;
    result = read_port(*fd, &point->port);
    if (result != WEFT_OK)
        close(*fd);
    return result;
}
