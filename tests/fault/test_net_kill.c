/* SPDX-License-Identifier: MIT */
/* A rank is killed, or stopped, in the middle of barriers between nodes. Every survivor learns of it by number, gets
 * rid of its communicator, and goes on with one of the survivors. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/stock.h"
#include "harness/victim.h"

enum { NUM_RANKS = 4, MAX_BARRIERS = 1000000 };

struct plan {
    const char *engine;
    int32_t num_nodes, victim;
    int signal;
    uint64_t seed;
};

struct party {
    weft_comm *comm;
    weft_stream *stream;
};

static int open_party(struct ranks_context *context, int32_t num_nodes, struct party *party)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = num_nodes;
    CHECK_OK(ranks_comm_create(context, &config, &party->comm));
    CHECK_OK(weft_stream_create(party->comm, &party->stream));
    return 0;
}

static int close_party(struct party *party)
{
    CHECK_OK(weft_stream_destroy(party->stream));
    CHECK_OK(weft_comm_destroy(party->comm));
    return 0;
}

static weft_result meet(struct party *party, int num_barriers)
{
    weft_result result = WEFT_OK;
    for (int i = 0; i < num_barriers && result == WEFT_OK; i++) {
        result = weft_comm_barrier(party->comm, party->stream);
        if (result == WEFT_OK)
            result = weft_stream_synchronize(party->stream);
    }
    return result;
}

static int begin_anew(struct ranks_context *context)
{
    struct party party;
    if (open_party(context, NUM_RANKS - 1, &party) != 0)
        return 1;
    CHECK_OK(meet(&party, 20));
    return close_party(&party);
}

static int check_blame(struct ranks_context *context, const struct plan *plan, weft_comm *comm,
                       weft_result result)
{
    if (plan->signal == SIGKILL)
        return victim_check_death(context, comm, result);
    CHECK(result == WEFT_ERROR_RANK_FAILED, "%s", weft_last_error());
    return victim_check_blamed(context, comm, WEFT_ERROR_RANK_FAILED);
}

static int survive(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct party party;
    setenv("WEFT_NET", plan->engine, 1);
    setenv("WEFT_HEARTBEAT_MS", plan->signal == SIGSTOP ? "500" : "10000", 1);
    CHECK_OK(tests_warm_up(&context->id));
    const struct stock before = stock_take();
    if (open_party(context, plan->num_nodes, &party) != 0)
        return 1;
    CHECK_OK(meet(&party, 20));
    victim_choose(context, plan->victim);
    if (victim_is_self(context) && victim_strike_later(context, plan->signal, plan->seed))
        return 1;
    const weft_result result = meet(&party, MAX_BARRIERS);
    if (victim_is_self(context)) { /* it was stopped, and is awake again */
        CHECK(result != WEFT_OK, "nobody missed it");
        victim_await_strike(context);
        return close_party(&party);
    }
    if (check_blame(context, plan, party.comm, result) || close_party(&party))
        return 1;
    if (plan->signal == SIGSTOP) {
        victim_leave(context);
        return 0;
    }
    /* UCX keeps threads and descriptors of its own. */
    if (strcmp(plan->engine, "ucx") != 0 && stock_check(before, stock_take()) != 0)
        return 1;
    return victim_go_on_without(context, begin_anew);
}

static void run(struct plan plan)
{
    const struct ranks_options options =
        victim_options(NUM_RANKS, 1u << plan.victim, &plan, sizeof plan);
    if (ranks_run_with(&options, survive) != 0)
        fail_msg("%s, %d nodes, victim %d, signal %d, seed %llu", plan.engine, plan.num_nodes,
                 plan.victim, plan.signal, (unsigned long long)plan.seed);
}

TEST_OVER_ENGINES(killed)
{
    for (int32_t victim = 0; victim < NUM_RANKS; victim++)
        run((struct plan){.engine = engine,
                          .num_nodes = victim % 2 == 0 ? 2 : 4,
                          .victim = victim,
                          .signal = SIGKILL,
                          .seed = 50 + (uint64_t)victim});
}

/* What the engines do not notice, the heartbeat does. */
TEST(stopped)
{
    if (!tests_network_is_there("tcp"))
        skip();
    run((struct plan){.engine = "tcp", .num_nodes = 4, .victim = 0, .signal = SIGSTOP});
    if (tests_network_is_there("ucx"))
        run((struct plan){.engine = "ucx", .num_nodes = 2, .victim = 1, .signal = SIGSTOP});
}
