/* SPDX-License-Identifier: MIT */
/* Starts the ranks of a job, or of its part on this host, watches them, and leaves none behind. */
#pragma once

#include <stdint.h>

#include "hosts.h"
#include "spawn.h"

/* Which endings of ranks are told on standard error. */
enum launch_report {
    LAUNCH_REPORT_FAILURES, /* every first failure */
    LAUNCH_REPORT_SIGNALS   /* only by a signal: ranks tell their other failures themselves */
};

/* Who else may end the ranks. */
enum launch_control {
    LAUNCH_BY_SIGNALS,
    LAUNCH_BY_STDIN /* and by what hosts.h says of the control pipe */
};

/* Where the ranks meet. */
enum launch_meeting {
    LAUNCH_MEET_HERE, /* all ranks are of this host */
    LAUNCH_SERVE,     /* at `id`, which this process serves, for other hosts as well */
    LAUNCH_JOIN       /* at `id`, which that of another host serves */
};

struct launch {
    const char *command;   /* ours, in messages */
    int32_t num_ranks;     /* that are started here, */
    int32_t first_rank;    /* from this one on, */
    int32_t num_job_ranks; /* of so many */
    int32_t num_nodes;     /* divides num_job_ranks */
    enum launch_meeting meeting;
    weft_unique_id id; /* unless they meet here, as the next two */
    const char *address;
    int32_t port;
    enum spawn_output output;
    enum launch_report report;
    double grace_s; /* from the first failure until the other ranks get SIGTERM */
    enum launch_control control;
    const struct hosts *hosts; /* NULL: ranks are started here; else a "rank" of ours is a host */
    char *const *argv;
};

/* The exit status of the job here: 0, or the first failing rank's (128 plus the number of the
 * signal that killed it); STATUS_NOT_FOUND or STATUS_NOT_EXECUTABLE when the program cannot be
 * started. */
int launch_ranks(const struct launch *launch);
