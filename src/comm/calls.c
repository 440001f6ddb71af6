/* SPDX-License-Identifier: MIT */
#include "comm/calls.h"

_Thread_local enum weft__call weft__current_call;
_Thread_local struct weft__call_detail weft__current_detail;

static const char *const names[WEFT__NUM_CALLS] = {
    [WEFT__CALL_UNKNOWN] = "an operation",
    [WEFT__CALL_COMM_CREATE] = "weft_comm_create",
    [WEFT__CALL_COMM_SPLIT] = "weft_comm_split",
    [WEFT__CALL_COMM_SPLIT_STRIDED] = "weft_comm_split_strided",
    [WEFT__CALL_HOST_BARRIER] = "weft_comm_host_barrier",
    [WEFT__CALL_HOST_ALL_GATHER] = "weft_comm_host_all_gather",
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
    [WEFT__CALL_ALL_REDUCE] = "weft_coll_all_reduce",
    [WEFT__CALL_REDUCE_SCATTER] = "weft_coll_reduce_scatter",
    [WEFT__CALL_ALL_GATHER] = "weft_coll_all_gather",
    [WEFT__CALL_ALL_TO_ALL] = "weft_coll_all_to_all",
    [WEFT__CALL_BROADCAST] = "weft_coll_broadcast",
    [WEFT__CALL_REDUCE] = "weft_coll_reduce",
    [WEFT__CALL_GATHER] = "weft_coll_gather",
    [WEFT__CALL_SCATTER] = "weft_coll_scatter",
    [WEFT__CALL_ALL_TO_ALL_V] = "weft_coll_all_to_all_v",
    [WEFT__CALL_COLL_SEND] = "weft_coll_send",
    [WEFT__CALL_COLL_RECV] = "weft_coll_recv",
    [WEFT__CALL_COLL_GROUP] = "weft_coll_group_end",
    [WEFT__CALL_COMM_BARRIER] = "weft_comm_barrier",
    [WEFT__CALL_EP_LAYOUT] = "weft_ep_layout",
    [WEFT__CALL_EP_NOTIFY] = "weft_ep_notify",
    [WEFT__CALL_EP_DISPATCH] = "weft_ep_dispatch",
    [WEFT__CALL_EP_COMBINE] = "weft_ep_combine",
    [WEFT__CALL_EP_EXPAND] = "weft_ep_expand",
    [WEFT__CALL_EP_REDUCE] = "weft_ep_reduce",
    [WEFT__CALL_LL_DISPATCH] = "weft_ll_dispatch",
    [WEFT__CALL_LL_COMBINE] = "weft_ll_combine",
    [WEFT__CALL_LL_RELEASE] = "weft_ll_release",
    [WEFT__CALL_LL_MASK] = "weft_ll_mask",
    [WEFT__CALL_LL_QUERY_MASK] = "weft_ll_query_mask",
    [WEFT__CALL_LL_UNMASK] = "weft_ll_unmask",
    [WEFT__CALL_ROWS_QUANTISE] = "weft_rows_quantise",
    [WEFT__CALL_ROWS_DEQUANTISE] = "weft_rows_dequantise",
    [WEFT__CALL_GATE_CHOOSE] = "weft_gate_choose",
    [WEFT__CALL_GATE_BACKWARD] = "weft_gate_backward",
    [WEFT__CALL_GATE_BALANCE] = "weft_gate_balance",
    [WEFT__CALL_RMA_PUT] = "weft_rma_put",
    [WEFT__CALL_RMA_GET] = "weft_rma_get",
    [WEFT__CALL_RMA_PUT_SIGNAL] = "weft_rma_put_signal",
    [WEFT__CALL_RMA_SIGNAL] = "weft_rma_signal",
    [WEFT__CALL_RMA_ADD] = "weft_rma_add",
    [WEFT__CALL_RMA_FETCH_ADD] = "weft_rma_fetch_add",
    [WEFT__CALL_RMA_WAIT_UNTIL] = "weft_rma_wait_until",
    [WEFT__CALL_RMA_FENCE] = "weft_rma_fence",
    [WEFT__CALL_RMA_QUIET] = "weft_rma_quiet",
};

const char *weft__call_name(int32_t call)
{
    return call >= 0 && call < WEFT__NUM_CALLS ? names[call] : "a call of another version";
}
