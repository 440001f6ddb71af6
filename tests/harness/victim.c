/* SPDX-License-Identifier: MIT */
#include "harness/victim.h"

#include <time.h>
#include <unistd.h>

#include "workload/rng.h"

struct ranks_options victim_options(int32_t num_ranks, uint64_t may_die, const void *argument,
                                    size_t argument_bytes)
{
    return (struct ranks_options){.mode = RANKS_PROCESSES,
                                  .num_ranks = num_ranks,
                                  .argument = argument,
                                  .argument_bytes = argument_bytes,
                                  .shared_bytes = sizeof(struct victim),
                                  .may_die = may_die};
}

void victim_choose(struct ranks_context *context, int32_t rank)
{
    struct victim *victim = context->shared;
    if (context->rank == rank) {
        victim->rank = rank;
        victim->pid = getpid();
    }
    ranks_barrier(context);
}

int victim_is_self(const struct ranks_context *context)
{
    const struct victim *victim = context->shared;
    return context->rank == victim->rank;
}

/* ---------------------------------------------------------------- the strike */

void victim_strike(struct ranks_context *context, int signal)
{
    struct victim *victim = context->shared;
    victim->strike_time_s = clock_s();
    /* A signal to the process may be taken by its main thread, while this one goes on for a moment. */
    if (victim->pid == getpid())
        raise(signal);
    else
        kill(victim->pid, signal);
}

static void *strike_later(void *argument)
{
    enum { LONGEST_NS = 10000000 };
    struct ranks_context *context = argument;
    const struct victim *victim = context->shared;
    struct rng rng = {victim->seed};
    const struct timespec pause = {.tv_nsec = (long)rng_below(&rng, LONGEST_NS)};
    nanosleep(&pause, NULL);
    victim_strike(context, victim->signal);
    return NULL;
}

int victim_strike_later(struct ranks_context *context, int signal, uint64_t seed)
{
    struct victim *victim = context->shared;
    victim->signal = signal;
    victim->seed = seed;
    CHECK(pthread_create(&victim->thread, NULL, strike_later, context) == 0, "no thread");
    return 0;
}

void victim_await_strike(struct ranks_context *context)
{
    struct victim *victim = context->shared;
    pthread_join(victim->thread, NULL);
}

void victim_leave(struct ranks_context *context)
{
    struct victim *victim = context->shared;
    const int32_t num_survivors = context->num_ranks - 1;
    if (atomic_fetch_add(&victim->num_done, 1) == num_survivors - 1)
        kill(victim->pid, SIGCONT);
}

/* ---------------------------------------------------------------- what ranks call meanwhile */

enum { MOST_CALLS = 1000000 };

/* Issues and waits until either fails. */
static weft_result call_until_failure(const struct victim_seat *seat)
{
    weft_result result = WEFT_OK;
    for (int i = 0; i < MOST_CALLS && result == WEFT_OK; i++) {
        result = seat->issue(seat->self);
        if (result == WEFT_OK)
            result = weft_stream_synchronize(seat->stream);
    }
    return result;
}

int32_t victim_front_of(const struct victim_plan *plan)
{
    return plan->victim == 0 ? 2 : 0;
}

/* What is issued waits for the victim. The front rank is in a barrier before, on another stream, and the victim
 * too: there the front rank waits for those which are in what was issued and not in the barrier. */
static weft_result call_behind_another(const struct victim_seat *seat,
                                       const struct victim_plan *plan)
{
    const struct timespec pause = {.tv_nsec = 200000000}; /* so that its deadline passes first */
    const int is_victim = seat->context->rank == plan->victim;
    weft_stream *other;
    weft_result result = weft_stream_create(seat->comm, &other);
    if (result != WEFT_OK)
        return result;
    if (is_victim || seat->context->rank == victim_front_of(plan)) {
        result = weft_comm_barrier(seat->comm, other);
        nanosleep(&pause, NULL);
    }
    if (is_victim)
        victim_strike(seat->context, SIGSTOP);
    if (result == WEFT_OK)
        result = seat->issue(seat->self);
    const weft_result waited = weft_stream_synchronize(other);
    result = result == WEFT_OK ? waited : result;
    const weft_result worked = weft_stream_synchronize(seat->stream);
    (void)weft_stream_destroy(other);
    return result == WEFT_OK ? worked : result;
}

/* It has an error of its own when it goes on, or none. */
static int be_stopped(const struct victim_seat *seat, const struct victim_plan *plan)
{
    switch (plan->moment) {
    case VICTIM_BEFORE:
        victim_strike(seat->context, SIGSTOP);
        break;
    case VICTIM_AT_RANDOM:
        if (victim_strike_later(seat->context, SIGSTOP, plan->seed))
            return 1;
        (void)call_until_failure(seat);
        victim_await_strike(seat->context);
        break;
    case VICTIM_BEHIND_ANOTHER:
        (void)call_behind_another(seat, plan);
        break;
    }
    return seat->close(seat->self);
}

int victim_survive_stall(const struct victim_seat *seat, const struct victim_plan *plan)
{
    struct ranks_context *context = seat->context;
    victim_choose(context, plan->victim);
    if (victim_is_self(context))
        return be_stopped(seat, plan);
    const weft_result result = plan->moment == VICTIM_BEHIND_ANOTHER
                                   ? call_behind_another(seat, plan)
                                   : call_until_failure(seat);
    CHECK(result == WEFT_ERROR_TIMEOUT, "\"%s\": %s", weft_result_string(result),
          weft_last_error());
    const int failed =
        victim_check_blamed(context, seat->comm, WEFT_ERROR_TIMEOUT) || seat->close(seat->self);
    victim_leave(context);
    return failed;
}

int victim_survive_death(const struct victim_seat *seat, const struct victim_plan *plan)
{
    struct ranks_context *context = seat->context;
    victim_choose(context, plan->victim);
    if (victim_is_self(context) && plan->moment == VICTIM_BEFORE)
        victim_strike(context, SIGKILL);
    if (victim_is_self(context) && victim_strike_later(context, SIGKILL, plan->seed))
        return 1;
    return victim_check_death(context, seat->comm, call_until_failure(seat));
}

/* ---------------------------------------------------------------- what survivors know */

int victim_check_blamed(struct ranks_context *context, weft_comm *comm, weft_result expected)
{
    const struct victim *victim = context->shared;
    int32_t failed_rank = -1;
    char text[32];
    snprintf(text, sizeof text, "rank %d", victim->rank);
    CHECK_ERROR(weft_comm_status(comm, &failed_rank), expected, text);
    CHECK(failed_rank == victim->rank, "failed_rank is %d: %s", failed_rank, weft_last_error());
    return 0;
}

int victim_check_death(struct ranks_context *context, weft_comm *comm, weft_result result)
{
    const struct victim *victim = context->shared;
    const double delay_s = clock_s() - victim->strike_time_s;
    char text[32];
    snprintf(text, sizeof text, "rank %d died", victim->rank);
    CHECK_ERROR(result, WEFT_ERROR_RANK_FAILED, text);
    CHECK(delay_s < 2, "it took %.3f s to learn of the death", delay_s);
    return victim_check_blamed(context, comm, WEFT_ERROR_RANK_FAILED);
}

int victim_go_on_without(struct ranks_context *context, rank_function begin)
{
    struct victim *victim = context->shared;
    struct ranks_context fresh = *context;
    fresh.num_ranks--;
    fresh.rank -= context->rank > victim->rank;
    if (fresh.rank == 0)
        CHECK_OK(weft_unique_id_create(&victim->fresh_id));
    ranks_barrier(context);
    fresh.id = victim->fresh_id;
    CHECK(begin(&fresh) == 0, "without the dead rank: %.900s", context->failure);
    return 0;
}
