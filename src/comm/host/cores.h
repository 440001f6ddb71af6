/* SPDX-License-Identifier: MIT */
#pragma once

#include <sched.h>

#include "weft.h"

/* The processors that the calling thread may run on. A machine may have more than the 1024 of a
 * cpu_set_t. */
struct weft__processors {
    cpu_set_t sets[16];
};
/* Returns 0, or -1 with errno. */
int weft__processors_of_thread(struct weft__processors *processors);

/* In ascending order. */
enum weft__cores {
    WEFT__FEWER_CORES_THAN_RANKS,
    WEFT__CORE_FOR_EACH_RANK,
    WEFT__TWO_CORES_FOR_EACH_RANK
};

/* Those of this rank, shared with the ranks that are bound to the same, in whichever container of
 * this host, if they are all that run there. */
enum weft__cores weft__count_cores(const weft_comm *comm);
/* How many of these ranks there are for each of these cores. */
double weft__ranks_per_core(const weft_comm *comm);
