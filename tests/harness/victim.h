/* SPDX-License-Identifier: MIT */
/* One rank of a run, its victim, is struck by a signal: killed, or stopped until the others have left it.
 * What tests of that share: the strike, at once or at a moment that a seed draws; what survivors must have
 * been told; how they begin anew. Ranks are processes, and context->shared begins with a struct victim. */
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

/* For ranks_run_with: processes that share a struct victim and nothing else. may_die: a bit for each that may. */
struct ranks_options victim_options(int32_t num_ranks, uint64_t may_die, const void *argument,
                                    size_t argument_bytes);

/* When the victim is struck. */
enum victim_moment {
    VICTIM_BEFORE,        /* what the others call waits for it to start */
    VICTIM_AT_RANDOM,     /* while all repeat what they call */
    VICTIM_BEHIND_ANOTHER /* stopped: a front rank waits for others, which wait for the victim */
};

/* What a rank of such a test has. Both functions get `self`, and leave it to the caller to look at errors. */
struct victim_seat {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    weft_result (*issue)(void *self); /* enqueues what is to be struck */
    int (*close)(
        void *self); /* destroys all, whatever has failed; 0, or 1 when a check has failed */
    void *self;
};

struct victim_plan {
    int32_t victim;
    enum victim_moment moment;
    uint64_t seed;
};

/* The victim is killed; each survivor learns of it by number within two seconds. */
int victim_survive_death(const struct victim_seat *seat, const struct victim_plan *plan);
/* The victim is stopped for longer than the deadline; each survivor names it, closes its seat as soon as it knows,
 * while others may still wait, and the victim closes its own when it goes on. */
int victim_survive_stall(const struct victim_seat *seat, const struct victim_plan *plan);
/* The one that waits for those that wait for the victim. */
int32_t victim_front_of(const struct victim_plan *plan);

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

/* Fails unless comm has failed with `expected`, for which the message and *failed_rank blame the victim. */
int victim_check_blamed(struct ranks_context *context, weft_comm *comm, weft_result expected);
/* The same of a death, of which `result` told within two seconds. */
int victim_check_death(struct ranks_context *context, weft_comm *comm, weft_result result);

/* A context of the survivors alone, numbered anew, with an id of their own. The function gives it to `begin`
 * and fails if that does. */
int victim_go_on_without(struct ranks_context *context, rank_function begin);
