/* SPDX-License-Identifier: MIT */
/* Low-latency dispatch and combine against an oracle without protocol: rows, counts, order and sums
 * to the bit, over shapes, layouts, phases, several steps and results that are outstanding
 * together. */
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ll_seat.h"
#include "oracle/ll_trials.h"

/* In the small grid each case goes one way; all go that can be carried both ways. */
static void run_way(enum ll_way way, enum ranks_mode mode)
{
    const size_t step = (size_t)tests_grid_size(1, LL_NUM_WAYS);
    for (size_t i = (size_t)way % step; i < ll_num_cases(); i += step) {
        struct ll_trial trial = ll_trial_of(way, i);
        ll_trial_run_carried(&trial, mode);
    }
}

/* What the library chooses. */
TEST(few_tokens_by_default)
{
    static const weft_ll_layout layouts[] = {WEFT_LL_BY_RANK, WEFT_LL_BY_EXPERT};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct ll_trial trial = {{"by default", LL_SIZES(4, 8, 4, 12, 384),
                                  LL_TYPES(BF16, BF16, INT64), LL_NARROW(FP8_E4M3, FP32, 128),
                                  .seed = 7, .layout = layouts[i]},
                                 LL_ONE_LAUNCH,
                                 0};
        ll_trial_run_as(&trial, WEFT_LL_AUTO, RANKS_THREADS);
    }
}

TEST_CALL(one_launch_each, run_way(LL_ONE_LAUNCH, RANKS_PROCESSES))
TEST_CALL(two_phases_each, run_way(LL_TWO_PHASES, RANKS_THREADS))
TEST_CALL(two_results_at_a_time, run_way(LL_TWO_RESULTS, RANKS_PROCESSES))
TEST_CALL(results_are_combined_twice, run_way(LL_COMBINED_TWICE, RANKS_THREADS))

/* More ranks than a warp of a GPU has lanes, and than one GPU has queues for. */
TEST(many_ranks)
{
    static const weft_ll_layout layouts[] = {WEFT_LL_BY_RANK, WEFT_LL_BY_EXPERT};
    if (tests_on_cuda())
        skip();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i += (size_t)tests_grid_size(1, 2)) {
        struct ll_trial trial = {{"many ranks", LL_SIZES(35, 3, 4, 50, 5),
                                  LL_TYPES(FP32, FP32, INT32), LL_GRID(2, 2), .seed = i,
                                  .layout = layouts[i]},
                                 i == 0 ? LL_ONE_LAUNCH : LL_TWO_RESULTS,
                                 0};
        if (ranks_run(RANKS_THREADS, trial.problem.num_ranks, ll_trial_run, &trial) != 0)
            fail_msg("layout %d", (int)layouts[i]);
    }
}

/* ---------------------------------------------------------------- waits */

enum { LATE_RANK = 1, NUM_LATE_STEPS = 6 };

static void be_late(int32_t step)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000L << step}, NULL);
}

/* Each operation of the late rank begins when the others wait, or soon will. */
static int run_late(struct ll_seat *seat, int32_t step)
{
    const int is_late = seat->context->rank == LATE_RANK;
    if (ll_fill_step(seat, step))
        return 1;
    if (is_late)
        be_late(step);
    if (ll_dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) || ll_check_dispatched(seat, step))
        return 1;
    if (is_late)
        be_late(step);
    return ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 0) || ll_check_combined(seat, step);
}

/* What a rank sends to itself is there before it waits. */
static int check_waited(struct ll_seat *seat, int call)
{
    int64_t waited_ns[2] = {0, 0};
    for (int half = 0; half < 2; half++) {
        int64_t of_half[2];
        CHECK_OK(
            weft_memory_copy(seat->comm, of_half, seat->steps[half].waited[call], sizeof of_half));
        for (int32_t rank = 0; rank < 2; rank++)
            waited_ns[rank] += of_half[rank];
    }
    CHECK(waited_ns[0] >= 0 && waited_ns[1] >= 0 &&
              (seat->context->rank == LATE_RANK || waited_ns[LATE_RANK] > waited_ns[0]),
          "call %d: it waited for %lld and %lld ns", call, (long long)waited_ns[0],
          (long long)waited_ns[1]);
    return 0;
}

static int wait_for_late_rank(struct ranks_context *context)
{
    static const int64_t zeros[2];
    const struct ll_case *problem = context->argument;
    struct ll_seat seat;
    if (ll_seat_open(&seat, context, problem, NULL))
        return 1;
    for (int i = 0; i < 4; i++)
        CHECK_OK(weft_memory_copy(seat.comm, seat.steps[i / 2].waited[i % 2], zeros, sizeof zeros));
    for (int32_t step = 0; step < NUM_LATE_STEPS; step++)
        if (run_late(&seat, step))
            return 1;
    if (check_waited(&seat, 0) || check_waited(&seat, 1))
        return 1;
    return ll_seat_close(&seat);
}

#define OF_TWO LL_SIZES(2, 3, 2, 4, 64), LL_TYPES(BF16, BF16, INT32), LL_GRID(2, 2)

TEST(waits_for_a_late_rank_are_told)
{
    static const struct ll_case problems[] = {
        {"by rank", OF_TWO},
        {"in packets", OF_TWO, .carrier = WEFT_LL_PACKETS},
        {"by expert", OF_TWO, LL_EXPERTS},
        {"by expert in packets", OF_TWO, LL_EXPERTS, .carrier = WEFT_LL_PACKETS},
        {"told", OF_TWO, .carrier = WEFT_LL_TOLD_PACKETS},
        {"by expert and told", OF_TWO, LL_EXPERTS, .carrier = WEFT_LL_TOLD_PACKETS},
        {"weighed late", OF_TWO, LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE)},
        {"weighed late in packets", OF_TWO, LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE),
         .carrier = WEFT_LL_PACKETS},
        {"weighed late and told", OF_TWO, LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE),
         .carrier = WEFT_LL_TOLD_PACKETS},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (ranks_run(RANKS_PROCESSES, 2, wait_for_late_rank, &problems[i]) != 0)
            fail_msg("%s", problems[i].name);
}
