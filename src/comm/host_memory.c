/* SPDX-License-Identifier: MIT */
#include "comm/host_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/error.h"

uint64_t weft__host_memory_total_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The number after `name` at the start of a line of a file of "name number" lines; without a name,
 * the number that the file consists of. UINT64_MAX if there is none. */
static uint64_t read_number(const char *path, const char *name)
{
    uint64_t number = UINT64_MAX;
    char line[256];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return number;
    while (number == UINT64_MAX && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) != 0 ||
            sscanf(line + strlen(name), "%" SCNu64, &number) != 1)
            number = UINT64_MAX;
    fclose(file);
    return number;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t control_group_available(const char *group)
{
    char path[512];
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
    uint64_t limit = read_number(path, "");
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
    uint64_t current = read_number(path, "");
    if (limit == UINT64_MAX || current == UINT64_MAX)
        return UINT64_MAX;
    /* File pages that nobody used lately can be had back. */
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.stat", group);
    uint64_t reclaimable = read_number(path, "inactive_file ");
    return minus(limit, minus(current, reclaimable == UINT64_MAX ? 0 : reclaimable));
}

/* The least of the limits from the process's group up to the root. */
static uint64_t control_groups_available(void)
{
    char line[256];
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return UINT64_MAX;
    char *group = NULL;
    while (group == NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "0::/", strlen("0::/")) == 0)
            group = line + strlen("0::");
    fclose(file);
    if (group == NULL)
        return UINT64_MAX;
    group[strcspn(group, "\n")] = '\0';
    uint64_t least = UINT64_MAX;
    for (char *slash = strrchr(group, '/'); slash != NULL; slash = strrchr(group, '/')) {
        uint64_t available = control_group_available(group);
        if (available < least)
            least = available;
        *slash = '\0';
    }
    uint64_t root = control_group_available("");
    return root < least ? root : least;
}

uint64_t weft__host_memory_available_bytes(void)
{
    const uint64_t kib = 1024;
    uint64_t available_kib = read_number("/proc/meminfo", "MemAvailable:");
    uint64_t swap_kib = read_number("/proc/meminfo", "SwapFree:");
    if (available_kib == UINT64_MAX)
        return UINT64_MAX;
    uint64_t host = (available_kib + (swap_kib == UINT64_MAX ? 0 : swap_kib)) * kib;
    uint64_t groups = control_groups_available();
    return groups < host ? groups : host;
}

weft_result weft__check_file_size(const char *what, uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_OUT_OF_MEMORY,
                       "%s needs %" PRIu64 " bytes; the limit on the size of files (RLIMIT_FSIZE, "
                       "ulimit -f) is %" PRIu64 " bytes",
                       what, bytes, (uint64_t)limit.rlim_cur);
}
