/* SPDX-License-Identifier: MIT */
/* A hundred thousand small calls back to back, of all operations, sizes and algorithms mixed:
 * buffers are used again and again, and ranks run ahead of each other. Each result is compared. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_trials.h"
#include "workload/rng.h"

/* Everything follows from the number of the call. */
static struct coll_trial trial_of(uint64_t seed, uint64_t call, int32_t num_ranks)
{
    /* 2000 elements of any type fit into the packets of all setups that pin them. */
    const uint64_t key = rng_key(seed, call);
    const uint64_t max_count = key % 50 == 0 ? 2000 : 1ull << key % 8;
    const struct coll_trial trial = coll_trial_random(key, num_ranks, max_count);
    /* Mostly the same algorithm several times: it must follow itself, and others. */
    const uint64_t run = call / (1 + rng_key(seed, call / 16) % 8);
    return coll_trial_of(&trial.spec, rng_key(seed + 1, run));
}

struct plan {
    uint64_t seed;
    int num_calls;
};

static int run_calls(struct ranks_context *context)
{
    enum { NUM_AT_ONCE = 1000 };
    const struct plan *plan = context->argument;
    struct coll_trial trials[NUM_AT_ONCE];
    struct coll_rank self;
    if (coll_rank_open(&self, context))
        return 1;
    for (int first = 0; first < plan->num_calls; first += NUM_AT_ONCE) {
        for (int i = 0; i < NUM_AT_ONCE; i++)
            trials[i] = trial_of(plan->seed, (uint64_t)first + (uint64_t)i, context->num_ranks);
        if (coll_trials_check(&self, trials, NUM_AT_ONCE))
            return 1;
    }
    return coll_rank_close(&self);
}

static void run(enum ranks_mode mode, int32_t num_ranks, int num_calls)
{
    struct plan plan = {.seed = 70 + (uint64_t)num_ranks, .num_calls = num_calls};
    const struct ranks_options options = {
        .mode = mode, .num_ranks = num_ranks, RANKS_ARGUMENT(&plan)};
    assert_int_equal(ranks_run_with(&options, run_calls), 0);
}

TEST_CALL(in_threads, run(RANKS_THREADS, 3, tests_rounds(tests_grid_size(100000, 5000), 10000)))
TEST_CALL(in_processes, run(RANKS_PROCESSES, 2, tests_rounds(tests_grid_size(20000, 1000), 5000)))
