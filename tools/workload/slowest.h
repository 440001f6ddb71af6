/* SPDX-License-Identifier: MIT */
/* What ranks have measured at the same time counts as the slowest of them did it. */
#pragma once

#include "weft.h"
#include "workload/figures.h"

/* Collective: the figures, on all ranks, of the largest of each sample that the ranks have. Overwrites
 * samples. */
weft_result slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples,
                             struct figures *figures);
