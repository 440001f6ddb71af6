/* SPDX-License-Identifier: MIT */
#include "harness/stock.h"

#include <dirent.h>
#include <unistd.h>

#include "harness/machine.h"

/* The driver's devices, and what its threads wake each other by. */
static int is_of_driver(const char *target)
{
    return strncmp(target, "/dev/nvidia", 11) == 0 || strncmp(target, "anon_inode:", 11) == 0 ||
           strncmp(target, "pipe:", 5) == 0;
}

static void add_fd(struct stock *stock, const char *target)
{
    const size_t length = strlen(stock->targets);
    snprintf(stock->targets + length, sizeof stock->targets - length, "%s%s", length > 0 ? " " : "",
             target);
    stock->num_fds++;
}

static void list_fds(struct stock *stock)
{
    const struct dirent *entry;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char target[256];
        const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (length > 0 && !(tests_on_cuda() && is_of_driver(target)))
            add_fd(stock, target);
    }
    if (folder != NULL)
        closedir(folder);
}

static int count_heap_mappings(void)
{
    char line[512];
    int num_mappings = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        num_mappings += strstr(line, "memfd:weft") != NULL;
    if (maps != NULL)
        fclose(maps);
    return num_mappings;
}

struct stock stock_take(void)
{
    struct stock stock = {.num_heap_mappings = count_heap_mappings()};
    list_fds(&stock);
    return stock;
}

int stock_check(struct stock before, struct stock now)
{
    CHECK(now.num_fds == before.num_fds, "%d descriptors (%s), %d before (%s)", now.num_fds,
          now.targets, before.num_fds, before.targets);
    CHECK(now.num_heap_mappings == before.num_heap_mappings, "%d heaps are mapped, %d before",
          now.num_heap_mappings, before.num_heap_mappings);
    return 0;
}
