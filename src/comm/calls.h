/* SPDX-License-Identifier: MIT */
/* The calls in which the hosts of all ranks take part. Whatever the ranks exchange is marked with the call that
 * it is part of, so that two calls that do not fit together end in an error that names both. */
#pragma once

#include <stdint.h>

enum weft__call {
    WEFT__CALL_COMM_CREATE,
    WEFT__CALL_COMM_SPLIT,
    WEFT__CALL_COMM_SPLIT_STRIDED,
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
    WEFT__NUM_CALLS
};

/* "weft_heap_alloc" */
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
