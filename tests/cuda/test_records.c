/* SPDX-License-Identifier: MIT */
/* Records of what kernels do: their times, who comes late, and runs of graphs. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/device_memory.h"
#include "cuda/party.h"
#include "harness/cmocka.h"
#include "harness/machine.h"

enum { COUNT = 256, BYTES = COUNT * sizeof(float), NUM_RANKS = 3, SLOW_RANK = 1 };
static const int64_t second_ns = 1000000000;

struct arrays {
    struct device_memory memory;
    float *send, *recv;
};

static int open_arrays(struct arrays *arrays)
{
    if (device_memory_alloc(MEMORY_PLAIN, &arrays->memory))
        return 1;
    arrays->send = (float *)(void *)arrays->memory.base;
    arrays->recv = (float *)(void *)(arrays->memory.base + arrays->memory.segment_bytes);
    return 0;
}

static int all_reduce(struct party *party, const struct arrays *arrays)
{
    CHECK_OK(
        weft_coll_all_reduce(party->coll,
                             WEFT_ARGS(weft_coll_args, .send = arrays->send, .recv = arrays->recv,
                                       .count = COUNT, .dtype = WEFT_FP32, .op = WEFT_SUM),
                             party->stream));
    return 0;
}

static int open_all(struct ranks_context *context, struct party *party, struct arrays *arrays)
{
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.num_blocks = 2; /* those of all ranks of a GPU must fit it */
    config.num_warps = 4;
    return party_open(party, context, &config) || open_arrays(arrays);
}

static int close_all(struct party *party, const struct arrays *arrays)
{
    CHECK_OK(weft_comm_host_barrier(party->comm));
    return device_memory_free(&arrays->memory) || party_close(party);
}

/* ---------------------------------------------------------------- the file */

struct entry {
    int64_t created_ns, started_ns, completed_ns;
    int has_completed;
};

static int64_t wall_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * second_ns + now.tv_nsec;
}

static int64_t number_of(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at != NULL ? strtoll(at + strlen(name), NULL, 10) : 0;
}

/* The all-reduces of a rank's file, the oldest first. A line has one entry. */
static int read_entries(struct party *party, struct entry *entries, int max_entries, int *num)
{
    char path[64], line[2048];
    snprintf(path, sizeof path, "/tmp/weft-records.%d.%d", (int)getpid(), party->context->rank);
    CHECK_OK(weft_records_write(party->comm, path));
    FILE *file = fopen(path, "r");
    CHECK(file != NULL, "%s cannot be read", path);
    *num = 0;
    while (fgets(line, sizeof line, file) != NULL && *num < max_entries) {
        if (strstr(line, "\"profiling_name\": \"weft_coll_all_reduce\"") == NULL ||
            strstr(line, "\"record_id\"") == NULL)
            continue;
        entries[(*num)++] = (struct entry){number_of(line, "\"time_created_ns\": "),
                                           number_of(line, "\"time_discovered_started_ns\": "),
                                           number_of(line, "\"time_discovered_completed_ns\": "),
                                           strstr(line, "\"state\": \"completed\"") != NULL};
    }
    fclose(file);
    unlink(path);
    return 0;
}

static int check_times(const struct entry *entries, int num, int64_t begin_ns, int64_t end_ns)
{
    for (int i = 0; i < num; i++) {
        const struct entry *entry = &entries[i];
        CHECK(entry->has_completed, "operation %d of %d has not ended", i, num);
        CHECK(begin_ns <= entry->created_ns && entry->created_ns <= entry->started_ns &&
                  entry->started_ns <= entry->completed_ns && entry->completed_ns <= end_ns,
              "operation %d: %lld ns after the begin it was issued, then started after %lld and "
              "ended after %lld, in %lld",
              i, (long long)(entry->created_ns - begin_ns),
              (long long)(entry->started_ns - begin_ns),
              (long long)(entry->completed_ns - begin_ns), (long long)(end_ns - begin_ns));
        CHECK(i == 0 || entries[i - 1].completed_ns <= entry->started_ns,
              "operation %d started before the one before had ended", i);
    }
    return 0;
}

static int tell_times(struct ranks_context *context)
{
    enum { NUM = 20 };
    struct party party;
    struct arrays arrays;
    struct entry entries[2 * NUM];
    int num;
    if (open_all(context, &party, &arrays))
        return 1;
    /* Clocks of wall and machine are read one after the other. */
    const int64_t begin_ns = wall_clock_ns() - second_ns / 1000;
    for (int i = 0; i < NUM; i++)
        if (all_reduce(&party, &arrays))
            return 1;
    CHECK_OK(weft_stream_synchronize(party.stream));
    if (read_entries(&party, entries, 2 * NUM, &num))
        return 1;
    CHECK(num == NUM, "%d all-reduces have records, not %d", num, NUM);
    return check_times(entries, num, begin_ns, wall_clock_ns() + second_ns / 1000) ||
           close_all(&party, &arrays);
}

TEST(operations_have_times)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, tell_times, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, tell_times, NULL), 0);
}

/* ---------------------------------------------------------------- who is late */

static int come_late(struct ranks_context *context)
{
    enum { NUM_LAYERS = 50, LATE_MS = 50, MS_NS = 1000000 };
    const struct timespec pause = {.tv_nsec = LATE_MS * MS_NS};
    struct party party;
    struct arrays arrays;
    weft_slowest slowest = WEFT_INIT(weft_slowest);
    weft_peer_stats peer = WEFT_INIT(weft_peer_stats);
    if (open_all(context, &party, &arrays))
        return 1;
    for (int i = 0; i < NUM_LAYERS; i++) {
        if (context->rank == SLOW_RANK)
            nanosleep(&pause, NULL);
        if (all_reduce(&party, &arrays))
            return 1;
        CHECK_OK(weft_stream_synchronize(party.stream));
    }
    CHECK_OK(weft_comm_host_barrier(party.comm)); /* it has ended on all ranks */
    CHECK_OK(weft_stats_query_slowest(party.comm, &slowest));
    CHECK(slowest.rank == SLOW_RANK, "rank %d is named, %llu of %llu", slowest.rank,
          (unsigned long long)slowest.num_late, (unsigned long long)slowest.num_operations);
    CHECK(strcmp(slowest.call, "weft_coll_all_reduce") == 0, "call is %s", slowest.call);
    CHECK(slowest.late_ns >= LATE_MS * MS_NS / 2 && slowest.late_ns < 10 * LATE_MS * MS_NS,
          "late by %llu ns", (unsigned long long)slowest.late_ns);
    CHECK_OK(weft_stats_query_peer(party.comm, SLOW_RANK, &peer));
    CHECK(peer.num_last >= NUM_LAYERS * 4 / 5, "it came last %llu times",
          (unsigned long long)peer.num_last);
    CHECK(context->rank == SLOW_RANK || peer.waited_ns >= UINT64_C(20) * LATE_MS * MS_NS,
          "waited %llu ns for it", (unsigned long long)peer.waited_ns);
    return close_all(&party, &arrays);
}

TEST(a_late_rank_is_named_by_all)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, come_late, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, come_late, NULL), 0);
}

/* ---------------------------------------------------------------- graphs */

static int replay(struct ranks_context *context)
{
    enum { NUM_REPLAYS = 10, PER_GRAPH = 3 };
    struct party party;
    struct arrays arrays;
    struct entry entries[PER_GRAPH + 1];
    weft_coll_record *capture;
    CUgraphExec graph;
    weft_stats before = WEFT_INIT(weft_stats), after = WEFT_INIT(weft_stats);
    int num;
    if (open_all(context, &party, &arrays))
        return 1;
    CHECK_OK(weft_coll_record_begin(party.coll, &capture));
    CHECK_OK(weft_stats_query(party.comm, &before));
    if (party_record_begin(&party))
        return 1;
    for (int i = 0; i < PER_GRAPH; i++)
        if (all_reduce(&party, &arrays))
            return 1;
    if (party_record_end(&party, &graph))
        return 1;
    CHECK_OK(weft_coll_record_end(capture));
    DRIVER_CHECK(driver.graph_upload(graph, party.native));
    CHECK_OK(weft_stream_synchronize(party.stream));
    CHECK_OK(weft_stats_query(party.comm, &after));
    CHECK(after.num_issued == before.num_issued, "%llu operations ran in no graph",
          (unsigned long long)(after.num_issued - before.num_issued));
    int64_t begin_ns = 0;
    for (int i = 0; i < NUM_REPLAYS; i++) {
        CHECK_OK(weft_stream_synchronize(party.stream));
        begin_ns = wall_clock_ns() - second_ns / 1000;
        DRIVER_CHECK(driver.graph_launch(graph, party.native));
    }
    CHECK_OK(weft_stream_synchronize(party.stream));
    CHECK_OK(weft_stats_query(party.comm, &after));
    CHECK(after.num_issued - before.num_issued == NUM_REPLAYS * PER_GRAPH, "%llu operations",
          (unsigned long long)(after.num_issued - before.num_issued));
    CHECK(after.num_bytes - before.num_bytes == (uint64_t)NUM_REPLAYS * PER_GRAPH * BYTES,
          "%llu bytes", (unsigned long long)(after.num_bytes - before.num_bytes));
    if (read_entries(&party, entries, PER_GRAPH + 1, &num))
        return 1;
    CHECK(num == PER_GRAPH, "%d records", num);
    for (int i = 0; i < num; i++) /* of the last replay */
        CHECK(entries[i].started_ns >= begin_ns && entries[i].completed_ns >= entries[i].started_ns,
              "operation %d started %lld ns after the last replay, and ended %lld ns after", i,
              (long long)(entries[i].started_ns - begin_ns),
              (long long)(entries[i].completed_ns - begin_ns));
    CHECK_OK(weft_comm_host_barrier(party.comm));
    DRIVER_CHECK(driver.graph_exec_destroy(graph));
    CHECK_OK(weft_coll_record_destroy(capture));
    return close_all(&party, &arrays);
}

TEST_CALL(runs_of_graphs_count, assert_int_equal(ranks_run(RANKS_THREADS, 2, replay, NULL), 0))
