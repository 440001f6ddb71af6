/* SPDX-License-Identifier: MIT */
/* A rank is stopped (SIGSTOP) for longer than the deadline. Every survivor names that rank, also one
 * that waits only for another survivor, and also when others have given up and left before. Then the
 * stopped rank goes on, and everybody can destroy everything. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"

enum { NUM_RANKS = 4, LONG_TIMEOUT_MS = 30000 };

/* What the front rank does. */
enum front {
    FRONT_LIKE_OTHERS,
    FRONT_IS_LAST /* it gives up when the others have given up and left */
};

struct plan {
    enum ep_operation operation;
    struct victim_plan strike;
    enum front front;
    enum ranks_id id;
    int64_t hidden;
    const char *engine; /* of the network between two nodes; NULL: there is one node */
    struct ep_world *world;
};

static int is_front(const struct plan *plan, int32_t rank)
{
    return rank == victim_front_of(&plan->strike);
}

/* With a longer timeout the front rank is the last to give up. */
static uint32_t timeout_ms_of(const struct plan *plan, int32_t rank)
{
    if (plan->front == FRONT_IS_LAST && is_front(plan, rank))
        return LONG_TIMEOUT_MS;
    /* The driver makes processes wait for each other's memory calls. */
    return tests_deadline_ms((uint32_t)tests_rounds(1000, 2000));
}

static int open_all(struct ep_rank *self, struct ranks_context *context, const struct plan *plan)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = timeout_ms_of(plan, context->rank);
    config.num_nodes = plan->world->spec.num_nodes;
    if (ranks_warm_up(context) ||
        ep_rank_open_with(self, context, &config,
                          ep_buffers_arena_bytes(plan->world, plan->hidden)))
        return 1;
    return ep_rank_enter(self, plan->world) || ep_route(self);
}

static int live_through_a_stall(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_seat seat;
    struct ep_rank self;
    if (open_all(&self, context, plan) || ep_seat_open(&seat, &self, plan->operation, plan->hidden))
        return 1;
    const struct victim_seat struck = ep_seat_of_victim(&seat);
    return victim_survive_stall(&struck, &plan->strike);
}

static void run(struct plan plan)
{
    const struct ep_case spec = {.seed = 85,
                                 .num_ranks = NUM_RANKS,
                                 .num_nodes = plan.engine != NULL ? 2 : 1,
                                 .max_tokens = 16,
                                 .num_topk = 3,
                                 .num_experts = 8,
                                 .num_blocks = 2,
                                 .num_warps = 2,
                                 .num_staging_slots = 2,
                                 .staging_slot_bytes = 1 << 17};
    plan.world = ep_world_create(&spec);
    if (plan.engine != NULL)
        setenv("WEFT_NET", plan.engine, 1);
    struct ranks_options options = victim_options(NUM_RANKS, 0, &plan, sizeof plan);
    options.id = plan.id;
    if (ranks_run_with(&options, live_through_a_stall) != 0)
        fail_msg("%s, moment %d, front %d, victim %d, seed %llu, engine %s",
                 ep_operation_name(plan.operation), (int)plan.strike.moment, (int)plan.front,
                 plan.strike.victim, (unsigned long long)plan.strike.seed,
                 plan.engine != NULL ? plan.engine : "none");
    unsetenv("WEFT_NET");
    ep_world_destroy(plan.world);
}

TEST(before_each_operation)
{
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++)
        run((struct plan){.operation = (enum ep_operation)operation,
                          .strike = {(operation + 2) % NUM_RANKS, VICTIM_BEFORE, 0},
                          .hidden = 16});
}

static const enum front fronts[] = {FRONT_LIKE_OTHERS, FRONT_IS_LAST};

TEST(behind_another_rank)
{
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < tests_rounds(EP_BARRIER, 1); i++)
            run((struct plan){.operation = (enum ep_operation)((2 + f + i) % EP_BARRIER),
                              .strike = {2, VICTIM_BEHIND_ANOTHER, 0},
                              .front = fronts[f],
                              .hidden = 16});
}

TEST(at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(2, 1), 1); seed++)
        for (int operation = 0; operation < EP_NUM_OPERATIONS; operation += tests_rounds(1, 2))
            run((struct plan){
                .operation = (enum ep_operation)operation,
                .strike = {(seed + operation) % NUM_RANKS, VICTIM_AT_RANDOM, 200 + (uint64_t)seed},
                .hidden = seed % 2 == 0 ? 16 : 20000});
}

/* The rendezvous is stopped with the rank that made the id: nobody can be asked. */
TEST(together_with_the_rendezvous)
{
    for (int moment = VICTIM_BEFORE; moment <= VICTIM_BEHIND_ANOTHER; moment += tests_rounds(1, 2))
        run((struct plan){.operation = EP_DISPATCH,
                          .strike = {0, (enum victim_moment)moment, 7},
                          .id = RANKS_ID_BY_RANK_0,
                          .hidden = 16});
}

/* Those of the other node name the rank, too, also where their partners wait for it. */
TEST(in_one_of_two_nodes)
{
    if (!tests_network_is_there("tcp"))
        skip();
    for (int operation = 0; operation < EP_BARRIER; operation++)
        run((struct plan){.engine = "tcp",
                          .operation = (enum ep_operation)operation,
                          .strike = {1 + operation, VICTIM_BEFORE, 0},
                          .hidden = 16});
    for (int f = 0; f < 2; f++)
        run((struct plan){.engine = "tcp",
                          .operation = EP_DISPATCH,
                          .strike = {2, VICTIM_BEHIND_ANOTHER, 0},
                          .front = fronts[f],
                          .hidden = 16});
}

/* Not over UCX: from 1.16 on it may end the process when a peer that is stopped times out. */
TEST(in_the_middle_of_rows)
{
    if (!tests_network_is_there("tcp"))
        skip();
    for (int operation = EP_DISPATCH; operation <= EP_COMBINE; operation++)
        run((struct plan){.engine = "tcp",
                          .operation = (enum ep_operation)operation,
                          .strike = {operation, VICTIM_AT_RANDOM, 400},
                          .hidden = 20000});
}
