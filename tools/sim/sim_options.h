/* SPDX-License-Identifier: MIT */
/* The arguments of weft sim. */
#pragma once

#include "scenario.h"
#include "workload/progress.h"

enum sim_format { SIM_FORMAT_TEXT, SIM_FORMAT_JSON };
enum { SIM_ALL_OPS = NUM_SCENARIO_OPS };

struct sim_options {
    int32_t op;                      /* enum scenario_op, or SIM_ALL_OPS */
    struct scenario_request request; /* of the first schedule, but for its op; seeds count up */
    int64_t num_schedules; /* of each operation; under --weaken also the budget of a site */
    const char *weaken;    /* FILE:LINE, "all", or NULL */
    enum sim_format format;
    int32_t num_jobs; /* processes that share out the schedules */
    enum progress_visibility progress;
};

/* Ends the process with STATUS_USAGE when an argument is wrong. */
void sim_options_parse(struct sim_options *options, int argc, char **argv);

extern const char *const sim_initiator_names[WEFT__NUM_SIM_INITIATORS + 1];
extern const char *const sim_policy_names[WEFT__NUM_SIM_POLICIES + 1];
extern const char *const sim_fault_names[WEFT__NUM_SIM_FAULTS + 1];

/* The run of schedule `seed` of an operation. */
struct scenario_request sim_options_request(const struct sim_options *options, enum scenario_op op,
                                            uint64_t seed);
