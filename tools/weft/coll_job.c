/* SPDX-License-Identifier: MIT */
#include "coll_job.h"

#include <stdio.h>

#include "command.h"
#include "job.h"

enum { DEFAULT_RANKS = 4 };

static int report_usage(const struct coll_job *job, const char *error)
{
    fprintf(stderr, "%s: %s\n", job->command, error);
    return STATUS_USAGE;
}

static int launch_itself(const struct coll_job *job, char **argv)
{
    char error[COLL_ERROR_BYTES];
    const int32_t num_ranks = job->options->num_ranks > 0 ? job->options->num_ranks : DEFAULT_RANKS;
    if (coll_options_resolve(job->options, num_ranks, error) != 0)
        return report_usage(job, error);
    char *name = argv[0];
    weft_machine machine;
    if (job_choose_machine(name, job->options->machine, &machine) != 0)
        return STATUS_FAILURE;
    argv[0] = (char *)job->subcommand;
    const int status = job_launch(name, num_ranks, 1, argv);
    argv[0] = name;
    return status;
}

static int resolve_and_work(const struct coll_job *job, weft_comm *comm)
{
    char error[COLL_ERROR_BYTES];
    if (coll_options_resolve(job->options, weft_comm_num_ranks(comm), error) != 0)
        return weft_comm_rank(comm) == 0 ? report_usage(job, error) : STATUS_USAGE;
    return job->work(job, comm);
}

static int join(const struct coll_job *job)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm = NULL;
    config.timeout_ms = (uint32_t)job->options->timeout_ms;
    config.machine = job->options->machine;
    weft_result result = weft_comm_create_from_env(&config, &comm);
    if (result != WEFT_OK) {
        job_report_failure(job->command, NULL, result);
        return result == WEFT_ERROR_INVALID_ARGUMENT ? STATUS_USAGE : STATUS_FAILURE;
    }
    const int status = resolve_and_work(job, comm);
    weft_comm_destroy(comm);
    return status;
}

int coll_job_run(const struct coll_job *job, char **argv)
{
    return job_has_rank() ? join(job) : launch_itself(job, argv);
}

void coll_job_fail(const struct coll_job *job, weft_comm *comm, weft_result result)
{
    job_report_failure(job->command, comm, result);
    if (weft_comm_status(comm, NULL) == WEFT_OK)
        weft_comm_abort(comm);
}
