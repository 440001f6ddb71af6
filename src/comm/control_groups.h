/* SPDX-License-Identifier: MIT */
/* Limits on memory of the control groups, of version 1 and 2, that this process is in. */
#pragma once

#include <stdint.h>

/* The least that one of them, up to the root of what is mounted here, has left; UINT64_MAX if none has a limit. The
 * system's files are looked for below `root`, which is "" but in tests. */
uint64_t weft__control_groups_available_bytes(const char *root);

/* The number after `name` at the start of a line of a file of "name number" lines; with "" the number that the file
 * consists of. UINT64_MAX if there is none. */
uint64_t weft__read_number(const char *path, const char *name);
