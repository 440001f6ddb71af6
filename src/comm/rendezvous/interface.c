/* SPDX-License-Identifier: MIT */
/* Which of the host's network interfaces leads to the other ranks. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "comm/comm.h"
#include "comm/rendezvous/link.h"

static int all_on_one_host(const weft_comm *comm)
{
    for (int32_t rank = 1; rank < comm->num_ranks; rank++)
        if (comm->identities[rank].host_key != comm->identities[0].host_key)
            return 0;
    return 1;
}

/* IPv4 addresses may come as IPv6 ones. */
static int is_same_address(const struct sockaddr *one, const struct sockaddr_storage *other)
{
    const struct sockaddr_in6 *other6 = (const struct sockaddr_in6 *)(const void *)other;
    if (one->sa_family == AF_INET6)
        return other->ss_family == AF_INET6 &&
               memcmp(&((const struct sockaddr_in6 *)(const void *)one)->sin6_addr,
                      &other6->sin6_addr, sizeof(other6->sin6_addr)) == 0;
    const void *other4 = &((const struct sockaddr_in *)(const void *)other)->sin_addr;
    if (other->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&other6->sin6_addr))
        other4 = &other6->sin6_addr.s6_addr[12];
    else if (other->ss_family != AF_INET)
        return 0;
    return one->sa_family == AF_INET &&
           memcmp(&((const struct sockaddr_in *)(const void *)one)->sin_addr, other4,
                  sizeof(struct in_addr)) == 0;
}

static int has_address(const struct ifaddrs *interface, const struct sockaddr_storage *address)
{
    return interface->ifa_addr != NULL && is_same_address(interface->ifa_addr, address);
}

static const struct ifaddrs *find(const weft_comm *comm, const struct ifaddrs *interfaces)
{
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    socklen_t own_bytes = sizeof(own);
    const int is_local = all_on_one_host(comm);
    if (comm->link == NULL ||
        getsockname(weft__link_fd(comm->link), (struct sockaddr *)(void *)&own, &own_bytes) != 0)
        return NULL;
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next)
        if (is_local && (at->ifa_flags & IFF_LOOPBACK) != 0 && (at->ifa_flags & IFF_UP) != 0)
            return at;
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next)
        if (has_address(at, &own))
            return at;
    return NULL;
}

weft_result weft__comm_interface(const weft_comm *comm, char *name, size_t name_bytes)
{
    struct ifaddrs *interfaces = NULL;
    if (getifaddrs(&interfaces) != 0)
        return weft__system_error("cannot list the network interfaces");
    const struct ifaddrs *found = find(comm, interfaces);
    if (found != NULL)
        snprintf(name, name_bytes, "%s", found->ifa_name);
    freeifaddrs(interfaces);
    return found != NULL ? WEFT_OK
                         : weft__error(WEFT_ERROR_UNSUPPORTED,
                                       "no network interface has the address of rank %d's "
                                       "connection to the rendezvous",
                                       comm->rank);
}
