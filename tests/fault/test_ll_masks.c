/* SPDX-License-Identifier: MIT */
/* A rank dies or stops in the midst of decode steps whose weft_ll has masks: the others go on, with
 * exactly what is left of each step, and one that was stopped comes back. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/ll_seat.h"

enum { NUM_RANKS = 4, MAX_STEPS = 1000000, STEPS_WITHOUT = 3, LONG_TIMEOUT_MS = 60000 };

struct shared {
    struct victim victim;      /* first */
    _Atomic int32_t last_loss; /* step in which a survivor has found the victim missing */
};

struct plan {
    struct ll_case problem;
    int signal;
    int in_phases;
    int dies_between_steps;
    int32_t num_nodes; /* virtual ones */
    weft_ll_carrier carrier;
    int32_t victim;
    uint64_t seed;
};

struct stand { /* of a rank */
    struct ll_seat seat;
    struct ll_case problem;
    uint64_t cuts[NUM_RANKS];
    int has_lost;
};

/* ---------------------------------------------------------------- what is left of a step */

static void lose(struct stand *stand, int32_t victim)
{
    const int32_t own = stand->seat.context->rank;
    stand->cuts[own] |= (uint64_t)1 << victim;
    stand->cuts[victim] |= (uint64_t)1 << own;
    stand->has_lost = 1;
}

static int read_missing(struct ll_seat *seat, int32_t step, int call, int32_t rank, int32_t *told)
{
    CHECK_OK(weft_stream_synchronize(seat->stream));
    CHECK_OK(weft_memory_copy(seat->comm, told, &seat->steps[step % 2].missing[call][rank],
                              sizeof *told));
    return 0;
}

static int read_any_missing(struct ll_seat *seat, int32_t step, int call, int32_t *told)
{
    for (int32_t rank = 0; rank < NUM_RANKS && !*told; rank++)
        if (read_missing(seat, step, call, rank, told))
            return 1;
    return 0;
}

static int count_rows_by_rank(struct ll_seat *seat, int32_t step, int32_t rank, int64_t *num_rows)
{
    int32_t count;
    CHECK_OK(weft_stream_synchronize(seat->stream));
    CHECK_OK(weft_memory_copy(seat->comm, &count, &seat->steps[step % 2].rank_counts[rank],
                              sizeof count));
    *num_rows = count;
    return 0;
}

/* How many rows of a rank have been counted. */
static int count_rows(struct ll_seat *seat, int32_t step, int32_t rank, int64_t *num_rows)
{
    const int32_t num_local = ll_num_local(seat->problem, seat->context->rank);
    *num_rows = 0;
    if (!ll_seat_is_by_expert(seat))
        return count_rows_by_rank(seat, step, rank, num_rows);
    for (int32_t local = 0; local < num_local; local++) {
        int64_t range;
        const int64_t *at = seat->steps[step % 2].ranges + local * NUM_RANKS + rank;
        CHECK_OK(weft_memory_copy(seat->comm, &range, at, sizeof range));
        *num_rows += range & UINT32_MAX;
    }
    return 0;
}

/* The victim has been lost before, or in the dispatch of the step: then its rows may have been
 * counted. */
static int check_dispatched(struct stand *stand, int32_t step, int32_t victim)
{
    struct ll_seat *seat = &stand->seat;
    int32_t told;
    int64_t num_rows;
    if (read_missing(seat, step, 0, victim, &told) || count_rows(seat, step, victim, &num_rows))
        return 1;
    const int is_half_there = told && !stand->has_lost && num_rows > 0;
    seat->half_there = is_half_there ? victim : LL_SEAT_NOBODY;
    if (told && !is_half_there)
        lose(stand, victim);
    if (ll_check_dispatched(seat, step))
        return 1;
    if (is_half_there)
        lose(stand, victim);
    seat->half_there = LL_SEAT_NOBODY;
    return 0;
}

static int check_combined(struct stand *stand, int32_t step, int32_t victim)
{
    struct ll_seat *seat = &stand->seat;
    int32_t told;
    if (read_missing(seat, step, 1, victim, &told))
        return 1;
    seat->in_doubt = told && !stand->has_lost ? victim : LL_SEAT_NOBODY;
    if (told)
        lose(stand, victim);
    const int failed = ll_check_combined(seat, step);
    seat->in_doubt = LL_SEAT_NOBODY;
    return failed;
}

static int run_step(struct stand *stand, int32_t step, int32_t victim)
{
    struct ll_seat *seat = &stand->seat;
    const struct plan *plan = seat->context->argument;
    const weft_ll_phases first = plan->in_phases ? WEFT_LL_SEND : WEFT_LL_SEND_AND_RECEIVE;
    if (ll_fill_step(seat, step) || ll_dispatch(seat, step, first) ||
        (plan->in_phases && ll_dispatch(seat, step, WEFT_LL_RECEIVE)) ||
        check_dispatched(stand, step, victim) || ll_combine(seat, step, first, 0) ||
        (plan->in_phases && ll_combine(seat, step, WEFT_LL_RECEIVE, 0)))
        return 1;
    return check_combined(stand, step, victim);
}

/* The victim itself, until it is told that another rank is missing: then all are. */
static int run_as_victim(struct stand *stand, int32_t step, int32_t *told)
{
    struct ll_seat *seat = &stand->seat;
    *told = 0;
    if (ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
        read_any_missing(seat, step, 0, told))
        return 1;
    if (*told)
        return 0;
    if (ll_check_dispatched(seat, step) || ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 0) ||
        read_any_missing(seat, step, 1, told))
        return 1;
    return *told ? 0 : ll_check_combined(seat, step);
}

/* Until all survivors have done some steps without the victim. */
static int run_until_lost(struct stand *stand, int32_t victim)
{
    struct ranks_context *context = stand->seat.context;
    struct shared *shared = context->shared;
    for (int32_t step = 0; step < MAX_STEPS; step++) {
        const int32_t last_loss = atomic_load(&shared->last_loss);
        const int had_lost = stand->has_lost;
        if (stand->has_lost && step > last_loss + STEPS_WITHOUT)
            return 0;
        if (run_step(stand, step, victim))
            return 1;
        for (int32_t seen = atomic_load(&shared->last_loss);
             stand->has_lost && !had_lost && seen < step;)
            if (atomic_compare_exchange_weak(&shared->last_loss, &seen, step))
                break;
    }
    CHECK(0, "rank %d was never missing", victim);
    return 1;
}

/* ---------------------------------------------------------------- a rank is killed */

static int open(struct stand *stand, struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = LONG_TIMEOUT_MS;
    config.num_nodes = plan->num_nodes;
    *stand = (struct stand){.problem = plan->problem};
    stand->problem.cuts = stand->cuts;
    /* A rank that is stopped is missing, and does not fail, however long others take to find that
     * out. */
    setenv("WEFT_HEARTBEAT_MS", plan->signal == SIGSTOP ? "0" : "10000", 1);
    if (ranks_warm_up(context) || ll_seat_open(&stand->seat, context, &stand->problem, &config))
        return 1;
    return 0;
}

static weft_result allocate_again(struct ll_seat *seat)
{
    void *memory;
    const weft_result result = weft_ll_destroy(seat->ll);
    return result == WEFT_OK ? weft_heap_alloc(seat->comm, 1, &memory) : result;
}

static weft_result pass_barrier(struct ll_seat *seat)
{
    const weft_result result = weft_comm_barrier(seat->comm, seat->stream);
    return result == WEFT_OK ? weft_stream_synchronize(seat->stream) : result;
}

/* What else waits for the dead rank fails, by its name. So nobody gets the memory of a weft_ll, to
 * which that rank may have sent something that comes late. */
static int check_others_fail(struct stand *stand, const struct plan *plan)
{
    struct ll_seat *seat = &stand->seat;
    char text[32];
    snprintf(text, sizeof text, "rank %d", plan->victim);
    CHECK_OK(weft_comm_status(seat->comm, NULL));
    ranks_barrier(seat->context);
    CHECK_ERROR(plan->seed % 2 == 0 ? pass_barrier(seat) : allocate_again(seat),
                WEFT_ERROR_RANK_FAILED, text);
    return 0;
}

static int survive_a_death(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct stand stand;
    if (open(&stand, context))
        return 1;
    victim_choose(context, plan->victim);
    if (victim_is_self(context) && victim_strike_later(context, SIGKILL, plan->seed))
        return 1;
    if (run_until_lost(&stand,
                       victim_is_self(context) ? (plan->victim + 1) % NUM_RANKS : plan->victim))
        return 1;
    return check_others_fail(&stand, plan) || ll_seat_close(&stand.seat);
}

/* When the others have been answered, and before they know that the victim needs nothing more of
 * the step. */
static int die_behind_its_answers(struct stand *stand, int32_t victim)
{
    struct ll_seat *seat = &stand->seat;
    const int is_victim = seat->context->rank == victim;
    if (ll_fill_step(seat, 0) || ll_dispatch(seat, 0, WEFT_LL_SEND_AND_RECEIVE) ||
        ll_check_dispatched(seat, 0) || ll_combine(seat, 0, WEFT_LL_SEND, 0) ||
        (!is_victim && (ll_combine(seat, 0, WEFT_LL_RECEIVE, 0) || ll_check_combined(seat, 0))))
        return 1;
    ranks_barrier(seat->context);
    if (is_victim)
        kill(getpid(), SIGKILL);
    return 0;
}

/* The others find out by waiting for room. */
static int survive_between_steps(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct stand stand;
    if (open(&stand, context) || die_behind_its_answers(&stand, plan->victim))
        return 1;
    lose(&stand, plan->victim);
    return run_step(&stand, 1, plan->victim) || check_others_fail(&stand, plan) ||
           ll_seat_close(&stand.seat);
}

/* ---------------------------------------------------------------- a rank is stopped, and comes
 * back */

static int be_stopped(struct stand *stand)
{
    struct ranks_context *context = stand->seat.context;
    const struct plan *plan = context->argument;
    int32_t told = 0;
    if (victim_strike_later(context, SIGSTOP, plan->seed))
        return 1;
    for (int32_t step = 0; !told; step++)
        if (run_as_victim(stand, step, &told))
            return 1;
    victim_await_strike(context);
    return 0;
}

/* Some are in the midst of a step; so the victim may be. */
static int come_back(struct stand *stand)
{
    struct ll_seat *seat = &stand->seat;
    const int32_t none[NUM_RANKS] = {0};
    ranks_barrier(seat->context);
    if (seat->context->rank % 2 == 0 && !victim_is_self(seat->context))
        CHECK_OK(ll_issue_dispatch(seat, 0, WEFT_LL_SEND));
    CHECK_OK(weft_memory_copy(seat->comm, seat->steps[0].missing[1], none, sizeof none));
    CHECK_OK(weft_ll_unmask(seat->ll, seat->steps[0].missing[1], 1, seat->stream));
    CHECK_OK(weft_stream_synchronize(seat->stream)); /* it reads the tokens */
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        stand->cuts[rank] = 0;
    stand->has_lost = 0;
    for (int32_t step = 0; step < STEPS_WITHOUT; step++)
        if (run_step(stand, step, (seat->context->rank + 1) % NUM_RANKS))
            return 1;
    CHECK(!stand->has_lost, "a rank is missing again");
    return ll_seat_close(seat);
}

static int survive_a_stall(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct stand stand;
    if (open(&stand, context))
        return 1;
    victim_choose(context, plan->victim);
    if (victim_is_self(context))
        return be_stopped(&stand) || come_back(&stand);
    if (run_until_lost(&stand, plan->victim))
        return 1;
    victim_leave(context); /* the last one wakes it */
    return come_back(&stand);
}

/* ---------------------------------------------------------------- plans */

/* In packets, by expert. */
static const weft_ll_answer sums[] = {WEFT_LL_ANSWER_SUMS, WEFT_LL_ANSWER_SUMS_WEIGHED_LATE};

/* By expert, by rank, and so on. */
static const weft_ll_answer answers[] = {WEFT_LL_ANSWER_SUMS,     WEFT_LL_ANSWER_SUMS,
                                         WEFT_LL_ANSWER_ROWS,     WEFT_LL_ANSWER_IN_SLOTS,
                                         WEFT_LL_ANSWER_IN_SLOTS, WEFT_LL_ANSWER_SUMS};

static void run(struct plan plan)
{
    const int is_by_expert = plan.seed % 2 == 0;
    const weft_ll_answer answer = plan.carrier >= WEFT_LL_PACKETS
                                      ? sums[is_by_expert && plan.seed / 2 % 2 == 0]
                                      : answers[plan.seed % (sizeof answers / sizeof *answers)];
    plan.problem =
        (struct ll_case){LL_SIZES(NUM_RANKS, 8, 3, 8, 2048),
                         LL_TYPES(BF16, BF16, INT32),
                         LL_GRID(3, 2),
                         .seed = plan.seed,
                         .layout = is_by_expert ? WEFT_LL_BY_EXPERT : WEFT_LL_BY_RANK,
                         .answer = answer,
                         .answers_in_slots = !is_by_expert && answer == WEFT_LL_ANSWER_IN_SLOTS,
                         .num_results = 1 + (int32_t)(plan.seed / 2 % 2),
                         .carrier = plan.carrier,
                         .node_ranks = NUM_RANKS / plan.num_nodes,
                         .has_expert_signals = plan.seed % 4 == 0,
                         .on_missing = WEFT_LL_MASK,
                         .missing_ms = plan.signal == SIGKILL ? 0 : tests_deadline_ms(1000)};
    struct ranks_options options = victim_options(
        NUM_RANKS, plan.signal == SIGKILL ? 1u << plan.victim : 0, &plan, sizeof plan);
    options.shared_bytes = sizeof(struct shared);
    if (ranks_run_with(&options, plan.dies_between_steps  ? survive_between_steps
                                 : plan.signal == SIGKILL ? survive_a_death
                                                          : survive_a_stall) != 0)
        fail_msg("signal %d, in phases %d, victim %d, seed %llu, %d nodes, carrier %d", plan.signal,
                 plan.in_phases, plan.victim, (unsigned long long)plan.seed, plan.num_nodes,
                 plan.carrier);
}

/* Of a plan, with victims and phases by seeds from the first one on. */
static void run_seeds_from(int32_t first, struct plan plan, int32_t num_seeds)
{
    for (int32_t seed = first; seed < first + num_seeds; seed++) {
        plan.in_phases = seed / 2 % 2;
        plan.victim = (seed + seed / 4) % NUM_RANKS;
        plan.seed = (uint64_t)seed;
        run(plan);
    }
}

static void run_seeds(int signal, int32_t num_nodes, int32_t num_seeds)
{
    const struct plan plan = {.signal = signal, .num_nodes = num_nodes, .carrier = WEFT_LL_SIGNALS};
    run_seeds_from(0, plan, num_seeds);
}

/* Of one seed, packets are by expert, and told ones by rank. */
static void run_carriers(int signal, int32_t num_seeds)
{
    for (int carrier = WEFT_LL_PACKETS; carrier <= WEFT_LL_TOLD_PACKETS; carrier++) {
        const struct plan plan = {
            .signal = signal, .num_nodes = 1, .carrier = (weft_ll_carrier)carrier};
        run_seeds_from(carrier - WEFT_LL_PACKETS, plan, num_seeds);
    }
}

TEST_CALL(decoding_goes_on_without_a_killed_rank,
          run_seeds(SIGKILL, 1, tests_rounds(tests_grid_size(12, 4), 4)))
TEST_CALL(decoding_goes_on_in_packets_without_a_killed_rank,
          run_carriers(SIGKILL, tests_rounds(tests_grid_size(8, 2), 4)))
TEST_CALL(a_stopped_rank_comes_back_in_packets,
          run_carriers(SIGSTOP, tests_rounds(tests_grid_size(2, 1), 2)))

TEST(decoding_goes_on_without_a_killed_rank_of_another_node)
{
    run_seeds(SIGKILL, 2, tests_rounds(tests_grid_size(8, 2), 2));
    run_seeds(SIGKILL, NUM_RANKS, tests_rounds(tests_grid_size(4, 1), 1));
}

TEST_CALL(a_stopped_rank_comes_back, run_seeds(SIGSTOP, 1, tests_rounds(tests_grid_size(4, 1), 2)))
TEST_CALL(a_stopped_rank_of_another_node_comes_back,
          run_seeds(SIGSTOP, 2, tests_rounds(tests_grid_size(2, 1), 1)))

TEST(decoding_goes_on_without_a_rank_killed_between_two_steps)
{
    for (uint64_t seed = 0; seed < 6; seed++)
        run((struct plan){.signal = SIGKILL,
                          .dies_between_steps = 1,
                          .in_phases = seed % 4 == 1,
                          .num_nodes = 2,
                          .carrier = WEFT_LL_SIGNALS,
                          .victim = (int32_t)(seed % NUM_RANKS),
                          .seed = 2 * (seed & ~UINT64_C(1)) + seed % 2}); /* one result */
}
