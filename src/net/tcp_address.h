/* SPDX-License-Identifier: MIT */
/* Where a rank listens for its peers. */
#pragma once

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "weft.h"

enum { WEFT__TCP_MAX_ADDRESSES = 8, WEFT__TCP_NAME_BYTES = 80 };

/* As ranks tell it each other. */
struct weft__tcp_address {
    uint16_t family; /* AF_INET, whose address has 4 bytes, or AF_INET6 */
    uint16_t port;
    uint8_t bytes[16];
};

struct weft__tcp_addresses {
    uint32_t num;
    struct weft__tcp_address at[WEFT__TCP_MAX_ADDRESSES];
};

union weft__tcp_sockaddr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

/* This host's, without ports, of the devices that are named, "eth0,mlx5_0:1", as far as they are
 * network interfaces that are up; NULL: of all, loopback only if there is no other. */
weft_result weft__tcp_find_addresses(const char *devices, int32_t rank,
                                     struct weft__tcp_addresses *addresses);
/* The addresses that a peer says are its own. */
weft_result weft__tcp_read_addresses(int32_t rank, const void *bytes, size_t num_bytes,
                                     struct weft__tcp_addresses *addresses);
size_t weft__tcp_addresses_bytes(const struct weft__tcp_addresses *addresses);

socklen_t weft__tcp_sockaddr_of(const struct weft__tcp_address *address,
                                union weft__tcp_sockaddr *to);
/* "192.0.2.1, port 4242". */
void weft__tcp_name_address(const struct weft__tcp_address *address,
                            char name[WEFT__TCP_NAME_BYTES]);
/* "tcp/eth0": through which the connection goes. */
void weft__tcp_name_transport(int fd, char name[WEFT__TCP_NAME_BYTES]);
