/* SPDX-License-Identifier: MIT */
#include "timing.h"

#include <stdlib.h>

#include "try.h"
#include "workload/of_ranks.h"

int timing_init(struct timing *timing)
{
    timing->num_events = timing->num_warmups + timing->num_iters + 1;
    timing->events = calloc((size_t)timing->num_events, sizeof(cudaEvent_t));
    timing->samples = malloc((size_t)timing->num_iters * sizeof(double));
    if (timing->events == NULL || timing->samples == NULL) {
        perror("malloc");
        return -1;
    }
    for (int32_t i = 0; i < timing->num_events; i++)
        CUDA_TRY(cudaEventCreate(&timing->events[i]));
    return 0;
}

void timing_destroy(struct timing *timing)
{
    for (int32_t i = 0; i < timing->num_events && timing->events != NULL; i++) {
        if (timing->events[i] != NULL)
            cudaEventDestroy(timing->events[i]);
    }
    free(timing->events);
    free(timing->samples);
}

static int enqueue_calls(const struct calls *calls)
{
    for (int32_t i = 0; i < calls->num_calls; i++)
        TRY(calls->enqueue(calls->argument));
    return 0;
}

int calls_capture(struct calls *calls, cudaStream_t stream)
{
    cudaGraph_t graph;
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const int result = enqueue_calls(calls);
    CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    TRY(result);
    CUDA_TRY(cudaGraphInstantiate(&calls->graph, graph, 0));
    CUDA_TRY(cudaGraphDestroy(graph));
    return 0;
}

void calls_destroy(struct calls *calls)
{
    if (calls->graph != NULL)
        cudaGraphExecDestroy(calls->graph);
    calls->graph = NULL;
}

int calls_enqueue(const struct calls *calls, cudaStream_t stream)
{
    if (calls->graph == NULL)
        return enqueue_calls(calls);
    CUDA_TRY(cudaGraphLaunch(calls->graph, stream));
    return 0;
}

/* The ranks start together; from then on operations that exchange something keep them together. */
static int enqueue_iterations(struct timing *timing, const struct calls *calls)
{
    const struct nccl_rank *rank = timing->rank;
    TRY(nccl_rank_wait(rank));
    WEFT_TRY(weft_comm_host_barrier(rank->comm));
    TRY(nccl_rank_meet(rank));
    CUDA_TRY(cudaEventRecord(timing->events[0], rank->stream));
    for (int32_t i = 1; i < timing->num_events; i++) {
        TRY(calls_enqueue(calls, rank->stream));
        CUDA_TRY(cudaEventRecord(timing->events[i], rank->stream));
    }
    return nccl_rank_wait(rank);
}

int timing_measure(struct timing *timing, const struct calls *calls, struct figures *us)
{
    TRY(enqueue_iterations(timing, calls));
    for (int32_t i = 0; i < timing->num_iters; i++) {
        const cudaEvent_t *event = &timing->events[timing->num_warmups + i];
        float ms;
        CUDA_TRY(cudaEventElapsedTime(&ms, event[0], event[1]));
        timing->samples[i] = ms * 1e3 / calls->num_calls;
    }
    WEFT_TRY(slowest_of_ranks(timing->rank->comm, timing->samples, (size_t)timing->num_iters, us));
    return 0;
}
