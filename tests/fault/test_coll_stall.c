/* SPDX-License-Identifier: MIT */
/* A rank is stopped (SIGSTOP) for longer than the deadline, before or during a collective. Every survivor
 * names that rank, also one that waits only for another survivor. Then the stopped rank goes on, and
 * everybody can destroy everything. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/coll_seat.h"

enum { NUM_RANKS = 4 };

struct plan {
    enum coll_operation operation;
    uint64_t count;
    struct victim_plan strike;
};

static int live_through_a_stall(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct coll_case spec = coll_case_random(plan->strike.seed, NUM_RANKS, plan->operation,
                                             WEFT_FP32, WEFT_SUM, plan->count);
    struct coll_seat seat;
    spec.root = plan->strike.victim; /* of a broadcast nobody else is waited for */
    if (coll_seat_open(&seat, context, tests_deadline_ms(800), &spec, WEFT_ALGORITHM_AUTO))
        return 1;
    const struct victim_seat struck = coll_seat_of_victim(&seat);
    return victim_survive_stall(&struck, &plan->strike);
}

static void run(struct plan plan)
{
    const struct ranks_options options = victim_options(NUM_RANKS, 0, &plan, sizeof plan);
    if (ranks_run_with(&options, live_through_a_stall) != 0)
        fail_msg("%s of %llu elements, moment %d, victim %d, seed %llu",
                 coll_operation_name(plan.operation), (unsigned long long)plan.count,
                 (int)plan.strike.moment, plan.strike.victim, (unsigned long long)plan.strike.seed);
}

TEST(before_operations)
{
    run((struct plan){COLL_ALL_REDUCE, COLL_SEAT_SMALL, {2, VICTIM_BEFORE, 0}});
    run((struct plan){COLL_BROADCAST, COLL_SEAT_LARGE, {1, VICTIM_BEFORE, 0}});
}

TEST(at_random_moments)
{
    static const struct plan plans[] = {
        {COLL_GROUP, COLL_SEAT_LARGE, {1, VICTIM_AT_RANDOM, 15}},
        {COLL_REDUCE_SCATTER, COLL_SEAT_SMALL, {0, VICTIM_AT_RANDOM, 12}},
        {COLL_ALL_GATHER, COLL_SEAT_LARGE, {1, VICTIM_AT_RANDOM, 13}},
        {COLL_ALL_TO_ALL_V, COLL_SEAT_SMALL, {2, VICTIM_AT_RANDOM, 14}}};
    const int num_plans = tests_rounds(tests_grid_size(4, 1), 1);
    for (int i = 0; i < num_plans; i++)
        run(plans[i]);
}

TEST(behind_another_rank)
{
    run((struct plan){COLL_ALL_REDUCE, COLL_SEAT_SMALL, {2, VICTIM_BEHIND_ANOTHER, 0}});
    run((struct plan){COLL_ALL_REDUCE, COLL_SEAT_LARGE, {0, VICTIM_BEHIND_ANOTHER, 0}});
}
