/* SPDX-License-Identifier: MIT */
/* The observer's side of comm/rendezvous/observers.h. */
#pragma once

#include "comm/rendezvous/wire.h"
#include "weft.h"

/* A rank of a communicator, as its roster and its report tell of it. */
struct weft__observed_rank {
    uint64_t key;
    int32_t rank, num_ranks;
    struct weft__roster_entry entry;
    enum weft__observed_state {
        WEFT__NOT_ASKED, /* it is not there, or not all ranks have met */
        WEFT__ASKED,     /* and silent so far */
        WEFT__REPORTED
    } state;
    struct weft__report report;
};

/* Looks into the job that meets at `point`: the ranks of all its communicators, in new memory,
 * which the caller frees. Connecting takes up to timeout_ms, and so do the answers of ranks.
 * MISMATCH: it has another secret. */
weft_result weft__observe(const struct weft__meeting_point *point, int64_t timeout_ms,
                          struct weft__observed_rank **ranks, int32_t *num_ranks);
