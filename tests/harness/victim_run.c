/* SPDX-License-Identifier: MIT */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/stock.h"
#include "harness/victim.h"

/* ---------------------------------------------------------------- what ranks call */

enum { MOST_CALLS = 1000000, LONG_TIMEOUT_MS = 60000, SOON_S = 5 };

static const struct victim_plan *plan_of(const struct victim_seat *seat)
{
    return seat->context->argument;
}

static int is_behind(const struct victim_plan *plan)
{
    return plan->moment == VICTIM_BEHIND_ANOTHER || plan->moment == VICTIM_BEHIND_THE_LAST;
}

/* The one that waits for those that wait for the victim. */
static int is_front(const struct ranks_context *context)
{
    const struct victim_plan *plan = context->argument;
    return context->rank == (plan->victim == 0 ? 2 : 0);
}

weft_comm_config victim_config(const struct ranks_context *context)
{
    const struct victim_plan *plan = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    const int is_last = plan->moment == VICTIM_BEHIND_THE_LAST && is_front(context);
    const int has_deadline = plan->fault == VICTIM_IS_STOPPED || plan->fault == VICTIM_STAYS_AWAY;
    /* The driver makes processes wait for each other's memory calls. */
    config.timeout_ms = has_deadline && !is_last
                            ? tests_deadline_ms((uint32_t)tests_rounds(1000, 2000))
                            : LONG_TIMEOUT_MS;
    config.num_nodes = plan->num_nodes;
    return config;
}

/* Issues and waits until either fails. */
static weft_result call(const struct victim_seat *seat, int most_calls)
{
    weft_result result = WEFT_OK;
    for (int i = 0; i < most_calls && result == WEFT_OK; i++) {
        result = plan_of(seat)->subject->issue(seat->self);
        if (result == WEFT_OK)
            result = weft_stream_synchronize(seat->stream);
    }
    return result;
}

/* What is issued waits for the victim. The front rank is in a barrier before, on another stream,
 * and the victim too: there the front rank waits for those which are in what was issued and not in
 * the barrier. */
static weft_result call_behind_another(const struct victim_seat *seat)
{
    const struct timespec pause = {.tv_nsec = 200000000}; /* so that its deadline passes first */
    weft_stream *other;
    weft_result result = weft_stream_create(seat->comm, &other);
    if (result != WEFT_OK)
        return result;
    if (victim_is_self(seat->context) || is_front(seat->context)) {
        result = weft_comm_barrier(seat->comm, other);
        nanosleep(&pause, NULL);
    }
    if (victim_is_self(seat->context))
        victim_strike(seat->context, SIGSTOP);
    if (result == WEFT_OK)
        result = plan_of(seat)->subject->issue(seat->self);
    const weft_result waited = weft_stream_synchronize(other);
    result = result == WEFT_OK ? waited : result;
    const weft_result worked = weft_stream_synchronize(seat->stream);
    (void)weft_stream_destroy(other);
    return result == WEFT_OK ? worked : result;
}

static weft_result expected_of(enum victim_fault fault)
{
    if (fault >= VICTIM_ABORTS)
        return WEFT_ERROR_ABORTED;
    return fault == VICTIM_IS_STOPPED || fault == VICTIM_STAYS_AWAY ? WEFT_ERROR_TIMEOUT
                                                                    : WEFT_ERROR_RANK_FAILED;
}

/* ---------------------------------------------------------------- the victim's part */

/* It may have an error of its own when it goes on. */
static int be_struck(const struct victim_seat *seat)
{
    const struct victim_plan *plan = plan_of(seat);
    const int signal = plan->fault == VICTIM_IS_KILLED ? SIGKILL : SIGSTOP;
    if (plan->moment == VICTIM_AT_RANDOM) {
        if (victim_strike_later(seat->context, signal, plan->seed))
            return 1;
        CHECK(call(seat, MOST_CALLS) != WEFT_OK, "nobody missed it");
        victim_await_strike(seat->context);
    } else if (is_behind(plan)) {
        (void)call_behind_another(seat);
    } else {
        victim_strike(seat->context, signal);
    }
    return 0;
}

static void *abort_later(void *comm)
{
    const struct timespec pause = {.tv_nsec = 30000000}; /* so that the others wait */
    nanosleep(&pause, NULL);
    (void)weft_comm_abort(comm);
    return NULL;
}

/* The news comes to a rank that calls nothing, too. */
static int be_told(const struct victim_seat *seat)
{
    const double begin_s = clock_s();
    while (weft_comm_status(seat->comm, NULL) == WEFT_OK && clock_s() - begin_s < 4 * SOON_S)
        sched_yield();
    CHECK_ERROR(weft_comm_status(seat->comm, NULL), expected_of(plan_of(seat)->fault), "");
    return 0;
}

static int be_victim(const struct victim_seat *seat)
{
    const enum victim_fault fault = plan_of(seat)->fault;
    if (fault <= VICTIM_IS_SILENT)
        return be_struck(seat);
    return fault == VICTIM_LEAVES ? 0 : be_told(seat);
}

/* ---------------------------------------------------------------- the survivors' part */

/* News of a death or of an abort can come before a call has begun, which then is not named. */
static int be_survivor(const struct victim_seat *seat)
{
    const struct victim_plan *plan = plan_of(seat);
    const enum victim_fault fault = plan->fault;
    const weft_result expected = expected_of(fault);
    const int is_named = fault != VICTIM_IS_KILLED && expected != WEFT_ERROR_ABORTED &&
                         plan->moment == VICTIM_BEFORE;
    const double begin_s = clock_s();
    char text[32] = "abort";
    if (expected != WEFT_ERROR_ABORTED)
        snprintf(text, sizeof text, "rank %d", plan->victim);
    const weft_result result = is_behind(plan)
                                   ? call_behind_another(seat)
                                   : call(seat, fault <= VICTIM_IS_SILENT ? MOST_CALLS : 1);
    CHECK_ERROR(result, expected, text);
    CHECK(!is_named || plan->named == NULL || strstr(weft_last_error(), plan->named) != NULL,
          "no %s: %s", plan->named, weft_last_error());
    CHECK(fault < VICTIM_LEAVES || clock_s() - begin_s < SOON_S, "it took %.1f s",
          clock_s() - begin_s);
    if (fault == VICTIM_IS_KILLED && victim_check_death(seat->context, seat->comm, result))
        return 1;
    if (expected == WEFT_ERROR_ABORTED)
        CHECK_ERROR(weft_comm_status(seat->comm, NULL), expected, text);
    else if (victim_check_blamed(seat->context, seat->comm, expected))
        return 1;
    return plan->subject->check_failed == NULL
               ? 0
               : plan->subject->check_failed(seat->self, expected, text);
}

/* ---------------------------------------------------------------- all of it */

static int take_part(const struct victim_seat *seat)
{
    const enum victim_fault fault = plan_of(seat)->fault;
    const int is_victim = victim_is_self(seat->context);
    const int aborts = (fault == VICTIM_ABORTS && is_victim) ||
                       (fault == VICTIM_SEES_AN_ABORT && is_front(seat->context));
    pthread_t thread;
    if (aborts)
        CHECK(pthread_create(&thread, NULL, abort_later, seat->comm) == 0, "no thread");
    const int failed = is_victim ? be_victim(seat) : be_survivor(seat);
    if (aborts)
        pthread_join(thread, NULL);
    if (fault == VICTIM_STAYS_AWAY || fault >= VICTIM_ABORTS) /* nobody is to be seen to leave */
        ranks_barrier(seat->context);
    return failed;
}

static int live(struct ranks_context *context)
{
    const struct victim_plan *plan = context->argument;
    const struct victim_subject *subject = plan->subject;
    struct victim_seat seat = {context, .self = calloc(1, subject->self_bytes)};
    if (plan->fault == VICTIM_IS_KILLED)
        CHECK_OK(tests_warm_up(&context->id));
    else if (ranks_warm_up(context))
        return 1;
    const struct stock before = stock_take();
    if (subject->open(&seat))
        return 1;
    victim_choose(context, plan->victim);
    const int failed = take_part(&seat) || subject->close(seat.self);
    free(seat.self);
    const int is_stopped = plan->fault == VICTIM_IS_STOPPED || plan->fault == VICTIM_IS_SILENT;
    if (is_stopped && !victim_is_self(context))
        victim_leave(context);
    if (failed || plan->fault != VICTIM_IS_KILLED)
        return failed;
    /* UCX keeps threads and descriptors of its own. */
    if ((plan->engine == NULL || strcmp(plan->engine, "ucx") != 0) &&
        stock_check(before, stock_take()))
        return 1;
    return subject->go_on != NULL && victim_go_on_without(context, subject->go_on);
}

void victim_run_sized(const struct victim_plan *plan, size_t argument_bytes, int32_t num_ranks)
{
    const int may_die = plan->fault == VICTIM_IS_KILLED;
    struct ranks_options options =
        victim_options(num_ranks, (uint64_t)may_die << plan->victim, plan, argument_bytes);
    options.id = plan->id;
    if (plan->fault > VICTIM_IS_SILENT)
        options.mode = plan->mode;
    if (plan->engine != NULL)
        setenv("WEFT_NET", plan->engine, 1);
    const int num_failed = ranks_run_with(&options, live);
    if (plan->engine != NULL)
        unsetenv("WEFT_NET");
    if (num_failed != 0)
        fail_msg("%s %s, fault %d, moment %d, victim %d, seed %llu, mode %d, id %d, %d nodes, "
                 "engine %s",
                 plan->name, plan->variant != NULL ? plan->variant : "", (int)plan->fault,
                 (int)plan->moment, plan->victim, (unsigned long long)plan->seed, (int)plan->mode,
                 (int)plan->id, plan->num_nodes, plan->engine != NULL ? plan->engine : "-");
}
