/* SPDX-License-Identifier: MIT */
/* Reads what Linux shows of devices in its file systems. A virtual machine often shows nothing: the
 * answer is then "" or none, which is no error. */
#pragma once

#include <dirent.h>

/* Where they are mounted; tests have their own. */
struct weft__sysfs {
    const char *sys, *proc;
};
extern const struct weft__sysfs weft__sysfs_of_host;

enum {
    WEFT__SYSFS_ID_BYTES = 32, /* of bus ids and names */
    WEFT__SYSFS_TEXT_BYTES = 128,
    WEFT__SYSFS_PATH_BYTES = 1024
};

/* The first line of a file; "" if there is none. */
void weft__sysfs_text(char text[WEFT__SYSFS_TEXT_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Where a path leads without links, or "". */
void weft__sysfs_resolve(const char *path, char resolved[WEFT__SYSFS_PATH_BYTES]);
/* Cuts the last folder off. What it was called, or "". */
const char *weft__sysfs_cut_last(char *path);
/* Whether the text has the form of "0000:3b:00.0". */
int weft__sysfs_is_bus_id(const char *text);

/* Names of a folder that begin with `prefix`, sorted; the number of them. To be freed. */
int weft__sysfs_list(const char *folder, const char *prefix, struct dirent ***names);
void weft__sysfs_free_list(struct dirent **names, int count);
