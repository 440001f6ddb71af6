/* SPDX-License-Identifier: MIT */
/* A rank is killed, or stopped, in the middle of barriers or of one-sided operations, with ranks of
 * its own node and of others. Every survivor learns of it by number, from the rendezvous or from
 * the network, gets rid of its communicator, and goes on with one of the survivors. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "workload/try.h"

enum { NUM_RANKS = 4, ROW_BYTES = 3000, ROUNDS_BEFORE = 20 };

struct area {
    uint64_t num_rows, num_tickets, ticket;
    unsigned char row[ROW_BYTES], source[ROW_BYTES], fetched[ROW_BYTES];
};

struct party {
    weft_comm *comm;
    weft_stream *stream;
    struct area *area;
    uint64_t num_rounds;
};

static weft_result meet(void *self)
{
    struct party *party = self;
    return weft_comm_barrier(party->comm, party->stream);
}

/* With the next rank, the one before, and that across. */
static weft_result access_others(void *self)
{
    struct party *party = self;
    struct area *area = party->area;
    weft_comm *comm = party->comm;
    weft_stream *stream = party->stream;
    const int32_t rank = weft_comm_rank(comm), num_ranks = weft_comm_num_ranks(comm);
    TRY(weft_rma_put_signal(comm,
                            WEFT_ARGS(weft_rma_args, .dst = area->row, .src = area->source,
                                      .bytes = ROW_BYTES, .word = &area->num_rows, .value = 1,
                                      .rank = (rank + 1) % num_ranks),
                            stream));
    TRY(weft_rma_get(comm,
                     WEFT_ARGS(weft_rma_args, .dst = area->fetched, .src = area->source,
                               .bytes = ROW_BYTES, .rank = (rank + 2) % num_ranks),
                     stream));
    TRY(weft_rma_fetch_add(comm,
                           WEFT_ARGS(weft_rma_args, .before = &area->ticket,
                                     .word = &area->num_tickets, .value = 1,
                                     .rank = (rank + num_ranks - 1) % num_ranks),
                           stream));
    TRY(weft_rma_quiet(comm, stream));
    return weft_rma_wait_until(
        comm, WEFT_ARGS(weft_rma_args, .word = &area->num_rows, .value = ++party->num_rounds),
        stream);
}

static int open_party(struct victim_seat *seat)
{
    static const struct area zeroes;
    const struct victim_plan *plan = seat->context->argument;
    struct party *party = seat->self;
    weft_comm_config config = victim_config(seat->context);
    void *area;
    /* What the engines do not notice, the heartbeat does. */
    setenv("WEFT_HEARTBEAT_MS", plan->fault == VICTIM_IS_SILENT ? "500" : "10000", 1);
    if (seat->context->num_ranks < NUM_RANKS)
        config.num_nodes = seat->context->num_ranks;
    CHECK_OK(ranks_comm_create(seat->context, &config, &party->comm));
    CHECK_OK(weft_stream_create(party->comm, &party->stream));
    CHECK_OK(weft_heap_alloc(party->comm, sizeof zeroes, &area));
    CHECK_OK(weft_memory_copy(party->comm, area, &zeroes, sizeof zeroes));
    CHECK_OK(weft_comm_host_barrier(party->comm));
    party->area = area;
    seat->comm = party->comm;
    seat->stream = party->stream;
    for (int round = 0; round < ROUNDS_BEFORE; round++)
        CHECK_OK(plan->subject->issue(party));
    CHECK_OK(weft_stream_synchronize(party->stream));
    return 0;
}

static int close_party(void *self)
{
    struct party *party = self;
    CHECK_OK(weft_stream_destroy(party->stream));
    CHECK_OK(weft_heap_free(party->comm, party->area));
    CHECK_OK(weft_comm_destroy(party->comm));
    return 0;
}

static int go_on(struct ranks_context *context)
{
    struct party self = {0};
    struct victim_seat seat = {.context = context, .self = &self};
    if (open_party(&seat))
        return 1;
    CHECK_OK(weft_comm_host_barrier(self.comm)); /* who leaves answers no more */
    return close_party(&self);
}

static const struct victim_subject barriers = {sizeof(struct party), open_party, meet, NULL,
                                               close_party,          go_on};
static const struct victim_subject accesses = {
    sizeof(struct party), open_party, access_others, NULL, close_party, go_on};

static void run(const struct victim_subject *subject, struct victim_plan strike)
{
    strike.subject = subject;
    strike.name = subject == &barriers ? "barriers" : "one-sided operations";
    strike.moment = VICTIM_AT_RANDOM;
    victim_run_sized(&strike, sizeof strike, NUM_RANKS);
}

TEST(killed_on_one_node)
{
    for (int32_t victim = 0; victim < NUM_RANKS; victim++)
        run(&accesses, (struct victim_plan){.victim = victim, .seed = 70 + (uint64_t)victim});
}

TEST_OVER_ENGINES(killed)
{
    for (int32_t victim = 0; victim < NUM_RANKS; victim++) {
        struct victim_plan strike = {
            .engine = engine, .num_nodes = victim % 2 == 0 ? 2 : 4, .victim = victim};
        strike.seed = 50 + (uint64_t)victim;
        run(&barriers, strike);
        strike.seed = 80 + (uint64_t)victim;
        run(&accesses, strike);
    }
}

TEST(stopped)
{
    if (!tests_network_is_there("tcp"))
        skip();
    run(&barriers,
        (struct victim_plan){.fault = VICTIM_IS_SILENT, .engine = "tcp", .num_nodes = 4});
    if (tests_network_is_there("ucx"))
        run(&barriers,
            (struct victim_plan){
                .fault = VICTIM_IS_SILENT, .engine = "ucx", .num_nodes = 2, .victim = 1});
}
