/* SPDX-License-Identifier: MIT */
/* weft status: looks into jobs that run, or hang. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "command.h"
#include "job.h"
#include "meeting.h"
#include "status_report.h"
#include "workload/options.h"
#include "workload/output.h"

enum { MAX_JOBS = 64, MAX_IDS = 64 };

enum repetition { STATUS_ONCE, STATUS_WATCH };

struct status {
    const char *rendezvous; /* HOST:PORT; NULL: jobs of this host */
    struct meeting meeting;
    int32_t pid; /* 0: all */
    enum repetition repetition;
    enum status_format format;
};

#define AT(member) OPTION_AT(struct status, member)

static const struct option_row option_table[] = {
    {OPTION_TEXT, "rendezvous", "HOST:PORT",
     "Look into the job whose ranks meet at HOST:PORT, also on other hosts; WEFT_SECRET "
     "must be that of the job",
     NULL, AT(rendezvous), .rules = {{.excludes = "pid"}}},
    {OPTION_INTEGER, "pid", "PID",
     "Look into the job whose rendezvous is in process PID of this host: weft run, or "
     "rank 0 under another launcher",
     NULL, AT(pid), 1, INT32_MAX, .without = "all jobs of this user on this host"},
    {OPTION_FLAG, "watch", NULL, "Look again each second, until the job ends", NULL, AT(repetition),
     0, STATUS_WATCH},
    {OPTION_FLAG, "json", NULL, "Print one JSON object per line, for each rank", NULL, AT(format)},
    {0}};

static const char documentation[] =
    "Tells of each rank its host, process, machine and heap, the call that it made last, for whom "
    "it waits and for how long, and why its communicator has failed. Ranks answer while they hang; "
    "one that does not answer is stopped or cut off, and is named with those who wait for it."
    "\vThe exit status is 1 if there is no job, or its rendezvous does not answer.";

static void finish(void *input, struct argp_state *state)
{
    struct status *status = input;
    if (status->rendezvous)
        meeting_read(state, status->rendezvous, &status->meeting);
}

static int report(weft_result result)
{
    job_report_failure("weft status", NULL, result);
    return STATUS_FAILURE;
}

static weft_result print_jobs(const struct status *status, int32_t pid, int32_t *num_ids)
{
    weft_unique_id ids[MAX_IDS];
    weft_result result = weft_job_ids(pid, ids, MAX_IDS, num_ids);
    for (int32_t i = 0; result == WEFT_OK && i < *num_ids; i++)
        result = status_print(stdout, status->format, &ids[i], pid);
    return result;
}

static int print_process(const struct status *status, int32_t pid)
{
    int32_t num_ids;
    const weft_result result = print_jobs(status, pid, &num_ids);
    if (result != WEFT_OK)
        return report(result);
    if (num_ids > 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "weft status: no rank is at the rendezvous of process %d\n", pid);
    return STATUS_FAILURE;
}

static int is_listed(int32_t pid)
{
    int32_t pids[MAX_JOBS], num_pids;
    int is_there = 0;
    if (weft_job_list(pids, MAX_JOBS, &num_pids) != WEFT_OK)
        return 0;
    for (int32_t i = 0; i < num_pids && i < MAX_JOBS; i++)
        is_there |= pids[i] == pid;
    return is_there;
}

/* A job may end, or may not have begun, while others are asked: that is no failure. */
static int print_host(const struct status *status)
{
    int32_t pids[MAX_JOBS], num_pids;
    int exit_status = EXIT_SUCCESS;
    const weft_result result = weft_job_list(pids, MAX_JOBS, &num_pids);
    if (result != WEFT_OK)
        return report(result);
    if (num_pids == 0) {
        fprintf(stderr, "weft status: this user has no job on this host\n");
        return STATUS_FAILURE;
    }
    for (int32_t i = 0; i < num_pids && i < MAX_JOBS; i++) {
        int32_t num_ids;
        const weft_result of_process = print_jobs(status, pids[i], &num_ids);
        if (of_process != WEFT_OK && is_listed(pids[i]))
            exit_status = report(of_process);
    }
    return exit_status;
}

static int print_once(const struct status *status)
{
    if (status->pid != 0)
        return print_process(status, status->pid);
    if (!status->rendezvous)
        return print_host(status);
    const weft_result result = status_print(stdout, status->format, &status->meeting.id, 0);
    return result == WEFT_OK ? EXIT_SUCCESS : report(result);
}

int command_status(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    struct status status = {.rendezvous = NULL};
    const struct timespec second = {.tv_sec = 1};
    options_parse(&set, &status, argc, argv);
    int exit_status = print_once(&status);
    while (status.repetition == STATUS_WATCH && exit_status == EXIT_SUCCESS &&
           output_flush() == 0) {
        nanosleep(&second, NULL);
        if (status.format == STATUS_FORMAT_TEXT)
            printf("\n");
        exit_status = print_once(&status);
    }
    return output_flush() == 0 ? exit_status : STATUS_FAILURE;
}
