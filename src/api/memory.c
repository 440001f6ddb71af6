/* SPDX-License-Identifier: MIT */
#include "api/overlap.h"
#include "machine/host.h"

weft_result weft_memory_alloc(weft_comm *comm, size_t bytes, void **ptr)
{
    WEFT__TRY(weft__check_not_null(comm, "comm"));
    WEFT__TRY(weft__check_not_null(ptr, "ptr"));
    if (bytes > 0)
        return weft__machine_of(comm)->alloc(comm, bytes, ptr);
    *ptr = NULL;
    return WEFT_OK;
}

weft_result weft_memory_free(weft_comm *comm, void *ptr)
{
    WEFT__TRY(weft__check_not_null(comm, "comm"));
    weft__machine_of(comm)->free(comm, ptr);
    return WEFT_OK;
}

weft_result weft_memory_copy(weft_comm *comm, void *dst, const void *src, size_t bytes)
{
    WEFT__TRY(weft__check_not_null(comm, "comm"));
    WEFT__TRY(weft__check_array(dst, (int64_t)bytes, "dst"));
    WEFT__TRY(weft__check_array(src, (int64_t)bytes, "src"));
    const struct weft__extent extents[] = {
        weft__extent_of("dst", WEFT__EXTENT_WRITTEN, dst, 1, bytes),
        weft__extent_of("src", WEFT__EXTENT_READ, src, 1, bytes)};
    WEFT__TRY(weft__check_overlaps(extents, 2));
    return bytes == 0 ? WEFT_OK : weft__machine_of(comm)->copy(comm, dst, src, bytes);
}
