/* SPDX-License-Identifier: MIT */
#include "api/destroy.h"
#include "api/overlap.h"
#include "machine/host.h"

weft_result weft_memory_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(ptr, "ptr"));
    if (bytes == 0) {
        *ptr = NULL;
        return WEFT_OK;
    }
    void *memory;
    WEFT__TRY(weft__machine_of(comm)->alloc(comm, bytes, &memory));
    return weft__give(WEFT__KIND_MEMORY, memory, comm, ptr);
}

weft_result weft_memory_free(weft_comm *comm, void *ptr)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    if (ptr == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__object_check(WEFT__KIND_MEMORY, ptr, "ptr"));
    if (weft__object_owner(WEFT__KIND_MEMORY, ptr) != comm)
        return weft__invalid(
            "ptr is %p, which comes from weft_memory_alloc of another communicator", ptr);
    return weft__destroy(WEFT__KIND_MEMORY, ptr);
}

weft_result weft_memory_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_array(dst, (int64_t)bytes, "dst"));
    WEFT__TRY(weft__check_array(src, (int64_t)bytes, "src"));
    const struct weft__extent extents[] = {
        weft__extent_of("dst", WEFT__EXTENT_WRITTEN, dst, 1, bytes),
        weft__extent_of("src", WEFT__EXTENT_READ, src, 1, bytes)};
    WEFT__TRY(weft__check_overlaps(extents, 2));
    return bytes == 0 ? WEFT_OK : weft__machine_of(comm)->copy(comm, dst, src, bytes);
}
