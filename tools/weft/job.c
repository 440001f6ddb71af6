/* SPDX-License-Identifier: MIT */
#include "job.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "launch.h"
#include "workload/clock.h"
#include "workload/failure.h"
#include "workload/output.h"
#include "workload/signals.h"

const char *const job_machine_names[] = {"auto", "cpu", "cuda", NULL};

int job_has_rank(void)
{
    weft_env_info info = WEFT_INIT(weft_env_info);
    return weft_env_query(&info) != WEFT_OK || info.launcher;
}

int job_check_ranks(const char *name, int32_t num_ranks)
{
    weft_env_info info = WEFT_INIT(weft_env_info);
    if (num_ranks <= 0 || weft_env_query(&info) != WEFT_OK || !info.launcher ||
        info.num_ranks == num_ranks)
        return 0;
    fprintf(stderr,
            "%s: --ranks %d: must be absent or %d, the ranks of this job; %s and %s, which %s "
            "sets, make this process rank %d of it\n",
            name, num_ranks, info.num_ranks, info.rank_variable, info.num_ranks_variable,
            info.launcher, info.rank);
    return -1;
}

int job_launch(const char *name, int32_t num_ranks, int32_t num_nodes, char *const *arguments)
{
    size_t num_arguments = 0;
    while (arguments[num_arguments])
        num_arguments++;
    char **argv = calloc(num_arguments + 2, sizeof *argv);
    if (!argv) {
        job_report_failure(name, NULL, LACKS_MEMORY("%zu arguments", num_arguments));
        return STATUS_FAILURE;
    }
    argv[0] = "/proc/self/exe";
    memcpy(argv + 1, arguments, num_arguments * sizeof *argv);
    const struct launch launch = {
        .command = name,
        .num_ranks = num_ranks,
        .num_job_ranks = num_ranks,
        .num_nodes = num_nodes,
        .output = SPAWN_OUTPUT_SHARED,
        .report = LAUNCH_REPORT_SIGNALS,
        .grace_s = 5,
        .argv = argv,
    };
    const int status = launch_ranks(&launch);
    free(argv);
    return status;
}

int job_choose_machine(const char *name, weft_machine wanted, weft_machine *machine)
{
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    const weft_result result = weft_machine_query(wanted, &info);
    if (result != WEFT_OK) {
        job_report_failure(name, NULL, result);
        return job_status_of(result);
    }
    *machine = info.machine;
    if (info.is_usable)
        return EXIT_SUCCESS;
    fprintf(stderr, "%s: %s\n", name, info.reason);
    return STATUS_FAILURE;
}

weft_comm *job_join(const char *name, const weft_comm_config *config, int *status)
{
    weft_comm *comm = NULL;
    const weft_result result = weft_comm_create_from_env(config, &comm);
    if (result == WEFT_OK)
        return comm;
    job_report_failure(name, NULL, result);
    *status = job_status_of(result);
    return NULL;
}

int job_status_of(weft_result result)
{
    if (result == WEFT_OK)
        return EXIT_SUCCESS;
    return result == WEFT_ERROR_INVALID_ARGUMENT ? STATUS_USAGE : STATUS_FAILURE;
}

int job_report_usage(const char *name, const char *error)
{
    fprintf(stderr, "%s: %s\n", name, error);
    return STATUS_USAGE;
}

void job_report_failure(const char *name, weft_comm *comm, weft_result result)
{
    const int32_t rank = comm ? weft_comm_rank(comm) : -1;
    const char *detail = failure_text(result);
    if (rank > 0 && (result == WEFT_ERROR_RANK_FAILED || result == WEFT_ERROR_ABORTED)) {
        /* Rank 0 tells it, or rank 1 about rank 0; and everybody that the rendezvous is lost, who
         * may be cut off. */
        int32_t failed_rank = -1;
        const int is_alone = weft_comm_status(comm, &failed_rank) != WEFT_OK && failed_rank < 0;
        if (!is_alone && (rank > 1 || failed_rank != 0))
            return;
    }
    fprintf(stderr, "%s: ", name);
    if (rank >= 0)
        fprintf(stderr, "rank %d: ", rank);
    fprintf(stderr, "%s%s%s\n", weft_result_string(result), *detail ? ": " : "", detail);
}

void job_report_and_abort(const char *name, weft_comm *comm, weft_result result)
{
    job_report_failure(name, comm, result);
    if (weft_comm_status(comm, NULL) == WEFT_OK)
        weft_comm_abort(comm);
}

/* ---------------------------------------------------------------- signals */

static int agreed_signal;

int job_signal(void)
{
    return agreed_signal;
}

/* All ranks decide by the same times, so that they meet in the same step. */
weft_result job_check_signals(weft_comm *comm, struct job_pace *pace)
{
    static const int64_t least_ns = 100000000, most_ns = 400000000;
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    struct seen {
        int64_t signal_number, ns;
    } own = {signals_noted(), clock_ns() - pace->last_ns}, *all;
    if (--pace->num_left > 0)
        return WEFT_OK;
    all = calloc((size_t)num_ranks, sizeof *all);
    weft_result result = all ? weft_comm_host_all_gather(comm, &own, sizeof own, all)
                             : LACKS_MEMORY("the signals of %d ranks", num_ranks);
    for (int32_t rank = 0; rank < num_ranks && result == WEFT_OK; rank++)
        if (all[rank].signal_number != 0)
            agreed_signal = (int)all[rank].signal_number;
    if (pace->num_steps == 0)
        pace->num_steps = 1;
    else if (result == WEFT_OK && all[0].ns < least_ns)
        pace->num_steps *= 2;
    else if (result == WEFT_OK && all[0].ns > most_ns && pace->num_steps > 1)
        pace->num_steps /= 2;
    pace->num_left = pace->num_steps;
    pace->last_ns = clock_ns();
    free(all);
    return result == WEFT_OK && agreed_signal != 0 ? WEFT_ERROR_ABORTED : result;
}

int job_status_after_signals(const char *name, weft_comm *comm, const char *what, int status)
{
    const int number = agreed_signal;
    if (number == 0 || status != EXIT_SUCCESS)
        return status;
    if (weft_comm_rank(comm) == 0)
        fprintf(stderr, "%s: SIG%s: these are the %s until then\n", name, signal_name(number),
                what);
    return STATUS_SIGNAL + number;
}

/* ---------------------------------------------------------------- whole commands */

static int resolve(const struct job_command *command, char error[JOB_ERROR_BYTES])
{
    const struct job_options *job = command->job;
    if (job->num_ranks % job->num_nodes == 0)
        return command->resolve(command->options, error);
    snprintf(error, JOB_ERROR_BYTES, "--nodes %d: must divide the number of ranks, %d",
             job->num_nodes, job->num_ranks);
    return -1;
}

static int start_ranks(const struct job_command *command, char **argv)
{
    char error[JOB_ERROR_BYTES], *name = argv[0];
    struct job_options *job = command->job;
    if (job->num_ranks == 0)
        job->num_ranks = command->default_ranks;
    if (job->num_nodes == 0)
        job->num_nodes = 1;
    if (resolve(command, error) != 0)
        return job_report_usage(name, error);
    weft_machine machine;
    int status = job_choose_machine(name, job->machine, &machine);
    if (status != EXIT_SUCCESS ||
        (command->prepare && command->prepare(command->options, machine, &status) != 0))
        return status;
    argv[0] = strchr(name, ' ') + 1;
    status = job_launch(name, job->num_ranks, job->num_nodes, argv);
    argv[0] = name;
    return status;
}

static int work_as_rank(const struct job_command *command, weft_comm *comm)
{
    char error[JOB_ERROR_BYTES];
    struct job_options *job = command->job;
    weft_team_info node = WEFT_INIT(weft_team_info);
    const weft_result result = weft_team_query(comm, WEFT_TEAM_LOCAL, &node);
    if (result != WEFT_OK) {
        job_report_failure(command->name, comm, result);
        return STATUS_FAILURE;
    }
    job->num_ranks = weft_comm_num_ranks(comm);
    job->num_nodes = node.num_teams;
    job->machine = weft_comm_machine(comm);
    if (command->resolve(command->options, error) != 0)
        return weft_comm_rank(comm) == 0 ? job_report_usage(command->name, error) : STATUS_USAGE;
    return command->work(command->options, comm);
}

static int join(const struct job_command *command)
{
    const struct job_options *job = command->job;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int status = STATUS_FAILURE;
    if (job_check_ranks(command->name, job->num_ranks) != 0)
        return STATUS_USAGE;
    config.timeout_ms = (uint32_t)job->timeout_ms;
    config.machine = job->machine;
    config.num_nodes = job->num_nodes;
    weft_comm *comm = job_join(command->name, &config, &status);
    if (!comm)
        return status;
    status = work_as_rank(command, comm);
    weft_comm_destroy(comm);
    return status;
}

int job_run(const struct job_command *command, char **argv)
{
    return job_has_rank() ? join(command) : start_ranks(command, argv);
}

int job_print_json(json_t *object, weft_machine machine)
{
    weft_device_info device = WEFT_INIT(weft_device_info);
    const weft_result result = weft_device_query(machine, 0, &device);
    return output_json(object, result == WEFT_OK ? device.name : NULL);
}
