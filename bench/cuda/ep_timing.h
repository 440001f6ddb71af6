/* SPDX-License-Identifier: MIT */
/* How long operations take that are enqueued one behind the other, without a wait of the host. */
#ifndef BENCH_CUDA_EP_TIMING_H
#define BENCH_CUDA_EP_TIMING_H

#include "ep_batch.h"
#include "workload/figures.h"

struct ep_timing {
    const struct ep_rank *rank;
    int32_t num_events;
    weft_event **events; /* [num_events] one before and one behind every iteration */
    double *samples;     /* [num_iters] */
};

/* After rank was set; destroy also after a failure. */
int ep_timing_init(struct ep_timing *timing);
void ep_timing_destroy(struct ep_timing *timing);

/* An operation in the stream, or so many of them in a graph. */
struct ep_work {
    struct ep_batch *batch;
    int parts;
    cudaGraphExec_t graph; /* NULL: in the stream */
    int32_t num_calls;     /* in one iteration */
};

int ep_work_capture(struct ep_work *work);
int ep_work_enqueue(const struct ep_work *work);

/* Collective: microseconds per call of the slowest rank. */
int ep_timing_measure(struct ep_timing *timing, const struct ep_work *work, struct figures *us);

#endif
