/* SPDX-License-Identifier: MIT */
#include "comm/heap/host_memory.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/heap/control_groups.h"
#include "comm/host/error.h"

uint64_t weft__host_memory_total_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t weft__host_memory_available_bytes(void)
{
    const uint64_t kib = 1024;
    uint64_t available_kib = weft__read_number("/proc/meminfo", "MemAvailable:");
    uint64_t swap_kib = weft__read_number("/proc/meminfo", "SwapFree:");
    uint64_t host = UINT64_MAX;
    if (available_kib != UINT64_MAX)
        host = (available_kib + (swap_kib == UINT64_MAX ? 0 : swap_kib)) * kib;
    uint64_t groups = weft__control_groups_available_bytes("");
    return groups < host ? groups : host;
}

weft_result weft__lacks_addresses(const char *why)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return weft__no_memory("%s", why);
    return weft__no_memory("%s; the limit on addresses (RLIMIT_AS, ulimit -v) is %" PRIu64 " bytes",
                           why, (uint64_t)limit.rlim_cur);
}

weft_result weft__check_file_size(const char *what, uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return WEFT_OK;
    return weft__no_memory("%s needs %" PRIu64
                           " bytes; the limit on the size of files (RLIMIT_FSIZE, "
                           "ulimit -f) is %" PRIu64 " bytes",
                           what, bytes, (uint64_t)limit.rlim_cur);
}
