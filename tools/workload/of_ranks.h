/* SPDX-License-Identifier: MIT */
/* What all ranks have measured or counted. */
#pragma once

#include "weft.h"
#include "workload/figures.h"

/* What ranks have measured at the same time counts as the slowest of them did it. Collective: the
 * figures, on all ranks, of the largest of each sample that the ranks have. Overwrites samples. */
weft_result slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples,
                             struct figures *figures);

/* Collective: each number becomes, on all ranks, the sum of those that the ranks have. */
weft_result sum_of_ranks(weft_comm *comm, int64_t *numbers, size_t num_numbers);
