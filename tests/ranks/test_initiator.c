/* SPDX-License-Identifier: MIT */
/* The initiator of what programs send (WEFT_NET_INITIATOR): the ranks agree, one that there is not
 * is refused, and queues of the model of a NIC carry all that operations send, through a heap that
 * grows. */
#include <stdatomic.h>
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, NUM_NODES = 2, NUM_STEPS = 3, STEP_BYTES = 3 << 20 };

static const weft_comm_config config = {.size = sizeof config,
                                        .num_nodes = NUM_NODES,
                                        .timeout_ms = 300000, /* packets have 256 bytes */
                                        .heap_bytes = 1 << 20,
                                        .heap_max_bytes = 64 << 20};

/* ---------------------------------------------------------------- refusals */

struct refusal {
    const char *name, *value; /* of the last rank, if it is another one */
    const char *engine, *transport;
    weft_result result;
    const char *told, *others_are_told;
};

static int be_refused(struct ranks_context *context)
{
    const struct refusal *refusal = context->argument;
    const int is_odd = context->rank == NUM_RANKS - 1;
    weft_comm *comm;
    setenv("WEFT_NET", refusal->engine, 1);
    setenv("WEFT_NET_TRANSPORT", refusal->transport, 1);
    setenv("WEFT_NET_INITIATOR", is_odd ? refusal->value : refusal->name, 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), refusal->result,
                is_odd ? refusal->told : refusal->others_are_told);
    return 0;
}

#define REFUSED(test, ...)                                                                         \
    TEST(test)                                                                                     \
    {                                                                                              \
        const struct refusal refusal = {__VA_ARGS__};                                              \
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, be_refused, &refusal), 0);          \
    }

#define INITIATORS "WEFT_NET_INITIATOR is host on rank 0 and model on rank 3"
#define LACKS      "WEFT_NET_INITIATOR is gpu; "
#define NO_RDMA    "engine tcp, which has no RDMA; WEFT_NET_TRANSPORT is rdma"
REFUSED(ranks_must_have_the_same, "host", "model", "tcp", "any", WEFT_ERROR_MISMATCH, INITIATORS,
        INITIATORS)
REFUSED(a_gpu_lacks_its_queues, "gpu", "gpu", "tcp", "any", WEFT_ERROR_UNSUPPORTED, LACKS, LACKS)
REFUSED(one_that_lacks_it_is_named, "host", "gpu", "tcp", "any", WEFT_ERROR_UNSUPPORTED, LACKS,
        "rank 3: WEFT_NET_INITIATOR is gpu")
REFUSED(the_model_needs_an_order, "model", "model", "ucx", "any", WEFT_ERROR_UNSUPPORTED,
        "over engine tcp alone; WEFT_NET is ucx", "over engine tcp alone; WEFT_NET is ucx")
REFUSED(the_model_has_no_rdma, "model", "model", "auto", "rdma", WEFT_ERROR_UNSUPPORTED, NO_RDMA,
        NO_RDMA)
REFUSED(the_model_over_tcp_has_no_rdma, "model", "model", "tcp", "rdma", WEFT_ERROR_UNSUPPORTED,
        NO_RDMA, NO_RDMA)

/* ---------------------------------------------------------------- the model carries it */

static int32_t partner_of(const struct ranks_context *context)
{
    return (context->rank + NUM_RANKS / NUM_NODES) % NUM_RANKS;
}

static unsigned char byte_of(int32_t rank, size_t i)
{
    return (unsigned char)(i * 7 + i / 253 + (size_t)rank * 31 + 1);
}

/* A row that is in several steps of the heap at both ends, each at another place. */
static int put_over_steps(struct ranks_context *context, weft_comm *comm, weft_stream *stream)
{
    enum { ROW_BYTES = STEP_BYTES + STEP_BYTES / 2 };
    unsigned char *rows = calloc(2, ROW_BYTES), *area = NULL;
    void *first;
    CHECK(rows != NULL, "no memory");
    CHECK_OK(weft_heap_alloc(comm, STEP_BYTES, &first));
    CHECK_OK(weft_heap_alloc(comm, 2 * ROW_BYTES, (void **)&area));
    for (size_t i = 0; i < ROW_BYTES; i++)
        rows[i] = byte_of(context->rank, i);
    CHECK_OK(weft_memory_copy(comm, area, rows, ROW_BYTES));
    CHECK_OK(weft_rma_put(comm,
                          WEFT_ARGS(weft_rma_args, .dst = area + ROW_BYTES, .src = area,
                                    .bytes = ROW_BYTES, .rank = partner_of(context)),
                          stream));
    CHECK_OK(weft_rma_quiet(comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_memory_copy(comm, rows, area + ROW_BYTES, ROW_BYTES));
    for (size_t i = 0; i < ROW_BYTES; i++)
        CHECK(rows[i] == byte_of(partner_of(context), i), "byte %zu is %d", i, rows[i]);
    free(rows);
    return 0;
}

/* All ranks add to words of rank 0, which is alone on its node: so its NIC makes all adds, its own
 * ones, too, and tickets are taken once each. */
enum { NUM_ROUNDS = 20 };

struct counters {
    uint64_t num_added, num_signalled, num_tickets, num_rows;
    uint64_t tickets[NUM_ROUNDS];
    unsigned char source[100], row[100];
};

static int add_to_all(struct ranks_context *context, weft_comm *comm, weft_stream *stream,
                      struct counters *counters)
{
    for (int round = 0; round < NUM_ROUNDS; round++) {
        CHECK_OK(weft_rma_add(
            comm, WEFT_ARGS(weft_rma_args, .word = &counters->num_added, .value = 1, .rank = 0),
            stream));
        CHECK_OK(weft_rma_signal(
            comm, WEFT_ARGS(weft_rma_args, .word = &counters->num_signalled, .value = 2, .rank = 0),
            stream));
        CHECK_OK(
            weft_rma_fetch_add(comm,
                               WEFT_ARGS(weft_rma_args, .before = &counters->tickets[round],
                                         .word = &counters->num_tickets, .value = 1, .rank = 0),
                               stream));
        CHECK_OK(weft_rma_put_signal(
            comm,
            WEFT_ARGS(weft_rma_args, .dst = counters->row, .src = counters->source,
                      .bytes = sizeof counters->row, .word = &counters->num_rows, .value = 1,
                      .rank = (context->rank + 1) % NUM_RANKS),
            stream));
        CHECK_OK(weft_rma_wait_until(
            comm,
            WEFT_ARGS(weft_rma_args, .word = &counters->num_rows, .value = (uint64_t)round + 1),
            stream));
    }
    CHECK_OK(weft_rma_quiet(comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    return 0;
}

static int check_tickets(struct ranks_context *context, const struct counters *counters)
{
    _Atomic int32_t *taken = context->shared;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        CHECK(counters->tickets[round] < NUM_RANKS * NUM_ROUNDS, "ticket %llu",
              (unsigned long long)counters->tickets[round]);
        CHECK(atomic_fetch_add(&taken[counters->tickets[round]], 1) == 0,
              "ticket %llu is taken twice", (unsigned long long)counters->tickets[round]);
    }
    return 0;
}

static int add_by_nics(struct ranks_context *context)
{
    enum { ADDS = NUM_RANKS * NUM_ROUNDS };
    static const struct counters zeros;
    weft_net_info info = WEFT_INIT(weft_net_info);
    void *memory;
    setenv("WEFT_NET_INITIATOR", "model", 1);
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_RANKS));
    weft_stream *const stream = ranks_stream(context);
    CHECK_OK(weft_heap_alloc(comm, sizeof zeros, &memory));
    struct counters *counters = memory;
    *counters = zeros;
    memset(counters->source, 10 + context->rank, sizeof counters->source);
    CHECK_OK(weft_comm_host_barrier(comm));
    if (add_to_all(context, comm, stream, counters) || check_tickets(context, counters))
        return 1;
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK(context->rank != 0 ||
              (counters->num_added == ADDS && counters->num_signalled == 2 * ADDS &&
               counters->num_tickets == ADDS),
          "%llu adds, %llu signals, %llu tickets", (unsigned long long)counters->num_added,
          (unsigned long long)counters->num_signalled, (unsigned long long)counters->num_tickets);
    for (size_t i = 0; i < sizeof counters->row; i++)
        CHECK(counters->row[i] == 10 + (context->rank + NUM_RANKS - 1) % NUM_RANKS,
              "byte %zu is %d", i, counters->row[i]);
    CHECK_OK(weft_net_query(comm, &info));
    CHECK(info.sent_header_bytes == 0, "%llu bytes of headers: the host has sent",
          (unsigned long long)info.sent_header_bytes);
    return 0;
}

TEST(nics_make_all_adds_where_a_rank_is_alone_on_its_node)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .num_ranks = NUM_RANKS,
                                          .shared_bytes = NUM_RANKS * NUM_ROUNDS * sizeof(int32_t)};
    assert_int_equal(ranks_run_with(&options, add_by_nics), 0);
}

TEST_ON_RANKS(the_model_carries_what_is_sent, RANKS_PROCESSES, NUM_RANKS)
{
    weft_net_info info = WEFT_INIT(weft_net_info);
    setenv("WEFT_NET_INITIATOR", "model", 1);
    weft_comm *const comm = ranks_comm(context, &config);
    weft_stream *const stream = ranks_stream(context);
    if (put_over_steps(context, comm, stream))
        return 1;
    CHECK_OK(weft_comm_barrier(comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_net_query(comm, &info));
    /* Messages of the host have headers. */
    CHECK(info.sent_header_bytes == 0 && info.sent_bytes > STEP_BYTES && info.sent_messages > 1,
          "%llu messages with %llu bytes, %llu of headers", (unsigned long long)info.sent_messages,
          (unsigned long long)info.sent_bytes, (unsigned long long)info.sent_header_bytes);
    return 0;
}
