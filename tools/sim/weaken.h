/* SPDX-License-Identifier: MIT */
/* Weakens ordering sites of the programs, each alone, and sees whether the suite notices: the proof
 * that each is needed and that the checks can fail. */
#pragma once

#include "sim_options.h"

enum { WEAKEN_MAX_SITES = 256, WEAKEN_NAME_BYTES = 96 };

struct weakened_site {
    char name[WEAKEN_NAME_BYTES]; /* FOLDER/FILE:LINE */
    const char *file;
    int line;
    const char *kind;
    int64_t num_schedules; /* that were run, of all operations; the last one caught it, if any */
    int64_t num_seeds;     /* of these, the last one included */
    enum scenario_finding caught_by; /* see weakened_is_caught */
    enum scenario_op op;             /* of the last schedule */
    uint64_t seed;
};

/* A crash of which the sim has not told the cause catches nothing. */
static inline int weakened_is_caught(const struct weakened_site *site)
{
    return site->caught_by != SCENARIO_SOUND && site->caught_by != SCENARIO_CRASH;
}

struct weakening {
    struct weakened_site sites[WEAKEN_MAX_SITES];
    int32_t num_sites;
    int32_t num_caught;
    int64_t num_schedules;
    double seconds;
};

/* 0, or -1 without memory; num_sites 0 if there is no such site. */
int weaken_run(const struct sim_options *options, struct weakening *weakening);
