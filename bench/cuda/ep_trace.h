/* SPDX-License-Identifier: MIT */
/* Weft's operations with the routing of real tokens, layer by layer. */
#pragma once

#include "cuda_options.h"
#include "gpu_rank.h"
#include "timing.h"

/* Collective: prints what dispatch and combine take in every layer of a trace, the handle having
 * its routing, beside a layer of uniform routing of the same size. Adds how much was wrong. */
struct ep_tracing {
    const struct cuda_options *options;
    const struct gpu_rank *rank;
    struct timing *timing;
};
int ep_trace_measure(const struct ep_tracing *tracing, const char *path, int64_t *num_wrong);
