/* SPDX-License-Identifier: MIT */
#include "net/nic/lacks.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/host/error.h"

static void add(char lacks[WEFT__NIC_LACKS_BYTES], const char *lack)
{
    const size_t length = strlen(lacks);
    snprintf(lacks + length, WEFT__NIC_LACKS_BYTES - length, "%s%s", length > 0 ? "; " : "", lack);
}

/* Opens the device as for queues, and gives it back. */
static weft_result try_device(char name[WEFT__NIC_NAME_BYTES])
{
    const struct weft__verbs *verbs;
    struct weft__nic_device device;
    WEFT__TRY(weft__verbs_load(&verbs));
    WEFT__TRY(weft__nic_device_open(verbs, NULL, &device));
    memcpy(name, device.name, WEFT__NIC_NAME_BYTES);
    weft__nic_device_close(&device);
    return WEFT_OK;
}

/* True if a line of the driver's file has the text. */
static int driver_says(const struct weft__sysfs *system, const char *file, const char *text)
{
    char path[WEFT__SYSFS_PATH_BYTES], line[1024];
    int is_said = 0;
    snprintf(path, sizeof path, "%s/driver/nvidia/%s", system->proc, file);
    FILE *lines = fopen(path, "re");
    while (lines != NULL && !is_said && fgets(line, sizeof line, lines) != NULL)
        is_said = strstr(line, text) != NULL;
    if (lines != NULL)
        fclose(lines);
    return is_said;
}

static int has_module(const struct weft__sysfs *system, const char *module)
{
    char path[WEFT__SYSFS_PATH_BYTES];
    struct stat status;
    snprintf(path, sizeof path, "%s/module/%s", system->sys, module);
    return stat(path, &status) == 0;
}

static void find_lacks_of_gpus(const struct weft__sysfs *system, char lacks[WEFT__NIC_LACKS_BYTES])
{
    if (!driver_says(system, "version", "NVRM version")) {
        add(lacks, "there is no driver of NVIDIA's GPUs");
        return;
    }
    /* The closed modules export no dmabuf. */
    if (!driver_says(system, "version", "Open Kernel Module") &&
        !has_module(system, "nvidia_peermem"))
        add(lacks, "memory of GPUs cannot be registered: it takes the open modules of the driver, "
                   "or nvidia-peermem");
    if (!driver_says(system, "params", "PeerMappingOverride=1"))
        add(lacks, "GPUs cannot reach doorbells: module nvidia has no option "
                   "NVreg_RegistryDwords=\"PeerMappingOverride=1;\"");
}

void weft__nic_find_lacks(const struct weft__sysfs *system, char device[WEFT__NIC_NAME_BYTES],
                          char lacks[WEFT__NIC_LACKS_BYTES])
{
    lacks[0] = device[0] = '\0';
    if (try_device(device) != WEFT_OK)
        add(lacks, weft__last_error());
    find_lacks_of_gpus(system, lacks);
}
