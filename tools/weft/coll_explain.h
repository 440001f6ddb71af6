/* SPDX-License-Identifier: MIT */
/* weft coll --explain: which algorithm for which size, and why. */
#ifndef WEFT_TOOL_COLL_EXPLAIN_H
#define WEFT_TOOL_COLL_EXPLAIN_H

#include "coll_job.h"

/* Collective, though rank 0 alone has something to say. Returns the exit status. */
int coll_explain(const struct coll_job *job, weft_comm *comm);

#endif
