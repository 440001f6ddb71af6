/* SPDX-License-Identifier: MIT */
/* Many cases on one communicator, each with one of its setups. Several are under way at once. */
#pragma once

#include "oracle/coll_call.h"
#include "oracle/coll_rank.h"

struct coll_trial {
    struct coll_case spec;
    int setup;
};

struct coll_trials {
    int32_t num_ranks;
    struct coll_nodes nodes;
    int32_t num_trials, max_trials;
    struct coll_trial *trials;
};

/* With setup % COLL_NUM_SETUPS, or, if that cannot do it, with the next that can. */
struct coll_trial coll_trial_of(const struct coll_case *spec, uint64_t setup);
/* With everything drawn at random. */
struct coll_trial coll_trial_random(uint64_t seed, int32_t num_ranks, uint64_t max_count);

struct coll_trials coll_trials_create(int32_t num_ranks);
/* Of ranks on several nodes; all trials added must be of the same. */
struct coll_trials coll_trials_over_nodes(int32_t num_ranks, const struct coll_nodes *nodes);
void coll_trials_add(struct coll_trials *trials, struct coll_trial trial);
/* Returns how many ranks failed, and frees all. */
int coll_trials_run(struct coll_trials *trials, enum ranks_mode mode);

/* Issues, synchronises and verifies trials that this rank has opened setups for. */
int coll_trials_check(struct coll_rank *self, const struct coll_trial *trials, int32_t num_trials);
