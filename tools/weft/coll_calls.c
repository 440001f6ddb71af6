/* SPDX-License-Identifier: MIT */
#include "coll_calls.h"

#include "workload/try.h"

static int is_graph(const struct coll_options *options)
{
    return options->launch == COLL_LAUNCH_GRAPHS;
}

int32_t coll_calls_per_launch(const struct coll_options *options)
{
    return is_graph(options) ? COLL_GRAPH_CALLS : 1;
}

static weft_result enqueue_calls(const struct coll_calls *calls)
{
    for (int32_t i = 0; i < calls->num_calls; i++)
        TRY(coll_run_enqueue(calls->run, calls->collective, calls->place));
    return WEFT_OK;
}

/* The capture ends also after a call that failed, whose error is the one that counts. */
weft_result coll_calls_prepare(struct coll_calls *calls)
{
    weft_stream *stream = calls->run->stream;
    calls->graph = NULL;
    if (!is_graph(calls->run->options))
        return WEFT_OK;
    const weft_result begun = weft_graph_begin(stream);
    if (begun != WEFT_OK)
        return begun;
    const weft_result recorded = enqueue_calls(calls);
    const weft_result ended = weft_graph_end(stream, &calls->graph);
    return recorded != WEFT_OK ? recorded : ended;
}

weft_result coll_calls_enqueue(const struct coll_calls *calls)
{
    return calls->graph ? weft_graph_launch(calls->graph, calls->run->stream)
                        : enqueue_calls(calls);
}

void coll_calls_drop(struct coll_calls *calls)
{
    if (calls->graph)
        weft_graph_destroy(calls->graph);
    calls->graph = NULL;
}
