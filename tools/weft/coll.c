/* SPDX-License-Identifier: MIT */
/* weft coll: one collective operation as a benchmark and a check, or explained. Started alone it
 * launches itself as the ranks of a job; as a rank of a job it does the work. */
#include <stdio.h>
#include <string.h>

#include "coll_measure.h"
#include "coll_report.h"
#include "coll_run.h"
#include "command.h"
#include "job.h"
#include "workload/elements.h"
#include "workload/signals.h"
#include "workload/try.h"

static weft_result run_place(const struct coll_run *run, struct coll_line *line,
                             enum coll_place place)
{
    struct coll_outcome *outcome = &line->outcomes[place];
    TRY(coll_run_fill(run, &line->collective, place));
    TRY(coll_measure(run, &line->collective, place, &outcome->us));
    if (run->options->check != COLL_CHECK_NONE)
        TRY(coll_check(run, &line->collective, place, &outcome->tally));
    return WEFT_OK;
}

static weft_result run_size(const struct coll_run *run, uint64_t bytes, struct coll_totals *totals)
{
    struct coll_line line = {
        .options = run->options,
        .machine = weft_comm_machine(run->comm),
        .collective = coll_run_at(run, bytes),
    };
    line.algorithm = weft_coll_algorithm(run->coll, line.collective.kind,
                                         collective_algorithm_bytes(&line.collective));
    weft_result result = run_place(run, &line, COLL_OUT_OF_PLACE);
    if (result == WEFT_OK && collective_has_in_place(line.collective.kind))
        result = run_place(run, &line, COLL_IN_PLACE);
    if (result != WEFT_OK)
        return result;
    progress_end(&totals->progress); /* the report may go to the same terminal */
    if (run->rank == 0)
        coll_report_line(&line, &totals->plotted);
    coll_totals_add(totals, &line);
    progress_step(&totals->progress);
    return WEFT_OK;
}

/* Tries the largest size: what cannot be done at all shows before anything is reported. */
static weft_result try_largest(const struct coll_run *run)
{
    uint64_t bytes = run->options->sizes.min, largest = bytes;
    while (option_steps_next(&run->options->sizes, &bytes))
        largest = bytes;
    const struct collective collective = coll_run_at(run, largest);
    struct coll_calls calls = {.run = run, .collective = &collective, .num_calls = 1};
    weft_result result = coll_calls_prepare(&calls);
    if (result == WEFT_OK)
        result = coll_calls_enqueue(&calls);
    coll_calls_drop(&calls);
    return result;
}

/* All ranks have the same error, and none waits for another: one of them tells it. */
static void tell_unsupported(const struct coll_run *run)
{
    if (run->rank != 0)
        return;
    job_report_failure("weft coll", NULL, WEFT_ERROR_UNSUPPORTED);
    if (strstr(weft_last_error(), "packet_bytes"))
        fprintf(stderr, "weft coll: --packet-bytes N makes room for larger ones\n");
}

/* Measures all sizes of one type and reduction. */
static weft_result run_kind(const struct coll_run *run, struct coll_totals *totals)
{
    const struct coll_options *options = run->options;
    uint64_t bytes = options->sizes.min;
    weft_result result = run_size(run, bytes, totals);
    while (result == WEFT_OK && option_steps_next(&options->sizes, &bytes))
        result = run_size(run, bytes, totals);
    return result;
}

static void begin_progress(const struct coll_run *run, struct progress *progress)
{
    const struct coll_options *options = run->options;
    int64_t num_sizes = 1, num_kinds = 0;
    uint64_t bytes = options->sizes.min;
    while (option_steps_next(&options->sizes, &bytes))
        num_sizes++;
    for (int32_t dtype = options->dtypes.first; dtype <= options->dtypes.last; dtype++)
        for (int32_t redop = options->redops.first; redop <= options->redops.last; redop++)
            num_kinds += reduce_op_takes((weft_reduce_op)redop, (weft_dtype)dtype) != 0;
    progress_begin(progress, run->rank == 0 ? options->progress : PROGRESS_HIDDEN, "weft coll",
                   num_kinds * num_sizes);
}

/* options are the run's. */
static weft_result run_all(struct coll_options *options, const struct coll_run *run,
                           struct coll_totals *totals)
{
    weft_result result = coll_report_heading(options, run->comm);
    begin_progress(run, &totals->progress);
    for (int32_t dtype = options->dtypes.first; dtype <= options->dtypes.last; dtype++)
        for (int32_t redop = options->redops.first;
             redop <= options->redops.last && result == WEFT_OK; redop++) {
            options->dtype = (weft_dtype)dtype;
            options->redop = (weft_reduce_op)redop;
            if (reduce_op_takes(options->redop, options->dtype))
                result = run_kind(run, totals);
        }
    progress_end(&totals->progress);
    return job_signal() != 0 ? WEFT_OK : result;
}

static weft_result run_sizes(struct coll_options *options, weft_comm *comm,
                             struct coll_totals *totals)
{
    struct coll_run run;
    weft_result result = coll_run_open(&run, comm, options);
    const weft_result tried = result == WEFT_OK ? try_largest(&run) : WEFT_OK;
    if (result == WEFT_OK)
        result = tried == WEFT_OK ? run_all(options, &run, totals) : tried;
    if (tried == WEFT_ERROR_UNSUPPORTED)
        tell_unsupported(&run);
    else if (result != WEFT_OK)
        job_report_and_abort("weft coll", comm, result);
    coll_run_close(&run);
    return result;
}

static int work(void *argument, weft_comm *comm)
{
    struct coll_options *options = argument;
    struct coll_totals totals = {0};
    if (options->task == COLL_TASK_EXPLAIN)
        return coll_explain(options, comm);
    signals_heed(SIGNALS_SECOND_WAITS);
    const weft_result result = run_sizes(options, comm, &totals);
    int status = job_status_of(result);
    if (result == WEFT_OK && weft_comm_rank(comm) == 0 && coll_report_end(options, &totals) != 0)
        status = STATUS_FAILURE;
    figures_free(&totals.plotted);
    if (totals.num_wrong != 0)
        status = STATUS_FAILURE;
    return job_status_after_signals("weft coll", comm, "sizes", status);
}

static int resolve(void *options, char error[JOB_ERROR_BYTES])
{
    return coll_options_resolve(options, error);
}

int command_coll(int argc, char **argv)
{
    struct coll_options options;
    const struct job_command command = {.name = "weft coll",
                                        .default_ranks = COLL_DEFAULT_RANKS,
                                        .job = &options.job,
                                        .options = &options,
                                        .resolve = resolve,
                                        .work = work};
    coll_options_parse(&options, argc, argv);
    return job_run(&command, argv);
}
