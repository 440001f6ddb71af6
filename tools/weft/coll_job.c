/* SPDX-License-Identifier: MIT */
#include "coll_job.h"

#include <stdlib.h>

#include "command.h"
#include "job.h"

enum { DEFAULT_RANKS = 4 };

static int launch_itself(const struct coll_job *job, char **argv)
{
    char error[COLL_ERROR_BYTES];
    const int32_t num_ranks = job->options->num_ranks > 0 ? job->options->num_ranks : DEFAULT_RANKS;
    if (coll_options_resolve(job->options, num_ranks, error) != 0)
        return job_report_usage(job->command, error);
    char *name = argv[0];
    weft_machine machine;
    int status = job_choose_machine(name, job->options->machine, &machine);
    if (status != EXIT_SUCCESS)
        return status;
    argv[0] = (char *)job->subcommand;
    status = job_launch(name, num_ranks, job->options->num_nodes > 0 ? job->options->num_nodes : 1,
                        argv);
    argv[0] = name;
    return status;
}

static int resolve_and_work(const struct coll_job *job, weft_comm *comm)
{
    char error[COLL_ERROR_BYTES];
    if (coll_options_resolve(job->options, weft_comm_num_ranks(comm), error) != 0)
        return weft_comm_rank(comm) == 0 ? job_report_usage(job->command, error) : STATUS_USAGE;
    return job->work(job, comm);
}

static int join(const struct coll_job *job)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int status;
    if (job_check_ranks(job->command, job->options->num_ranks) != 0)
        return STATUS_USAGE;
    config.timeout_ms = (uint32_t)job->options->timeout_ms;
    config.machine = job->options->machine;
    config.num_nodes = job->options->num_nodes;
    weft_comm *comm = job_join(job->command, &config, &status);
    if (!comm)
        return status;
    status = resolve_and_work(job, comm);
    weft_comm_destroy(comm);
    return status;
}

int coll_job_run(const struct coll_job *job, char **argv)
{
    return job_has_rank() ? join(job) : launch_itself(job, argv);
}
