/* SPDX-License-Identifier: MIT */
/* A case of a collective operation in memory: makes what this rank gives, calls, and compares
 * what it got. Functions that return int return 0, or 1 when a check has failed. The rank needs
 * no ep. */
#pragma once

#include "oracle/coll_case.h"

struct coll_call {
    struct coll_case spec;
    struct coll_rows send_rows, recv_rows;
    struct ep_array send, recv; /* in place both are recv */
    struct ep_array factor;     /* COLL_FACTOR_IN_MEMORY */
    /* Where the operation's arrays begin in these. */
    uint64_t send_begin_bytes, recv_begin_bytes;
};

int coll_call_create(struct ep_rank *self, const struct coll_case *spec, struct coll_call *call);
weft_result coll_call_issue(const struct coll_call *call, int32_t rank, weft_coll *coll,
                            weft_stream *stream);
/* After the stream was synchronised: fails unless the outputs are right to the bit and all else is
 * as it was, then frees. `name` is of the weft_coll. */
int coll_call_verify(struct ep_rank *self, struct coll_call *call, const char *name);
/* Frees without looking. */
int coll_call_destroy(struct ep_rank *self, struct coll_call *call);

/* All of it on the rank's stream. */
int coll_check(struct ep_rank *self, weft_coll *coll, const struct coll_case *spec,
               const char *name);
