/* SPDX-License-Identifier: MIT */
/* A rank is killed (SIGKILL) before or during an operation. Every survivor learns of it by number
 * within two seconds, gets rid of its objects without leaving anything behind, and goes on with a
 * communicator of the survivors. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/stock.h"
#include "harness/victim.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"

enum { NUM_RANKS = 4 };

struct plan {
    enum ep_operation operation;
    enum ranks_id id;
    struct victim_plan strike;
    int64_t hidden;             /* large: the kill falls into the middle of moving rows */
    const char *engine;         /* of the network between two nodes; NULL: there is one node */
    struct ep_world *world;     /* of all */
    struct ep_world *survivors; /* of one less */
};

/* From now on everything fails at once. */
static int check_calls_fail(struct ep_rank *self)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    CHECK_ERROR(weft_comm_barrier(self->comm, self->stream), WEFT_ERROR_RANK_FAILED, "died");
    CHECK_ERROR(weft_host_barrier(self->comm), WEFT_ERROR_RANK_FAILED, "died");
    CHECK_ERROR(weft_ep_wait_counts(self->handle, &counts), WEFT_ERROR_RANK_FAILED, "died");
    return 0;
}

static int begin(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(100);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, 40);
    struct ep_rank self;
    return ep_rank_open(&self, context, plan->survivors->spec.num_nodes, 1 << 20) ||
           ep_check_world(&self, plan->survivors, &dispatch, &combine) || ep_rank_close(&self);
}

static int survive(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_seat seat;
    struct ep_rank self;
    CHECK_OK(tests_warm_up(&context->id));
    const struct stock before = stock_take();
    if (ep_rank_open(&self, context, plan->world->spec.num_nodes,
                     ep_buffers_arena_bytes(plan->world, plan->hidden)) ||
        ep_rank_enter(&self, plan->world) || ep_route(&self) ||
        ep_seat_open(&seat, &self, plan->operation, plan->hidden))
        return 1;
    const struct victim_seat struck = ep_seat_of_victim(&seat);
    if (victim_survive_death(&struck, &plan->strike) || check_calls_fail(&self) ||
        ep_seat_close(&seat))
        return 1;
    /* UCX keeps threads and descriptors of its own. */
    if ((plan->engine == NULL || strcmp(plan->engine, "ucx") != 0) &&
        stock_check(before, stock_take()))
        return 1;
    return victim_go_on_without(context, begin);
}

static struct ep_world *world_of(int32_t num_ranks, int32_t num_nodes)
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
                                 .staging_slot_bytes = 1 << 19};
    return ep_world_create(&spec);
}

static void run(struct plan plan)
{
    plan.world = world_of(NUM_RANKS, plan.engine != NULL ? 2 : 1);
    plan.survivors = world_of(NUM_RANKS - 1, plan.engine != NULL ? NUM_RANKS - 1 : 1);
    if (plan.engine != NULL)
        setenv("WEFT_NET", plan.engine, 1);
    struct ranks_options options =
        victim_options(NUM_RANKS, 1u << plan.strike.victim, &plan, sizeof plan);
    options.id = plan.id;
    if (ranks_run_with(&options, survive) != 0)
        fail_msg("%s, victim %d, hidden %lld, seed %llu, engine %s",
                 ep_operation_name(plan.operation), plan.strike.victim, (long long)plan.hidden,
                 (unsigned long long)plan.strike.seed, plan.engine != NULL ? plan.engine : "none");
    unsetenv("WEFT_NET");
    ep_world_destroy(plan.world);
    ep_world_destroy(plan.survivors);
}

TEST(before_each_operation)
{
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++)
        run((struct plan){.operation = (enum ep_operation)operation,
                          .strike = {operation % NUM_RANKS, VICTIM_BEFORE, 0},
                          .hidden = 64});
}

TEST(in_the_middle_of_large_rows)
{
    const enum ep_operation operations[] = {EP_DISPATCH, EP_COMBINE};
    for (int i = 0; i < 2; i++)
        for (int32_t victim = tests_rounds(0, 3 * i); victim < NUM_RANKS;
             victim += tests_rounds(3, NUM_RANKS))
            run((struct plan){.operation = operations[i],
                              .strike = {victim, VICTIM_AT_RANDOM, (uint64_t)victim},
                              .hidden = 100000});
}

TEST(at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(8, 1), 1); seed++)
        for (int operation = 0; operation < EP_NUM_OPERATIONS; operation += tests_rounds(1, 2))
            run((struct plan){
                .operation = (enum ep_operation)operation,
                .strike = {(seed + operation) % NUM_RANKS, VICTIM_AT_RANDOM, 100 + (uint64_t)seed},
                .hidden = 16});
}

/* The rendezvous dies with the rank that made the id. */
TEST(together_with_the_rendezvous)
{
    run((struct plan){.operation = EP_DISPATCH,
                      .strike = {0, VICTIM_BEFORE, 0},
                      .id = RANKS_ID_BY_RANK_0,
                      .hidden = 16});
    run((struct plan){.operation = EP_BARRIER,
                      .strike = {0, VICTIM_AT_RANDOM, 5},
                      .id = RANKS_ID_BY_RANK_0,
                      .hidden = 16});
}

/* Those of the other node learn of it, too. */
TEST_OVER_ENGINES(in_one_of_two_nodes)
{
    for (int operation = 0; operation < EP_BARRIER; operation++) {
        struct plan plan = {.engine = engine,
                            .operation = (enum ep_operation)operation,
                            .strike = {(operation + 1) % NUM_RANKS, VICTIM_BEFORE, 0},
                            .hidden = 64};
        run(plan);
        for (int32_t seed = 0; seed < tests_grid_size(3, 1); seed++) {
            plan.strike = (struct victim_plan){(seed + operation) % NUM_RANKS, VICTIM_AT_RANDOM,
                                               300 + (uint64_t)seed};
            plan.hidden = seed == 0 ? 100000 : 64;
            run(plan);
        }
    }
}
