/* SPDX-License-Identifier: MIT */
/* How long calls take that are enqueued one behind the other on a CUDA stream, without a wait of
 * the host. */
#pragma once

#include "nccl_rank.h"
#include "workload/figures.h"

/* An iteration. */
struct calls {
    int (*enqueue)(void *argument); /* one call */
    void *argument;
    int32_t num_calls;     /* one behind the other */
    cudaGraphExec_t graph; /* of all of them; NULL: in the stream */
};

struct timing {
    const struct nccl_rank *rank;
    int32_t num_warmups, num_iters;
    int32_t num_events;
    cudaEvent_t *events; /* [num_events] one before and one behind every iteration */
    double *samples;     /* [num_iters] */
};

/* After the first three members were set. Destroy also after a failure. */
int timing_init(struct timing *timing);
void timing_destroy(struct timing *timing);

/* Puts an iteration into a graph. */
int calls_capture(struct calls *calls, cudaStream_t stream);
void calls_destroy(struct calls *calls);
/* Enqueues an iteration. */
int calls_enqueue(const struct calls *calls, cudaStream_t stream);

/* Collective: microseconds per call of the slowest rank. */
int timing_measure(struct timing *timing, const struct calls *calls, struct figures *us);
