/* SPDX-License-Identifier: MIT */
#include "comm/heap/ranges.h"

#include <stdlib.h>
#include <string.h>

void weft__ranges_init(struct weft__ranges *ranges, uint64_t capacity)
{
    *ranges = (struct weft__ranges){.capacity = capacity};
}

void weft__ranges_destroy(struct weft__ranges *ranges)
{
    free(ranges->used);
    *ranges = (struct weft__ranges){0};
}

static uint64_t gap_begin(const struct weft__ranges *ranges, size_t index)
{
    if (index == 0)
        return 0;
    return ranges->used[index - 1].offset + ranges->used[index - 1].bytes;
}

/* Bytes free before used[index]; before the end for index num_used. */
static uint64_t gap_bytes(const struct weft__ranges *ranges, size_t index)
{
    uint64_t end = index < ranges->num_used ? ranges->used[index].offset : ranges->capacity;
    return end - gap_begin(ranges, index);
}

static int reserve(struct weft__ranges *ranges)
{
    if (ranges->num_used < ranges->max_used)
        return 1;
    size_t max_used = ranges->max_used > 0 ? 2 * ranges->max_used : 16;
    struct weft__range *used = realloc(ranges->used, max_used * sizeof(*used));
    if (used == NULL)
        return 0;
    ranges->used = used;
    ranges->max_used = max_used;
    return 1;
}

/* To the alignment. */
static uint64_t round_up(uint64_t bytes)
{
    const uint64_t mask = WEFT__RANGE_ALIGNMENT - 1;
    return (bytes + mask) & ~mask;
}

enum weft__ranges_result weft__ranges_alloc(struct weft__ranges *ranges, uint64_t bytes,
                                            uint64_t *offset)
{
    if (bytes > ranges->capacity)
        return WEFT__RANGES_FULL;
    uint64_t rounded_bytes = round_up(bytes > 0 ? bytes : 1);
    size_t index = 0;
    while (index <= ranges->num_used && gap_bytes(ranges, index) < rounded_bytes)
        index++;
    if (index > ranges->num_used)
        return WEFT__RANGES_FULL;
    if (!reserve(ranges))
        return WEFT__RANGES_NO_MEMORY;
    *offset = gap_begin(ranges, index);
    memmove(ranges->used + index + 1, ranges->used + index,
            (ranges->num_used - index) * sizeof(*ranges->used));
    ranges->used[index] = (struct weft__range){.offset = *offset, .bytes = rounded_bytes};
    ranges->num_used++;
    ranges->used_bytes += rounded_bytes;
    return WEFT__RANGES_OK;
}

/* The last allocation that begins at or before offset; num_used if there is none. */
static size_t find_at_or_before(const struct weft__ranges *ranges, uint64_t offset)
{
    size_t low = 0, high = ranges->num_used;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->used[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? low - 1 : ranges->num_used;
}

uint64_t weft__ranges_free(struct weft__ranges *ranges, uint64_t offset)
{
    size_t index = find_at_or_before(ranges, offset);
    if (index == ranges->num_used || ranges->used[index].offset != offset)
        return 0;
    uint64_t bytes = ranges->used[index].bytes;
    ranges->num_used--;
    ranges->used_bytes -= bytes;
    memmove(ranges->used + index, ranges->used + index + 1,
            (ranges->num_used - index) * sizeof(*ranges->used));
    return bytes;
}

void weft__ranges_free_all(struct weft__ranges *ranges)
{
    ranges->num_used = 0;
    ranges->used_bytes = 0;
}

int weft__ranges_contain(const struct weft__ranges *ranges, uint64_t offset, uint64_t bytes)
{
    size_t index = find_at_or_before(ranges, offset);
    if (index == ranges->num_used)
        return 0;
    const struct weft__range *range = &ranges->used[index];
    uint64_t skipped_bytes = offset - range->offset;
    return skipped_bytes <= range->bytes && bytes <= range->bytes - skipped_bytes;
}

uint64_t weft__ranges_largest_free(const struct weft__ranges *ranges)
{
    uint64_t largest = 0;
    for (size_t index = 0; index <= ranges->num_used; index++)
        if (gap_bytes(ranges, index) > largest)
            largest = gap_bytes(ranges, index);
    return largest & ~(uint64_t)(WEFT__RANGE_ALIGNMENT - 1);
}

uint64_t weft__ranges_needed_capacity(const struct weft__ranges *ranges, uint64_t bytes)
{
    uint64_t begin = gap_begin(ranges, ranges->num_used);
    if (bytes > UINT64_MAX - begin - WEFT__RANGE_ALIGNMENT)
        return UINT64_MAX;
    return begin + round_up(bytes);
}
