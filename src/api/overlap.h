/* SPDX-License-Identifier: MIT */
/*
 * Memory that a call reads and writes. What is written shares no byte with anything else that the
 * call is given: otherwise results would depend on who comes first, here or at another rank.
 */
#pragma once

#include "api/check.h"

enum weft__extent_use { WEFT__EXTENT_READ, WEFT__EXTENT_WRITTEN };
enum { WEFT__NO_INDEX = -1 };

/* Rows of an argument, or of one member of an array: "planes[2].dst" is {"planes", 2, ".dst"}. */
struct weft__extent {
    const char *name;
    int32_t index;
    const char *member;
    enum weft__extent_use use;
    const void *ptr; /* NULL: there is none */
    uint64_t num_rows;
    uint64_t row_bytes;
    uint64_t
        stride_bytes; /* between rows that are read; 0: row_bytes, as of all that are written */
};

static inline struct weft__extent weft__extent_of(const char *name, enum weft__extent_use use,
                                                  const void *ptr, uint64_t num_rows,
                                                  uint64_t row_bytes)
{
    return (struct weft__extent){name, WEFT__NO_INDEX, "", use, ptr, num_rows, row_bytes, 0};
}

/* INVALID_ARGUMENT that names two extents which overlap although one is written, or one that does
 * not fit the addresses of a process. */
weft_result weft__check_overlaps(const struct weft__extent *extents, int32_t num_extents);
