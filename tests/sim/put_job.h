/* SPDX-License-Identifier: MIT */
/* Runs the program of planted_puts.h as a job of several nodes on the sim machine. */
#ifndef WEFT_TESTS_SIM_PUT_JOB_H
#define WEFT_TESTS_SIM_PUT_JOB_H

#include "machine/sim/sim.h"
#include "planted_puts.h"

struct put_job {
    enum put_form form;
    int32_t num_nodes, ranks_per_node;
    int32_t num_launches;
    enum put_memory { PUT_MEMORY_OF_NETWORK, PUT_MEMORY_OF_HEAP } memory;
    int32_t weakened_site;
    enum weft__sim_fault fault;
    int32_t fault_rank;
    uint64_t fault_step;
    weft_unique_id id, survivors_id;
    int32_t num_failed; /* ranks whose launches failed; they must have blamed fault_rank */
};

/* Fills *result; fails the test if there was no memory. */
void put_job_run(struct put_job *job, uint64_t seed, struct weft__sim_result *result);

#endif
