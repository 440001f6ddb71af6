/* SPDX-License-Identifier: MIT */
/* Memory limits of control groups, in made-up trees of files like those of hosts and containers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/heap/control_groups.h"
#include "harness/cmocka.h"

static const uint64_t mib = 1 << 20;
static char root[] = "/tmp/weft-groups-XXXXXX";

/* Makes the folders of the file, too. */
static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

enum version { OLD, NEW };

/* Writes the files of a group. The system can reclaim reclaimable_mib of its use. */
static void write_group(enum version version, const char *folder, const char *limit, int used_mib,
                        int reclaimable_mib)
{
    char name[256], text[128];
    snprintf(name, sizeof name, "%s/%s", folder,
             version == OLD ? "memory.limit_in_bytes" : "memory.max");
    write_file(name, limit);
    snprintf(name, sizeof name, "%s/%s", folder,
             version == OLD ? "memory.usage_in_bytes" : "memory.current");
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)mib * (unsigned int)used_mib);
    write_file(name, text);
    snprintf(name, sizeof name, "%s/memory.stat", folder);
    snprintf(text, sizeof text, "cache 1\n%s %llu\nunevictable 0\n",
             version == OLD ? "total_inactive_file" : "inactive_file",
             (unsigned long long)mib * (unsigned int)reclaimable_mib);
    write_file(name, text);
}

static const char limit_300[] = "314572800\n", limit_200[] = "209715200\n";
static const char no_old_limit[] = "9223372036854771712\n";

static void start(const char *groups, const char *mounts)
{
    memset(root + strlen(root) - 6, 'X', 6);
    assert_non_null(mkdtemp(root));
    write_file("/proc/self/cgroup", groups);
    write_file("/proc/self/mountinfo", mounts);
}

static uint64_t finish(void)
{
    char command[128];
    const uint64_t available = weft__control_groups_available_bytes(root);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0); /* NOLINT: of the test's own making */
    return available;
}

#define OLD_MOUNTS                                                                                 \
    "20 1 0:19 / /proc rw shared:5 - proc proc rw\n"                                               \
    "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"                          \
    "35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
#define NEW_MOUNT "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"

TEST(an_old_group_has_what_its_limit_leaves)
{
    start("4:cpuset,memory:/job/step\n1:cpu,cpuacct:/other\n", OLD_MOUNTS);
    write_group(OLD, "/sys/fs/cgroup/memory", no_old_limit, 9000, 0);
    write_group(OLD, "/sys/fs/cgroup/memory/job", no_old_limit, 600, 0);
    write_group(OLD, "/sys/fs/cgroup/memory/job/step", limit_300, 150, 50);
    write_group(OLD, "/sys/fs/cgroup/memory/other", limit_200, 199, 0);
    assert_true(finish() == 200 * mib);
}

TEST(a_group_above_counts_where_it_has_less)
{
    start("4:memory:/job/step\n", OLD_MOUNTS);
    write_group(OLD, "/sys/fs/cgroup/memory/job", limit_200, 180, 0);
    write_group(OLD, "/sys/fs/cgroup/memory/job/step", limit_300, 0, 0);
    assert_true(finish() == 20 * mib);
    start("0::/job/step\n", NEW_MOUNT);
    write_group(NEW, "/sys/fs/cgroup/job", limit_200, 180, 10);
    write_group(NEW, "/sys/fs/cgroup/job/step", "max\n", 0, 0);
    assert_true(finish() == 30 * mib);
}

TEST(a_group_that_is_over_its_limit_has_nothing)
{
    start("0::/job\n", NEW_MOUNT);
    write_group(NEW, "/sys/fs/cgroup/job", limit_200, 250, 0);
    assert_true(finish() == 0);
}

/* Both versions are mounted; memory belongs to one of them. */
TEST(hybrid_hosts_have_the_limits_of_either)
{
    start("9:name=systemd:/x\n4:memory:/job\n0::/user.slice\n",
          OLD_MOUNTS "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write_group(OLD, "/sys/fs/cgroup/memory/job", limit_300, 100, 0);
    write_file("/sys/fs/cgroup/unified/user.slice/cgroup.procs", "");
    assert_true(finish() == 200 * mib);
    start("4:memory:/\n0::/job\n",
          OLD_MOUNTS "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write_group(OLD, "/sys/fs/cgroup/memory", no_old_limit, 100, 0);
    write_group(NEW, "/sys/fs/cgroup/unified/job", limit_200, 50, 0);
    assert_true(finish() == 150 * mib);
}

/* /proc has the host's name of the group; the container sees only the part below its mount. */
TEST(containers_that_see_their_group_as_the_top)
{
    start("4:memory:/docker/abc\n",
          "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    write_group(OLD, "/sys/fs/cgroup/memory", limit_300, 100, 0);
    assert_true(finish() == 200 * mib);
    start("4:memory:/docker/abc/inner\n",
          "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    write_group(OLD, "/sys/fs/cgroup/memory", limit_300, 290, 0);
    write_group(OLD, "/sys/fs/cgroup/memory/inner", limit_200, 100, 0);
    assert_true(finish() == 10 * mib);
}

/* The group's name does not fit the mount: it is of another name space, or of a sibling. */
TEST(groups_that_are_not_below_the_mount)
{
    static const char *const groups[] = {"0::/kubepods/pod1/abc\n", "0::/../sibling\n", "0::/\n"};
    static const char *const tops[] = {"/kubepods/pod1/abcdef", "/", "/../.."};
    for (int i = 0; i < 3; i++) {
        char mount[256];
        snprintf(mount, sizeof mount, "30 1 0:26 %s /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
                 tops[i]);
        start(groups[i], mount);
        write_group(NEW, "/sys/fs/cgroup", limit_300, 120, 0);
        assert_true(finish() == 180 * mib);
    }
}

/* Another group, which is mounted elsewhere, does not limit this process. */
TEST(groups_of_others_do_not_count)
{
    start("0::/job\n", "29 1 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n" NEW_MOUNT);
    write_group(NEW, "/mnt/other", limit_200, 199, 0);
    write_group(NEW, "/sys/fs/cgroup/job", limit_300, 100, 0);
    assert_true(finish() == 200 * mib);
}

TEST(places_with_blanks_are_found)
{
    start("0::/my job\n", "30 1 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw\n");
    write_group(NEW, "/sys/my groups/my job", limit_300, 100, 0);
    assert_true(finish() == 200 * mib);
}

TEST(what_is_not_there_is_no_limit)
{
    start("", "");
    assert_true(finish() == UINT64_MAX);
    start("0::/gone\n4:memory:/gone\n", OLD_MOUNTS NEW_MOUNT);
    assert_true(finish() == UINT64_MAX);
    start("rubbish\n::\n0:memory\n", "rubbish\n - \n1 2 3 - cgroup2 x y\n");
    assert_true(finish() == UINT64_MAX);
    assert_true(weft__control_groups_available_bytes("/no/such/folder") == UINT64_MAX);
}
