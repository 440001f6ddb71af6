/* SPDX-License-Identifier: MIT */
#include "topo/system.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topo_pci_folder(const struct weft__sysfs *sysfs, const char *bus_id,
                     char path[WEFT__SYSFS_PATH_BYTES])
{
    char link[WEFT__SYSFS_PATH_BYTES];
    path[0] = '\0';
    if (!weft__sysfs_is_bus_id(bus_id))
        return;
    snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sysfs->sys, bus_id);
    weft__sysfs_resolve(link, path);
}

void topo_switch_above(const char *path, char bus_id[WEFT__SYSFS_ID_BYTES])
{
    char rest[WEFT__SYSFS_PATH_BYTES];
    bus_id[0] = '\0';
    snprintf(rest, sizeof rest, "%s", path);
    (void)weft__sysfs_cut_last(rest);
    /* Next is the port that it is plugged in, of the switch or of the processor. */
    if (!weft__sysfs_is_bus_id(weft__sysfs_cut_last(rest)))
        return;
    const char *above = weft__sysfs_cut_last(rest);
    if (weft__sysfs_is_bus_id(above))
        snprintf(bus_id, WEFT__SYSFS_ID_BYTES, "%s", above);
}

void topo_cpu_value(const struct weft__sysfs *sysfs, const char *name,
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

uint64_t topo_host_hash(const struct weft__sysfs *sysfs)
{
    char text[WEFT__SYSFS_TEXT_BYTES];
    uint64_t hash = 0xcbf29ce484222325;
    weft__sysfs_text(text, "%s/sys/kernel/hostname", sysfs->proc);
    hash = add_to_hash(hash, text);
    weft__sysfs_text(text, "%s/sys/kernel/random/boot_id", sysfs->proc);
    return add_to_hash(hash, text);
}

int32_t topo_find_numa_nodes(const struct weft__sysfs *sysfs, int32_t *nodes, int32_t most)
{
    char folder[WEFT__SYSFS_PATH_BYTES];
    struct dirent **names;
    int32_t num_nodes = 0;
    snprintf(folder, sizeof folder, "%s/devices/system/node", sysfs->sys);
    const int count = weft__sysfs_list(folder, "node", &names);
    for (int i = 0; i < count && num_nodes < most; i++) {
        char *end;
        const long node = strtol(names[i]->d_name + 4, &end, 10);
        if (*end == '\0' && isdigit((unsigned char)names[i]->d_name[4]) && node <= INT_MAX)
            nodes[num_nodes++] = (int32_t)node;
    }
    weft__sysfs_free_list(names, count);
    return num_nodes;
}
