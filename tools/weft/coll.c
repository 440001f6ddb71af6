/* SPDX-License-Identifier: MIT */
/* weft coll: one collective operation as a benchmark and a check. Started alone it launches itself as the
 * ranks of a job; as a rank of a job it does the work. */
#include <stdio.h>
#include <stdlib.h>

#include "coll_options.h"
#include "coll_report.h"
#include "coll_run.h"
#include "command.h"
#include "job.h"

enum { DEFAULT_RANKS = 4 };

static int report_usage(const char *command, const char *error)
{
    fprintf(stderr, "%s: %s\n", command, error);
    return STATUS_USAGE;
}

static int launch_itself(struct coll_options *options, char **argv)
{
    char error[COLL_ERROR_BYTES];
    int32_t num_ranks = options->num_ranks > 0 ? options->num_ranks : DEFAULT_RANKS;
    if (coll_options_resolve(options, num_ranks, error) != 0)
        return report_usage(argv[0], error);
    char *name = argv[0];
    argv[0] = "coll";
    int status = job_launch(name, num_ranks, 1, argv);
    argv[0] = name;
    return status;
}

static weft_result run_place(const struct coll_run *run, struct coll_line *line,
                             enum coll_place place)
{
    struct coll_outcome *outcome = &line->outcomes[place];
    weft_result result = coll_run_fill(run, &line->collective, place);
    if (result == WEFT_OK)
        result = coll_measure(run, &line->collective, place, &outcome->us);
    if (result == WEFT_OK && run->options->check != COLL_CHECK_NONE)
        result = coll_check(run, &line->collective, place, &outcome->tally);
    return result;
}

static weft_result run_size(const struct coll_run *run, uint64_t bytes, uint64_t *num_wrong)
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
    if (result == WEFT_OK && run->rank == 0)
        coll_report_line(&line);
    for (int place = 0; place < COLL_NUM_PLACES; place++)
        *num_wrong += line.outcomes[place].tally.num_wrong;
    return result;
}

static weft_result run_sizes(weft_comm *comm, const struct coll_options *options,
                             uint64_t *num_wrong)
{
    struct coll_run run;
    uint64_t bytes = options->sizes.min;
    weft_result result = coll_run_open(&run, comm, options);
    if (result == WEFT_OK && run.rank == 0)
        coll_report_heading(options, weft_comm_machine(comm));
    if (result == WEFT_OK)
        result = run_size(&run, bytes, num_wrong);
    while (result == WEFT_OK && coll_sizes_next(&options->sizes, &bytes))
        result = run_size(&run, bytes, num_wrong);
    if (result != WEFT_OK) {
        job_report_failure("weft coll", comm, result);
        if (weft_comm_status(comm, NULL) == WEFT_OK)
            weft_comm_abort(comm);
    }
    coll_run_close(&run);
    return result;
}

static int work(weft_comm *comm, struct coll_options *options)
{
    char error[COLL_ERROR_BYTES];
    const int32_t rank = weft_comm_rank(comm);
    uint64_t num_wrong = 0;
    if (coll_options_resolve(options, weft_comm_num_ranks(comm), error) != 0)
        return rank == 0 ? report_usage("weft coll", error) : STATUS_USAGE;
    if (run_sizes(comm, options, &num_wrong) != WEFT_OK)
        return STATUS_FAILURE;
    if (rank == 0 && coll_report_end() != 0) {
        perror("weft coll: standard output");
        return STATUS_FAILURE;
    }
    return num_wrong == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}

static int join(struct coll_options *options)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm = NULL;
    config.timeout_ms = (uint32_t)options->timeout_ms;
    config.machine = options->machine;
    weft_result result = weft_comm_create_from_env(&config, &comm);
    if (result != WEFT_OK) {
        job_report_failure("weft coll", NULL, result);
        return result == WEFT_ERROR_INVALID_ARGUMENT ? STATUS_USAGE : STATUS_FAILURE;
    }
    int status = work(comm, options);
    weft_comm_destroy(comm);
    return status;
}

int command_coll(int argc, char **argv)
{
    struct coll_options options;
    coll_options_parse(&options, argc, argv);
    return job_has_rank() ? join(&options) : launch_itself(&options, argv);
}
