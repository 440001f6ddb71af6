/* SPDX-License-Identifier: MIT */
/*
 * Watches the ranks of a job until none is left. One thread, one loop: it sleeps in poll until a
 * rank writes, a signal arrives (through a signalfd: they are blocked from the start, also for the
 * rendezvous thread) or a deadline passes. That a rank has ended it sees for itself, soon after at
 * the latest: threads of libraries, CUDA's for one, may have been there before, and one that does
 * not block SIGCHLD takes it, and drops it.
 *
 * The first failure, or the first signal that asks the job to end, starts a countdown: the ranks,
 * who learn of a failure through weft, get grace_s to end by themselves, then SIGTERM, then
 * SIGKILL. A second such signal is SIGKILL at once.
 */
#pragma once

#include <poll.h>

#include "launch.h"
#include "lines.h"
#include "spawn.h"

struct rank_process {
    pid_t pid; /* 0: ended */
    struct lines out, err;
    int control_fd; /* of the ranks of another host (hosts.h); else -1 */
};

enum job_phase { JOB_RUNNING, JOB_GRACE, JOB_TERMINATED, JOB_KILLED };

struct job {
    const struct launch *launch;
    const weft_unique_id *id; /* where the ranks meet */
    struct rank_process *ranks;
    struct pollfd *polls; /* the signalfd, out and err of each rank, control_fd */
    int32_t num_running;
    int signal_fd;
    int control_fd; /* ours, if another launcher ends us by it; else -1 */
    enum job_phase phase;
    /* For the phases after RUNNING; for KILLED, for readers of what ranks have written. */
    double deadline_s;
    int stop_signal; /* the first that asked the job to end; 0: none */
    double stop_s;   /* when it came */
    int exit_status; /* not 0: of the first rank that failed, or STATUS_SIGNAL plus stop_signal */
    int has_killed;  /* 1: a rank has ended by a signal */
    struct sink out_sink, err_sink;
    FILE *out, *err; /* what ranks write goes there */
    enum orphans orphans;
};

/* "rank 3", or "host b (ranks 4-7)". */
enum { JOB_NAME_BYTES = HOSTS_NAME_BYTES + 40 };
const char *job_name(const struct launch *launch, int32_t rank, char name[JOB_NAME_BYTES]);

/* A rank has failed, or cannot be started. The first failure counts. */
void job_fail(struct job *job, int exit_status);
void job_kill(struct job *job);

/* Reads the signals that have come, and does what they ask for. */
void job_take_signals(struct job *job);

/* A sink asks this while nobody reads: signals and deadlines have effect all the same. `argument`
 * is the job. */
enum sink_wait job_wait_for_reader(void *argument);

/* Returns when all ranks have ended, and nothing that they started is left. */
void job_supervise(struct job *job);
