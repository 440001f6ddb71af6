/* SPDX-License-Identifier: MIT */
/* A rank is stopped (SIGSTOP) for longer than the deadline, before or during a collective. Every survivor
 * names that rank, also one that waits only for another survivor. Then the stopped rank goes on, and
 * everybody can destroy everything. */
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/coll_seat.h"

enum { NUM_RANKS = 4 };

enum moment {
    BEFORE_OPERATION, /* the others wait for it to start */
    AT_RANDOM,        /* while the operation is repeated */
    BEHIND_ANOTHER    /* the front rank waits for others, which wait for the stopped one */
};

struct plan {
    enum coll_operation operation;
    enum moment moment;
    int32_t victim;
    uint64_t count;
    uint64_t seed;
};

static int seat_open(struct coll_seat *seat, struct ranks_context *context, const struct plan *plan)
{
    struct coll_case spec =
        coll_case_random(plan->seed, NUM_RANKS, plan->operation, WEFT_FP32, WEFT_SUM, plan->count);
    spec.root = plan->victim; /* of a broadcast nobody else is waited for */
    return coll_seat_open(seat, context, tests_deadline_ms(800), &spec, WEFT_ALGORITHM_AUTO);
}

static void pause_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

static int32_t front_of(const struct plan *plan)
{
    return plan->victim == 0 ? 2 : 0;
}

/* The collective waits for the victim. The front rank is also in a barrier, on another stream: there it
 * waits for others, which are in the collective and not in the barrier. */
static weft_result call_behind_another(const struct coll_seat *seat, const struct plan *plan)
{
    weft_stream *other;
    weft_result result = weft_stream_create(seat->rank.comm, &other);
    if (result != WEFT_OK)
        return result;
    if (seat->rank.context->rank == front_of(plan)) {
        result = weft_comm_barrier(seat->rank.comm, other);
        pause_ms(200); /* so that its deadline passes first */
    }
    if (result == WEFT_OK)
        result = coll_seat_issue(seat);
    const weft_result waited = weft_stream_synchronize(other);
    const weft_result worked = weft_stream_synchronize(seat->rank.stream);
    (void)weft_stream_destroy(other);
    result = result == WEFT_OK ? waited : result;
    return result == WEFT_OK ? worked : result;
}

static weft_result call_until_failure(const struct coll_seat *seat, const struct plan *plan)
{
    return plan->moment == BEHIND_ANOTHER ? call_behind_another(seat, plan)
                                          : coll_seat_call_until_failure(seat);
}

/* It has an error of its own when it goes on, or none. */
static int be_stopped(struct coll_seat *seat, const struct plan *plan)
{
    struct ranks_context *context = seat->rank.context;
    if (plan->moment != AT_RANDOM) {
        victim_strike(context, SIGSTOP);
        return coll_seat_close(seat);
    }
    if (victim_strike_later(context, SIGSTOP, plan->seed))
        return 1;
    (void)call_until_failure(seat, plan);
    victim_await_strike(context);
    return coll_seat_close(seat);
}

static int check_failure(struct coll_seat *seat, weft_result result)
{
    struct ranks_context *context = seat->rank.context;
    RANK_CHECK(context, result == WEFT_ERROR_TIMEOUT, "\"%s\": %s", weft_result_string(result),
               weft_last_error());
    return victim_check_blamed(context, seat->rank.comm, WEFT_ERROR_TIMEOUT);
}

/* A survivor leaves as soon as it knows, while others may still wait. */
static int live_through_a_stall(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct coll_seat seat;
    if (seat_open(&seat, context, plan))
        return 1;
    victim_choose(context, plan->victim);
    if (victim_is_self(context))
        return be_stopped(&seat, plan);
    const weft_result result = call_until_failure(&seat, plan);
    const int failed = check_failure(&seat, result) || coll_seat_close(&seat);
    victim_leave(context);
    return failed;
}

static void run(struct plan plan)
{
    const struct ranks_options options = victim_options(NUM_RANKS, 0, &plan, sizeof plan);
    if (ranks_run_with(&options, live_through_a_stall) != 0)
        fail_msg("%s of %llu elements, moment %d, victim %d, seed %llu",
                 coll_operation_name(plan.operation), (unsigned long long)plan.count,
                 (int)plan.moment, plan.victim, (unsigned long long)plan.seed);
}

TEST(before_operations)
{
    run((struct plan){COLL_ALL_REDUCE, BEFORE_OPERATION, .victim = 2, .count = COLL_SEAT_SMALL});
    run((struct plan){COLL_BROADCAST, BEFORE_OPERATION, .victim = 1, .count = COLL_SEAT_LARGE});
}

TEST(at_random_moments)
{
    static const struct plan plans[] = {{COLL_GROUP, AT_RANDOM, 1, COLL_SEAT_LARGE, 15},
                                        {COLL_REDUCE_SCATTER, AT_RANDOM, 0, COLL_SEAT_SMALL, 12},
                                        {COLL_ALL_GATHER, AT_RANDOM, 1, COLL_SEAT_LARGE, 13},
                                        {COLL_ALL_TO_ALL_V, AT_RANDOM, 2, COLL_SEAT_SMALL, 14}};
    const int num_plans = tests_rounds(tests_grid_size(4, 1), 1);
    for (int i = 0; i < num_plans; i++)
        run(plans[i]);
}

TEST(behind_another_rank)
{
    run((struct plan){COLL_ALL_REDUCE, BEHIND_ANOTHER, .victim = 2, .count = COLL_SEAT_SMALL});
    run((struct plan){COLL_ALL_REDUCE, BEHIND_ANOTHER, .victim = 0, .count = COLL_SEAT_LARGE});
}
