/* SPDX-License-Identifier: MIT */
/* A job under many schedules: none may be caught, or some must be. */
#pragma once

#include "machine/sim/sim.h"

struct schedules {
    /* Runs the job under one of them, without a weakened site (WEFT__SIM_NO_SITE) or with one. */
    void (*run)(const void *job, uint64_t seed, int32_t weakened_site,
                struct weft__sim_result *result);
    const void *job;
    uint64_t num_seeds;
};

/* 1 if a run reported anything. */
int sim_is_caught(const struct weft__sim_result *result);
/* Fails the test if it did. */
void sim_expect_sound(const struct weft__sim_result *result, uint64_t seed);

/* Fails the test if any schedule is caught. */
void schedules_expect_sound(const struct schedules *schedules);
/* How many schedules have a race of which the report tells in these words. */
uint64_t schedules_count_races(const struct schedules *schedules, const char *told);
/* The first schedule that is caught, counted from 1. 0: there is none. */
uint64_t schedules_until_caught(const struct schedules *schedules, int32_t weakened_site);
/* Fails the test if nothing is caught without one of the sites that are meant. Returns their
 * number. */
int schedules_expect_needed(const struct schedules *schedules,
                            int (*is_meant)(const struct weft__sim_site *site));
