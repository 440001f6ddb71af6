/* SPDX-License-Identifier: MIT */
#include "oracle/coll_trials.h"

#include "harness/memory.h"
#include "workload/rng.h"

/* The most that is under way at once. */
enum { MAX_CALLS = 48, MAX_BYTES = 4 << 20 };

struct coll_trial coll_trial_of(const struct coll_case *spec, uint64_t setup)
{
    struct coll_trial trial = {*spec, (int)(setup % COLL_NUM_SETUPS)};
    struct coll_setup of_ranks = coll_setup_of(trial.setup, spec->num_ranks, &spec->nodes);
    while (!coll_setup_fits(&of_ranks, spec)) {
        trial.setup = (trial.setup + 1) % COLL_NUM_SETUPS;
        of_ranks = coll_setup_of(trial.setup, spec->num_ranks, &spec->nodes);
    }
    coll_setup_adapt(&of_ranks, &trial.spec);
    return trial;
}

struct coll_trial coll_trial_random(uint64_t seed, int32_t num_ranks, uint64_t max_count)
{
    enum { NUM_OPS = WEFT_AVG + 1 };
    struct rng rng = {seed};
    const enum coll_operation operation = (enum coll_operation)rng_below(&rng, COLL_NUM_OPERATIONS);
    const weft_dtype dtype = (weft_dtype)(1 + rng_below(&rng, NUM_DTYPES));
    const weft_reduce_op op = (weft_reduce_op)rng_below(&rng, NUM_OPS);
    const uint64_t count = rng_next(&rng) % (max_count + 1);
    const struct coll_case spec =
        coll_case_random(rng_next(&rng), num_ranks, operation, dtype, op, count);
    return coll_trial_of(&spec, rng_next(&rng));
}

struct coll_trials coll_trials_create(int32_t num_ranks)
{
    return (struct coll_trials){.num_ranks = num_ranks};
}

struct coll_trials coll_trials_over_nodes(int32_t num_ranks, const struct coll_nodes *nodes)
{
    return (struct coll_trials){.num_ranks = num_ranks, .nodes = *nodes};
}

void coll_trials_add(struct coll_trials *trials, struct coll_trial trial)
{
    if (trials->num_trials == trials->max_trials) {
        trials->max_trials = 2 * trials->max_trials + 64;
        struct coll_trial *larger = tests_alloc(sizeof *larger * (size_t)trials->max_trials);
        for (int32_t i = 0; i < trials->num_trials; i++)
            larger[i] = trials->trials[i];
        tests_free(trials->trials);
        trials->trials = larger;
    }
    trials->trials[trials->num_trials++] = trial;
}

static int issue(struct coll_rank *self, const struct coll_trial *trial, struct coll_call *call)
{
    struct ep_rank *base = &self->base;
    char text[200];
    if (coll_call_create(base, &trial->spec, call))
        return 1;
    coll_describe(&trial->spec, text, sizeof text);
    const weft_result result =
        coll_call_issue(call, base->context->rank, self->colls[trial->setup], base->stream);
    CHECK(result == WEFT_OK, "%s: %s: %s: %s", self->setups[trial->setup].name, text,
          weft_result_string(result), weft_last_error());
    return 0;
}

/* As many as may be under way at once; returns how many, or -1. */
static int32_t issue_some(struct coll_rank *self, const struct coll_trial *trials,
                          int32_t num_trials, struct coll_call *calls)
{
    uint64_t bytes = 0;
    int32_t num_calls = 0;
    while (num_calls < num_trials && num_calls < MAX_CALLS && bytes < MAX_BYTES) {
        struct coll_call *call = &calls[num_calls];
        if (issue(self, &trials[num_calls], call))
            return -1;
        bytes += call->send.bytes + call->recv.bytes;
        num_calls++;
    }
    return num_calls;
}

int coll_trials_check(struct coll_rank *self, const struct coll_trial *trials, int32_t num_trials)
{
    struct coll_call *calls = tests_alloc(sizeof *calls * MAX_CALLS);
    int failed = 0;
    for (int32_t first = 0; first < num_trials && !failed;) {
        const int32_t num_calls = issue_some(self, trials + first, num_trials - first, calls);
        if (num_calls < 0)
            return 1;
        CHECK_OK(weft_stream_synchronize(self->base.stream));
        for (int32_t i = 0; i < num_calls && !failed; i++)
            failed = coll_call_verify(&self->base, &calls[i],
                                      self->setups[trials[first + i].setup].name);
        first += num_calls;
    }
    tests_free(calls);
    return failed;
}

static int run_trials(struct coll_rank *self, const struct coll_trials *trials)
{
    return coll_trials_check(self, trials->trials, trials->num_trials) || coll_rank_close(self);
}

/* For what is under way at once: heaps are committed, and cleared page by page. */
static uint64_t arena_bytes_of(const struct coll_trials *trials)
{
    enum { ARRAY_BYTES = 1024 }; /* guards and what alignment takes, at most */
    uint64_t largest_bytes = 0;
    for (int32_t i = 0; i < trials->num_trials; i++)
        for (int32_t rank = 0; rank < trials->num_ranks; rank++) {
            const struct coll_case *spec = &trials->trials[i].spec;
            const uint64_t bytes = (coll_rows_of(spec, COLLECTIVE_SEND, rank).total +
                                    coll_rows_of(spec, COLLECTIVE_RECV, rank).total) *
                                   dtype_bytes(spec->dtype);
            largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
        }
    return MAX_BYTES + largest_bytes + UINT64_C(2) * MAX_CALLS * ARRAY_BYTES;
}

static int run_over_nodes(struct ranks_context *context, const struct coll_trials *trials)
{
    struct coll_rank self;
    weft_comm *comm;
    if (coll_nodes_open(context, &trials->nodes, trials->num_ranks, &comm))
        return 1;
    return comm != NULL &&
           (coll_rank_open_on(&self, context, comm, &trials->nodes, arena_bytes_of(trials)) ||
            run_trials(&self, trials));
}

static int run_rank(struct ranks_context *context)
{
    const struct coll_trials *trials = context->argument;
    struct coll_rank self;
    weft_comm *comm;
    if (trials->nodes.num_nodes > 0)
        return run_over_nodes(context, trials);
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    return coll_rank_open_on(&self, context, comm, &trials->nodes, arena_bytes_of(trials)) ||
           run_trials(&self, trials);
}

int coll_trials_run(struct coll_trials *trials, enum ranks_mode mode)
{
    const int32_t num_ranks = trials->nodes.num_nodes > 0
                                  ? trials->nodes.num_nodes * trials->nodes.num_local
                                  : trials->num_ranks;
    const int num_failed = ranks_run(mode, num_ranks, run_rank, trials);
    tests_free(trials->trials);
    *trials = (struct coll_trials){0};
    return num_failed;
}
