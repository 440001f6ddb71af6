/* SPDX-License-Identifier: MIT */
#include "ep_timing.h"

#include <stdlib.h>

#include "slowest.h"
#include "try.h"

int ep_timing_init(struct ep_timing *timing)
{
    const struct cuda_options *options = timing->rank->options;
    timing->num_events = options->num_warmups + options->num_iters + 1;
    timing->events = calloc((size_t)timing->num_events, sizeof(*timing->events));
    timing->samples = malloc((size_t)options->num_iters * sizeof(double));
    if (timing->events == NULL || timing->samples == NULL) {
        perror("malloc");
        return -1;
    }
    for (int32_t i = 0; i < timing->num_events; i++)
        WEFT_TRY(weft_event_create(timing->rank->comm, &timing->events[i]));
    return 0;
}

void ep_timing_destroy(struct ep_timing *timing)
{
    for (int32_t i = 0; i < timing->num_events && timing->events != NULL; i++) {
        if (timing->events[i] != NULL)
            weft_event_destroy(timing->events[i]);
    }
    free(timing->events);
    free(timing->samples);
}

static int run_calls(const struct ep_work *work)
{
    for (int32_t i = 0; i < work->num_calls; i++)
        TRY(ep_batch_run(work->batch, work->parts));
    return 0;
}

int ep_work_capture(struct ep_work *work)
{
    cudaStream_t stream = work->batch->rank->cuda_stream;
    cudaGraph_t graph;
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const int result = run_calls(work);
    CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    TRY(result);
    CUDA_TRY(cudaGraphInstantiate(&work->graph, graph, 0));
    CUDA_TRY(cudaGraphDestroy(graph));
    return 0;
}

int ep_work_enqueue(const struct ep_work *work)
{
    if (work->graph == NULL)
        return run_calls(work);
    CUDA_TRY(cudaGraphLaunch(work->graph, work->batch->rank->cuda_stream));
    return 0;
}

/* The ranks start together; from then on operations that exchange something keep them together. */
static int enqueue_iterations(struct ep_timing *timing, const struct ep_work *work)
{
    const struct ep_rank *rank = timing->rank;
    WEFT_TRY(weft_stream_synchronize(rank->stream));
    WEFT_TRY(weft_host_barrier(rank->comm));
    WEFT_TRY(weft_barrier(rank->comm, rank->stream));
    WEFT_TRY(weft_event_record(timing->events[0], rank->stream));
    for (int32_t i = 1; i < timing->num_events; i++) {
        TRY(ep_work_enqueue(work));
        WEFT_TRY(weft_event_record(timing->events[i], rank->stream));
    }
    WEFT_TRY(weft_stream_synchronize(rank->stream));
    WEFT_TRY(weft_comm_status(rank->comm, NULL)); /* also of what was captured */
    return 0;
}

int ep_timing_measure(struct ep_timing *timing, const struct ep_work *work, struct figures *us)
{
    const struct cuda_options *options = timing->rank->options;
    TRY(enqueue_iterations(timing, work));
    for (int32_t i = 0; i < options->num_iters; i++) {
        weft_event **event = &timing->events[options->num_warmups + i];
        double iteration_us;
        WEFT_TRY(weft_event_elapsed_us(event[0], event[1], &iteration_us));
        timing->samples[i] = iteration_us / work->num_calls;
    }
    return slowest_of_ranks(timing->rank->comm, timing->samples, (size_t)options->num_iters, us);
}
