/* SPDX-License-Identifier: MIT */
/* CUDA graphs of what streams are given. A graph knows whose operations it consists of, so that the
 * streams that it is launched on can answer for them. */
#include "machine/cuda/cuda_graph.h"

#include <stdlib.h>

struct weft__cuda_graph {
    weft_graph base;
    CUdevice device;
    CUcontext context;
    CUgraphExec exec;              /* NULL until it has been recorded */
    struct weft__cuda_comms comms; /* whose operations it consists of */
    cuuint64_t capture_id;
    struct weft__cuda_graph *next; /* in `recorded_graphs` */
};

/* Launches look here for the graph that they go into: on a stream that waits for another they may
 * belong to a capture that was begun there. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct weft__cuda_graph *recorded_graphs;

static struct weft__cuda_graph *own_graph(weft_graph *base)
{
    return (struct weft__cuda_graph *)(void *)base;
}

/* ---------------------------------------------------------------- life */

static struct weft__cuda_graph *new_graph(const struct weft__cuda_stream *stream)
{
    struct weft__cuda_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return NULL;
    graph->base.machine = stream->base.machine;
    graph->device = stream->device;
    graph->context = stream->context;
    weft__cuda_comms_open(&graph->comms);
    return graph;
}

static void graph_destroy(weft_graph *base)
{
    struct weft__cuda_graph *graph = own_graph(base);
    if (graph->exec != NULL && weft__cuda_enter_context(graph->context) == WEFT_OK) {
        (void)weft__cu.graph_exec_destroy(graph->exec);
        weft__cuda_leave();
    }
    weft__cuda_comms_close(&graph->comms);
    free(graph);
}

/* ---------------------------------------------------------------- recording */

static void list(struct weft__cuda_graph *graph)
{
    pthread_mutex_lock(&mutex);
    graph->next = recorded_graphs;
    recorded_graphs = graph;
    pthread_mutex_unlock(&mutex);
}

static void unlist(const struct weft__cuda_graph *graph)
{
    pthread_mutex_lock(&mutex);
    struct weft__cuda_graph **link = &recorded_graphs;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    pthread_mutex_unlock(&mutex);
}

struct weft__cuda_comms *weft__cuda_graph_comms(cuuint64_t capture_id)
{
    pthread_mutex_lock(&mutex);
    struct weft__cuda_graph *graph = recorded_graphs;
    while (graph != NULL && graph->capture_id != capture_id)
        graph = graph->next;
    pthread_mutex_unlock(&mutex);
    return graph != NULL ? &graph->comms : NULL;
}

/* The mode lets other threads do meanwhile what would not go into a graph, such as to allocate
 * memory. */
static weft_result begin_capture(const struct weft__cuda_stream *stream)
{
    WEFT__TRY(weft__cuda_enter_context(stream->context));
    const CUresult result =
        weft__cu.stream_begin_capture(stream->queue.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK
                                  : weft__cuda_error(result, "cannot begin to capture the stream");
}

static weft_result graph_begin(weft_stream *base)
{
    struct weft__cuda_stream *stream = weft__cuda_stream_of(base);
    if (weft__cuda_capture_of(stream).is_going_on)
        return weft__invalid("stream is under capture already");
    weft__cuda_graph_abandon(stream); /* a capture that CUDA's own functions have ended */
    struct weft__cuda_graph *graph = new_graph(stream);
    WEFT__CHECK_MEMORY(graph, "no memory for a graph");
    const weft_result result = begin_capture(stream);
    if (result != WEFT_OK) {
        graph_destroy(&graph->base);
        return result;
    }
    graph->capture_id = weft__cuda_capture_of(stream).id;
    list(graph);
    stream->recorded = graph;
    return WEFT_OK;
}

/* Done here, not at the first launch: then kernels that wait for other ranks may run, and it could
 * have to wait for them. */
static weft_result make_executable(struct weft__cuda_graph *graph, CUgraph captured,
                                   CUstream stream)
{
    WEFT__CUDA_TRY(weft__cu.graph_instantiate(&graph->exec, captured, 0),
                   "cannot make a graph of what was recorded");
    WEFT__CUDA_TRY(weft__cu.graph_upload(graph->exec, stream), "cannot load a graph");
    return WEFT_OK;
}

static weft_result finish_graph(struct weft__cuda_stream *stream, struct weft__cuda_graph *graph,
                                CUgraph captured)
{
    WEFT__TRY(weft__cuda_enter_context(stream->context));
    const weft_result result = make_executable(graph, captured, stream->queue.stream);
    (void)weft__cu.graph_destroy(captured);
    weft__cuda_leave();
    return result;
}

/* *captured is NULL after an error. */
static weft_result end_capture(const struct weft__cuda_stream *stream, CUgraph *captured)
{
    *captured = NULL;
    WEFT__TRY(weft__cuda_enter_context(stream->context));
    const CUresult result = weft__cu.stream_end_capture(stream->queue.stream, captured);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK
                                  : weft__cuda_error(result, "cannot capture what was recorded");
}

static weft_result graph_end(weft_stream *base, weft_graph **out)
{
    struct weft__cuda_stream *stream = weft__cuda_stream_of(base);
    struct weft__cuda_graph *graph = stream->recorded;
    CUgraph captured;
    if (graph == NULL)
        return weft__invalid("stream is not under capture: call weft_graph_begin first");
    weft_result result = end_capture(stream, &captured);
    if (result != WEFT_OK && weft__cuda_capture_of(stream).is_going_on)
        return weft__invalid(
            "stream was put under capture by another thread, which alone can end it");
    unlist(graph);
    stream->recorded = NULL;
    if (result == WEFT_OK)
        result = finish_graph(stream, graph, captured);
    if (result == WEFT_OK)
        *out = &graph->base;
    else
        graph_destroy(&graph->base);
    return result;
}

void weft__cuda_graph_abandon(struct weft__cuda_stream *stream)
{
    struct weft__cuda_graph *graph = stream->recorded;
    CUgraph captured;
    if (graph == NULL)
        return;
    if (end_capture(stream, &captured) == WEFT_OK)
        (void)weft__cu.graph_destroy(captured);
    stream->recorded = NULL;
    unlist(graph);
    graph_destroy(&graph->base);
}

/* ---------------------------------------------------------------- launching */

static weft_result graph_launch(weft_graph *base, weft_stream *stream_base)
{
    struct weft__cuda_graph *graph = own_graph(base);
    struct weft__cuda_stream *stream = weft__cuda_stream_of(stream_base);
    if (stream->device != graph->device)
        return weft__invalid("stream is of CUDA device %d, graph of CUDA device %d",
                             (int)stream->device, (int)graph->device);
    if (weft__cuda_capture_of(stream).is_going_on)
        return weft__invalid("stream is under capture: a graph cannot be recorded in another");
    WEFT__TRY(weft__cuda_comms_add_all(&stream->comms, &graph->comms));
    WEFT__TRY(weft__cuda_enter_context(graph->context));
    const CUresult result = weft__cu.graph_launch(graph->exec, stream->queue.stream);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "cannot launch a graph");
}

const struct weft__graphs weft__cuda_graphs = {
    .begin = graph_begin, .end = graph_end, .launch = graph_launch, .destroy = graph_destroy};
