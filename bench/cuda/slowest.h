/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CUDA_SLOWEST_H
#define BENCH_CUDA_SLOWEST_H

#include "weft.h"
#include "workload/figures.h"

/* Collective: each sample of the rank where it is largest. Changes samples[num_samples]. */
int slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples, struct figures *figures);

#endif
