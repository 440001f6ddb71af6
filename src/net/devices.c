/* SPDX-License-Identifier: MIT */
#include "net/devices.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "comm/log.h"

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
