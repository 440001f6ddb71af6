/* SPDX-License-Identifier: MIT */
/* All that ranks tell of their operations: totals, waits for each other, and who is slow. It is for
 * machine cpu; others know less. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 8, SLOW_RANK = 5, LAYERS = 100, NUM_BUCKETS = 16 };

static void pause_us(long us)
{
    const struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
}

/* Sums floats in so many calls. */
static int sum_floats(weft_comm *comm, weft_stream *stream, int64_t count, int num_calls)
{
    static float send[5000];
    static _Thread_local float recv[5000];
    weft_coll *coll;
    CHECK_OK(ranks_coll_create(comm, &coll));
    for (int i = 0; i < num_calls; i++)
        CHECK_OK(weft_coll_all_reduce(coll,
                                      WEFT_ARGS(weft_coll_args, .send = send, .recv = recv,
                                                .count = count, .dtype = WEFT_FP32, .op = WEFT_SUM),
                                      stream));
    CHECK_OK(weft_stream_synchronize(stream));
    return 0;
}

static int barrier(weft_comm *comm, weft_stream *stream)
{
    CHECK_OK(weft_comm_barrier(comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    return 0;
}

TEST_ON_RANKS(totals_count_operations_and_their_bytes, RANKS_THREADS, 3)
{
    enum { COUNT = 100, NUM_CALLS = 7 };
    weft_stats before = WEFT_INIT(weft_stats), after = WEFT_INIT(weft_stats);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    CHECK_OK(weft_stats_query(comm, &before));
    if (sum_floats(comm, stream, COUNT, NUM_CALLS))
        return 1;
    CHECK_OK(weft_stats_query(comm, &after));
    CHECK(after.num_issued == before.num_issued + NUM_CALLS, "%lu operations after %lu",
          after.num_issued, before.num_issued);
    CHECK(after.num_failed == 0, "%lu operations failed", after.num_failed);
    CHECK(after.num_bytes - before.num_bytes == NUM_CALLS * COUNT * sizeof(float), "%lu bytes",
          after.num_bytes - before.num_bytes);
    return 0;
}

/* The sum of what goes to each rank is what the network has sent. */
TEST_ON_RANKS(traffic_is_counted_by_its_rank, RANKS_PROCESSES, 2)
{
    enum { COUNT = 5000, NUM_NODES = 2 };
    weft_net_info before = WEFT_INIT(weft_net_info), after = WEFT_INIT(weft_net_info);
    uint64_t sent_bytes = 0, received_bytes = 0, under_way = 0;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES));
    weft_stream *const stream = ranks_stream(context);
    if (sum_floats(comm, stream, COUNT, 3))
        return 1;
    CHECK_OK(weft_net_query(comm, &before));
    for (int32_t rank = 0; rank < context->num_ranks; rank++) {
        weft_peer_stats peer = WEFT_INIT(weft_peer_stats);
        CHECK_OK(weft_stats_query_peer(comm, rank, &peer));
        CHECK(rank != context->rank || peer.sent_bytes + peer.received_bytes == 0,
              "a rank sends to itself");
        sent_bytes += peer.sent_bytes;
        received_bytes += peer.received_bytes;
        under_way += peer.num_under_way;
    }
    CHECK_OK(weft_net_query(comm, &after));
    CHECK(sent_bytes >= COUNT * sizeof(float) && received_bytes >= COUNT * sizeof(float),
          "%lu bytes sent, %lu received", sent_bytes, received_bytes);
    CHECK(under_way < 1000, "%lu messages are under way", under_way);
    CHECK(before.sent_bytes <= sent_bytes && sent_bytes <= after.sent_bytes,
          "%lu bytes by rank, from %lu to %lu in all", sent_bytes, before.sent_bytes,
          after.sent_bytes);
    return 0;
}

/* Rank 1 comes to one barrier long after rank 0. */
TEST_ON_RANKS(waits_are_counted_by_the_rank_waited_for, RANKS_PROCESSES, 2)
{
    enum { PAUSE_US = 300000, LATE_NS = 16384000 };
    weft_peer_stats before = WEFT_INIT(weft_peer_stats), after = WEFT_INIT(weft_peer_stats);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    if (barrier(comm, stream) != 0)
        return 1;
    CHECK_OK(weft_stats_query_peer(comm, 1, &before));
    if (context->rank == 0)
        CHECK_OK(weft_comm_barrier(comm, stream));
    ranks_barrier(context);
    if (context->rank == 1) {
        pause_us(PAUSE_US);
        CHECK_OK(weft_comm_barrier(comm, stream));
    }
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_stats_query_peer(comm, 1, &after));
    CHECK(after.num_last == before.num_last + 1, "rank 1 came last %lu times",
          after.num_last - before.num_last);
    CHECK(after.late_ns - before.late_ns > LATE_NS, "late by %lu ns",
          after.late_ns - before.late_ns);
    const uint64_t waited_ns = after.waited_ns - before.waited_ns;
    CHECK(context->rank == 1 || waited_ns > LATE_NS, "waited %lu ns", waited_ns);
    CHECK(context->rank == 0 || waited_ns == 0, "waited %lu ns for itself", waited_ns);
    uint64_t num = 0;
    for (int i = 0; i < NUM_BUCKETS; i++)
        num += after.waits_by_time[i];
    CHECK(num == after.num_waits, "%lu waits in all, %lu by time", after.num_waits, num);
    CHECK(context->rank == 1 || after.waits_by_time[NUM_BUCKETS - 1] > 0,
          "no wait of more than 16 ms");
    CHECK_ERROR(weft_stats_query_peer(comm, 2, &after), WEFT_ERROR_INVALID_ARGUMENT, "rank");
    return 0;
}

/* All ranks name it, itself included, and none names another one. */
TEST_ON_RANKS(a_slow_rank_is_named_by_all, RANKS_PROCESSES, NUM_RANKS)
{
    enum { SLOW_US = 5000 };
    weft_slowest slowest = WEFT_INIT(weft_slowest);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    for (int i = 0; i < LAYERS; i++) {
        if (context->rank == SLOW_RANK)
            pause_us(SLOW_US);
        if (barrier(comm, stream) != 0)
            return 1;
        CHECK_OK(weft_stats_query_slowest(comm, &slowest));
        CHECK(slowest.rank == -1 || slowest.rank == SLOW_RANK, "rank %d is named", slowest.rank);
    }
    CHECK(slowest.rank == SLOW_RANK, "rank %d is named, %lu of %lu", slowest.rank, slowest.num_late,
          slowest.num_operations);
    CHECK(strcmp(slowest.call, "weft_comm_barrier") == 0, "call is %s", slowest.call);
    return 0;
}

/* The operation that was interrupted has failed. */
TEST_ON_RANKS(a_failed_communicator_tells_all_the_same, RANKS_PROCESSES, 2)
{
    weft_stats stats = WEFT_INIT(weft_stats);
    weft_slowest slowest = WEFT_INIT(weft_slowest);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    if (barrier(comm, stream) != 0)
        return 1;
    if (context->rank == 0)
        CHECK_OK(weft_comm_barrier(comm, stream));
    ranks_barrier(context);
    if (context->rank == 1)
        CHECK_OK(weft_comm_abort(comm));
    CHECK_ERROR(context->rank == 0 ? weft_stream_synchronize(stream) : weft_comm_status(comm, NULL),
                WEFT_ERROR_ABORTED, "rank 1");
    CHECK_OK(weft_stats_query(comm, &stats));
    CHECK(stats.num_failed == (uint64_t)(context->rank == 0), "%lu failed", stats.num_failed);
    CHECK_OK(weft_stats_query_slowest(comm, &slowest));
    return 0;
}

static int use_without_records(struct ranks_context *context)
{
    weft_stats stats = WEFT_INIT(weft_stats);
    weft_slowest slowest = WEFT_INIT(weft_slowest);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    if (barrier(comm, stream) != 0)
        return 1;
    CHECK_OK(weft_stats_query(comm, &stats));
    CHECK(stats.num_issued == 0, "%lu operations", stats.num_issued);
    CHECK_OK(weft_stats_query_slowest(comm, &slowest));
    CHECK(slowest.rank == -1 && slowest.call[0] == '\0', "rank %d is slow", slowest.rank);
    CHECK_ERROR(weft_records_write(comm, "/dev/null"), WEFT_ERROR_UNSUPPORTED, "WEFT_RECORDS");
    return 0;
}

TEST(records_can_be_switched_off)
{
    assert_int_equal(setenv("WEFT_RECORDS", "0", 1), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, use_without_records, NULL), 0);
    unsetenv("WEFT_RECORDS");
}
