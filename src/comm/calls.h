/* SPDX-License-Identifier: MIT */
/* The calls of weft.h in which ranks take part together, and others that a failure may name. Each
 * exchange of the hosts carries the call that it belongs to. So two calls that do not fit together
 * end in an error that names both. */
#pragma once

#include <stdint.h>

enum weft__call {
    WEFT__CALL_UNKNOWN,
    /* on the host. */
    WEFT__CALL_COMM_CREATE,
    WEFT__CALL_COMM_SPLIT,
    WEFT__CALL_COMM_SPLIT_STRIDED,
    WEFT__CALL_COMM_SHRINK,
    WEFT__CALL_COMM_GROW,
    WEFT__CALL_HOST_BARRIER,
    WEFT__CALL_HOST_ALL_GATHER,
    WEFT__CALL_HEAP_ALLOC,
    WEFT__CALL_HEAP_GROW,
    WEFT__CALL_ARENA_CREATE,
    WEFT__CALL_COLL_CREATE,
    WEFT__CALL_REGISTER,
    WEFT__CALL_UNREGISTER,
    WEFT__CALL_CAPTURE_END,
    WEFT__CALL_CAPTURE_DESTROY,
    WEFT__CALL_EP_CREATE,
    WEFT__CALL_LL_CREATE,
    /* on streams; the first eight in the order of weft_collective. */
    WEFT__CALL_ALL_REDUCE,
    WEFT__CALL_REDUCE_SCATTER,
    WEFT__CALL_ALL_GATHER,
    WEFT__CALL_ALL_TO_ALL,
    WEFT__CALL_BROADCAST,
    WEFT__CALL_REDUCE,
    WEFT__CALL_GATHER,
    WEFT__CALL_SCATTER,
    WEFT__CALL_ALL_TO_ALL_V,
    WEFT__CALL_COLL_SEND,
    WEFT__CALL_COLL_RECV,
    WEFT__CALL_COLL_GROUP,
    WEFT__CALL_COMM_BARRIER,
    WEFT__CALL_EP_LAYOUT,
    WEFT__CALL_EP_NOTIFY,
    WEFT__CALL_EP_DISPATCH,
    WEFT__CALL_EP_COMBINE,
    WEFT__CALL_EP_EXPAND,
    WEFT__CALL_EP_REDUCE,
    WEFT__CALL_EP_MOVE_EXPERTS,
    WEFT__CALL_EP_CHOOSE_REPLICAS,
    WEFT__CALL_EP_FETCH_COPIES,
    WEFT__CALL_EP_REDUCE_COPIES,
    WEFT__CALL_LL_DISPATCH,
    WEFT__CALL_LL_COMBINE,
    WEFT__CALL_LL_RELEASE,
    WEFT__CALL_LL_MASK,
    WEFT__CALL_LL_QUERY_MASK,
    WEFT__CALL_LL_UNMASK,
    WEFT__CALL_ROWS_QUANTISE,
    WEFT__CALL_ROWS_DEQUANTISE,
    WEFT__CALL_GATE_CHOOSE,
    WEFT__CALL_GATE_BACKWARD,
    WEFT__CALL_GATE_BALANCE,
    WEFT__CALL_RMA_PUT,
    WEFT__CALL_RMA_GET,
    WEFT__CALL_RMA_PUT_SIGNAL,
    WEFT__CALL_RMA_SIGNAL,
    WEFT__CALL_RMA_ADD,
    WEFT__CALL_RMA_FETCH_ADD,
    WEFT__CALL_RMA_WAIT_UNTIL,
    WEFT__CALL_RMA_FENCE,
    WEFT__CALL_RMA_QUIET,
    WEFT__NUM_CALLS
};

/* The call of weft.h that this thread is in. Messages name its launches by this call. */
extern _Thread_local enum weft__call weft__current_call;

/* More about this thread's call, for its records; it says nothing of another call than `call`. */
struct weft__call_detail {
    enum weft__call call;
    uint64_t num_bytes;
    const char *algorithm, *reason; /* text that is never freed, or NULL */
    int is_phase;                   /* the ranks do not end together */
};
extern _Thread_local struct weft__call_detail weft__current_detail;

/* Bytes are all that is to be told of the current call. */
static inline void weft__tell_bytes(uint64_t num_bytes)
{
    weft__current_detail =
        (struct weft__call_detail){.call = weft__current_call, .num_bytes = num_bytes};
}

/* "weft_heap_alloc". */
const char *weft__call_name(int32_t call);

/* Where in its calls a rank is. */
struct weft__call_step {
    int32_t call; /* enum weft__call */
    int32_t step; /* how many exchanges of this call came before */
};

static inline int weft__call_step_is_same(struct weft__call_step a, struct weft__call_step b)
{
    return a.call == b.call && a.step == b.step;
}
