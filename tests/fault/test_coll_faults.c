/* SPDX-License-Identifier: MIT */
/* A rank is killed (SIGKILL) before or during each collective by each algorithm, or stopped
 * (SIGSTOP) for longer than the deadline. Every survivor learns of it by number, also one that
 * waits only for another survivor, and gets rid of its objects without leaving anything behind. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/coll_call.h"

/* Elements of 4 bytes: by packets, and not. The rest is as little as rows of so many from and to
 * each rank need. */
enum { NUM_RANKS = 4, SMALL = 200, LARGE = 50000 };
enum { PACKET_BYTES = 4096, STAGING_BYTES = 1 << 20, ARENA_BYTES = 2 << 20 };

/* By packets of a few elements, by direct access of many. */
struct way {
    enum coll_operation operation;
    weft_algorithm algorithm;
    uint64_t count;
};

static const struct way ways[] = {
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT_PACKETS, SMALL},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT_PULL, LARGE},
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT, LARGE},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_ONESHOT_PULL, LARGE},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_PUSH, LARGE},
    {COLL_ALL_TO_ALL, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_ALL_TO_ALL, WEFT_ALGORITHM_PUSH, LARGE},
    {COLL_BROADCAST, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_BROADCAST, WEFT_ALGORITHM_PUSH, LARGE},
    {COLL_BROADCAST, WEFT_ALGORITHM_RELAY, LARGE},
    {COLL_REDUCE, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_REDUCE, WEFT_ALGORITHM_TWOSHOT, LARGE},
    {COLL_GATHER, WEFT_ALGORITHM_PUSH, LARGE},
    {COLL_SCATTER, WEFT_ALGORITHM_PUSH, LARGE},
    {COLL_ALL_TO_ALL_V, WEFT_ALGORITHM_ONESHOT, SMALL},
    {COLL_ALL_TO_ALL_V, WEFT_ALGORITHM_PUSH, LARGE},
    {COLL_GROUP, WEFT_ALGORITHM_AUTO, LARGE},
    /* Over two nodes: */
    {COLL_ALL_REDUCE, WEFT_ALGORITHM_RAILS, LARGE},
    {COLL_REDUCE_SCATTER, WEFT_ALGORITHM_RAILS, LARGE},
    {COLL_ALL_GATHER, WEFT_ALGORITHM_RAILS, LARGE},
    {COLL_ALL_TO_ALL, WEFT_ALGORITHM_RAILS, SMALL},
    {COLL_BROADCAST, WEFT_ALGORITHM_RAILS, SMALL},
    {COLL_ALL_TO_ALL_V, WEFT_ALGORITHM_RAILS, SMALL},
    {COLL_GROUP, WEFT_ALGORITHM_RAILS, LARGE},
};
enum { NUM_WAYS = sizeof ways / sizeof *ways };

struct plan {
    struct victim_plan strike;
    struct way way;
};

struct seat {
    struct ep_rank rank;
    weft_coll *coll;
    struct coll_call call;
};

/* The call is made once, and its results compared. */
static int seat_open(struct victim_seat *victim)
{
    const struct plan *plan = victim->context->argument;
    const int32_t num_ranks = victim->context->num_ranks;
    struct seat *seat = victim->self;
    struct coll_case spec = coll_case_random(plan->strike.seed, num_ranks, plan->way.operation,
                                             WEFT_FP32, WEFT_SUM, plan->way.count);
    weft_comm_config config = victim_config(victim->context);
    weft_coll_config coll_config = WEFT_INIT(weft_coll_config);
    weft_algorithm algorithm = plan->way.algorithm;
    /* In a broadcast, ranks wait for the root alone. */
    spec.root = plan->strike.fault == VICTIM_IS_STOPPED ? plan->strike.victim : num_ranks - 1;
    if (algorithm == WEFT_ALGORITHM_RAILS && num_ranks == NUM_RANKS)
        spec.nodes = (struct coll_nodes){2, NUM_RANKS / 2, 0, COLL_NODE_AFTER_NODE};
    else if (algorithm == WEFT_ALGORITHM_RAILS) /* the survivors are on one node */
        algorithm = WEFT_ALGORITHM_AUTO;
    spec.order = elements_order_of(algorithm);
    config.num_nodes = spec.nodes.num_nodes;
    coll_config.packet_bytes = PACKET_BYTES;
    coll_config.staging_bytes = STAGING_BYTES;
    coll_config.choices = WEFT_ARGS(weft_coll_choice, .collective = coll_collective(spec.operation),
                                    .algorithm = algorithm);
    coll_config.num_choices = 1;
    coll_config.num_blocks = coll_config.num_warps = 2;
    if (ep_rank_open_with(&seat->rank, victim->context, &config, ARENA_BYTES))
        return 1;
    victim->comm = seat->rank.comm;
    victim->stream = seat->rank.stream;
    CHECK_OK(weft_coll_create(seat->rank.comm, &coll_config, &seat->coll));
    return coll_check(&seat->rank, seat->coll, &spec, "before") ||
           coll_call_create(&seat->rank, &spec, &seat->call);
}

static int seat_close(void *self)
{
    struct seat *seat = self;
    /* An error of a call can come before those of what it has enqueued already. */
    (void)weft_stream_synchronize(seat->rank.stream);
    if (coll_call_destroy(&seat->rank, &seat->call))
        return 1;
    CHECK_OK(weft_coll_destroy(seat->coll));
    return ep_rank_close(&seat->rank);
}

static weft_result issue(void *self)
{
    const struct seat *seat = self;
    return coll_call_issue(&seat->call, seat->rank.context->rank, seat->coll, seat->rank.stream);
}

static int check_failed(void *self, weft_result expected, const char *text)
{
    CHECK_ERROR(issue(self), expected, text);
    return 0;
}

static int go_on(struct ranks_context *context)
{
    struct seat self;
    struct victim_seat seat = {.context = context, .self = &self};
    return seat_open(&seat) || seat_close(&self);
}

static const struct victim_subject subject = {sizeof(struct seat), seat_open,  issue,
                                              check_failed,        seat_close, go_on};

static void run(struct way way, struct victim_plan strike)
{
    struct plan plan = {strike, way};
    plan.strike.subject = &subject;
    plan.strike.name = coll_operation_name(way.operation);
    plan.strike.variant = weft_coll_algorithm_name(way.algorithm);
    victim_run(&plan, NUM_RANKS);
}

/* ---------------------------------------------------------------- killed */

/* On GPUs every third one: each run needs new processes, which take seconds to begin there. In the
 * small grid, too: what sanitizers see of a death is the host's, the same in all ways, and each way
 * has one at a random moment. */
TEST(killed_before_each_operation)
{
    for (int i = 0; i < NUM_WAYS; i += tests_rounds(tests_grid_size(1, 3), 3))
        run(ways[i], (struct victim_plan){.victim = (i + i / NUM_RANKS) % NUM_RANKS});
}

TEST(killed_at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(2, 1), 1); seed++)
        for (int i = 0; i < NUM_WAYS; i++)
            run(ways[i], (struct victim_plan){.victim = (seed + i) % NUM_RANKS,
                                              .moment = VICTIM_AT_RANDOM,
                                              .seed = 100 + (uint64_t)seed});
}

/* The rendezvous dies with the rank that made the id. */
TEST_CALL(killed_together_with_the_rendezvous,
          run(ways[0], (struct victim_plan){
                           .id = RANKS_ID_BY_RANK_0, .moment = VICTIM_AT_RANDOM, .seed = 5}))

/* ---------------------------------------------------------------- stopped */

static void stop(enum coll_operation operation, uint64_t count, int32_t victim,
                 enum victim_moment moment, uint64_t seed)
{
    run((struct way){operation, WEFT_ALGORITHM_AUTO, count},
        (struct victim_plan){
            .fault = VICTIM_IS_STOPPED, .victim = victim, .moment = moment, .seed = seed});
}

TEST(stopped_before_operations)
{
    stop(COLL_ALL_REDUCE, SMALL, 2, VICTIM_BEFORE, 0);
    stop(COLL_BROADCAST, LARGE, 1, VICTIM_BEFORE, 0);
}

TEST(stopped_at_random_moments)
{
    stop(COLL_GROUP, LARGE, 1, VICTIM_AT_RANDOM, 15);
    if (tests_rounds(tests_grid_size(4, 1), 1) == 1)
        return;
    stop(COLL_REDUCE_SCATTER, SMALL, 0, VICTIM_AT_RANDOM, 12);
    stop(COLL_ALL_GATHER, LARGE, 1, VICTIM_AT_RANDOM, 13);
    stop(COLL_ALL_TO_ALL_V, SMALL, 2, VICTIM_AT_RANDOM, 14);
}

TEST(stopped_behind_another_rank)
{
    stop(COLL_ALL_REDUCE, SMALL, 2, VICTIM_BEHIND_ANOTHER, 0);
    stop(COLL_ALL_REDUCE, LARGE, 0, VICTIM_BEHIND_ANOTHER, 0);
}
