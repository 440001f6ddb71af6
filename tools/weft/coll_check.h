/* SPDX-License-Identifier: MIT */
/* One more call of an operation, or a graph of calls, whose every result is compared, to the bit,
 * with what follows from seed and ranks. */
#pragma once

#include "coll_run.h"

/* Elements of all ranks. */
struct coll_tally {
    uint64_t num_checked;
    uint64_t num_wrong;
};

/* Collective. The first wrong element of each rank is told on standard error. Overwrites the
 * buffers. */
weft_result coll_check(const struct coll_run *run, const struct collective *collective,
                       enum coll_place place, struct coll_tally *tally);
