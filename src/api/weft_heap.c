/* SPDX-License-Identifier: MIT */
#include "comm/heap/heap.h"

#include "api/objects.h"
#include "api/structs.h"
#include "comm/comm.h"
#include "machine/host.h"

weft_result weft_heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(ptr, "ptr"));
    weft__comm_enter(comm, WEFT__CALL_HEAP_ALLOC);
    return weft__heap_alloc(comm, bytes, ptr);
}

weft_result weft_heap_free(weft_comm *comm, void *ptr)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    return ptr != NULL ? weft__heap_free(comm->heap, ptr) : WEFT_OK;
}

weft_result weft_heap_grow(weft_comm *comm, uint64_t bytes)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    weft__comm_enter(comm, WEFT__CALL_HEAP_GROW);
    return weft__heap_grow(comm, bytes);
}

weft_result weft_heap_query(const weft_comm *comm, weft_heap_info *info)
{
    weft_heap_info found;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_heap_info, info, "info"));
    weft__heap_query(comm->heap, &found);
    WEFT__WRITE(weft_heap_info, info, &found);
    return WEFT_OK;
}

void *weft_heap_ptr(const weft_comm *comm, const void *ptr, int32_t rank)
{
    return weft__object_exists(WEFT__KIND_COMM, comm) ? weft__heap_peer(comm->heap, ptr, rank)
                                                      : NULL;
}
