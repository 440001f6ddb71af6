/* SPDX-License-Identifier: MIT */
/* weft ep: one mixture-of-experts layer as a benchmark and a check. Started alone it launches itself
 * as the ranks of a job; as a rank of a job it does the work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "ep_check.h"
#include "ep_measure.h"
#include "ep_options.h"
#include "ep_report.h"
#include "ep_routing.h"
#include "launch.h"

enum { DEFAULT_RANKS = 8, DEFAULT_NODES = 1 };

/* The launchers that weft_comm_create_from_env knows. */
static int is_rank_of_job(void)
{
    static const char *const marks[][2] = {
        {"WEFT_ID", "WEFT_RANK"},
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
        {"PMI_RANK", "PMI_SIZE"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i][0]) && getenv(marks[i][1]))
            return 1;
    return 0;
}

static int report_usage(const char *command, const char *error)
{
    fprintf(stderr, "%s: %s\n", command, error);
    return STATUS_USAGE;
}

static int launch_itself(struct ep_options *options, char **argv)
{
    char error[EP_ERROR_BYTES];
    int32_t num_ranks = options->num_ranks > 0 ? options->num_ranks : DEFAULT_RANKS;
    int32_t num_nodes = options->num_nodes > 0 ? options->num_nodes : DEFAULT_NODES;
    if (ep_options_resolve(options, num_ranks, num_nodes, error) != 0)
        return report_usage(argv[0], error);
    size_t num_arguments = 0;
    while (argv[num_arguments])
        num_arguments++;
    char **rank_argv = calloc(num_arguments + 2, sizeof *rank_argv);
    if (!rank_argv)
        return STATUS_FAILURE;
    rank_argv[0] = "/proc/self/exe";
    rank_argv[1] = "ep";
    memcpy(rank_argv + 2, argv + 1, (num_arguments - 1) * sizeof *rank_argv);
    struct launch launch = {
        .command = argv[0],
        .num_ranks = num_ranks,
        .num_nodes = num_nodes,
        .output = SPAWN_OUTPUT_SHARED,
        .report = LAUNCH_REPORT_SIGNALS,
        .grace_s = 5,
        .argv = rank_argv,
    };
    int status = launch_ranks(&launch);
    free(rank_argv);
    return status;
}

/* That a rank failed or aborted is told by one of the others: rank 0, or rank 1 about rank 0. */
static void report_failure(weft_comm *comm, weft_result result)
{
    int32_t rank = comm ? weft_comm_rank(comm) : -1;
    const char *detail = weft_last_error();
    if (rank > 0 && (result == WEFT_ERROR_RANK_FAILED || result == WEFT_ERROR_ABORTED)) {
        int32_t failed_rank = -1;
        weft_comm_status(comm, &failed_rank);
        if (rank > 1 || failed_rank != 0)
            return;
    }
    fprintf(stderr, "weft ep: ");
    if (rank >= 0)
        fprintf(stderr, "rank %d: ", rank);
    fprintf(stderr, "%s%s%s\n", weft_result_string(result), *detail ? ": " : "", detail);
}

static weft_result measure_and_check(weft_comm *comm, struct ep_report *report)
{
    const struct ep_options *options = report->options;
    struct ep_layer layer = {0};
    struct ep_routing routing;
    weft_result result = WEFT_ERROR_OUT_OF_MEMORY;
    if (ep_routing_open(&routing, options, weft_comm_rank(comm),
                        options->check == EP_CHECK_NONE ? EP_ROUTING_OWN : EP_ROUTING_ALL) == 0)
        result = ep_layer_open(&layer, comm, options, &routing);
    if (result == WEFT_OK)
        result = ep_measure(&layer, report->figures);
    if (result == WEFT_OK)
        result = ep_measure_traffic(&layer, &report->traffic);
    if (result == WEFT_OK && options->check != EP_CHECK_NONE)
        result = ep_check(&layer, report->tallies);
    if (result != WEFT_OK) {
        report_failure(comm, result);
        if (weft_comm_status(comm, NULL) == WEFT_OK)
            weft_comm_abort(comm);
    }
    ep_layer_close(&layer);
    ep_routing_close(&routing);
    return result;
}

static int work(weft_comm *comm, struct ep_options *options)
{
    char error[EP_ERROR_BYTES];
    weft_team_info node;
    int32_t rank = weft_comm_rank(comm);
    weft_result result = weft_comm_team(comm, WEFT_TEAM_LOCAL, &node);
    if (result != WEFT_OK) {
        report_failure(comm, result);
        return STATUS_FAILURE;
    }
    if (ep_options_resolve(options, weft_comm_num_ranks(comm), node.num_teams, error) != 0)
        return rank == 0 ? report_usage("weft ep", error) : STATUS_USAGE;
    ep_options_resolve_grid(options, weft_comm_machine(comm));
    struct ep_report report = {.options = options, .machine = weft_comm_machine(comm)};
    if (measure_and_check(comm, &report) != WEFT_OK)
        return STATUS_FAILURE;
    if (rank == 0 && ep_report_print(&report) != 0) {
        perror("weft ep: standard output");
        return STATUS_FAILURE;
    }
    return report.tallies[EP_LAYER].errors == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}

static int join(struct ep_options *options)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm = NULL;
    config.timeout_ms = (uint32_t)options->timeout_ms;
    config.num_nodes = options->num_nodes > 0 ? options->num_nodes : 0;
    config.machine = options->machine;
    weft_result result = weft_comm_create_from_env(&config, &comm);
    if (result != WEFT_OK) {
        report_failure(NULL, result);
        return result == WEFT_ERROR_INVALID_ARGUMENT ? STATUS_USAGE : STATUS_FAILURE;
    }
    int status = work(comm, options);
    weft_comm_destroy(comm);
    return status;
}

int command_ep(int argc, char **argv)
{
    struct ep_options options;
    ep_options_parse(&options, argc, argv);
    int status = is_rank_of_job() ? join(&options) : launch_itself(&options, argv);
    trace_close(options.trace);
    return status;
}
