/* SPDX-License-Identifier: MIT */
/* A rank is killed (SIGKILL) before or during each collective by each algorithm. Every survivor
 * learns of it by number within two seconds, gets rid of its objects without leaving anything behind, and
 * goes on with a communicator of the survivors. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/stock.h"
#include "harness/victim.h"
#include "oracle/coll_seat.h"

enum { NUM_RANKS = 4 };

/* By packets of a few elements, by direct access of many. */
struct way {
    enum coll_operation operation;
    weft_algorithm algorithm;
    uint64_t count;
};

static const struct way ways[] = {
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT_PACKETS, COLL_SEAT_SMALL},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT_PULL, COLL_SEAT_LARGE},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT, COLL_SEAT_LARGE},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT_PUSH, COLL_SEAT_LARGE},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_RING, COLL_SEAT_LARGE},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_ONESHOT_PULL, COLL_SEAT_LARGE},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_PUSH, COLL_SEAT_LARGE},
    {COLL_ALL_TO_ALL, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_ALL_TO_ALL, WEFT_ALGORITHM_PUSH, COLL_SEAT_LARGE},
    {COLL_BROADCAST, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_BROADCAST, WEFT_ALGORITHM_PUSH, COLL_SEAT_LARGE},
    {COLL_BROADCAST, WEFT_ALGORITHM_RELAY, COLL_SEAT_LARGE},
    {COLL_REDUCE, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_REDUCE, WEFT_ALGORITHM_TWOSHOT, COLL_SEAT_LARGE},
    {COLL_GATHER, WEFT_ALGORITHM_PUSH, COLL_SEAT_LARGE},
    {COLL_SCATTER, WEFT_ALGORITHM_PUSH, COLL_SEAT_LARGE},
    {COLL_ALL_TO_ALL_V, WEFT_ALGORITHM_ONESHOT, COLL_SEAT_SMALL},
    {COLL_ALL_TO_ALL_V, WEFT_ALGORITHM_PUSH, COLL_SEAT_LARGE},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_MULTICAST, COLL_SEAT_LARGE},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_MULTICAST, COLL_SEAT_LARGE},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_MULTICAST, COLL_SEAT_LARGE},
    {COLL_GROUP, WEFT_ALGORITHM_AUTO, COLL_SEAT_LARGE},
    /* Over two nodes: */
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_RAILS, COLL_SEAT_LARGE},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_RAILS, COLL_SEAT_LARGE},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_RAILS, COLL_SEAT_LARGE},
    {COLL_ALL_TO_ALL, WEFT_ALGORITHM_RAILS, COLL_SEAT_SMALL},
    {COLL_BROADCAST, WEFT_ALGORITHM_RAILS, COLL_SEAT_SMALL},
    {COLL_ALL_TO_ALL_V, WEFT_ALGORITHM_RAILS, COLL_SEAT_SMALL},
    {COLL_GROUP, WEFT_ALGORITHM_RAILS, COLL_SEAT_LARGE},
};
enum { NUM_WAYS = sizeof ways / sizeof *ways };

struct plan {
    struct way way;
    enum ranks_id id;
    struct victim_plan strike;
};

static int seat_open(struct coll_seat *seat, struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct coll_case spec =
        coll_case_random(plan->strike.seed, context->num_ranks, plan->way.operation, WEFT_FP32,
                         WEFT_SUM, plan->way.count);
    spec.root = context->num_ranks - 1;
    weft_algorithm algorithm = plan->way.algorithm;
    if (algorithm == WEFT_ALGORITHM_RAILS && context->num_ranks == NUM_RANKS)
        spec.nodes = (struct coll_nodes){2, NUM_RANKS / 2, 0, COLL_NODE_AFTER_NODE};
    else if (algorithm == WEFT_ALGORITHM_RAILS) /* the survivors are on one node */
        algorithm = WEFT_ALGORITHM_AUTO;
    return coll_seat_open(seat, context, 0, &spec, algorithm);
}

/* From now on everything fails at once. */
static int check_calls_fail(const struct coll_seat *seat)
{
    CHECK_ERROR(coll_seat_call(seat), WEFT_ERROR_RANK_FAILED, "died");
    return 0;
}

static int begin(struct ranks_context *context)
{
    struct coll_seat seat;
    return seat_open(&seat, context) || coll_seat_close(&seat);
}

static int survive(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct coll_seat seat;
    CHECK_OK(tests_warm_up(&context->id));
    const struct stock before = stock_take();
    if (seat_open(&seat, context))
        return 1;
    const struct victim_seat struck = coll_seat_of_victim(&seat);
    if (victim_survive_death(&struck, &plan->strike) || check_calls_fail(&seat) ||
        coll_seat_close(&seat))
        return 1;
    return stock_check(before, stock_take()) || victim_go_on_without(context, begin);
}

static void run(struct plan plan)
{
    struct ranks_options options =
        victim_options(NUM_RANKS, 1u << plan.strike.victim, &plan, sizeof plan);
    options.id = plan.id;
    if (ranks_run_with(&options, survive) != 0)
        fail_msg("%s of %llu elements by %s, victim %d, seed %llu",
                 coll_operation_name(plan.way.operation), (unsigned long long)plan.way.count,
                 weft_coll_algorithm_name(plan.way.algorithm), plan.strike.victim,
                 (unsigned long long)plan.strike.seed);
}

/* On GPUs every third one: each run needs new processes, which take seconds to begin there. In the small grid, too: what
 * sanitizers see of a death is the host's, the same in all ways, and each way has one at a random moment. */
TEST(before_each_operation)
{
    for (int i = 0; i < NUM_WAYS; i += tests_rounds(tests_grid_size(1, 3), 3))
        run((struct plan){.way = ways[i],
                          .strike = {(i + i / NUM_RANKS) % NUM_RANKS, VICTIM_BEFORE, 0}});
}

TEST(at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(2, 1), 1); seed++)
        for (int i = 0; i < NUM_WAYS; i++)
            run((struct plan){
                .way = ways[i],
                .strike = {(seed + i) % NUM_RANKS, VICTIM_AT_RANDOM, 100 + (uint64_t)seed}});
}

/* The rendezvous dies with the rank that made the id. */
TEST(together_with_the_rendezvous)
{
    run((struct plan){
        .way = ways[0], .id = RANKS_ID_BY_RANK_0, .strike = {0, VICTIM_AT_RANDOM, 5}});
}
