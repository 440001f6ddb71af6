/* SPDX-License-Identifier: MIT */
/* The low-latency operations: few tokens, as in a decode step. */
#pragma once

#include "gpu_rank.h"
#include "report.h"
#include "timing.h"

struct ll_measuring {
    const struct cuda_options *options;
    const struct gpu_rank *rank;
    struct timing *timing;
    struct report *report;
    int32_t calls_per_graph;
};

/* Collective: prints what the operations take for batches of so many tokens per rank, in both
 * layouts and with the first so many of --blocks. Adds how much was wrong. */
int ll_measure(const struct ll_measuring *measuring, int32_t num_tokens, int32_t num_blocks_listed,
               int64_t *num_wrong);
