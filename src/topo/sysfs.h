/* SPDX-License-Identifier: MIT */
/* What Linux shows of devices in its file systems. Where it shows nothing, these say so, and that is no error: it is
 * the rule in virtual machines. */
#pragma once

#include <stddef.h>

#include "topo/facts.h"
#include "weft.h"

/* Where they are mounted; tests have their own. */
struct weft__sysfs {
    const char *sys, *proc;
};
extern const struct weft__sysfs weft__sysfs_of_host;

enum { WEFT__SYSFS_TEXT_BYTES = 128, WEFT__SYSFS_PATH_BYTES = 1024 };

/* The first line of a file; "" if there is none. */
void weft__sysfs_text(char text[WEFT__SYSFS_TEXT_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The folder of a PCI device, or "". */
void weft__sysfs_device(const struct weft__sysfs *sysfs, const char *bus_id,
                        char path[WEFT__SYSFS_PATH_BYTES]);
/* The bus id of the switch that the device of such a folder is behind, or "": it is below a processor. */
void weft__sysfs_switch_above(const char *path, char bus_id[WEFT__TOPO_ID_BYTES]);

/* One value of /proc/cpuinfo, of the first processor; "" if it has none. */
void weft__sysfs_cpu_value(const struct weft__sysfs *sysfs, const char *name,
                           char text[WEFT__SYSFS_TEXT_BYTES]);

/* The same for all processes of this host. */
uint64_t weft__sysfs_host_hash(const struct weft__sysfs *sysfs);

/* NUMA nodes, ascending. The number of them, at most `most`. */
int32_t weft__sysfs_find_numa_nodes(const struct weft__sysfs *sysfs, int32_t *nodes, int32_t most);

/* Ports for RDMA, else interfaces of the network that are devices; numbered by name. The number of them. */
int32_t weft__sysfs_find_nets(const struct weft__sysfs *sysfs, struct weft__topo_net_facts *nets,
                              int32_t most);
