/* SPDX-License-Identifier: MIT */
/* Trials of low latency: cases of all shapes, and ways in which their steps are called. */
#pragma once

#include "harness/ranks.h"
#include "oracle/ll_case.h"

enum ll_way { /* how each step is called */
              LL_ONE_LAUNCH,
              LL_TWO_PHASES,
              LL_TWO_RESULTS, /* the next step is dispatched before this one is combined */
              LL_COMBINED_TWICE,
              LL_NUM_WAYS
};

struct ll_trial {
    struct ll_case problem;
    enum ll_way way;
    int32_t num_nodes; /* virtual ones; 0: one */
};

/* Rows, counts, order and sums of several steps to the bit; context->argument is the trial. */
int ll_trial_run(struct ranks_context *context);

/* The same in a communicator, which it destroys. */
int ll_trial_run_in(struct ranks_context *context, const struct ll_trial *trial, weft_comm *comm);

/* Case i, with what is drawn, and how many results there may be, for the way. */
size_t ll_num_cases(void);
struct ll_trial ll_trial_of(enum ll_way way, size_t i);
/* The same for ranks of several nodes, where weights do not come late: rows are answered. */
struct ll_trial ll_trial_between_nodes(enum ll_way way, size_t i);

/* Runs the trial on its ranks; fails the test if a rank does. */
void ll_trial_run_as(struct ll_trial *trial, weft_ll_carrier carrier, enum ranks_mode mode);
/* By signals, and in all packets that suit the trial. */
void ll_trial_run_carried(struct ll_trial *trial, enum ranks_mode mode);

/* Runs all cases by expert, or in the small grid some, in ways in turn. `prepare` changes each
 * first. */
void ll_trials_by_expert(enum ranks_mode mode, enum ll_way first_way,
                         void (*prepare)(struct ll_trial *trial, size_t i));
/* Runs a third of the cases on two nodes of two ranks, on both routes. */
void ll_trials_by_expert_over_nodes(void (*prepare)(struct ll_trial *trial, size_t i));
