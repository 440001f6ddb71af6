/* SPDX-License-Identifier: MIT */
/* Starts one rank of a job as a process in a process group of its own. */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "weft.h"

enum spawn_output {
    SPAWN_OUTPUT_PIPED,
    SPAWN_OUTPUT_SHARED /* ranks write to our standard output and error */
};

struct spawn {
    int32_t num_ranks; /* of the job; 0: what is started is no rank */
    int32_t num_nodes;
    weft_unique_id id;
    const char *
        address; /* of rank 0's host, for libraries beside weft, as `port`; not read if that is 0 */
    int32_t port;
    char *const *argv;
    enum spawn_output output;
    int stdin_fd;         /* standard input of ranks; closed on exec */
    sigset_t signal_mask; /* of the ranks, as the next */
    struct rlimit num_files;
};

struct spawned {
    pid_t pid;                /* also its process group */
    int stdout_fd, stderr_fd; /* nonblocking read ends, -1 if SPAWN_OUTPUT_SHARED */
};

/* 0, or the errno of what failed: of execvp when the program cannot be started. Then nothing is
 * left over. */
int spawn_rank(const struct spawn *spawn, int32_t rank, struct spawned *spawned);

/* Processes that ranks have started in process groups or sessions of their own: such a process does
 * not go with its rank, but becomes a child of ours when its parent has ended. */
enum orphans { ORPHANS_LEFT, ORPHANS_ADOPTED };

/* Before the first rank. ORPHANS_LEFT if we have children already, as a shell may have that became
 * us by exec: those could not be told from orphans. */
enum orphans orphans_adopt(void);

/* Kills all children of this process, and theirs; returns when there are none, or after a
 * second. */
void orphans_kill(void);
