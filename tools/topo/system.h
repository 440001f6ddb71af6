/* SPDX-License-Identifier: MIT */
/* Processors and PCI devices as Linux shows them. Where it shows nothing, the answer is "" or
 * none. */
#pragma once

#include <stdint.h>

#include "net/sysfs.h"

/* The folder of a PCI device, or "". */
void topo_pci_folder(const struct weft__sysfs *sysfs, const char *bus_id,
                     char path[WEFT__SYSFS_PATH_BYTES]);
/* The bus id of the switch that the device of such a folder is behind, or "": it is below a
 * processor. */
void topo_switch_above(const char *path, char bus_id[WEFT__SYSFS_ID_BYTES]);

/* One value of /proc/cpuinfo, of the first processor; "" if it has none. */
void topo_cpu_value(const struct weft__sysfs *sysfs, const char *name,
                    char text[WEFT__SYSFS_TEXT_BYTES]);

/* The same for all processes of this host. */
uint64_t topo_host_hash(const struct weft__sysfs *sysfs);

/* NUMA nodes, ascending. The number of them, at most `most`. */
int32_t topo_find_numa_nodes(const struct weft__sysfs *sysfs, int32_t *nodes, int32_t most);
