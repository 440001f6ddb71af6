/* SPDX-License-Identifier: MIT */
/* Measurements and counts of all ranks. */
#pragma once

#include "weft.h"
#include "workload/figures.h"

/* A figure that ranks have measured at the same time is that of the slowest. Collective: the
 * figures, on all ranks, of the largest of each sample that the ranks have. Overwrites samples. */
weft_result slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples,
                             struct figures *figures);

/* Collective: each number becomes, on all ranks, the sum of those that the ranks have. */
weft_result sum_of_ranks(weft_comm *comm, int64_t *numbers, size_t num_numbers);
