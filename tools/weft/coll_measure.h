/* SPDX-License-Identifier: MIT */
/* Times of one operation: the maximum over ranks in each iteration, then over iterations. */
#pragma once

#include "coll_run.h"
#include "workload/figures.h"

/* Collective; microseconds of one call. */
weft_result coll_measure(const struct coll_run *run, const struct collective *collective,
                         enum coll_place place, struct figures *us);
