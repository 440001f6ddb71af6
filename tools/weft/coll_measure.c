/* SPDX-License-Identifier: MIT */
#include "coll_measure.h"

#include <stdlib.h>

#include "coll_calls.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"
#include "workload/try.h"

/* The barrier lets all ranks start together. A graph runs twice, the first time so that the host, which needs
 * some time to launch it, is ahead of what is timed. */
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
    weft_result result = coll_calls_prepare(calls);
    for (int32_t i = -options->num_warmup; i < options->num_iters && result == WEFT_OK; i++)
        result = run_iteration(calls, &samples[i < 0 ? 0 : i]);
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
