/* SPDX-License-Identifier: MIT */
#include "net/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "comm/host/error.h"

/* An item of a list that commas separate. */
static int is_named(const char *devices, const char *name)
{
    const size_t length = strlen(name);
    const char *at = devices;
    while (at != NULL) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ','))
            return 1;
        at = strchr(at, ',');
    }
    return 0;
}

/* 0 if it is none that another host could mean: such as a link-local one, which needs the number of
 * an interface. */
static int read_sockaddr(const struct sockaddr *from, struct weft__tcp_address *address)
{
    union weft__tcp_sockaddr copy = {.v6 = {0}};
    *address = (struct weft__tcp_address){.family = from->sa_family};
    if (from->sa_family == AF_INET) {
        memcpy(&copy.v4, from, sizeof(copy.v4));
        memcpy(address->bytes, &copy.v4.sin_addr, sizeof(copy.v4.sin_addr));
        address->port = ntohs(copy.v4.sin_port);
        return 1;
    }
    if (from->sa_family != AF_INET6)
        return 0;
    memcpy(&copy.v6, from, sizeof(copy.v6));
    address->port = ntohs(copy.v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&copy.v6.sin6_addr)) {
        address->family = AF_INET;
        memcpy(address->bytes, &copy.v6.sin6_addr.s6_addr[12], sizeof(struct in_addr));
        return 1;
    }
    memcpy(address->bytes, &copy.v6.sin6_addr, sizeof(copy.v6.sin6_addr));
    return !IN6_IS_ADDR_LINKLOCAL(&copy.v6.sin6_addr);
}

enum which { NAMED, NOT_LOOPBACK, LOOPBACK };

static void collect(const struct ifaddrs *interfaces, enum which which, const char *devices,
                    struct weft__tcp_addresses *addresses)
{
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
        const int is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
        struct weft__tcp_address address;
        if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 ||
            addresses->num == WEFT__TCP_MAX_ADDRESSES || !read_sockaddr(at->ifa_addr, &address))
            continue;
        if (which == NAMED ? is_named(devices, at->ifa_name) : is_loopback == (which == LOOPBACK))
            addresses->at[addresses->num++] = address;
    }
}

weft_result weft__tcp_find_addresses(const char *devices, int32_t rank,
                                     struct weft__tcp_addresses *addresses)
{
    struct ifaddrs *interfaces = NULL;
    *addresses = (struct weft__tcp_addresses){.num = 0};
    if (getifaddrs(&interfaces) != 0)
        return weft__system_error("cannot list the network interfaces");
    collect(interfaces, devices != NULL ? NAMED : NOT_LOOPBACK, devices, addresses);
    if (addresses->num == 0 && devices == NULL)
        collect(interfaces, LOOPBACK, NULL, addresses);
    freeifaddrs(interfaces);
    if (addresses->num > 0)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "no network interface of rank %d is up and has an address; its devices are "
                       "%s; WEFT_NET_DEVICES names them",
                       rank, devices != NULL ? devices : "all");
}

weft_result weft__tcp_read_addresses(int32_t rank, const void *bytes, size_t num_bytes,
                                     struct weft__tcp_addresses *addresses)
{
    *addresses = (struct weft__tcp_addresses){.num = 0};
    if (num_bytes <= sizeof(*addresses))
        memcpy(addresses, bytes, num_bytes);
    int is_well_formed = num_bytes >= sizeof(addresses->num) && addresses->num >= 1 &&
                         addresses->num <= WEFT__TCP_MAX_ADDRESSES &&
                         num_bytes == weft__tcp_addresses_bytes(addresses);
    for (uint32_t index = 0; is_well_formed && index < addresses->num; index++)
        is_well_formed =
            addresses->at[index].family == AF_INET || addresses->at[index].family == AF_INET6;
    return is_well_formed ? WEFT_OK
                          : weft__error(WEFT_ERROR_MISMATCH,
                                        "the network address of rank %d is not one", rank);
}

size_t weft__tcp_addresses_bytes(const struct weft__tcp_addresses *addresses)
{
    return offsetof(struct weft__tcp_addresses, at) + addresses->num * sizeof(addresses->at[0]);
}

socklen_t weft__tcp_sockaddr_of(const struct weft__tcp_address *address,
                                union weft__tcp_sockaddr *to)
{
    memset(to, 0, sizeof(*to));
    if (address->family == AF_INET) {
        to->v4.sin_family = AF_INET;
        to->v4.sin_port = htons(address->port);
        memcpy(&to->v4.sin_addr, address->bytes, sizeof(to->v4.sin_addr));
        return sizeof(to->v4);
    }
    to->v6.sin6_family = AF_INET6;
    to->v6.sin6_port = htons(address->port);
    memcpy(&to->v6.sin6_addr, address->bytes, sizeof(to->v6.sin6_addr));
    return sizeof(to->v6);
}

void weft__tcp_name_address(const struct weft__tcp_address *address,
                            char name[WEFT__TCP_NAME_BYTES])
{
    char number[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->family, address->bytes, number, sizeof(number));
    snprintf(name, WEFT__TCP_NAME_BYTES, "%s, port %u", number, address->port);
}

void weft__tcp_name_transport(int fd, char name[WEFT__TCP_NAME_BYTES])
{
    union weft__tcp_sockaddr own = {.v6 = {0}};
    socklen_t own_bytes = sizeof(own);
    struct weft__tcp_address address, other;
    struct ifaddrs *interfaces = NULL;
    snprintf(name, WEFT__TCP_NAME_BYTES, "tcp");
    if (getsockname(fd, &own.any, &own_bytes) != 0 || getifaddrs(&interfaces) != 0)
        return;
    (void)read_sockaddr(&own.any, &address);
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || !read_sockaddr(at->ifa_addr, &other) ||
            other.family != address.family ||
            memcmp(other.bytes, address.bytes, sizeof(other.bytes)) != 0)
            continue;
        snprintf(name, WEFT__TCP_NAME_BYTES, "tcp/%s", at->ifa_name);
        break;
    }
    freeifaddrs(interfaces);
}
