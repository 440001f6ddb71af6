/* SPDX-License-Identifier: MIT */
/* One rank of a run, its victim, fails: it is killed or stopped, stays away, leaves or aborts.
 * Tests of failures share the strike, at once or at a moment that a seed draws; what survivors must
 * be told; how survivors begin anew. context->shared begins with a struct victim. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "harness/ranks.h"

struct victim {
    int32_t rank;
    pid_t pid;
    double strike_time_s;
    _Atomic int32_t num_done; /* survivors that have left */
    weft_unique_id fresh_id;  /* of the survivors' next communicator */
    /* A strike that comes later, in the victim's process. */
    int signal;
    uint64_t seed;
    pthread_t thread;
};

/* ---------------------------------------------------------------- a whole test */

enum victim_fault {
    VICTIM_IS_KILLED,  /* survivors are told within two seconds, and go on without it */
    VICTIM_IS_STOPPED, /* for longer than the deadline */
    VICTIM_IS_SILENT,  /* stopped for longer than the heartbeat allows, long before the deadline */
    VICTIM_STAYS_AWAY, /* past the deadline */
    VICTIM_LEAVES,     /* in good order, before the others call */
    VICTIM_ABORTS,     /* while the others wait for it */
    VICTIM_SEES_AN_ABORT /* by the front rank, which waits for it */
};

enum victim_moment {
    VICTIM_BEFORE,         /* what the others call waits for it to start */
    VICTIM_AT_RANDOM,      /* while all repeat what they call */
    VICTIM_BEHIND_ANOTHER, /* stopped: the front rank waits for others, which wait for the victim */
    VICTIM_BEHIND_THE_LAST /* so, too; the front rank gives up when the others have left */
};

/* What a rank has; `self` is of the subject. */
struct victim_seat {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    void *self;
};

/* What ranks have and call. Functions return 0, or 1 when a check has failed. */
struct victim_subject {
    size_t self_bytes;
    int (*open)(struct victim_seat *seat); /* *self is zero at first; sets comm and stream */
    weft_result (*issue)(void *self);      /* enqueues what is to fail */
    /* A survivor's later calls fail at once, with `expected` and a message that has `text`; or
     * NULL. */
    int (*check_failed)(void *self, weft_result expected, const char *text);
    int (*close)(void *self); /* destroys all, whatever has failed */
    rank_function go_on;      /* of survivors of a death, in a communicator of their own; or NULL */
};

/* The argument of the run begins with one. */
struct victim_plan {
    const struct victim_subject *subject;
    const char *name, *variant; /* of the call, for messages; variant may be NULL */
    /* An error of VICTIM_BEFORE contains this, but for a death or an abort; or NULL. */
    const char *named;
    enum victim_fault fault;
    enum victim_moment moment;
    int32_t victim;
    uint64_t seed;
    enum ranks_mode mode; /* of ranks that no signal strikes; others are processes */
    enum ranks_id id;
    int32_t num_nodes;  /* 0: 1 */
    const char *engine; /* of the network between nodes, or NULL */
};

/* Each of so many ranks opens its seat, calls, checks its error and closes; fails the test if a
 * rank does. */
#define victim_run(plan, num_ranks) victim_run_sized(&(plan)->strike, sizeof *(plan), num_ranks)
void victim_run_sized(const struct victim_plan *plan, size_t argument_bytes, int32_t num_ranks);
/* Of the seat's communicator: its deadline, which goes with the fault, and nodes. */
weft_comm_config victim_config(const struct ranks_context *context);

/* ---------------------------------------------------------------- its parts */

/* For ranks_run_with: processes that share a struct victim and nothing else. may_die: a bit for
 * each that may. */
struct ranks_options victim_options(int32_t num_ranks, uint64_t may_die, const void *argument,
                                    size_t argument_bytes);

/* Waits until all ranks have called it with the rank that is to be struck. */
void victim_choose(struct ranks_context *context, int32_t rank);
int victim_is_self(const struct ranks_context *context);

/* SIGKILL or SIGSTOP; by any rank. */
void victim_strike(struct ranks_context *context, int signal);
/* By the victim: a thread of its own strikes up to 10 ms later. 0, or 1 when a check has failed. */
int victim_strike_later(struct ranks_context *context, int signal, uint64_t seed);
/* After that, when the victim has been woken. */
void victim_await_strike(struct ranks_context *context);

/* Each survivor calls it when it has left; the last one wakes the victim that was stopped. */
void victim_leave(struct ranks_context *context);

/* Fails unless comm has failed with `expected`, for which the message and *failed_rank blame the
 * victim. */
int victim_check_blamed(struct ranks_context *context, weft_comm *comm, weft_result expected);
/* The same of a death, of which `result` told within two seconds. */
int victim_check_death(struct ranks_context *context, weft_comm *comm, weft_result result);

/* A context of the survivors alone, numbered anew, with an id of their own. The function gives it
 * to `begin` and fails if that does. */
int victim_go_on_without(struct ranks_context *context, rank_function begin);
