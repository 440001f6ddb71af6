/* SPDX-License-Identifier: MIT */
/* A rank, or the process of the rendezvous, is stopped: it keeps its connections, and nobody waits
 * for it, yet all are told its name, by the heartbeat. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, SILENCE_MS = 1500, LOOK_MS = 20 };

struct shared {
    _Atomic pid_t stopped;
    _Atomic int num_told;
    _Atomic pid_t pids[NUM_RANKS];
};

struct plan {
    int32_t victim;
    const char *message;
};

static int is_told(weft_comm *comm)
{
    return weft_comm_status(comm, NULL) != WEFT_OK;
}

/* The last to be told lets the stopped one go on. */
static int survive(struct ranks_context *context, weft_comm *comm)
{
    const struct plan *plan = context->argument;
    struct shared *shared = context->shared;
    int32_t failed_rank = -1;
    while (!is_told(comm))
        poll(NULL, 0, LOOK_MS);
    CHECK_ERROR(weft_comm_status(comm, &failed_rank), WEFT_ERROR_RANK_FAILED, plan->message);
    CHECK(failed_rank == plan->victim, "failed_rank is %d", failed_rank);
    if (atomic_fetch_add(&shared->num_told, 1) == NUM_RANKS - 2)
        kill(atomic_load(&shared->stopped), SIGCONT);
    return 0;
}

/* Nor does who was stopped hang: its communicator has failed too. */
static int be_stopped(struct ranks_context *context, weft_comm *comm)
{
    struct shared *shared = context->shared;
    atomic_store(&shared->stopped, getpid());
    raise(SIGSTOP);
    while (!is_told(comm))
        poll(NULL, 0, LOOK_MS);
    CHECK(atomic_load(&shared->num_told) == NUM_RANKS - 1, "it was told before the others");
    return 0;
}

static int live(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    ranks_barrier(context); /* all have a communicator before one is stopped */
    int failed = context->rank == plan->victim ? be_stopped(context, comm) : survive(context, comm);
    if (failed == 0)
        weft_comm_destroy(comm);
    return failed;
}

static void run(enum ranks_id id, struct plan plan)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = id,
                                          .num_ranks = NUM_RANKS,
                                          RANKS_ARGUMENT(&plan),
                                          .shared_bytes = sizeof(struct shared)};
    assert_int_equal(setenv("WEFT_HEARTBEAT_MS", "1500", 1), 0);
    assert_int_equal(ranks_run_with(&options, live), 0);
}

TEST_CALL(a_stopped_rank_is_named,
          run(RANKS_ID_BY_HOST, (struct plan){2, "has shown no sign of life for 1500 ms"}))

TEST(a_stopped_rendezvous_is_named_by_its_rank)
{
    run(RANKS_ID_BY_RANK_0,
        (struct plan){0, "and with it the rendezvous, has shown no sign of life for 1500 ms"});
}

/* Who is idle, but alive, is never taken for silent. */
static int idle(struct ranks_context *context)
{
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    poll(NULL, 0, 3 * SILENCE_MS);
    CHECK_OK(weft_comm_status(comm, NULL));
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(idle_ranks_live)
{
    assert_int_equal(setenv("WEFT_HEARTBEAT_MS", "1500", 1), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, idle, NULL), 0);
}

/* Not a rank: stops all of them for longer than the limit, and lets them go on. */
static void stop_all(const struct shared *shared)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        kill(atomic_load(&shared->pids[rank]), SIGSTOP);
    poll(NULL, 0, 2 * SILENCE_MS);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        kill(atomic_load(&shared->pids[rank]), SIGCONT);
}

static int be_stopped_with_all(struct ranks_context *context)
{
    struct shared *shared = context->shared;
    weft_comm *comm;
    int status = 0;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    atomic_store(&shared->pids[context->rank], getpid());
    ranks_barrier(context);
    pid_t helper = context->rank == 0 ? fork() : -1;
    if (helper == 0) {
        stop_all(shared);
        _exit(0);
    }
    if (helper > 0)
        waitpid(helper, &status, 0);
    ranks_barrier(context);
    poll(NULL, 0, SILENCE_MS); /* for whoever would find the others silent */
    CHECK_OK(weft_comm_status(comm, NULL));
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(a_job_that_is_stopped_as_a_whole_goes_on)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = RANKS_ID_BY_RANK_0,
                                          .num_ranks = NUM_RANKS,
                                          .shared_bytes = sizeof(struct shared)};
    assert_int_equal(setenv("WEFT_HEARTBEAT_MS", "1500", 1), 0);
    assert_int_equal(ranks_run_with(&options, be_stopped_with_all), 0);
}

static int be_refused(struct ranks_context *context)
{
    weft_comm *comm;
    CHECK_ERROR(ranks_comm_create(context, NULL, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                "WEFT_HEARTBEAT_MS is 99; it must be 0, or 100..");
    return 0;
}

TEST(a_limit_that_is_too_short_is_refused)
{
    assert_int_equal(setenv("WEFT_HEARTBEAT_MS", "99", 1), 0);
    assert_int_equal(ranks_run(RANKS_THREADS, 2, be_refused, NULL), 0);
}
