/* SPDX-License-Identifier: MIT */
#include "net/ports.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ports are added here. */
struct found_ports {
    const struct weft__sysfs *sysfs;
    struct weft__net_port *ports;
    int32_t count, most;
};

/* Enters the bus id of the PCI device that a class's device is, if it is one. */
static void set_bus_id(struct weft__net_port *net, const char *folder)
{
    char link[WEFT__SYSFS_PATH_BYTES + 16], path[WEFT__SYSFS_PATH_BYTES];
    snprintf(link, sizeof link, "%s/device", folder);
    weft__sysfs_resolve(link, path);
    const char *name = weft__sysfs_cut_last(path);
    if (weft__sysfs_is_bus_id(name))
        snprintf(net->bus_id, sizeof net->bus_id, "%s", name);
}

/* "b83f:d203:0012:3456" */
static uint64_t parse_guid(const char *text)
{
    uint64_t guid = 0;
    for (; *text != '\0'; text++)
        if (isxdigit((unsigned char)*text))
            guid = guid << 4 | (uint64_t)(isdigit((unsigned char)*text) ? *text - '0'
                                                                        : (*text | 32) - 'a' + 10);
    return guid;
}

static int has_peer_memory(const struct weft__sysfs *sysfs)
{
    static const char *const modules[] = {"nvidia_peermem", "nv_peer_mem"};
    char path[WEFT__SYSFS_PATH_BYTES];
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        snprintf(path, sizeof path, "%s/module/%s", sysfs->sys, modules[i]);
        if (access(path, F_OK) == 0)
            return 1;
    }
    return 0;
}

/* Adds a port of a device for RDMA if it is active. */
static void add_rdma_port(struct found_ports *found, const char *device, const char *port)
{
    char folder[WEFT__SYSFS_PATH_BYTES], text[WEFT__SYSFS_TEXT_BYTES];
    struct weft__net_port net = {.dev = found->count,
                                 .port = (int32_t)strtol(port, NULL, 10),
                                 .max_connections = 1 << 17,
                                 .has_gdr = has_peer_memory(found->sysfs)};
    snprintf(folder, sizeof folder, "%s/class/infiniband/%s", found->sysfs->sys, device);
    weft__sysfs_text(text, "%s/ports/%s/state", folder, port);
    if (found->count == found->most || strstr(text, "ACTIVE") == NULL)
        return;
    weft__sysfs_text(text, "%s/ports/%s/rate", folder, port); /* "400 Gb/sec (4X NDR)" */
    const double gigabits = strtod(text, NULL);
    net.megabits = gigabits > 0 && gigabits < 1e6 ? (int32_t)(gigabits * 1000) : -1;
    weft__sysfs_text(text, "%s/sys_image_guid", folder);
    net.guid = parse_guid(text);
    set_bus_id(&net, folder);
    snprintf(net.name, sizeof net.name, "%.31s", device);
    found->ports[found->count++] = net;
}

static void find_rdma_ports(struct found_ports *found)
{
    char folder[WEFT__SYSFS_PATH_BYTES], ports_folder[WEFT__SYSFS_PATH_BYTES + 300];
    struct dirent **devices, **ports;
    snprintf(folder, sizeof folder, "%s/class/infiniband", found->sysfs->sys);
    const int num_devices = weft__sysfs_list(folder, "", &devices);
    for (int i = 0; i < num_devices; i++) {
        snprintf(ports_folder, sizeof ports_folder, "%s/%s/ports", folder, devices[i]->d_name);
        const int num_ports = weft__sysfs_list(ports_folder, "", &ports);
        for (int j = 0; j < num_ports; j++)
            add_rdma_port(found, devices[i]->d_name, ports[j]->d_name);
        weft__sysfs_free_list(ports, num_ports);
    }
    weft__sysfs_free_list(devices, num_devices);
}

/* Interfaces that are up, but for the loopback and what the kernel has made up: bridges,
 * tunnels. */
static void add_interface(struct found_ports *found, const char *name)
{
    char folder[WEFT__SYSFS_PATH_BYTES], text[WEFT__SYSFS_TEXT_BYTES];
    struct weft__net_port net = {.dev = found->count, .max_connections = 65536};
    snprintf(folder, sizeof folder, "%s/class/net/%s", found->sysfs->sys, name);
    weft__sysfs_text(text, "%s/operstate", folder);
    set_bus_id(&net, folder);
    if (found->count == found->most || strcmp(name, "lo") == 0 || strcmp(text, "down") == 0 ||
        (net.bus_id[0] == '\0' && strncmp(name, "eth", 3) != 0))
        return;
    weft__sysfs_text(text, "%s/speed", folder);
    net.megabits = (int32_t)strtol(text, NULL, 10);
    if (net.megabits <= 0)
        net.megabits = -1;
    net.guid = (uint64_t)found->count;
    snprintf(net.name, sizeof net.name, "%.31s", name);
    found->ports[found->count++] = net;
}

int32_t weft__net_find_ports(const struct weft__sysfs *sysfs, struct weft__net_port *ports,
                             int32_t most)
{
    struct found_ports found = {sysfs, ports, 0, most};
    char folder[WEFT__SYSFS_PATH_BYTES];
    struct dirent **names;
    find_rdma_ports(&found);
    if (found.count > 0)
        return found.count;
    snprintf(folder, sizeof folder, "%s/class/net", sysfs->sys);
    const int count = weft__sysfs_list(folder, "", &names);
    for (int i = 0; i < count; i++)
        add_interface(&found, names[i]->d_name);
    weft__sysfs_free_list(names, count);
    return found.count;
}

/* ------------------------------------------------------------------ rates */

static int is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether the name is there, and not as a part of another. */
static int is_named(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
        if ((at == text || !is_of_name(at[-1])) && !is_of_name(at[length]))
            return 1;
    return 0;
}

double weft__net_port_gbps(const char *transport, const struct weft__sysfs *sysfs)
{
    enum { MAX_PORTS = 64, MEGABITS_PER_GBPS = 8000 };
    struct weft__net_port ports[MAX_PORTS];
    const int32_t num_ports = weft__net_find_ports(sysfs, ports, MAX_PORTS);
    double gbps = 0;
    for (int32_t i = 0; i < num_ports; i++)
        if (ports[i].bus_id[0] != '\0' && ports[i].megabits > 0 &&
            is_named(transport, ports[i].name))
            gbps += (double)ports[i].megabits / MEGABITS_PER_GBPS;
    return gbps;
}
