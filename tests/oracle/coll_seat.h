/* SPDX-License-Identifier: MIT */
/* A rank that makes one and the same collective call again and again until it fails. Functions that return
 * int return 0, or 1 when a check has failed. */
#pragma once

#include "harness/victim.h"
#include "oracle/coll_call.h"

/* Elements of 4 bytes: by packets, and not. */
enum { COLL_SEAT_SMALL = 200, COLL_SEAT_LARGE = 50000 };

struct coll_seat {
    struct ep_rank rank;
    weft_coll *coll;
    struct coll_call call;
};

/* The call is made once, and its results compared. timeout_ms 0: the usual deadline; the algorithm may be
 * WEFT_ALGORITHM_AUTO. */
int coll_seat_open(struct coll_seat *seat, struct ranks_context *context, uint32_t timeout_ms,
                   const struct coll_case *spec, weft_algorithm algorithm);
/* Also after a failure. */
int coll_seat_close(struct coll_seat *seat);

/* Issues and waits; the first error of either. */
weft_result coll_seat_call(const struct coll_seat *seat);
/* For one that is struck, or sees another struck. */
struct victim_seat coll_seat_of_victim(struct coll_seat *seat);
