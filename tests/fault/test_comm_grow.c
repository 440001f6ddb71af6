/* SPDX-License-Identifier: MIT */
/* A communicator takes in new ranks, and one of all these ranks does not come, dies, or gives the
 * old communicator up. The others, new ones too, learn by number who it was, long before the
 * deadline if there is news. Then another attempt succeeds. */
#include <pthread.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"

enum { NUM_MEMBERS = 3, NUM_RANKS = 5, SHORT_MS = 2000 };

struct board {
    struct victim victim;
    weft_unique_id ids[2]; /* of one attempt each */
};

struct plan {
    int32_t victim;
    uint64_t seed;    /* of when it is killed */
    enum ranks_id id; /* where the rendezvous is */
};

static int is_member(const struct ranks_context *context)
{
    return context->rank < NUM_MEMBERS;
}

static weft_comm_config config_of(uint32_t timeout_ms)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = timeout_ms;
    return config;
}

/* The first ranks have a communicator, and one that lives has made the ids. */
static int begin(struct ranks_context *context, int32_t victim, weft_comm **comm)
{
    struct board *board = context->shared;
    const int32_t giver = victim == 0 ? 1 : 0;
    *comm = NULL;
    if (is_member(context))
        CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_MEMBERS, NULL, comm));
    for (int attempt = 0; context->rank == giver && attempt < 2; attempt++)
        CHECK_OK(weft_comm_unique_id(*comm, &board->ids[attempt]));
    victim_choose(context, victim);
    return 0;
}

/* comm is NULL on new ranks. */
static weft_result grow(struct ranks_context *context, weft_comm *comm, int attempt,
                        uint32_t timeout_ms, weft_comm **grown)
{
    const struct board *board = context->shared;
    const weft_unique_id *id = &board->ids[attempt];
    const weft_comm_config config = config_of(timeout_ms);
    return comm != NULL ? weft_comm_grow(comm, id, NUM_RANKS, &config, grown)
                        : weft_comm_create(id, context->rank, NUM_RANKS, &config, grown);
}

static int use_and_destroy(weft_comm *grown)
{
    int32_t all[NUM_RANKS];
    const int32_t rank = weft_comm_rank(grown);
    CHECK_OK(weft_comm_host_all_gather(grown, &rank, sizeof rank, all));
    for (int32_t other = 0; other < NUM_RANKS; other++)
        CHECK(all[other] == other, "rank %d says %d", other, all[other]);
    CHECK_OK(weft_comm_destroy(grown));
    return 0;
}

static int end(weft_comm *comm)
{
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static int run(const struct plan *plan, uint64_t may_die, rank_function function)
{
    struct ranks_options options = victim_options(NUM_RANKS, may_die, plan, sizeof *plan);
    options.id = plan->id;
    options.shared_bytes = sizeof(struct board);
    return ranks_run_with(&options, function);
}

/* ---------------------------------------------------------------- absence */

/* A rank that has not come in time comes in the next attempt. */
static int miss_one(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm, *grown;
    if (ranks_warm_up(context) || begin(context, plan->victim, &comm))
        return 1;
    if (!victim_is_self(context))
        CHECK_ERROR(grow(context, comm, 0, tests_deadline_ms(SHORT_MS), &grown), WEFT_ERROR_TIMEOUT,
                    "rank 4 of 5 did not come within");
    ranks_barrier(context);
    if (comm != NULL)
        CHECK_OK(weft_comm_status(comm, NULL));
    CHECK_OK(grow(context, comm, 1, 0, &grown));
    return use_and_destroy(grown) || end(comm);
}

TEST(a_new_rank_that_does_not_come)
{
    const struct plan plan = {.victim = NUM_RANKS - 1};
    assert_int_equal(run(&plan, 0, miss_one), 0);
}

/* ---------------------------------------------------------------- death */

/* The rendezvous dies with the victim. */
static int loses_rendezvous(const struct plan *plan)
{
    return plan->id == RANKS_ID_BY_RANK_0 && plan->victim == 0;
}

/* Who knows no rank yet knows only that the rendezvous is gone. */
static int check_alone(weft_result result)
{
    if (result == WEFT_ERROR_TIMEOUT)
        CHECK_ERROR(result, WEFT_ERROR_TIMEOUT, "found no rendezvous");
    else
        CHECK_ERROR(result, WEFT_ERROR_SYSTEM, "the rendezvous is gone");
    return 0;
}

/* `result` names the victim: its death, or that it did not come, if it is a new rank that nobody
 * has seen. */
static int check_named(struct ranks_context *context, weft_result result)
{
    if (loses_rendezvous(context->argument) && !is_member(context) &&
        result != WEFT_ERROR_RANK_FAILED)
        return check_alone(result);
    const struct victim *victim = context->shared;
    const double delay_s = clock_s() - victim->strike_time_s;
    char died[32], absent[32];
    snprintf(died, sizeof died, "rank %d died", victim->rank);
    snprintf(absent, sizeof absent, "rank %d of %d did not come", victim->rank, NUM_RANKS);
    if (result == WEFT_ERROR_TIMEOUT && victim->rank >= NUM_MEMBERS) {
        CHECK_ERROR(result, WEFT_ERROR_TIMEOUT, absent);
        return 0;
    }
    CHECK_ERROR(result, WEFT_ERROR_RANK_FAILED, died);
    CHECK(delay_s < 2, "it took %.3f s to learn of the death", delay_s);
    return 0;
}

/* Members are told of a death among them. At the deadline a new rank is missed, or misses the
 * rendezvous. */
static uint32_t deadline_ms(const struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    return plan->victim >= NUM_MEMBERS || (loses_rendezvous(plan) && !is_member(context))
               ? tests_deadline_ms(SHORT_MS)
               : 0;
}

/* A member dies, and never calls. New ranks know nothing of it but what the others tell them: those
 * that wait already, and one that comes later. */
static int die_before(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const struct timespec while_others_wait = {0, 300000000};
    weft_comm *comm, *grown;
    if (begin(context, plan->victim, &comm))
        return 1;
    if (victim_is_self(context)) {
        nanosleep(&while_others_wait, NULL);
        victim_strike(context, SIGKILL);
    }
    if (context->rank == NUM_RANKS - 1)
        for (int i = 0; i < 2; i++)
            nanosleep(&while_others_wait, NULL);
    return check_named(context, grow(context, comm, 0, deadline_ms(context), &grown)) || end(comm);
}

TEST(a_member_that_dies_before)
{
    for (struct plan plan = {.victim = 0}; plan.victim < tests_rounds(NUM_MEMBERS, 1);
         plan.victim++)
        assert_int_equal(run(&plan, 1u << plan.victim, die_before), 0);
}

TEST(the_member_with_the_rendezvous_dies_before)
{
    const struct plan plan = {.id = RANKS_ID_BY_RANK_0};
    assert_int_equal(run(&plan, 1, die_before), 0);
}

/* A rank dies while all meet, or soon after. */
static int die_meanwhile(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm, *grown = NULL;
    if (ranks_warm_up(context) || begin(context, plan->victim, &comm))
        return 1;
    if (victim_is_self(context) && victim_strike_later(context, SIGKILL, plan->seed))
        return 1;
    weft_result result = grow(context, comm, 0, deadline_ms(context), &grown);
    if (victim_is_self(context))
        victim_await_strike(context);
    const int has_grown = result == WEFT_OK;
    while (result == WEFT_OK)
        result = weft_comm_host_barrier(grown);
    return check_named(context, result) || (has_grown && end(grown)) || end(comm);
}

static void kill_meanwhile(const struct plan *plan)
{
    if (run(plan, 1u << plan->victim, die_meanwhile) != 0)
        fail_msg("victim %d, seed %llu", plan->victim, (unsigned long long)plan->seed);
}

TEST(a_rank_that_dies_meanwhile)
{
    const uint64_t num_seeds = (uint64_t)tests_rounds(6 * NUM_RANKS, 2);
    for (struct plan plan = {.seed = 1}; plan.seed <= num_seeds; plan.seed++) {
        plan.victim = (int32_t)(plan.seed % NUM_RANKS);
        kill_meanwhile(&plan);
    }
}

TEST(the_member_with_the_rendezvous_dies_meanwhile)
{
    const uint64_t num_seeds = (uint64_t)tests_rounds(24, 1);
    for (struct plan plan = {.id = RANKS_ID_BY_RANK_0}; plan.seed < num_seeds; plan.seed++)
        kill_meanwhile(&plan);
}

/* ---------------------------------------------------------------- giving up */

static void *abort_later(void *comm)
{
    const struct timespec while_others_wait = {0, 300000000};
    nanosleep(&while_others_wait, NULL);
    weft_comm_abort(comm);
    return NULL;
}

/* The members wait for the last rank when one of them gives up. The new rank that waits with them
 * hears what they hear. */
static int give_up(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm, *grown;
    pthread_t thread;
    if (begin(context, plan->victim, &comm))
        return 1;
    const int aborts = victim_is_self(context);
    if (aborts)
        CHECK(pthread_create(&thread, NULL, abort_later, comm) == 0, "no thread");
    if (context->rank < NUM_RANKS - 1)
        CHECK_ERROR(grow(context, comm, 0, 0, &grown), WEFT_ERROR_ABORTED,
                    "rank 1 called weft_comm_abort");
    if (aborts)
        pthread_join(thread, NULL);
    return end(comm);
}

TEST(a_member_that_aborts)
{
    const struct plan plan = {.victim = 1};
    assert_int_equal(run(&plan, 0, give_up), 0);
}
