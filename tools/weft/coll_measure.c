/* SPDX-License-Identifier: MIT */
#include "coll_measure.h"

#include <stdlib.h>

#include "workload/failure.h"
#include "workload/of_ranks.h"
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

/* The barrier lets all ranks start together. A graph runs twice, the first time so that the host,
 * which needs some time to launch it, is ahead of what is timed. */
static weft_result enqueue_iteration(const struct coll_calls *calls)
{
    const struct coll_run *run = calls->run;
    TRY(weft_comm_barrier(run->comm, run->stream));
    if (calls->graph)
        TRY(coll_calls_enqueue(calls));
    TRY(weft_event_record(run->start, run->stream));
    TRY(coll_calls_enqueue(calls));
    return weft_event_record(run->stop, run->stream);
}

static weft_result run_iteration(const struct coll_calls *calls, double *us)
{
    const struct coll_run *run = calls->run;
    TRY(enqueue_iteration(calls));
    TRY(weft_stream_synchronize(run->stream));
    TRY(weft_event_elapsed_us(run->start, run->stop, us));
    *us /= calls->num_calls;
    return WEFT_OK;
}

static weft_result run_iterations(struct coll_calls *calls, double *samples)
{
    const struct coll_options *options = calls->run->options;
    struct job_pace pace = {0};
    weft_result result = coll_calls_prepare(calls);
    for (int32_t i = -options->num_warmup; i < options->num_iters && result == WEFT_OK; i++) {
        result = job_check_signals(calls->run->comm, &pace);
        if (result == WEFT_OK)
            result = run_iteration(calls, &samples[i < 0 ? 0 : i]);
    }
    coll_calls_drop(calls);
    return result;
}

weft_result coll_measure(const struct coll_run *run, const struct collective *collective,
                         enum coll_place place, struct figures *us)
{
    struct coll_calls calls = {.run = run,
                               .collective = collective,
                               .place = place,
                               .num_calls = coll_calls_per_launch(run->options)};
    const size_t num_iters = (size_t)run->options->num_iters;
    double *samples = calloc(num_iters, sizeof *samples);
    weft_result result = samples ? WEFT_OK : LACKS_MEMORY("the times of %zu iterations", num_iters);
    if (result == WEFT_OK)
        result = run_iterations(&calls, samples);
    if (result == WEFT_OK)
        result = slowest_of_ranks(run->comm, samples, num_iters, us);
    free(samples);
    return result;
}
