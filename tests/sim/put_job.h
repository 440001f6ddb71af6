/* SPDX-License-Identifier: MIT */
/* Runs the program of planted_puts.h as a job of several nodes on the sim machine. */
#pragma once

#include "planted_puts.h"
#include "sim_job.h"

struct put_job {
    enum put_form form;
    int32_t num_launches;
    enum put_memory { PUT_MEMORY_OF_NETWORK, PUT_MEMORY_OF_HEAP } memory;
    int goes_on; /* the death of a rank is not the communicator's failure */
    struct sim_job sim;
};

/* Fills *result; fails the test if there was no memory. */
void put_job_run(struct put_job *job, uint64_t seed, struct weft__sim_result *result);
