/* SPDX-License-Identifier: MIT */
/* How long calls take that are enqueued one behind the other on a CUDA stream, without a wait of
 * the host. */
#pragma once

#include <cuda_runtime_api.h>

#include "weft.h"
#include "workload/figures.h"

/* An iteration. */
struct calls {
    int (*enqueue)(void *argument); /* one call */
    void *argument;
    int32_t num_calls;     /* one behind the other */
    cudaGraphExec_t graph; /* of all of them; NULL: in the stream */
};

struct timing {
    /* Set before timing_init. */
    weft_comm *comm;
    cudaStream_t stream;
    int (*meet)(void *argument); /* enqueues what lets the ranks start together */
    int (*wait)(void *argument); /* for the stream, but not for ever */
    void *argument;
    int32_t num_warmups, num_iters;

    int32_t num_events;
    cudaEvent_t *events; /* [num_events] one before and one behind every iteration */
    double *samples;     /* [num_iters] */
};

/* Destroy also after a failure. */
int timing_init(struct timing *timing);
void timing_destroy(struct timing *timing);

/* Puts an iteration into a graph. */
int calls_capture(struct calls *calls, cudaStream_t stream);
void calls_destroy(struct calls *calls);
/* Enqueues an iteration. */
int calls_enqueue(const struct calls *calls, cudaStream_t stream);

/* Collective: microseconds per call of the slowest rank. */
int timing_measure(struct timing *timing, const struct calls *calls, struct figures *us);
