/* SPDX-License-Identifier: MIT */
#include "api/check.h"
#include "api/destroy.h"
#include "coll/coll.h"
#include "ops/registered.h"

static const uint64_t max_bytes = UINT64_C(1)
                                  << 46; /* offsets in it are places (programs/window.h) */

weft_result weft_register(weft_comm *comm, void *ptr, size_t bytes, int32_t *is_direct)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_array(ptr, (int64_t)bytes, "ptr"));
    if (bytes > max_bytes)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "bytes is %zu, allowed are 0..%llu", bytes,
                           (unsigned long long)max_bytes);
    WEFT__TRY(weft__machine_check(comm));
    weft__comm_enter(comm, WEFT__CALL_REGISTER);
    return weft__register(comm, ptr, bytes, is_direct);
}

weft_result weft_unregister(weft_comm *comm, void *ptr)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__machine_check(comm));
    weft__comm_enter(comm, WEFT__CALL_UNREGISTER);
    return weft__unregister(comm, ptr);
}

weft_result weft_capture_begin(weft_coll *coll, weft_capture **capture)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    WEFT__TRY(weft__check_not_null(capture, "capture"));
    WEFT__TRY(weft__machine_check(coll->comm));
    weft_capture *created;
    WEFT__TRY(weft__capture_begin(coll, &created));
    return weft__give(WEFT__KIND_CAPTURE, created, coll, capture);
}

weft_result weft_capture_end(weft_capture *capture)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_CAPTURE, capture, "capture"));
    return weft__capture_end(capture);
}

weft_result weft_capture_destroy(weft_capture *capture)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_CAPTURE, capture, "capture"));
    weft_result result;
    if (!weft__capture_close(capture, &result))
        return result;
    weft__object_remove(WEFT__KIND_CAPTURE, capture);
    weft__capture_free(capture);
    return result;
}
