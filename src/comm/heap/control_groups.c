/* SPDX-License-Identifier: MIT */
#include "comm/heap/control_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names in one version: its file system and controller in /proc, and the files of a group. */
struct version {
    const char *file_system, *controller; /* controller NULL: there is one hierarchy */
    const char *limit, *usage, *reclaimable;
};

static const struct version versions[] = {
    {"cgroup2", NULL, "memory.max", "memory.current", "inactive_file "},
    {"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

/* A mounted hierarchy: the group `top` appears at the path `place`. */
enum { NAME_BYTES = 512 }; /* longer names are skipped */
struct mount {
    char top[NAME_BYTES], place[NAME_BYTES];
};

uint64_t weft__read_number(const char *path, const char *name)
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

/* ---------------------------------------------------------------- one group */

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t read_file(const char *group, const char *file, const char *name)
{
    char path[4 * NAME_BYTES];
    snprintf(path, sizeof(path), "%s/%s", group, file);
    return weft__read_number(path, name);
}

static uint64_t group_available(const struct version *version, const char *group)
{
    const uint64_t limit = read_file(group, version->limit, "");
    const uint64_t usage = read_file(group, version->usage, "");
    if (limit == UINT64_MAX || usage == UINT64_MAX)
        return UINT64_MAX;
    /* The system can take back file pages that were not used lately. */
    const uint64_t reclaimable = read_file(group, "memory.stat", version->reclaimable);
    return minus(limit, minus(usage, reclaimable == UINT64_MAX ? 0 : reclaimable));
}

/* The least that the group and those above it, up to the one at `place`, have left. */
static uint64_t groups_available(const struct version *version, const char *place, char *group)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        const uint64_t available = group_available(version, group);
        if (available < least)
            least = available;
        if (strlen(group) <= strlen(place))
            return least;
        *strrchr(group, '/') = '\0';
    }
}

/* ---------------------------------------------------------------- all groups of this process */

static int has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (; list != NULL; list = strchr(list, ',') != NULL ? strchr(list, ',') + 1 : NULL)
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return 1;
    return 0;
}

/* The system writes blanks and some other characters as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        unsigned int byte;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &byte) == 1) {
            *to = (char)byte;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* A line is "ID PARENT DEVICE TOP PLACE OPTIONS ... - FILE_SYSTEM SOURCE OPTIONS" */
static int read_mount(const struct version *version, char *line, struct mount *mount)
{
    char file_system[32], options[1024];
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(rest, " - %31s %*s %1023s", file_system, options) != 2 ||
        strcmp(file_system, version->file_system) != 0 ||
        (version->controller != NULL && !has_word(options, version->controller)) ||
        sscanf(line, "%*s %*s %*s %511s %511s", mount->top, mount->place) != 2)
        return 0;
    unescape(mount->top);
    unescape(mount->place);
    return 1;
}

/* A line is "NUMBER:CONTROLLERS:GROUP". Version 2 has no controllers in it. */
static int read_group(const struct version *version, char *line, char group[NAME_BYTES])
{
    char *controllers = strchr(line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
        return 0;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    snprintf(group, NAME_BYTES, "%s", path);
    return version->controller != NULL ? has_word(controllers + 1, version->controller)
                                       : controllers[1] == '\0';
}

static FILE *open_own(const char *root, const char *name)
{
    char path[NAME_BYTES];
    snprintf(path, sizeof(path), "%s/proc/self/%s", root, name);
    return fopen(path, "re");
}

static int find_group(const char *root, const struct version *version, char group[NAME_BYTES])
{
    FILE *file = open_own(root, "cgroup");
    char *line = NULL;
    size_t line_bytes = 0;
    int is_found = 0;
    while (file != NULL && !is_found && getline(&line, &line_bytes, file) >= 0)
        is_found = read_group(version, line, group);
    free(line);
    if (file != NULL)
        fclose(file);
    return is_found;
}

/* The part of a group's name below `top`, or NULL if the group is not below it. Then the name is of
 * another name space, and only the mounted groups can be seen here. */
static const char *below(const char *top, const char *group)
{
    const size_t length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(top, group, length) != 0 || (group[length] != '/' && group[length] != '\0') ||
        strstr(group, "/..") != NULL)
        return NULL;
    return group + length;
}

enum mounts { THOSE_ABOVE_THE_GROUP, THE_OTHERS };

static uint64_t mounts_available(const char *root, const struct version *version, const char *group,
                                 enum mounts which, int *num_mounts)
{
    FILE *file = open_own(root, "mountinfo");
    char *line = NULL;
    size_t line_bytes = 0;
    uint64_t least = UINT64_MAX;
    struct mount mount;
    while (file != NULL && getline(&line, &line_bytes, file) >= 0) {
        char place[2 * NAME_BYTES], path[3 * NAME_BYTES];
        if (!read_mount(version, line, &mount))
            continue;
        const char *rest = below(mount.top, group);
        if ((rest != NULL) != (which == THOSE_ABOVE_THE_GROUP))
            continue;
        snprintf(place, sizeof(place), "%s%s", root, mount.place);
        snprintf(path, sizeof(path), "%s%s", place, rest == NULL ? "" : rest);
        const uint64_t available = groups_available(version, place, path);
        if (available < least)
            least = available;
        ++*num_mounts;
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return least;
}

uint64_t weft__control_groups_available_bytes(const char *root)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        char group[NAME_BYTES];
        int num_mounts = 0;
        if (!find_group(root, &versions[i], group))
            continue;
        uint64_t available =
            mounts_available(root, &versions[i], group, THOSE_ABOVE_THE_GROUP, &num_mounts);
        if (num_mounts == 0)
            available = mounts_available(root, &versions[i], group, THE_OTHERS, &num_mounts);
        if (available < least)
            least = available;
    }
    return least;
}
