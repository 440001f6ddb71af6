/* SPDX-License-Identifier: MIT */
#include "topo/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct weft__sysfs weft__sysfs_of_host = {"/sys", "/proc"};

/* ------------------------------------------------------------------ files */

void weft__sysfs_text(char text[WEFT__SYSFS_TEXT_BYTES], const char *format, ...)
{
    char path[WEFT__SYSFS_PATH_BYTES + 256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(text, WEFT__SYSFS_TEXT_BYTES, file) == NULL)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

/* Where a path leads without links, or "". */
static void resolve(const char *path, char resolved[WEFT__SYSFS_PATH_BYTES])
{
    char *real = realpath(path, NULL);
    resolved[0] = '\0';
    if (real != NULL && strlen(real) < WEFT__SYSFS_PATH_BYTES)
        memcpy(resolved, real, strlen(real) + 1);
    free(real);
}

/* "0000:3b:00.0" */
static int is_bus_id(const char *text)
{
    static const char form[] = "hhhh:hh:hh.h";
    if (strlen(text) != strlen(form))
        return 0;
    for (size_t i = 0; form[i] != '\0'; i++)
        if (form[i] == 'h' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i])
            return 0;
    return 1;
}

/* ------------------------------------------------------------------ PCI */

void weft__sysfs_device(const struct weft__sysfs *sysfs, const char *bus_id,
                        char path[WEFT__SYSFS_PATH_BYTES])
{
    char link[WEFT__SYSFS_PATH_BYTES];
    path[0] = '\0';
    if (!is_bus_id(bus_id))
        return;
    snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sysfs->sys, bus_id);
    resolve(link, path);
}

/* Cuts the last folder off. What it was called, or "". */
static const char *cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return "";
    *slash = '\0';
    return slash + 1;
}

void weft__sysfs_switch_above(const char *path, char bus_id[WEFT__TOPO_ID_BYTES])
{
    char rest[WEFT__SYSFS_PATH_BYTES];
    bus_id[0] = '\0';
    snprintf(rest, sizeof rest, "%s", path);
    (void)cut_last(rest);
    /* Next is the port that it is plugged in, of the switch or of the processor. */
    if (!is_bus_id(cut_last(rest)))
        return;
    const char *above = cut_last(rest);
    if (is_bus_id(above))
        snprintf(bus_id, WEFT__TOPO_ID_BYTES, "%s", above);
}

/* ------------------------------------------------------------------ the host */

void weft__sysfs_cpu_value(const struct weft__sysfs *sysfs, const char *name,
                           char text[WEFT__SYSFS_TEXT_BYTES])
{
    char path[WEFT__SYSFS_PATH_BYTES], line[4096];
    const size_t length = strlen(name);
    text[0] = '\0';
    snprintf(path, sizeof path, "%s/cpuinfo", sysfs->proc);
    FILE *file = fopen(path, "re");
    while (file != NULL && text[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, name, length) != 0 ||
            line[length + strspn(line + length, " \t")] != ':')
            continue;
        colon += 1 + (colon[1] == ' ');
        snprintf(text, WEFT__SYSFS_TEXT_BYTES, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (file != NULL)
        fclose(file);
}

static uint64_t add_to_hash(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3; /* FNV-1a */
    return hash;
}

uint64_t weft__sysfs_host_hash(const struct weft__sysfs *sysfs)
{
    char text[WEFT__SYSFS_TEXT_BYTES];
    uint64_t hash = 0xcbf29ce484222325;
    weft__sysfs_text(text, "%s/sys/kernel/hostname", sysfs->proc);
    hash = add_to_hash(hash, text);
    weft__sysfs_text(text, "%s/sys/kernel/random/boot_id", sysfs->proc);
    return add_to_hash(hash, text);
}

/* ------------------------------------------------------------------ folders */

/* Names of a folder that begin with `prefix`, sorted; the number of them. To be freed, each and all. */
static int list_names(const char *folder, const char *prefix, struct dirent ***names)
{
    const int count = scandir(folder, names, NULL, versionsort);
    int num_kept = 0;
    for (int i = 0; i < count; i++) {
        struct dirent *name = (*names)[i];
        if (name->d_name[0] != '.' && strncmp(name->d_name, prefix, strlen(prefix)) == 0)
            (*names)[num_kept++] = name;
        else
            free(name);
    }
    if (count < 0)
        *names = NULL;
    return num_kept;
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

int32_t weft__sysfs_find_numa_nodes(const struct weft__sysfs *sysfs, int32_t *nodes, int32_t most)
{
    char folder[WEFT__SYSFS_PATH_BYTES];
    struct dirent **names;
    int32_t num_nodes = 0;
    snprintf(folder, sizeof folder, "%s/devices/system/node", sysfs->sys);
    const int count = list_names(folder, "node", &names);
    for (int i = 0; i < count && num_nodes < most; i++) {
        char *end;
        const long node = strtol(names[i]->d_name + 4, &end, 10);
        if (*end == '\0' && isdigit((unsigned char)names[i]->d_name[4]) && node <= INT_MAX)
            nodes[num_nodes++] = (int32_t)node;
    }
    free_names(names, count);
    return num_nodes;
}

/* ------------------------------------------------------------------ ports of the network */

/* Ports are added here. */
struct found_nets {
    const struct weft__sysfs *sysfs;
    struct weft__topo_net_facts *nets;
    int32_t count, most;
};

/* Enters the bus id of the PCI device that a class's device is, if it is one. */
static void set_bus_id(struct weft__topo_net_facts *net, const char *folder)
{
    char link[WEFT__SYSFS_PATH_BYTES + 16], path[WEFT__SYSFS_PATH_BYTES];
    snprintf(link, sizeof link, "%s/device", folder);
    resolve(link, path);
    const char *name = cut_last(path);
    if (is_bus_id(name))
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
static void add_rdma_port(struct found_nets *found, const char *device, const char *port)
{
    char folder[WEFT__SYSFS_PATH_BYTES], text[WEFT__SYSFS_TEXT_BYTES];
    struct weft__topo_net_facts net = {.dev = found->count,
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
    found->nets[found->count++] = net;
}

static void find_rdma_ports(struct found_nets *found)
{
    char folder[WEFT__SYSFS_PATH_BYTES], ports_folder[WEFT__SYSFS_PATH_BYTES + 300];
    struct dirent **devices, **ports;
    snprintf(folder, sizeof folder, "%s/class/infiniband", found->sysfs->sys);
    const int num_devices = list_names(folder, "", &devices);
    for (int i = 0; i < num_devices; i++) {
        snprintf(ports_folder, sizeof ports_folder, "%s/%s/ports", folder, devices[i]->d_name);
        const int num_ports = list_names(ports_folder, "", &ports);
        for (int j = 0; j < num_ports; j++)
            add_rdma_port(found, devices[i]->d_name, ports[j]->d_name);
        free_names(ports, num_ports);
    }
    free_names(devices, num_devices);
}

/* Interfaces that are up, but for the loopback and what the kernel has made up: bridges, tunnels. */
static void add_interface(struct found_nets *found, const char *name)
{
    char folder[WEFT__SYSFS_PATH_BYTES], text[WEFT__SYSFS_TEXT_BYTES];
    struct weft__topo_net_facts net = {.dev = found->count, .max_connections = 65536};
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
    found->nets[found->count++] = net;
}

int32_t weft__sysfs_find_nets(const struct weft__sysfs *sysfs, struct weft__topo_net_facts *nets,
                              int32_t most)
{
    struct found_nets found = {sysfs, nets, 0, most};
    char folder[WEFT__SYSFS_PATH_BYTES];
    struct dirent **names;
    find_rdma_ports(&found);
    if (found.count > 0)
        return found.count;
    snprintf(folder, sizeof folder, "%s/class/net", sysfs->sys);
    const int count = list_names(folder, "", &names);
    for (int i = 0; i < count; i++)
        add_interface(&found, names[i]->d_name);
    free_names(names, count);
    return found.count;
}
