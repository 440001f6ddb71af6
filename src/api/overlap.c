/* SPDX-License-Identifier: MIT */
#include "api/overlap.h"

#include <inttypes.h>
#include <stdio.h>

static void write_name(const struct weft__extent *extent, char *text, size_t text_bytes)
{
    if (extent->index == WEFT__NO_INDEX)
        snprintf(text, text_bytes, "%s%s", extent->name, extent->member);
    else
        snprintf(text, text_bytes, "%s[%" PRId32 "]%s", extent->name, extent->index,
                 extent->member);
}

static uint64_t stride_of(const struct weft__extent *extent)
{
    return extent->stride_bytes == 0 ? extent->row_bytes : extent->stride_bytes;
}

static int is_empty(const struct weft__extent *extent)
{
    return extent->ptr == NULL || extent->num_rows == 0 || extent->row_bytes == 0;
}

static weft_result check_end(const struct weft__extent *extent)
{
    uint64_t last, end;
    char name[64];
    if (is_empty(extent) ||
        (!__builtin_mul_overflow(extent->num_rows - 1, stride_of(extent), &last) &&
         !__builtin_add_overflow(last, extent->row_bytes, &end) &&
         !__builtin_add_overflow(end, (uintptr_t)extent->ptr, &end)))
        return WEFT_OK;
    write_name(extent, name, sizeof name);
    if (extent->num_rows == 1)
        return weft__invalid("%s is %p, its %" PRIu64 " bytes end beyond all addresses", name,
                             extent->ptr, extent->row_bytes);
    return weft__invalid("%s is %p, its %" PRIu64 " rows of %" PRIu64 " bytes, one every %" PRIu64
                         ", end beyond all addresses",
                         name, extent->ptr, extent->num_rows, extent->row_bytes, stride_of(extent));
}

/* An extent that is written has no gaps; the last row of the other that begins before its end
 * reaches farthest into it. */
static int overlap(const struct weft__extent *written, const struct weft__extent *other)
{
    const uint64_t begin = (uintptr_t)written->ptr;
    const uint64_t end = begin + written->num_rows * written->row_bytes;
    const uint64_t first = (uintptr_t)other->ptr;
    if (is_empty(written) || is_empty(other) || first >= end)
        return 0;
    const uint64_t num_before = (end - 1 - first) / stride_of(other);
    const uint64_t last = num_before < other->num_rows ? num_before : other->num_rows - 1;
    return first + last * stride_of(other) + other->row_bytes > begin;
}

static weft_result refuse(const struct weft__extent *written, const struct weft__extent *other)
{
    char written_name[64], other_name[64];
    write_name(written, written_name, sizeof written_name);
    write_name(other, other_name, sizeof other_name);
    return weft__invalid("%s is %p: its %" PRIu64 " bytes, which are written, overlap those of %s, "
                         "which is %p",
                         written_name, written->ptr, written->num_rows * written->row_bytes,
                         other_name, other->ptr);
}

weft_result weft__check_overlaps(const struct weft__extent *extents, int32_t num_extents)
{
    for (int32_t i = 0; i < num_extents; i++)
        WEFT__TRY(check_end(&extents[i]));
    for (int32_t i = 0; i < num_extents; i++) {
        if (extents[i].use != WEFT__EXTENT_WRITTEN)
            continue;
        for (int32_t j = 0; j < num_extents; j++) {
            const int is_compared = j < i && extents[j].use == WEFT__EXTENT_WRITTEN;
            if (j != i && !is_compared && overlap(&extents[i], &extents[j]))
                return refuse(&extents[i], &extents[j]);
        }
    }
    return WEFT_OK;
}
