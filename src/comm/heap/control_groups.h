/* SPDX-License-Identifier: MIT */
/* Memory limits of the control groups, of version 1 and 2, that this process is in. */
#pragma once

#include <stdint.h>

/* The least memory that one of the groups, up to the root of the mounted hierarchy, has left.
 * UINT64_MAX: none has a limit. Reads the system's files below `root`, which is "" except in
 * tests. */
uint64_t weft__control_groups_available_bytes(const char *root);

/* Reads a file of "name number" lines: the number in the line that starts with `name`. With "" the
 * file is one number. UINT64_MAX: there is no such number. */
uint64_t weft__read_number(const char *path, const char *name);
