/* SPDX-License-Identifier: MIT */
#include "doctor_system.h"

#include <dirent.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "workload/version.h"

static const double mib = 1 << 20, gib = 1 << 30;

static int tell(struct doctor_report *report, const char *what, const char *advice,
                const char *value, ...) __attribute__((format(printf, 4, 5)));

static int tell(struct doctor_report *report, const char *what, const char *advice,
                const char *value, ...)
{
    struct doctor_finding finding = {
        .what = what, .severity = advice ? DOCTOR_LIMITS : DOCTOR_FINE, .advice = advice};
    va_list arguments;
    va_start(arguments, value);
    vsnprintf(finding.value, sizeof finding.value, value, arguments);
    va_end(arguments);
    return doctor_print_finding(report, &finding);
}

static int print_weft(struct doctor_report *report)
{
    char version[VERSION_CHARS];
    version_text(version);
    return tell(report, "weft", NULL, "%s%s%s", version, *weft_commit() ? ", commit " : "",
                weft_commit());
}

/* How many entries of the folder begin with `prefix`. */
static int count_entries(const char *folder, const char *prefix)
{
    int num_entries = 0;
    DIR *entries = opendir(folder);
    if (!entries)
        return 0;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        num_entries +=
            entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(entries);
    return num_entries;
}

/* Only RDMA locks memory that counts. */
static int print_locked_memory(struct doctor_report *report)
{
    const double enough_bytes = gib;
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 0;
    if (limit.rlim_cur == RLIM_INFINITY)
        return tell(report, "locked memory", NULL, "unlimited");
    const int is_short =
        (double)limit.rlim_cur < enough_bytes && count_entries("/sys/class/infiniband", "") > 0;
    return tell(report, "locked memory",
                is_short ? "RDMA needs more: ulimit -l unlimited, LimitMEMLOCK=infinity of a "
                           "service, --ulimit memlock=-1 of a container"
                         : NULL,
                "at most %.0f MiB", (double)limit.rlim_cur / mib);
}

/* weft's own memory is not there. */
static int print_shared_memory(struct doctor_report *report)
{
    struct statvfs status;
    if (statvfs("/dev/shm", &status) != 0)
        return tell(report, "shared memory", "PyTorch and NCCL need /dev/shm; weft does not",
                    "no /dev/shm");
    const double bytes = (double)status.f_blocks * (double)status.f_frsize;
    return tell(report, "shared memory",
                bytes < gib ? "PyTorch and NCCL may need more: --shm-size=8g of a container; weft "
                              "needs none"
                            : NULL,
                "/dev/shm has %.1f GiB", bytes / gib);
}

static int print_memory(struct doctor_report *report)
{
    weft_device_info host = WEFT_INIT(weft_device_info);
    if (weft_device_query(WEFT_MACHINE_CPU, 0, &host) != WEFT_OK ||
        host.available_bytes == UINT64_MAX)
        return 0;
    return tell(report, "memory",
                (double)host.available_bytes < gib
                    ? "heaps may not fit: raise the limit of the container, or end other programs"
                    : NULL,
                "%.1f of %.1f GiB left, within the limits of control groups",
                (double)host.available_bytes / gib, (double)host.memory_bytes / gib);
}

static FILE *open_quota(void)
{
    char path[512] = "", line[400];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups))
        if (strncmp(line, "0::", 3) == 0)
            snprintf(path, sizeof path, "/sys/fs/cgroup%.*s/cpu.max", (int)strcspn(line + 3, "\n"),
                     line + 3);
    if (groups)
        fclose(groups);
    FILE *quota = fopen(path, "re");
    if (!quota) /* in a container */
        quota = fopen("/sys/fs/cgroup/cpu.max", "re");
    return quota ? quota : fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
}

/* Cores by the quota of the control group, of either version; 0: there is none. */
static double read_quota(void)
{
    double quota_us = 0, period_us = 100000;
    FILE *quota = open_quota();
    if (quota && fscanf(quota, "%lf %lf", &quota_us, &period_us) < 1) /* "max" */
        quota_us = 0;
    if (quota)
        fclose(quota);
    return quota_us > 0 ? quota_us / period_us : 0;
}

static int print_cores(struct doctor_report *report)
{
    cpu_set_t cores;
    const long num_online = sysconf(_SC_NPROCESSORS_ONLN);
    const int num_nodes = count_entries("/sys/devices/system/node", "node");
    const int num_cores =
        sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : (int)num_online;
    const double quota = read_quota();
    char limit[64] = "";
    if (quota > 0)
        snprintf(limit, sizeof limit, "; the control group gives %.1f", quota);
    return tell(report, "cores",
                quota > 0 && quota < num_cores
                    ? "ranks are halted once they have used their share: raise --cpus of the "
                      "container, or start no more ranks than that"
                : num_cores == 1 ? "ranks take turns: bind each to a core of its own"
                                 : NULL,
                "%d of %ld, NUMA nodes: %d%s", num_cores, num_online, num_nodes > 0 ? num_nodes : 1,
                limit);
}

/* Libraries and programs that are there are named, and none is loaded; and how those that know
 * weft would reach it (docs/coming-from.md). */
static int print_versions(struct doctor_report *report)
{
    static const char script[] =
        "for name in libucp.so.0 libibverbs.so.1 libnccl.so.2; do"
        "  path=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null |"
        "    sed -n \"s/.*$name .*=> //p\" | head -n 1);"
        "  [ -z \"$path\" ] || echo \"$name $(readlink -f \"$path\")\"; "
        "done; python3 -c '\n"
        "from importlib import metadata, util\n"
        "def origin(name):\n"
        "    spec = util.find_spec(name)\n"
        "    return spec and spec.origin\n"
        "weft, deep_ep = origin(\"weft\"), origin(\"deep_ep\")\n"
        "if deep_ep and \"weft\" in open(deep_ep).read():\n"
        "    experts = \"deep_ep of weft, \" + deep_ep\n"
        "elif weft:\n"
        "    experts = (\"not weft; export PYTHONPATH=$(python3 -m weft.drop_in):$PYTHONPATH puts "
        "\"\n"
        "               \"its deep_ep in place of \" + (deep_ep or \"DeepEP\"))\n"
        "else:\n"
        "    experts = \"not weft: its Python package is not there (pip install .)\"\n"
        "ways = {\"vllm\": experts, \"sglang\": experts, \"megatron-core\": experts,\n"
        "        \"torch\": \"weft after init_process_group(\\\"weft\\\"), from 2.14 on\",\n"
        "        \"transformers\": \"weft with ep_implementation=\\\"weft\\\", from 5.23 on\"}\n"
        "for name, way in ways.items():\n"
        "    try:\n"
        "        print(name, metadata.version(name))\n"
        "        print(\"path-of-\" + name, way if weft else experts)\n"
        "    except metadata.PackageNotFoundError:\n        pass' 2>/dev/null";
    char line[400];
    int result = 0;
    FILE *found = popen(script, "re");
    while (found && fgets(line, sizeof line, found)) {
        char *value = line + strcspn(line, " ");
        value[strcspn(value, "\n")] = '\0';
        if (*value)
            *value++ = '\0';
        result |= tell(report, line, NULL, "%s", value);
    }
    if (found)
        pclose(found);
    return result;
}

int doctor_print_system(struct doctor_report *report)
{
    return print_weft(report) | print_memory(report) | print_locked_memory(report) |
           print_shared_memory(report) | print_cores(report) | print_versions(report);
}
