/* SPDX-License-Identifier: MIT */
/* A rank is stopped (SIGSTOP) for longer than the deadline. Every survivor names that rank, also one
 * that waits only for another survivor, and also when others have given up and left before. Then the
 * stopped rank goes on, and everybody can destroy everything. */
#include <stdlib.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"

enum { NUM_RANKS = 4, MAX_OPERATIONS = 1000000, LONG_TIMEOUT_MS = 30000 };

enum moment {
    BEFORE_OPERATION, /* the others wait for it to start */
    AT_RANDOM,        /* while the operation is repeated */
    BEHIND_ANOTHER,   /* the front rank waits for rank 1, which waits for the stopped one */
    BEHIND_A_LEAVER,  /* the same, and rank 1 gives up and leaves before the front rank does */
    IN_HOST_BARRIER   /* the front rank is in one, the others wait for the stopped one */
};

struct plan {
    enum ep_operation operation;
    enum moment moment;
    enum ranks_id id;
    int32_t victim;
    int64_t hidden;
    uint64_t seed;
    const char *engine; /* of the network between two nodes; NULL: there is one node */
    struct ep_world *world;
};

static int32_t front_of(const struct plan *plan)
{
    return plan->victim == 0 ? 2 : 0;
}

/* The front rank is the last to give up behind a leaver, and the first in a host barrier. */
static uint32_t timeout_ms_of(const struct plan *plan, int32_t rank)
{
    const int is_front = rank == front_of(plan);
    if ((plan->moment == BEHIND_A_LEAVER && is_front) ||
        (plan->moment == IN_HOST_BARRIER && !is_front))
        return LONG_TIMEOUT_MS;
    /* The driver makes processes wait for each other's memory calls. */
    return tests_deadline_ms((uint32_t)tests_rounds(1000, 2000));
}

static void pause_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
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

/* The stopped rank has an error of its own when it goes on, or none. */
static int close_all(struct ep_rank *self, struct ep_buffers *buffers)
{
    (void)weft_stream_synchronize(self->stream);
    if (ep_buffers_destroy(self, buffers))
        return 1;
    RANK_CHECK_OK(self->context, weft_ep_handle_destroy(self->handle));
    RANK_CHECK_OK(self->context, weft_ep_destroy(self->ep));
    return ep_rank_close(self);
}

static int check_failure(struct ep_rank *self, const struct plan *plan, weft_result result)
{
    RANK_CHECK(self->context, result == WEFT_ERROR_TIMEOUT, "\"%s\" during %s: %s",
               weft_result_string(result), ep_operation_name(plan->operation), weft_last_error());
    return victim_check_blamed(self->context, self->comm, WEFT_ERROR_TIMEOUT);
}

/* The operation waits for the victim. The front rank is in a barrier before, on another stream: there it
 * waits for rank 1, which is in the operation and not in the barrier. */
static weft_result run_behind_another(struct ep_rank *self, const struct plan *plan,
                                      const struct ep_buffers *buffers)
{
    const int32_t rank = self->context->rank;
    weft_stream *other;
    weft_result result = weft_stream_create(self->comm, &other);
    if (result != WEFT_OK)
        return result;
    if (rank == front_of(plan) || rank == plan->victim) {
        result = weft_comm_barrier(self->comm, other);
        pause_ms(200); /* so that its deadline passes first */
    }
    if (rank == plan->victim)
        victim_strike(self->context, SIGSTOP);
    if (result == WEFT_OK)
        result = ep_operation_issue(self, buffers, plan->operation);
    const weft_result waited = weft_stream_synchronize(other);
    result = result == WEFT_OK ? waited : result;
    const weft_result worked = weft_stream_synchronize(self->stream);
    (void)weft_stream_destroy(other);
    return result == WEFT_OK ? worked : result;
}

static weft_result run_until_failure(struct ep_rank *self, const struct plan *plan,
                                     const struct ep_buffers *buffers)
{
    weft_result result = WEFT_OK;
    if (plan->moment == IN_HOST_BARRIER && self->context->rank == front_of(plan))
        return weft_host_barrier(self->comm);
    if (plan->moment == BEHIND_ANOTHER || plan->moment == BEHIND_A_LEAVER)
        return run_behind_another(self, plan, buffers);
    for (int i = 0; i < MAX_OPERATIONS && result == WEFT_OK; i++)
        result = ep_operation_run(self, buffers, plan->operation);
    return result;
}

static int be_stopped(struct ep_rank *self, const struct plan *plan, struct ep_buffers *buffers)
{
    if (plan->moment == AT_RANDOM) {
        if (victim_strike_later(self->context, SIGSTOP, plan->seed))
            return 1;
        (void)run_until_failure(self, plan, buffers);
        victim_await_strike(self->context);
    } else if (plan->moment == BEFORE_OPERATION || plan->moment == IN_HOST_BARRIER) {
        victim_strike(self->context, SIGSTOP);
    } else {
        (void)run_behind_another(self, plan, buffers);
    }
    return close_all(self, buffers);
}

/* A survivor leaves as soon as it knows, while others may still wait. */
static int live_through_a_stall(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_buffers buffers;
    struct ep_rank self;
    if (open_all(&self, context, plan) || ep_buffers_create(&self, plan->hidden, &buffers))
        return 1;
    RANK_CHECK_OK(context, ep_operation_run(&self, &buffers, plan->operation));
    victim_choose(context, plan->victim);
    if (victim_is_self(context))
        return be_stopped(&self, plan, &buffers);
    const weft_result result = run_until_failure(&self, plan, &buffers);
    const int failed = check_failure(&self, plan, result) || close_all(&self, &buffers);
    victim_leave(context);
    return failed;
}

static void run(struct plan plan)
{
    const struct ep_case spec = {.index_type = WEFT_INT32,
                                 .seed = 85,
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
        fail_msg("%s, moment %d, victim %d, seed %llu, engine %s",
                 ep_operation_name(plan.operation), (int)plan.moment, plan.victim,
                 (unsigned long long)plan.seed, plan.engine != NULL ? plan.engine : "none");
    unsetenv("WEFT_NET");
    ep_world_destroy(plan.world);
}

TEST(before_each_operation)
{
    for (int operation = 0; operation < EP_NUM_OPERATIONS; operation++)
        run((struct plan){.operation = (enum ep_operation)operation,
                          .moment = BEFORE_OPERATION,
                          .victim = (operation + 2) % NUM_RANKS,
                          .hidden = 16});
}

TEST(behind_another_rank)
{
    for (int moment = BEHIND_ANOTHER; moment <= BEHIND_A_LEAVER; moment++)
        for (int i = 0; i < tests_rounds(EP_BARRIER, 1); i++)
            run((struct plan){.operation = (enum ep_operation)((moment + i) % EP_BARRIER),
                              .moment = (enum moment)moment,
                              .victim = 2,
                              .hidden = 16});
}

TEST(in_a_host_barrier)
{
    run((struct plan){
        .operation = EP_DISPATCH, .moment = IN_HOST_BARRIER, .victim = 3, .hidden = 16});
}

TEST(at_random_moments)
{
    for (int32_t seed = 0; seed < tests_rounds(tests_grid_size(2, 1), 1); seed++)
        for (int operation = 0; operation < EP_NUM_OPERATIONS; operation += tests_rounds(1, 2))
            run((struct plan){.operation = (enum ep_operation)operation,
                              .moment = AT_RANDOM,
                              .victim = (seed + operation) % NUM_RANKS,
                              .hidden = seed % 2 == 0 ? 16 : 20000,
                              .seed = 200 + (uint64_t)seed});
}

/* The rendezvous is stopped with the rank that made the id: nobody can be asked. */
TEST(together_with_the_rendezvous)
{
    for (int moment = BEFORE_OPERATION; moment <= BEHIND_ANOTHER; moment += tests_rounds(1, 2))
        run((struct plan){.operation = EP_DISPATCH,
                          .moment = (enum moment)moment,
                          .id = RANKS_ID_BY_RANK_0,
                          .victim = 0,
                          .hidden = 16,
                          .seed = 7});
}

/* Those of the other node name the rank, too, also where their partners wait for it. */
TEST(in_one_of_two_nodes)
{
    if (!tests_network_is_there("tcp"))
        skip();
    for (int operation = 0; operation < EP_BARRIER; operation++)
        run((struct plan){.engine = "tcp",
                          .operation = (enum ep_operation)operation,
                          .moment = BEFORE_OPERATION,
                          .victim = 1 + operation,
                          .hidden = 16});
    for (int moment = BEHIND_ANOTHER; moment <= BEHIND_A_LEAVER; moment++)
        run((struct plan){.engine = "tcp",
                          .operation = EP_DISPATCH,
                          .moment = (enum moment)moment,
                          .victim = 2,
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
                          .moment = AT_RANDOM,
                          .victim = operation,
                          .hidden = 20000,
                          .seed = 400});
}
