/* SPDX-License-Identifier: MIT */
/* weft ep: one mixture-of-experts layer as a benchmark and a check. Started alone it launches itself
 * as the ranks of a job; as a rank of a job it does the work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "ep_check.h"
#include "ep_measure.h"
#include "ep_memory.h"
#include "ep_options.h"
#include "ep_query.h"
#include "ep_report.h"
#include "ep_routing.h"
#include "job.h"
#include "workload/failure.h"

enum { DEFAULT_RANKS = 8, DEFAULT_NODES = 1 };

static int query(weft_comm *comm, const struct ep_options *options)
{
    const weft_result result = ep_query(comm, options);
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
    config.machine = options->machine;
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

static int launch_itself(struct ep_options *options, char **argv)
{
    char error[EP_ERROR_BYTES];
    int32_t num_ranks = options->num_ranks > 0 ? options->num_ranks : DEFAULT_RANKS;
    int32_t num_nodes = options->num_nodes > 0 ? options->num_nodes : DEFAULT_NODES;
    if (ep_options_resolve(options, num_ranks, num_nodes, error) != 0)
        return job_report_usage(argv[0], error);
    char *name = argv[0];
    weft_machine machine;
    int status = job_choose_machine(name, options->machine, &machine);
    if (status != EXIT_SUCCESS)
        return status;
    if (options->task == EP_TASK_QUERY)
        return query_alone(options);
    if (ep_memory_check(name, options, machine) != 0)
        return STATUS_FAILURE;
    argv[0] = "ep";
    status = job_launch(name, num_ranks, num_nodes, argv);
    argv[0] = name;
    return status;
}

static weft_result measure_and_check(weft_comm *comm, struct ep_report *report)
{
    const struct ep_options *options = report->options;
    const int is_checked = options->check != EP_CHECK_NONE;
    struct ep_layer layer = {0};
    struct ep_routing routing;
    const enum ep_routing_extent extent = is_checked ? EP_ROUTING_ALL : EP_ROUTING_OWN;
    weft_result result = ep_routing_open(&routing, options, comm, extent) == 0
                             ? ep_layer_open(&layer, comm, options, &routing)
                             : LACKS_MEMORY("the routing of the tokens");
    if (result == WEFT_OK)
        ep_routing_mask(&routing, options); /* what is checked; weft is given all choices */
    if (result == WEFT_OK && is_checked && options->mode == EP_MODE_LOW_LATENCY)
        result = ep_check(&layer, report->tallies); /* and again behind what is timed */
    if (result == WEFT_OK)
        result = ep_measure(&layer, report->figures);
    if (result == WEFT_OK)
        result = ep_measure_traffic(&layer, &report->traffic);
    if (result == WEFT_OK)
        result = ep_network_measure(&layer, &report->network);
    if (result == WEFT_OK && is_checked)
        result = ep_check(&layer, report->tallies);
    if (result != WEFT_OK)
        job_report_and_abort("weft ep", comm, result);
    report->ll_sizes = layer.ll.sizes;
    ep_layer_close(&layer);
    ep_routing_close(&routing);
    return result;
}

static int work(weft_comm *comm, struct ep_options *options)
{
    char error[EP_ERROR_BYTES];
    weft_team_info node = WEFT_INIT(weft_team_info);
    int32_t rank = weft_comm_rank(comm);
    weft_result result = weft_team_query(comm, WEFT_TEAM_LOCAL, &node);
    if (result != WEFT_OK) {
        job_report_failure("weft ep", comm, result);
        return STATUS_FAILURE;
    }
    if (ep_options_resolve(options, weft_comm_num_ranks(comm), node.num_teams, error) != 0)
        return rank == 0 ? job_report_usage("weft ep", error) : STATUS_USAGE;
    ep_options_resolve_grid(options, weft_comm_machine(comm));
    if (options->task == EP_TASK_QUERY)
        return query(comm, options);
    struct ep_report report = {.options = options, .machine = weft_comm_machine(comm)};
    result = measure_and_check(comm, &report);
    if (result != WEFT_OK)
        return job_status_of(result);
    if (rank == 0 && ep_report_print(&report) != 0)
        return STATUS_FAILURE;
    return report.tallies[ep_whole_layer(options)].errors == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}

static int join(struct ep_options *options)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int status;
    if (job_check_ranks("weft ep", options->num_ranks) != 0)
        return STATUS_USAGE;
    config.timeout_ms = (uint32_t)options->timeout_ms;
    config.num_nodes = options->num_nodes > 0 ? options->num_nodes : 0;
    config.machine = options->machine;
    weft_comm *comm = job_join("weft ep", &config, &status);
    if (!comm)
        return status;
    status = work(comm, options);
    weft_comm_destroy(comm);
    return status;
}

int command_ep(int argc, char **argv)
{
    struct ep_options options;
    ep_options_parse(&options, argc, argv);
    int status = job_has_rank() ? join(&options) : launch_itself(&options, argv);
    trace_close(options.trace);
    return status;
}
