/* SPDX-License-Identifier: MIT */
/* Commands that run collective operations on the ranks of a job: started alone they start themselves as its
 * ranks. */
#pragma once

#include "coll_options.h"

struct coll_job {
    const char *command;          /* as in messages: "weft coll" */
    const char *subcommand;       /* "coll" */
    struct coll_options *options; /* resolved when work is called */
    void *argument;
    /* What a rank does: its exit status. */
    int (*work)(const struct coll_job *job, weft_comm *comm);
};

/* argv as the command got it. Returns the exit status. */
int coll_job_run(const struct coll_job *job, char **argv);
