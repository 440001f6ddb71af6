/* SPDX-License-Identifier: MIT */
#include "comm/calls.h"

static const char *const names[WEFT__NUM_CALLS] = {
    [WEFT__CALL_COMM_CREATE] = "weft_comm_create",
    [WEFT__CALL_COMM_SPLIT] = "weft_comm_split",
    [WEFT__CALL_COMM_SPLIT_STRIDED] = "weft_comm_split_strided",
    [WEFT__CALL_HOST_BARRIER] = "weft_host_barrier",
    [WEFT__CALL_HOST_ALL_GATHER] = "weft_host_all_gather",
    [WEFT__CALL_HEAP_ALLOC] = "weft_heap_alloc",
    [WEFT__CALL_HEAP_GROW] = "weft_heap_grow",
    [WEFT__CALL_ARENA_CREATE] = "weft_arena_create",
    [WEFT__CALL_COLL_CREATE] = "weft_coll_create",
    [WEFT__CALL_REGISTER] = "weft_memory_register",
    [WEFT__CALL_UNREGISTER] = "weft_memory_unregister",
    [WEFT__CALL_CAPTURE_END] = "weft_coll_record_end",
    [WEFT__CALL_CAPTURE_DESTROY] = "weft_coll_record_destroy",
    [WEFT__CALL_EP_CREATE] = "weft_ep_create",
    [WEFT__CALL_LL_CREATE] = "weft_ll_create",
};

const char *weft__call_name(int32_t call)
{
    return call >= 0 && call < WEFT__NUM_CALLS ? names[call] : "a call of another version";
}
