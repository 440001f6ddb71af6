/* SPDX-License-Identifier: MIT */
/* A rank dies, stops, leaves, stays away or aborts in the midst of decode steps: every other rank ends with its name
 * and, if it waits in vain, that of its call, can destroy everything, and goes on without it. */
#include <sched.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/ll_seat.h"

enum { NUM_RANKS = 4, LONG_TIMEOUT_MS = 60000 };

enum call { DISPATCH, COMBINE, NUM_CALLS };
static const char *const call_names[NUM_CALLS] = {"weft_ll_dispatch", "weft_ll_combine"};

enum fault { KILL, STALL, STAY_AWAY, LEAVE, ABORT, NUM_FAULTS };
static const char *const fault_names[NUM_FAULTS] = {"kill", "stall", "stay away", "leave", "abort"};

struct plan {
    struct ll_case problem;
    enum fault fault;
    enum call call; /* before which it strikes */
    int is_random;  /* KILL and STALL: at any moment instead */
    int in_phases;
    int32_t num_nodes;
    int32_t victim;
    uint64_t seed;
};

/* ---------------------------------------------------------------- steps */

static weft_result run_call(struct ll_seat *seat, const struct plan *plan, enum call call)
{
    weft_result (*const issue)(struct ll_seat *, int32_t, weft_ll_phases, int32_t) =
        ll_issue_combine;
    const weft_ll_phases first = plan->in_phases ? WEFT_LL_SEND : WEFT_LL_SEND_AND_RECEIVE;
    weft_result result =
        call == DISPATCH ? ll_issue_dispatch(seat, 0, first) : issue(seat, 0, first, 0);
    if (result == WEFT_OK && plan->in_phases)
        result = call == DISPATCH ? ll_issue_dispatch(seat, 0, WEFT_LL_RECEIVE)
                                  : issue(seat, 0, WEFT_LL_RECEIVE, 0);
    return result == WEFT_OK ? weft_stream_synchronize(seat->stream) : result;
}

static weft_result run_step(struct ll_seat *seat, const struct plan *plan)
{
    const weft_result result = run_call(seat, plan, DISPATCH);
    return result == WEFT_OK ? run_call(seat, plan, COMBINE) : result;
}

/* Up to the call before which something happens. */
static int begin_steps(struct ll_seat *seat, const struct plan *plan)
{
    for (int i = 0; i < 3; i++)
        CHECK_OK(run_step(seat, plan));
    if (plan->call == COMBINE && !plan->is_random)
        CHECK_OK(run_call(seat, plan, DISPATCH));
    return 0;
}

static int open(struct ll_seat *seat, struct ranks_context *context, uint32_t timeout_ms)
{
    const struct plan *plan = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = timeout_ms;
    config.num_nodes = plan->num_nodes;
    return ranks_warm_up(context) || ll_seat_open(seat, context, &plan->problem, &config) ||
           ll_fill_step(seat, 0) || begin_steps(seat, plan);
}

/* What comes later fails at once. */
static int close_failed(struct ll_seat *seat, const struct plan *plan, weft_result expected)
{
    char text[32];
    snprintf(text, sizeof text, "rank %d", plan->victim);
    CHECK_ERROR(ll_issue_dispatch(seat, 0, WEFT_LL_SEND), expected, text);
    CHECK_OK(weft_ll_destroy(seat->ll));
    return ll_seat_close(seat);
}

/* That waited in vain; news of a death can come before it has begun. */
static int check_named(const struct plan *plan, const char *message)
{
    CHECK(plan->is_random || strstr(message, call_names[plan->call]) != NULL, "%s", message);
    return 0;
}

/* ---------------------------------------------------------------- ranks that are struck */

static int begin_anew(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ll_case problem = plan->problem;
    struct ll_seat seat;
    problem.num_ranks--;
    return ll_seat_open(&seat, context, &problem, NULL) || ll_fill_step(&seat, 0) ||
           ll_dispatch(&seat, 0, WEFT_LL_SEND_AND_RECEIVE) || ll_check_dispatched(&seat, 0) ||
           ll_combine(&seat, 0, WEFT_LL_SEND_AND_RECEIVE, 0) || ll_check_combined(&seat, 0) ||
           ll_seat_close(&seat);
}

struct struck {
    struct ll_seat seat;
    const struct plan *plan;
    char message[512]; /* of the first error */
};

static weft_result issue(void *self)
{
    struct struck *struck = self;
    const struct plan *plan = struck->plan;
    const weft_result result =
        plan->is_random ? run_step(&struck->seat, plan) : run_call(&struck->seat, plan, plan->call);
    if (result != WEFT_OK)
        snprintf(struck->message, sizeof struck->message, "%s", weft_last_error());
    return result;
}

/* The victim has an error of its own when it goes on, or none. */
static int close_stalled(void *self)
{
    struct struck *struck = self;
    if (victim_is_self(struck->seat.context))
        return ll_seat_close(&struck->seat);
    return check_named(struck->plan, struck->message) ||
           close_failed(&struck->seat, struck->plan, WEFT_ERROR_TIMEOUT);
}

static struct victim_seat seat_of_victim(struct struck *struck)
{
    return (struct victim_seat){
        struck->seat.context, struck->seat.comm, struck->seat.stream, issue, close_stalled, struck};
}

static struct victim_plan strike_of(const struct plan *plan)
{
    return (struct victim_plan){plan->victim, plan->is_random ? VICTIM_AT_RANDOM : VICTIM_BEFORE,
                                plan->seed};
}

static int survive_a_death(struct ranks_context *context)
{
    struct struck struck = {.plan = context->argument};
    const struct victim_plan strike = strike_of(struck.plan);
    if (open(&struck.seat, context, LONG_TIMEOUT_MS))
        return 1;
    const struct victim_seat seat = seat_of_victim(&struck);
    return victim_survive_death(&seat, &strike) ||
           close_failed(&struck.seat, struck.plan, WEFT_ERROR_RANK_FAILED) ||
           victim_go_on_without(context, begin_anew);
}

static int survive_a_stall(struct ranks_context *context)
{
    struct struck struck = {.plan = context->argument};
    const struct victim_plan strike = strike_of(struck.plan);
    if (open(&struck.seat, context, tests_deadline_ms((uint32_t)tests_rounds(1000, 2000))))
        return 1;
    const struct victim_seat seat = seat_of_victim(&struck);
    return victim_survive_stall(&seat, &strike);
}

/* ---------------------------------------------------------------- ranks that do not come */

static int expect_absence(struct ll_seat *seat, const struct plan *plan, weft_result expected)
{
    const weft_result result = run_call(seat, plan, plan->call);
    int32_t failed_rank = -1;
    char text[32];
    CHECK(result == expected, "\"%s\": %s", weft_result_string(result), weft_last_error());
    if (check_named(plan, weft_last_error()))
        return 1;
    snprintf(text, sizeof text, "rank %d", plan->victim);
    CHECK_ERROR(weft_comm_status(seat->comm, &failed_rank), expected, text);
    CHECK(failed_rank == plan->victim, "failed_rank is %d", failed_rank);
    return close_failed(seat, plan, expected);
}

static int miss_a_rank(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const int leaves = plan->fault == LEAVE;
    struct ll_seat seat;
    if (open(&seat, context, leaves ? LONG_TIMEOUT_MS : tests_deadline_ms(1000)))
        return 1;
    ranks_barrier(context);
    if (context->rank != plan->victim)
        return expect_absence(&seat, plan, leaves ? WEFT_ERROR_RANK_FAILED : WEFT_ERROR_TIMEOUT);
    while (!leaves && weft_comm_status(seat.comm, NULL) == WEFT_OK)
        sched_yield();
    return ll_seat_close(&seat);
}

static int be_aborted(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const struct timespec pause = {.tv_nsec = 30000000};
    struct ll_seat seat;
    if (open(&seat, context, LONG_TIMEOUT_MS))
        return 1;
    ranks_barrier(context); /* some may still be in the call before, which the victim has ended */
    if (context->rank == plan->victim) {
        nanosleep(&pause, NULL); /* so that the others wait */
        CHECK_OK(weft_comm_abort(seat.comm));
        return ll_seat_close(&seat);
    }
    CHECK_ERROR(run_call(&seat, plan, plan->call), WEFT_ERROR_ABORTED, "abort");
    CHECK_OK(weft_ll_destroy(seat.ll));
    return ll_seat_close(&seat);
}

/* ---------------------------------------------------------------- plans */

static const rank_function functions[NUM_FAULTS] = {[KILL] = survive_a_death,
                                                    [STALL] = survive_a_stall,
                                                    [STAY_AWAY] = miss_a_rank,
                                                    [LEAVE] = miss_a_rank,
                                                    [ABORT] = be_aborted};

static void run(struct plan plan)
{
    const int is_by_expert = plan.seed % 2 == 0, is_relayed = plan.seed / 2 % 2 == 0;
    const weft_ll_carrier carrier = plan.num_nodes > 1 || !is_relayed ? WEFT_LL_SIGNALS
                                    : plan.seed / 4 % 2 == 0          ? WEFT_LL_PACKETS
                                                                      : WEFT_LL_TOLD_PACKETS;
    plan.problem = (struct ll_case){LL_SIZES(NUM_RANKS, 8, 3, 8, plan.is_random ? 4096 : 64),
                                    LL_TYPES(BF16, BF16, INT32),
                                    LL_GRID(2, 2),
                                    .seed = plan.seed,
                                    .layout = is_by_expert ? WEFT_LL_BY_EXPERT : WEFT_LL_BY_RANK,
                                    .route = is_relayed ? WEFT_LL_RELAYED : WEFT_LL_STRAIGHT,
                                    .carrier = carrier};
    struct ranks_options options =
        victim_options(NUM_RANKS, plan.fault == KILL ? 1u << plan.victim : 0, &plan, sizeof plan);
    if (ranks_run_with(&options, functions[plan.fault]) != 0)
        fail_msg("%s, %s, in phases %d, %d nodes, victim %d, seed %llu", fault_names[plan.fault],
                 call_names[plan.call], plan.in_phases, plan.num_nodes, plan.victim,
                 (unsigned long long)plan.seed);
}

/* Each call, in one launch and in two, by rank and by expert. */
static void run_before_each_call(enum fault fault, int32_t num_nodes)
{
    for (int i = 0; i < tests_rounds(2 * NUM_CALLS, NUM_CALLS); i++)
        run((struct plan){.fault = fault,
                          .call = (enum call)(i % NUM_CALLS),
                          .in_phases = i / NUM_CALLS,
                          .num_nodes = num_nodes,
                          .victim = (i + (int)fault) % NUM_RANKS,
                          .seed = (uint64_t)(i + i / NUM_CALLS)});
}

static void run_at_random(enum fault fault, int32_t num_seeds, int32_t num_nodes)
{
    for (int32_t seed = 0; seed < num_seeds; seed++)
        run((struct plan){.fault = fault,
                          .is_random = 1,
                          .in_phases = seed / 2 % 2,
                          .num_nodes = num_nodes,
                          .victim = seed % NUM_RANKS,
                          .seed = 100 + (uint64_t)seed});
}

TEST(a_rank_is_killed)
{
    run_before_each_call(KILL, 1);
    run_at_random(KILL, tests_rounds(tests_grid_size(16, 2), 2), 1);
}

TEST(a_rank_is_stopped)
{
    run_before_each_call(STALL, 1);
    run_at_random(STALL, tests_rounds(tests_grid_size(4, 1), 1), 1);
}

TEST(a_rank_stays_away)
{
    run_before_each_call(STAY_AWAY, 1);
}

TEST(a_rank_leaves)
{
    run_before_each_call(LEAVE, 1);
}

TEST(a_rank_aborts)
{
    run_before_each_call(ABORT, 1);
}

/* Some wait for words that the network brings, from ranks that wait for the victim. */
TEST(in_one_of_several_nodes)
{
    for (int fault = 0; fault < NUM_FAULTS; fault++)
        run_before_each_call((enum fault)fault, fault % 2 == 0 ? 2 : NUM_RANKS);
    run_at_random(KILL, tests_rounds(tests_grid_size(12, 2), 2), 2);
    run_at_random(KILL, tests_rounds(tests_grid_size(4, 1), 1), NUM_RANKS);
    run_at_random(STALL, tests_rounds(tests_grid_size(4, 1), 1), 2);
}
