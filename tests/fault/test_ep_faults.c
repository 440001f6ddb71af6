/* SPDX-License-Identifier: MIT */
/* A rank fails before or during an operation: it is killed (SIGKILL), is stopped (SIGSTOP) for
 * longer than the deadline, never comes, leaves, or somebody aborts. Every other rank learns of it
 * by number, also one that waits only for another survivor, and when others have given up and left
 * before, and gets rid of its objects. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"

enum { NUM_RANKS = 4, LARGE_HIDDEN = 100000 /* the fault falls into the middle of moving rows */ };

struct plan {
    struct victim_plan strike;
    enum ep_operation operation;
    int64_t hidden;
    struct ep_world *world;     /* of all */
    struct ep_world *survivors; /* of one less */
};

struct seat {
    struct ep_rank rank;
    struct ep_buffers buffers;
    enum ep_operation operation;
};

static weft_result issue(void *self)
{
    struct seat *seat = self;
    return ep_operation_issue(&seat->rank, &seat->buffers, seat->operation);
}

/* The operation is done once. */
static int seat_open(struct victim_seat *victim)
{
    const struct plan *plan = victim->context->argument;
    const weft_comm_config config = victim_config(victim->context);
    struct seat *seat = victim->self;
    seat->operation = plan->operation;
    if (ep_rank_open_with(&seat->rank, victim->context, &config,
                          ep_buffers_arena_bytes(plan->world, plan->hidden)) ||
        ep_rank_enter(&seat->rank, plan->world) || ep_route(&seat->rank) ||
        ep_buffers_create(&seat->rank, plan->hidden, &seat->buffers))
        return 1;
    victim->comm = seat->rank.comm;
    victim->stream = seat->rank.stream;
    CHECK_OK(ep_operation_run(&seat->rank, &seat->buffers, plan->operation));
    return 0;
}

/* Without the barrier of ep_rank_leave, which cannot succeed. */
static int seat_close(void *self)
{
    struct seat *seat = self;
    (void)weft_stream_synchronize(seat->rank.stream);
    if (ep_buffers_destroy(&seat->rank, &seat->buffers))
        return 1;
    CHECK_OK(weft_ep_handle_destroy(seat->rank.handle));
    CHECK_OK(weft_ep_destroy(seat->rank.ep));
    return ep_rank_close(&seat->rank);
}

static int check_failed(void *self, weft_result expected, const char *text)
{
    const struct ep_rank *rank = &((struct seat *)self)->rank;
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    CHECK_ERROR(weft_comm_barrier(rank->comm, rank->stream), expected, text);
    CHECK_ERROR(weft_comm_host_barrier(rank->comm), expected, text);
    CHECK_ERROR(weft_ep_wait_counts(rank->handle, &counts), expected, text);
    return 0;
}

static int go_on(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(100);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 40);
    struct ep_rank self;
    return ep_rank_open(&self, context, plan->survivors->spec.num_nodes, 1 << 20) ||
           ep_check_world(&self, plan->survivors, &dispatch, &combine) || ep_rank_close(&self);
}

static const struct victim_subject subject = {sizeof(struct seat), seat_open,  issue,
                                              check_failed,        seat_close, go_on};

static struct ep_world *world_of(int32_t num_ranks, int32_t num_nodes, int64_t hidden)
{
    const struct ep_case spec = {.seed = 80,
                                 .num_ranks = num_ranks,
                                 .num_nodes = num_nodes,
                                 .max_tokens = 16,
                                 .num_topk = 3,
                                 .num_experts = 8,
                                 .num_blocks = 2,
                                 .num_warps = 2,
                                 .num_staging_slots = 2,
                                 .staging_slot_bytes = hidden == LARGE_HIDDEN ? 1 << 19 : 1 << 17};
    return ep_world_create(&spec);
}

static void run(int operation, int64_t hidden, struct victim_plan strike)
{
    const int has_nodes = strike.num_nodes > 1;
    struct plan plan = {.strike = strike,
                        .operation = (enum ep_operation)operation,
                        .hidden = hidden,
                        .world = world_of(NUM_RANKS, has_nodes ? strike.num_nodes : 1, hidden),
                        .survivors = world_of(NUM_RANKS - 1, has_nodes ? NUM_RANKS - 1 : 1, 40)};
    plan.strike.subject = &subject;
    plan.strike.name = plan.strike.named = ep_operation_name(plan.operation);
    plan.strike.variant = hidden == LARGE_HIDDEN ? "of large rows" : NULL;
    victim_run(&plan, NUM_RANKS);
    ep_world_destroy(plan.world);
    ep_world_destroy(plan.survivors);
}

/* ---------------------------------------------------------------- killed */

TEST(killed_before_each_operation)
{
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++)
        run(operation, 64, (struct victim_plan){.victim = operation % NUM_RANKS});
}

TEST(killed_in_the_middle_of_large_rows)
{
    for (int i = 0; i < 2; i++)
        for (int32_t victim = tests_rounds(0, 3 * i); victim < NUM_RANKS;
             victim += tests_rounds(3, NUM_RANKS))
            run(i == 0 ? EP_DISPATCH : EP_COMBINE, LARGE_HIDDEN,
                (struct victim_plan){
                    .victim = victim, .moment = VICTIM_AT_RANDOM, .seed = (uint64_t)victim});
}

TEST(killed_at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(8, 1), 1); seed++)
        for (int operation = 0; operation < EP_NUM_OPERATIONS; operation += tests_rounds(1, 2))
            run(operation, 16,
                (struct victim_plan){.victim = (seed + operation) % NUM_RANKS,
                                     .moment = VICTIM_AT_RANDOM,
                                     .seed = 100 + (uint64_t)seed});
}

/* The rendezvous dies with the rank that made the id. */
TEST(killed_together_with_the_rendezvous)
{
    run(EP_DISPATCH, 16, (struct victim_plan){.id = RANKS_ID_BY_RANK_0});
    run(EP_BARRIER, 16,
        (struct victim_plan){.id = RANKS_ID_BY_RANK_0, .moment = VICTIM_AT_RANDOM, .seed = 5});
}

/* Those of the other node learn of it, too. */
TEST_OVER_ENGINES(killed_in_one_of_two_nodes)
{
    for (int operation = 0; operation < EP_BARRIER; operation++) {
        run(operation, 64,
            (struct victim_plan){
                .victim = (operation + 1) % NUM_RANKS, .num_nodes = 2, .engine = engine});
        for (int32_t seed = 0; seed < tests_grid_size(3, 1); seed++)
            run(operation, seed == 0 ? LARGE_HIDDEN : 64,
                (struct victim_plan){.victim = (seed + operation) % NUM_RANKS,
                                     .moment = VICTIM_AT_RANDOM,
                                     .seed = 300 + (uint64_t)seed,
                                     .num_nodes = 2,
                                     .engine = engine});
    }
}

/* ---------------------------------------------------------------- stopped */

static void stop(int operation, int64_t hidden, struct victim_plan strike)
{
    strike.fault = VICTIM_IS_STOPPED;
    run(operation, hidden, strike);
}

TEST(stopped_before_each_operation)
{
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++)
        stop(operation, 16, (struct victim_plan){.victim = (operation + 2) % NUM_RANKS});
}

static const enum victim_moment behind[] = {VICTIM_BEHIND_ANOTHER, VICTIM_BEHIND_THE_LAST};

TEST(stopped_behind_another_rank)
{
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < tests_rounds(EP_BARRIER, 1); i++)
            stop((2 + b + i) % EP_BARRIER, 16,
                 (struct victim_plan){.victim = 2, .moment = behind[b]});
}

TEST(stopped_at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(2, 1), 1); seed++)
        for (int operation = 0; operation < EP_NUM_OPERATIONS; operation += tests_rounds(1, 2))
            stop(operation, seed % 2 == 0 ? 16 : 20000,
                 (struct victim_plan){.victim = (seed + operation) % NUM_RANKS,
                                      .moment = VICTIM_AT_RANDOM,
                                      .seed = 200 + (uint64_t)seed});
}

/* The rendezvous is stopped with the rank that made the id: nobody can be asked. */
TEST(stopped_together_with_the_rendezvous)
{
    for (int moment = VICTIM_BEFORE; moment <= VICTIM_BEHIND_ANOTHER; moment += tests_rounds(1, 2))
        stop(EP_DISPATCH, 16,
             (struct victim_plan){
                 .moment = (enum victim_moment)moment, .seed = 7, .id = RANKS_ID_BY_RANK_0});
}

/* Those of the other node name the rank, too, also where their partners wait for it. Not over UCX
 * in the middle of rows: from 1.16 on it may end the process when a stopped peer times out. */
TEST(stopped_in_one_of_two_nodes)
{
    if (!tests_network_is_there("tcp"))
        skip();
    struct victim_plan strike = {.num_nodes = 2, .engine = "tcp"};
    for (strike.victim = 1; strike.victim <= EP_BARRIER; strike.victim++)
        stop(strike.victim - 1, 16, strike);
    strike.victim = 2;
    for (int b = 0; b < 2; b++) {
        strike.moment = behind[b];
        stop(EP_DISPATCH, 16, strike);
    }
    strike.moment = VICTIM_AT_RANDOM;
    strike.seed = 400;
    for (strike.victim = EP_DISPATCH; strike.victim <= EP_COMBINE; strike.victim++)
        stop(strike.victim, 20000, strike);
}

/* ---------------------------------------------------------------- missed */

static void miss(enum victim_fault fault, enum ranks_mode mode, int32_t num_nodes)
{
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++)
        run(operation, 8,
            (struct victim_plan){
                .fault = fault, .victim = 1, .mode = mode, .num_nodes = num_nodes});
}

TEST(missed_in_vain)
{
    for (int fault = VICTIM_STAYS_AWAY; fault <= VICTIM_SEES_AN_ABORT; fault++) {
        miss((enum victim_fault)fault, RANKS_THREADS, 1);
        miss((enum victim_fault)fault, RANKS_PROCESSES, 1);
    }
}

/* Where each rank is a node, and waits for those alone that send it something: all. */
TEST_OVER(missed_over_nodes, "auto")
{
    miss(VICTIM_STAYS_AWAY, RANKS_PROCESSES, NUM_RANKS);
    miss(VICTIM_SEES_AN_ABORT, RANKS_THREADS, NUM_RANKS);
    miss(VICTIM_ABORTS, RANKS_PROCESSES, NUM_RANKS);
    miss(VICTIM_LEAVES, RANKS_THREADS, NUM_RANKS);
    miss(VICTIM_LEAVES, RANKS_PROCESSES, NUM_RANKS);
}
