/* SPDX-License-Identifier: MIT */
/* Starts the ranks of a job on this host, watches them, and leaves none behind. */
#ifndef WEFT_TOOL_LAUNCH_H
#define WEFT_TOOL_LAUNCH_H

#include <stdint.h>

#include "spawn.h"

/* Which endings of ranks are told on standard error. */
enum launch_report {
    LAUNCH_REPORT_FAILURES, /* every first failure */
    LAUNCH_REPORT_SIGNALS   /* only by a signal: ranks tell their other failures themselves */
};

struct launch {
    const char *command; /* ours, in messages */
    int32_t num_ranks;
    int32_t num_nodes; /* divides num_ranks */
    enum spawn_output output;
    enum launch_report report;
    double grace_s; /* from the first failure until the other ranks get SIGTERM */
    char *const *argv;
};

/* The job's exit status: 0, or the first failing rank's (128 plus the number of the signal that
 * killed it); STATUS_NOT_FOUND or STATUS_NOT_EXECUTABLE when the program cannot be started. */
int launch_ranks(const struct launch *launch);

#endif
