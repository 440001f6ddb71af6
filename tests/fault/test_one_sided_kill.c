/* SPDX-License-Identifier: MIT */
/* A rank is killed in the middle of one-sided operations, of its own node's ranks and of others. Every survivor learns
 * of it by number, from the rendezvous or from the network. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "workload/try.h"

enum { NUM_RANKS = 4, ROW_BYTES = 3000 };

struct plan {
    const char *engine; /* NULL: one node */
    int32_t num_nodes;
    struct victim_plan strike;
};

struct area {
    uint64_t num_rows, num_tickets, ticket;
    unsigned char row[ROW_BYTES], source[ROW_BYTES], fetched[ROW_BYTES];
};

struct party {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    struct area *area;
    uint64_t num_rounds;
};

static int open_party(struct ranks_context *context, int32_t num_nodes, struct party *party)
{
    static const struct area zeroes;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    void *area;
    config.num_nodes = num_nodes;
    CHECK_OK(ranks_comm_create(context, &config, &party->comm));
    CHECK_OK(weft_stream_create(party->comm, &party->stream));
    CHECK_OK(weft_heap_alloc(party->comm, sizeof zeroes, &area));
    CHECK_OK(weft_memory_copy(party->comm, area, &zeroes, sizeof zeroes));
    CHECK_OK(weft_host_barrier(party->comm));
    party->area = area;
    return 0;
}

static int close_party(struct party *party)
{
    CHECK_OK(weft_stream_destroy(party->stream));
    CHECK_OK(weft_heap_free(party->comm, party->area));
    CHECK_OK(weft_comm_destroy(party->comm));
    return 0;
}

/* With the next rank, the one before, and that across. */
static weft_result enqueue(const struct ranks_context *context, struct party *party)
{
    struct area *area = party->area;
    weft_comm *comm = party->comm;
    weft_stream *stream = party->stream;
    const int32_t next = (context->rank + 1) % context->num_ranks;
    const int32_t across = (context->rank + 2) % context->num_ranks;
    const int32_t previous = (context->rank + context->num_ranks - 1) % context->num_ranks;
    TRY(weft_rma_put_signal(comm,
                            WEFT_ARGS(weft_rma_args, .dst = area->row, .src = area->source,
                                      .bytes = ROW_BYTES, .word = &area->num_rows, .value = 1,
                                      .rank = next),
                            stream));
    TRY(weft_rma_get(comm,
                     WEFT_ARGS(weft_rma_args, .dst = area->fetched, .src = area->source,
                               .bytes = ROW_BYTES, .rank = across),
                     stream));
    TRY(weft_rma_fetch_add(comm,
                           WEFT_ARGS(weft_rma_args, .before = &area->ticket,
                                     .word = &area->num_tickets, .value = 1, .rank = previous),
                           stream));
    TRY(weft_rma_quiet(comm, stream));
    return weft_rma_wait_until(
        comm, WEFT_ARGS(weft_rma_args, .word = &area->num_rows, .value = ++party->num_rounds),
        stream);
}

static weft_result issue(void *self)
{
    struct party *party = self;
    return enqueue(party->context, party);
}

static int survive(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct party party = {.context = context};
    if (plan->engine != NULL)
        setenv("WEFT_NET", plan->engine, 1);
    if (open_party(context, plan->num_nodes, &party) != 0)
        return 1;
    for (int round = 0; round < 20; round++)
        CHECK_OK(enqueue(context, &party));
    CHECK_OK(weft_stream_synchronize(party.stream));
    const struct victim_seat seat = {.context = context,
                                     .comm = party.comm,
                                     .stream = party.stream,
                                     .issue = issue,
                                     .self = &party};
    return victim_survive_death(&seat, &plan->strike) || close_party(&party);
}

static void run(struct plan plan)
{
    const struct ranks_options options =
        victim_options(NUM_RANKS, 1u << plan.strike.victim, &plan, sizeof plan);
    if (ranks_run_with(&options, survive) != 0)
        fail_msg("%s, %d nodes, victim %d, seed %llu", plan.engine != NULL ? plan.engine : "-",
                 plan.num_nodes, plan.strike.victim, (unsigned long long)plan.strike.seed);
}

TEST(killed_on_one_node)
{
    for (int32_t victim = 0; victim < NUM_RANKS; victim++)
        run((struct plan){.num_nodes = 1,
                          .strike = {victim, VICTIM_AT_RANDOM, 70 + (uint64_t)victim}});
}

TEST_OVER_ENGINES(killed)
{
    for (int32_t victim = 0; victim < NUM_RANKS; victim++)
        run((struct plan){.engine = engine,
                          .num_nodes = victim % 2 == 0 ? 2 : 4,
                          .strike = {victim, VICTIM_AT_RANDOM, 80 + (uint64_t)victim}});
}
