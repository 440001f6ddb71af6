/* SPDX-License-Identifier: MIT */
#include "net/devices.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/log.h"

enum { PATH_BYTES = 400 };

static void append(char devices[WEFT__NET_DEVICES_BYTES], const char *device, const char *port)
{
    const size_t length = strlen(devices);
    const size_t added = strlen(device) + strlen(port) + 2;
    if (length + added < WEFT__NET_DEVICES_BYTES)
        snprintf(devices + length, WEFT__NET_DEVICES_BYTES - length, ",%s:%s", device, port);
}

static void append_ports(char devices[WEFT__NET_DEVICES_BYTES], const char *device)
{
    char path[320];
    const struct dirent *port;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports", device);
    DIR *ports = opendir(path);
    while (ports != NULL && (port = readdir(ports)) != NULL)
        if (port->d_name[0] != '.')
            append(devices, device, port->d_name);
    if (ports != NULL)
        closedir(ports);
}

weft_result weft__net_default_devices(const weft_comm *comm, char devices[WEFT__NET_DEVICES_BYTES])
{
    const struct dirent *device;
    const weft_result result = weft__comm_interface(comm, devices, WEFT__NET_DEVICES_BYTES);
    if (result != WEFT_OK) {
        weft__log(WEFT__LOG_WARN, comm->rank, "the network engine may use all devices: %s",
                  weft__last_error());
        return result;
    }
    DIR *all = opendir("/sys/class/infiniband");
    while (all != NULL && (device = readdir(all)) != NULL)
        if (device->d_name[0] != '.')
            append_ports(devices, device->d_name);
    if (all != NULL)
        closedir(all);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- RDMA */

/* Whether `check` holds for an entry of the directory. */
static int any_entry(const char *directory, const char *dev,
                     int (*check)(const char *path, const char *name, const char *dev))
{
    const struct dirent *entry;
    int is_found = 0;
    DIR *entries = opendir(directory);
    while (entries != NULL && !is_found && (entry = readdir(entries)) != NULL)
        is_found = entry->d_name[0] != '.' && check(directory, entry->d_name, dev);
    if (entries != NULL)
        closedir(entries);
    return is_found;
}

static int is_active(const char *ports, const char *port, const char *dev)
{
    char path[PATH_BYTES], state[32] = "";
    (void)dev;
    snprintf(path, sizeof(path), "%.300s/%.64s/state", ports, port);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const int is_read = fgets(state, sizeof(state), file) != NULL;
    fclose(file);
    return is_read && strstr(state, "ACTIVE") != NULL;
}

/* A container may show devices that it does not let in. */
static int may_open(const char *all, const char *verbs, const char *dev)
{
    char path[PATH_BYTES];
    (void)all;
    snprintf(path, sizeof(path), "%.200s/infiniband/%.64s", dev, verbs);
    return access(path, R_OK | W_OK) == 0;
}

int weft__net_find_rdma(const char *sys, const char *dev, char name[WEFT__NET_DEVICE_NAME_BYTES])
{
    char all[PATH_BYTES], path[PATH_BYTES];
    const struct dirent *device;
    int is_found = 0;
    snprintf(all, sizeof(all), "%.200s/class/infiniband", sys);
    DIR *devices = opendir(all);
    while (devices != NULL && !is_found && (device = readdir(devices)) != NULL) {
        snprintf(name, WEFT__NET_DEVICE_NAME_BYTES, "%.63s", device->d_name);
        snprintf(path, sizeof(path), "%.250s/%.63s/ports", all, name);
        is_found = name[0] != '.' && any_entry(path, dev, is_active);
        snprintf(path, sizeof(path), "%.250s/%.63s/device/infiniband_verbs", all, name);
        is_found = is_found && any_entry(path, dev, may_open);
    }
    if (devices != NULL)
        closedir(devices);
    return is_found;
}
