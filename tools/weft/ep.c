/* SPDX-License-Identifier: MIT */
/* weft ep: one mixture-of-experts layer as a benchmark and a check. Started alone it launches
 * itself as the ranks of a job; as a rank of a job it does the work. */
#include <stdlib.h>

#include "command.h"
#include "ep_measure.h"
#include "ep_memory.h"
#include "ep_options.h"
#include "ep_report.h"
#include "job.h"
#include "workload/ep_check.h"
#include "workload/ep_routing.h"
#include "workload/signals.h"

enum { DEFAULT_RANKS = 8 };

static int query(weft_comm *comm, struct ep_options *options)
{
    weft_result result = WEFT_OK;
    for (int32_t i = 0; i < ep_options_num_cases(options) && result == WEFT_OK; i++) {
        ep_options_choose_case(options, i);
        result = ep_query(comm, options);
    }
    if (result != WEFT_OK)
        job_report_and_abort("weft ep", comm, result);
    return job_status_of(result);
}

/* By a communicator of one rank, which knows the machine. */
static int query_alone(struct ep_options *options)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_unique_id id;
    weft_comm *comm = NULL;
    config.machine = options->job.machine;
    weft_result result = weft_unique_id_create(&id);
    if (result == WEFT_OK)
        result = weft_comm_create(&id, 0, 1, &config, &comm);
    if (result != WEFT_OK) {
        job_report_failure("weft ep", NULL, result);
        return job_status_of(result);
    }
    ep_options_resolve_grid(options, weft_comm_machine(comm));
    const int status = query(comm, options);
    weft_comm_destroy(comm);
    return status;
}

static int prepare(void *argument, weft_machine machine, int *status)
{
    struct ep_options *options = argument;
    if (options->task == EP_TASK_QUERY) {
        *status = query_alone(options);
        return -1;
    }
    *status = STATUS_FAILURE;
    return ep_memory_check("weft ep", options, machine);
}

static weft_result measure_and_check(weft_comm *comm, struct ep_report *report)
{
    const struct ep_options *options = report->options;
    const int is_checked = options->layer.check != EP_CHECK_NONE;
    struct ep_layer layer = {0};
    struct ep_routing routing;
    weft_stream *stream = NULL;
    const enum ep_routing_extent extent = is_checked ? EP_ROUTING_ALL : EP_ROUTING_OWN;
    weft_result result = ep_layer_open_routing(&routing, &options->layer, comm, extent);
    if (result == WEFT_OK)
        result = weft_stream_create(comm, &stream);
    if (result == WEFT_OK)
        result = ep_layer_open(&layer, comm, stream, &options->layer, &routing);
    if (result == WEFT_OK)
        ep_routing_mask(&routing, &options->layer); /* what is checked; weft is given all choices */
    if (result == WEFT_OK && is_checked && options->layer.mode == EP_MODE_LOW_LATENCY)
        result = ep_check(&layer, report->tallies); /* and again behind what is timed */
    if (result == WEFT_OK)
        result = ep_measure(&layer, options, report->figures);
    if (result == WEFT_OK)
        result = ep_find_slowest(comm, &report->slowest);
    if (result == WEFT_OK)
        result = ep_measure_traffic(&layer, &report->traffic);
    if (result == WEFT_OK)
        result = ep_network_measure(&layer, &report->network);
    if (result == WEFT_OK && is_checked)
        result = ep_check(&layer, report->tallies);
    if (result != WEFT_OK && job_signal() == 0)
        job_report_and_abort("weft ep", comm, result);
    report->ll_sizes = layer.ll.sizes;
    ep_layer_close(&layer);
    if (stream)
        weft_stream_destroy(stream);
    ep_routing_close(&routing);
    return result;
}

/* Returns the exit status. */
static int run_cases(weft_comm *comm, struct ep_options *options, struct figure_list *plotted)
{
    int status = EXIT_SUCCESS;
    for (int32_t i = 0; i < ep_options_num_cases(options); i++) {
        struct ep_report report = {.options = options, .machine = weft_comm_machine(comm)};
        ep_options_choose_case(options, i);
        const weft_result result = measure_and_check(comm, &report);
        if (job_signal() != 0)
            break;
        if (result != WEFT_OK)
            return job_status_of(result);
        if (weft_comm_rank(comm) == 0 && ep_report_print(&report, plotted) != 0)
            return STATUS_FAILURE;
        for (int op = 0; op < EP_NUM_OPS; op++)
            if (report.tallies[op].errors != 0)
                status = STATUS_FAILURE;
    }
    if (weft_comm_rank(comm) == 0 && ep_report_end(options, plotted) != 0)
        status = STATUS_FAILURE;
    return status;
}

static int work(void *argument, weft_comm *comm)
{
    struct ep_options *options = argument;
    struct figure_list plotted = {0};
    ep_options_resolve_grid(options, weft_comm_machine(comm));
    if (options->task == EP_TASK_QUERY)
        return query(comm, options);
    signals_heed(SIGNALS_SECOND_WAITS);
    const int status = run_cases(comm, options, &plotted);
    figures_free(&plotted);
    return job_status_after_signals("weft ep", comm, "cases", status);
}

static int resolve(void *options, char error[JOB_ERROR_BYTES])
{
    return ep_options_resolve(options, error);
}

int command_ep(int argc, char **argv)
{
    struct ep_options options;
    const struct job_command command = {.name = "weft ep",
                                        .default_ranks = DEFAULT_RANKS,
                                        .job = &options.job,
                                        .options = &options,
                                        .resolve = resolve,
                                        .prepare = prepare,
                                        .work = work};
    ep_options_parse(&options, argc, argv);
    const int status = job_run(&command, argv);
    trace_close(options.trace);
    return status;
}
