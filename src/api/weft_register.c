/* SPDX-License-Identifier: MIT */
#include "api/check.h"
#include "api/destroy.h"
#include "coll/coll.h"
#include "memory/registered.h"

static const uint64_t max_bytes = UINT64_C(1)
                                  << 46; /* offsets in it are places (programs/window.h) */

weft_result weft_memory_register(weft_comm *comm, void *ptr, uint64_t bytes, int32_t *is_direct)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_array(ptr, (int64_t)bytes, "ptr"));
    if (bytes > max_bytes)
        return weft__invalid("bytes is %llu, allowed are 0..%llu", (unsigned long long)bytes,
                             (unsigned long long)max_bytes);
    WEFT__TRY(weft__machine_check(comm));
    weft__comm_enter(comm, WEFT__CALL_REGISTER);
    return weft__register(comm, ptr, bytes, is_direct);
}

weft_result weft_memory_unregister(weft_comm *comm, void *ptr)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__machine_check(comm));
    weft__comm_enter(comm, WEFT__CALL_UNREGISTER);
    return weft__unregister(comm, ptr);
}

int32_t weft_memory_is_direct(const weft_comm *comm, const void *ptr, uint64_t bytes)
{
    uint64_t place;
    if (!weft__object_exists(WEFT__KIND_COMM, comm))
        return -1;
    return bytes == 0 || weft__registered_find(comm, ptr, bytes, &place);
}

weft_result weft_coll_record_begin(weft_coll *coll, weft_coll_record **record)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    WEFT__TRY(weft__check_not_null(record, "record"));
    WEFT__TRY(weft__machine_check(coll->comm));
    weft_coll_record *created;
    WEFT__TRY(weft__capture_begin(coll, &created));
    return weft__give(WEFT__KIND_CAPTURE, created, coll, record);
}

weft_result weft_coll_record_end(weft_coll_record *record)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_CAPTURE, record, "record"));
    return weft__capture_end(record);
}

weft_result weft_coll_record_destroy(weft_coll_record *record)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_CAPTURE, record, "record"));
    weft_result result;
    if (!weft__capture_close(record, &result))
        return result;
    weft__object_remove(WEFT__KIND_CAPTURE, record);
    weft__capture_free(record);
    return result;
}
