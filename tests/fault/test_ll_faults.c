/* SPDX-License-Identifier: MIT */
/* A rank dies, stops, leaves, stays away or aborts in the midst of decode steps: every other rank
 * ends with its name and, if it waits in vain, that of its call, can destroy everything, and goes
 * on without it. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/ll_seat.h"

enum { NUM_RANKS = 4 };

enum call { DISPATCH, COMBINE, NUM_CALLS };
static const char *const call_names[NUM_CALLS] = {"weft_ll_dispatch", "weft_ll_combine"};

struct plan {
    struct victim_plan strike;
    struct ll_case problem;
    enum call call; /* which is struck, but for random moments, when both are */
    int in_phases;
};

struct seat {
    struct ll_seat of_ll;
    const struct plan *plan;
};

static int is_random(const struct plan *plan)
{
    return plan->strike.moment == VICTIM_AT_RANDOM;
}

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
static int seat_open(struct victim_seat *victim)
{
    const struct plan *plan = victim->context->argument;
    const weft_comm_config config = victim_config(victim->context);
    struct seat *seat = victim->self;
    seat->plan = plan;
    if (ll_seat_open(&seat->of_ll, victim->context, &plan->problem, &config) ||
        ll_fill_step(&seat->of_ll, 0))
        return 1;
    victim->comm = seat->of_ll.comm;
    victim->stream = seat->of_ll.stream;
    for (int i = 0; i < 3; i++)
        CHECK_OK(run_step(&seat->of_ll, plan));
    if (plan->call == COMBINE && !is_random(plan))
        CHECK_OK(run_call(&seat->of_ll, plan, DISPATCH));
    return 0;
}

static weft_result issue(void *self)
{
    struct seat *seat = self;
    return is_random(seat->plan) ? run_step(&seat->of_ll, seat->plan)
                                 : run_call(&seat->of_ll, seat->plan, seat->plan->call);
}

static int check_failed(void *self, weft_result expected, const char *text)
{
    struct seat *seat = self;
    CHECK_ERROR(ll_issue_dispatch(&seat->of_ll, 0, WEFT_LL_SEND), expected, text);
    CHECK_OK(weft_ll_destroy(seat->of_ll.ll));
    return 0;
}

static int seat_close(void *self)
{
    return ll_seat_close(&((struct seat *)self)->of_ll);
}

static int go_on(struct ranks_context *context)
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

static const struct victim_subject subject = {sizeof(struct seat), seat_open,  issue,
                                              check_failed,        seat_close, go_on};

/* ---------------------------------------------------------------- plans */

static void run(enum call call, int in_phases, struct victim_plan strike)
{
    const uint64_t seed = strike.seed;
    const int is_by_expert = seed % 2 == 0, is_relayed = seed / 2 % 2 == 0;
    const weft_ll_carrier carrier = strike.num_nodes > 1 || !is_relayed ? WEFT_LL_SIGNALS
                                    : seed / 4 % 2 == 0                 ? WEFT_LL_PACKETS
                                                                        : WEFT_LL_TOLD_PACKETS;
    struct plan plan = {.strike = strike, .call = call, .in_phases = in_phases};
    plan.problem = (struct ll_case){LL_SIZES(NUM_RANKS, 8, 3, 8, is_random(&plan) ? 4096 : 64),
                                    LL_TYPES(BF16, BF16, INT32),
                                    LL_GRID(2, 2),
                                    .seed = seed,
                                    .layout = is_by_expert ? WEFT_LL_BY_EXPERT : WEFT_LL_BY_RANK,
                                    .route = is_relayed ? WEFT_LL_RELAYED : WEFT_LL_STRAIGHT,
                                    .carrier = carrier};
    plan.strike.subject = &subject;
    plan.strike.mode = RANKS_PROCESSES;
    plan.strike.name = plan.strike.named = call_names[call];
    plan.strike.variant = in_phases ? "in phases" : NULL;
    victim_run(&plan, NUM_RANKS);
}

/* Each call, in one launch and in two, by rank and by expert. */
static void run_before_each_call(enum victim_fault fault, int32_t num_nodes)
{
    for (int i = 0; i < tests_rounds(2 * NUM_CALLS, NUM_CALLS); i++)
        run((enum call)(i % NUM_CALLS), i / NUM_CALLS,
            (struct victim_plan){.fault = fault,
                                 .num_nodes = num_nodes,
                                 .victim = (i + (int)fault) % NUM_RANKS,
                                 .seed = (uint64_t)(i + i / NUM_CALLS)});
}

static void run_at_random(enum victim_fault fault, int32_t num_seeds, int32_t num_nodes)
{
    for (int32_t seed = 0; seed < num_seeds; seed++)
        run(DISPATCH, seed / 2 % 2,
            (struct victim_plan){.fault = fault,
                                 .moment = VICTIM_AT_RANDOM,
                                 .num_nodes = num_nodes,
                                 .victim = seed % NUM_RANKS,
                                 .seed = 100 + (uint64_t)seed});
}

static const enum victim_fault faults[] = {VICTIM_IS_KILLED, VICTIM_IS_STOPPED, VICTIM_STAYS_AWAY,
                                           VICTIM_LEAVES, VICTIM_ABORTS};
enum { NUM_FAULTS = sizeof faults / sizeof *faults };

TEST(before_each_call)
{
    for (int i = 0; i < NUM_FAULTS; i++)
        run_before_each_call(faults[i], 1);
}

TEST(at_random_moments)
{
    run_at_random(VICTIM_IS_KILLED, tests_rounds(tests_grid_size(16, 2), 2), 1);
    run_at_random(VICTIM_IS_STOPPED, tests_rounds(tests_grid_size(4, 1), 1), 1);
}

/* Some wait for words that the network brings, from ranks that wait for the victim. */
TEST(in_one_of_several_nodes)
{
    for (int i = 0; i < NUM_FAULTS; i++)
        run_before_each_call(faults[i], i % 2 == 0 ? 2 : NUM_RANKS);
    run_at_random(VICTIM_IS_KILLED, tests_rounds(tests_grid_size(12, 2), 2), 2);
    run_at_random(VICTIM_IS_KILLED, tests_rounds(tests_grid_size(4, 1), 1), NUM_RANKS);
    run_at_random(VICTIM_IS_STOPPED, tests_rounds(tests_grid_size(4, 1), 1), 2);
}

/* ---------------------------------------------------------------- words of experts */

enum { SHORT_MS = 1000 };

/* All but one rank dispatch twice: the first launch fails in its midst, on machine cpu the second
 * is never begun. Whoever waits for a word of either learns that. */
static int run_without_one(struct ranks_context *context)
{
    const struct ll_case *problem = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    struct ll_seat seat;
    config.timeout_ms = tests_deadline_ms(SHORT_MS);
    if (ll_seat_open(&seat, context, problem, &config) || ll_fill_step(&seat, 0) ||
        ll_fill_step(&seat, 1))
        return 1;
    ranks_barrier(context);
    if (context->rank > 0) {
        for (int32_t step = 0; step < 2; step++)
            if (ll_dispatch(&seat, step, WEFT_LL_SEND_AND_RECEIVE))
                return 1;
        CHECK_ERROR(weft_stream_synchronize(seat.stream), WEFT_ERROR_TIMEOUT, "rank 0");
        if (ll_check_expert_signals(&seat, 0, UINT64_MAX) ||
            ll_check_expert_signals(&seat, 1, UINT64_MAX))
            return 1;
    }
    ranks_barrier(context);
    return ll_seat_close(&seat);
}

TEST(words_of_experts_are_raised_by_a_failure)
{
    struct ll_case problem = {"words", LL_SIZES(3, 4, 2, 6, 64), LL_TYPES(BF16, BF16, INT32),
                              LL_EXPERTS, .has_expert_signals = 1};
    for (int carrier = WEFT_LL_SIGNALS; carrier <= WEFT_LL_TOLD_PACKETS; carrier++) {
        problem.carrier = (weft_ll_carrier)carrier;
        if (ranks_run(RANKS_THREADS, problem.num_ranks, run_without_one, &problem) != 0)
            fail_msg("carrier %d", carrier);
    }
}
