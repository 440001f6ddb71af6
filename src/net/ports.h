/* SPDX-License-Identifier: MIT */
/* The host's ports to the network, as the system shows them. */
#pragma once

#include <stdint.h>

#include "net/sysfs.h"

struct weft__net_port {
    char bus_id[WEFT__SYSFS_ID_BYTES]; /* "": no PCI device */
    char name[WEFT__SYSFS_ID_BYTES];
    int32_t dev, port;
    int32_t megabits; /* per second; -1: not known */
    int32_t max_connections;
    int32_t has_gdr;
    uint64_t guid; /* of the device; ports of one have the same */
};

/* Ports for RDMA, else interfaces of the network that are devices; numbered by name. The number of
 * them. */
int32_t weft__net_find_ports(const struct weft__sysfs *sysfs, struct weft__net_port *ports,
                             int32_t most);

/* The rate of all ports that a transport ("tcp/eth0") names, of devices alone, since others
 * are not bound to what they say; 0: not known. */
double weft__net_port_gbps(const char *transport, const struct weft__sysfs *sysfs);
