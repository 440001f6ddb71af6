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
    /* A signal to the process may be taken by its main thread, while this one goes on. */
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
