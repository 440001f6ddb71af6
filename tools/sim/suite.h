/* SPDX-License-Identifier: MIT */
/* Many schedules of one operation. */
#pragma once

#include "sim_options.h"

struct suite_tally {
    int64_t num_schedules;
    double seconds;
    int64_t num_found[NUM_SCENARIO_FINDINGS]; /* schedules by their finding */
    int64_t num_faults_injected;
    int64_t num_faults_survived;
    uint64_t first_failing_seed; /* if there is any */
    int32_t num_sites;           /* that were passed, in all suites until now */
};

static inline int64_t suite_num_findings(const struct suite_tally *tally)
{
    return tally->num_schedules - tally->num_found[SCENARIO_SOUND];
}

/* Ends early, with what it has found, if a signal is noted (workload/signals.h). */

/* Runs all schedules, shared out among processes; tells the first finding on standard error. 0, or
 * -1 without memory. */
int suite_run(const struct sim_options *options, enum scenario_op op, struct suite_tally *tally);

/* Tells on standard error what was found and how to see it again; site is FILE:LINE or NULL. */
void suite_tell(const struct sim_options *options, const struct scenario_request *request,
                const char *site, const struct scenario_outcome *outcome);
