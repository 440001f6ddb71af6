/* SPDX-License-Identifier: MIT */
/* First-fit allocation of offsets in 0..capacity. Pure integers and deterministic: ranks that make
 * the same calls get the same offsets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { WEFT__RANGE_ALIGNMENT = 256 }; /* of offsets and sizes */

struct weft__range {
    uint64_t offset, bytes;
};

struct weft__ranges {
    uint64_t capacity; /* may be raised at any time */
    uint64_t used_bytes;
    struct weft__range *used; /* [num_used], by ascending offset */
    size_t num_used, max_used;
};

enum weft__ranges_result {
    WEFT__RANGES_OK,
    WEFT__RANGES_FULL,     /* no gap is large enough */
    WEFT__RANGES_NO_MEMORY /* for the list itself */
};

void weft__ranges_init(struct weft__ranges *ranges, uint64_t capacity);
void weft__ranges_destroy(struct weft__ranges *ranges);

enum weft__ranges_result weft__ranges_alloc(struct weft__ranges *ranges, uint64_t bytes,
                                            uint64_t *offset);
/* The bytes that became free; 0 if nothing was allocated at that offset. */
uint64_t weft__ranges_free(struct weft__ranges *ranges, uint64_t offset);
void weft__ranges_free_all(struct weft__ranges *ranges);

/* Whether [offset, offset + bytes) lies in one allocation. */
int weft__ranges_contain(const struct weft__ranges *ranges, uint64_t offset, uint64_t bytes);
uint64_t weft__ranges_largest_free(const struct weft__ranges *ranges);
/* The capacity at which an allocation of `bytes` would succeed; UINT64_MAX if none is. */
uint64_t weft__ranges_needed_capacity(const struct weft__ranges *ranges, uint64_t bytes);
