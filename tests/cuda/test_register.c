/* SPDX-License-Identifier: MIT */
/* Memory of CUDA that is registered, or recorded in graphs: reached where it is if CUDA shares it, else
 * staged, with the same results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <dirent.h>

#include "cuda/device_memory.h"
#include "oracle/oracle_alloc.h"

enum {
    MAX_RANKS = 4,
    ROW_WORDS = 12000, /* from one rank to one other */
    STAGING_BYTES = 64 << 10,
    NUM_REPLAYS = 1000,
    NUM_STAGED_REPLAYS = 100, /* each of several operations, and of copies */
    EAGER_EVERY = 100,
    NUM_CYCLES = 100
};

/* ---------------------------------------------------------------- a rank */

struct party {
    struct ranks_context *context;
    weft_comm *comm;
    weft_coll *coll;
    CUstream native;
    weft_stream *stream; /* wrapped */
    struct device_memory memory;
    /* In the memory: across the borders of segments, and not aligned to 16 bytes. */
    int32_t *send, *recv;
    uint32_t *host; /* as long as these */
    uint32_t num_words;
};

static int open_party(struct party *party, struct ranks_context *context)
{
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    *party = (struct party){.context = context};
    config.staging_bytes = STAGING_BYTES;
    config.algorithms[WEFT_ALL_REDUCE] = WEFT_ALGORITHM_TWOSHOT;
    config.num_blocks = 2;
    config.num_warps = 4;
    if (driver_use_device(context, context->rank))
        return 1;
    RANK_CHECK_OK(context, weft_comm_create(&context->id, context->rank, context->num_ranks, NULL,
                                            &party->comm));
    RANK_CHECK_OK(context, weft_coll_create(party->comm, &config, &party->coll));
    DRIVER_CHECK(context, driver.stream_create(&party->native, CU_STREAM_NON_BLOCKING));
    RANK_CHECK_OK(context, weft_stream_wrap(party->comm, party->native, &party->stream));
    party->num_words = (uint32_t)(context->num_ranks * ROW_WORDS);
    party->host = oracle_alloc(party->num_words * sizeof *party->host);
    return 0;
}

static int close_party(struct party *party)
{
    struct ranks_context *context = party->context;
    free(party->host);
    RANK_CHECK_OK(context, weft_stream_destroy(party->stream));
    DRIVER_CHECK(context, driver.stream_destroy(party->native));
    RANK_CHECK_OK(context, weft_host_barrier(party->comm)); /* heap memory goes back */
    RANK_CHECK_OK(context, weft_coll_destroy(party->coll));
    RANK_CHECK_OK(context, weft_comm_destroy(party->comm));
    return driver_leave_device(context, context->rank);
}

static int open_memory(struct party *party, enum device_memory_kind kind)
{
    struct device_memory *memory = &party->memory;
    if (device_memory_alloc(party->context, kind, memory))
        return 1;
    party->recv = (int32_t *)(void *)(memory->base + memory->segment_bytes - 1004);
    party->send = (int32_t *)(void *)(memory->base + 2 * memory->segment_bytes - 2012);
    return 0;
}

/* ---------------------------------------------------------------- operations */

static uint32_t word_of(uint64_t round, int32_t rank, uint32_t i)
{
    return (uint32_t)round * 1000003u + (uint32_t)rank * 7919u + i * 2654435761u;
}

static int fill(struct party *party, int32_t *array, uint64_t round)
{
    for (uint32_t i = 0; i < party->num_words; i++)
        party->host[i] = word_of(round, party->context->rank, i);
    RANK_CHECK_OK(party->context, weft_memory_copy(party->comm, array, party->host,
                                                   party->num_words * sizeof *array));
    return 0;
}

static int pull(struct party *party, const int32_t *array)
{
    RANK_CHECK_OK(party->context, weft_memory_copy(party->comm, party->host, array,
                                                   party->num_words * sizeof *array));
    return 0;
}

static weft_result all_reduce(struct party *party, const int32_t *send, int32_t *recv)
{
    return weft_all_reduce(party->coll, send, recv, party->num_words, WEFT_INT32, WEFT_SUM,
                           party->stream);
}

static int check_reduced(struct party *party, const int32_t *recv, uint64_t round)
{
    if (pull(party, recv))
        return 1;
    for (uint32_t i = 0; i < party->num_words; i++) {
        uint32_t expected = 0;
        for (int32_t rank = 0; rank < party->context->num_ranks; rank++)
            expected += word_of(round, rank, i);
        RANK_CHECK(party->context, party->host[i] == expected,
                   "%s, round %llu: word %u is %x, not %x", device_memory_name(party->memory.kind),
                   (unsigned long long)round, i, party->host[i], expected);
    }
    return 0;
}

/* Rows of any length are received directly, or must fit the staging buffer: these do not. */
static weft_result exchange(struct party *party)
{
    uint64_t counts[MAX_RANKS], offsets[MAX_RANKS];
    weft_all_to_all_v_args args = WEFT_INIT(weft_all_to_all_v_args);
    for (int32_t rank = 0; rank < party->context->num_ranks; rank++) {
        counts[rank] = ROW_WORDS;
        offsets[rank] = (uint64_t)rank * ROW_WORDS;
    }
    args.send = party->send;
    args.recv = party->recv;
    args.dtype = WEFT_INT32;
    args.send_counts = args.recv_counts = counts;
    args.send_offsets = args.recv_offsets = offsets;
    return weft_all_to_all_v(party->coll, &args, party->stream);
}

static int check_exchanged(struct party *party, uint64_t round)
{
    const uint32_t begin = (uint32_t)(party->context->rank * ROW_WORDS);
    if (pull(party, party->recv))
        return 1;
    for (uint32_t i = 0; i < party->num_words; i++) {
        const uint32_t expected = word_of(round, (int32_t)(i / ROW_WORDS), begin + i % ROW_WORDS);
        RANK_CHECK(party->context, party->host[i] == expected,
                   "%s, round %llu: word %u is %x, not %x", device_memory_name(party->memory.kind),
                   (unsigned long long)round, i, party->host[i], expected);
    }
    return 0;
}

enum reach { STAGED, DIRECT };

static int check_operations(struct party *party, enum reach reach, uint64_t round)
{
    struct ranks_context *context = party->context;
    if (fill(party, party->send, round))
        return 1;
    RANK_CHECK_OK(context, all_reduce(party, party->send, party->recv));
    RANK_CHECK_OK(context, weft_stream_synchronize(party->stream));
    if (check_reduced(party, party->recv, round))
        return 1;
    if (reach == STAGED) {
        RANK_CHECK_ERROR(context, exchange(party), WEFT_ERROR_UNSUPPORTED, "staging_bytes");
    } else {
        RANK_CHECK_OK(context, exchange(party));
        RANK_CHECK_OK(context, weft_stream_synchronize(party->stream));
        if (check_exchanged(party, round))
            return 1;
    }
    RANK_CHECK_OK(context, all_reduce(party, party->send, party->send));
    RANK_CHECK_OK(context, weft_stream_synchronize(party->stream));
    return check_reduced(party, party->send, round);
}

/* ---------------------------------------------------------------- registered */

static int register_kind(struct party *party, enum device_memory_kind kind)
{
    struct ranks_context *context = party->context;
    const enum reach expected = device_memory_is_shareable(kind) ? DIRECT : STAGED;
    int32_t is_direct = -1;
    if (open_memory(party, kind) || check_operations(party, STAGED, 1))
        return 1;
    char *registered = party->memory.base + 24;
    RANK_CHECK_OK(context,
                  weft_register(party->comm, registered, party->memory.bytes - 24, &is_direct));
    RANK_CHECK(context, is_direct == (expected == DIRECT), "%s: is_direct is %d",
               device_memory_name(kind), is_direct);
    for (uint64_t round = 2; round < 10; round++)
        if (check_operations(party, expected, round))
            return 1;
    RANK_CHECK_OK(context, weft_unregister(party->comm, registered));
    return check_operations(party, STAGED, 10) || device_memory_free(context, &party->memory);
}

static int register_kinds(struct ranks_context *context)
{
    struct party party;
    if (open_party(&party, context))
        return 1;
    for (int kind = 0; kind < MEMORY_NUM_KINDS; kind++)
        if (register_kind(&party, (enum device_memory_kind)kind))
            return 1;
    return close_party(&party);
}

static void every_kind_between_processes(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, register_kinds, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, MAX_RANKS, register_kinds, NULL), 0);
}

/* Allocating waits for kernels of the process, which wait for the rank that allocates: so all of it comes
 * before the first operation. */
static int register_in_thread(struct ranks_context *context)
{
    static const enum device_memory_kind kinds[] = {MEMORY_PLAIN, MEMORY_SEGMENTS};
    struct party parties[2];
    int32_t is_direct = -1;
    if (open_party(&parties[0], context))
        return 1;
    parties[1] = parties[0];
    for (int i = 0; i < 2; i++) {
        if (open_memory(&parties[i], kinds[i]))
            return 1;
        RANK_CHECK_OK(context, weft_register(parties[i].comm, parties[i].memory.base,
                                             parties[i].memory.bytes, &is_direct));
        RANK_CHECK(context, is_direct == 1, "%s is staged", device_memory_name(kinds[i]));
    }
    for (uint64_t round = 1; round < 10; round++)
        if (check_operations(&parties[round % 2], DIRECT, round))
            return 1;
    for (int i = 0; i < 2; i++)
        RANK_CHECK_OK(context, weft_unregister(parties[i].comm, parties[i].memory.base));
    for (int i = 0; i < 2; i++)
        if (device_memory_free(context, &parties[i].memory))
            return 1;
    return close_party(&parties[0]);
}

static void between_threads(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(RANKS_THREADS, 3, register_in_thread, NULL), 0);
}

/* Kinds that differ by rank are registered together or not at all. */
static int register_differently(struct ranks_context *context)
{
    static const enum device_memory_kind shareable[] = {MEMORY_PLAIN, MEMORY_SEGMENTS};
    struct party party;
    int32_t is_direct = -1;
    if (open_party(&party, context) || open_memory(&party, shareable[context->rank % 2]))
        return 1;
    RANK_CHECK_OK(context,
                  weft_register(party.comm, party.memory.base, party.memory.bytes, &is_direct));
    RANK_CHECK(context, is_direct == 1, "plain memory and segments are staged");
    if (check_operations(&party, DIRECT, 1))
        return 1;
    RANK_CHECK_OK(context, weft_unregister(party.comm, party.memory.base));
    if (device_memory_free(context, &party.memory) ||
        open_memory(&party, context->rank == 1 ? MEMORY_OF_POOL : MEMORY_SEGMENTS))
        return 1;
    RANK_CHECK_OK(context,
                  weft_register(party.comm, party.memory.base, party.memory.bytes, &is_direct));
    RANK_CHECK(context, is_direct == 0, "memory of a pool is reached");
    if (check_operations(&party, STAGED, 2))
        return 1;
    RANK_CHECK_OK(context, weft_unregister(party.comm, party.memory.base));
    return device_memory_free(context, &party.memory) || close_party(&party);
}

static void kinds_that_differ_by_rank(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(RANKS_PROCESSES, 3, register_differently, NULL), 0);
}

/* ---------------------------------------------------------------- what is left */

static int count_fds(void)
{
    int num_fds = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        num_fds++;
    if (folder != NULL)
        closedir(folder);
    return num_fds;
}

static int cycle_once(struct party *party, enum device_memory_kind kind)
{
    struct ranks_context *context = party->context;
    int32_t is_direct = -1;
    if (open_memory(party, kind))
        return 1;
    RANK_CHECK_OK(context,
                  weft_register(party->comm, party->memory.base, party->memory.bytes, &is_direct));
    RANK_CHECK(context, is_direct == 1, "%s is staged", device_memory_name(kind));
    RANK_CHECK_OK(context, weft_unregister(party->comm, party->memory.base));
    return device_memory_free(context, &party->memory);
}

/* Memory that somebody still had mapped would not be free. */
static int cycle_kind(struct party *party, enum device_memory_kind kind)
{
    struct ranks_context *context = party->context;
    size_t free_before, free_after;
    if (cycle_once(party, kind)) /* opens what the driver keeps */
        return 1;
    const int num_fds = count_fds();
    RANK_CHECK_OK(context, weft_host_barrier(party->comm));
    if (device_memory_count_free(context, &free_before))
        return 1;
    RANK_CHECK_OK(context, weft_host_barrier(party->comm));
    for (int i = 0; i < NUM_CYCLES; i++)
        if (cycle_once(party, kind))
            return 1;
    RANK_CHECK_OK(context, weft_host_barrier(party->comm));
    if (device_memory_count_free(context, &free_after))
        return 1;
    RANK_CHECK(context, free_after + NUM_CYCLES / 2 * party->memory.bytes > free_before,
               "%s: %zu bytes were free, %zu are", device_memory_name(kind), free_before,
               free_after);
    RANK_CHECK(context, count_fds() == num_fds, "%s: %d descriptors, before %d",
               device_memory_name(kind), count_fds(), num_fds);
    RANK_CHECK_OK(context, weft_host_barrier(party->comm));
    return 0;
}

static int cycle(struct ranks_context *context)
{
    struct party party;
    return open_party(&party, context) || cycle_kind(&party, MEMORY_PLAIN) ||
           cycle_kind(&party, MEMORY_SEGMENTS) || close_party(&party);
}

static void nothing_is_left_by_many_cycles(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, cycle, NULL), 0);
}

/* ---------------------------------------------------------------- graphs */

/* An all-reduce, and before it, of memory that is reached, rows of any length. */
static int record(struct party *party, enum reach reach, CUgraphExec *graph_exec)
{
    struct ranks_context *context = party->context;
    CUgraph graph = NULL;
    DRIVER_CHECK(context,
                 driver.stream_begin_capture(party->native, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (reach == DIRECT)
        RANK_CHECK_OK(context, exchange(party));
    else
        RANK_CHECK_ERROR(context, exchange(party), WEFT_ERROR_UNSUPPORTED, "staging_bytes");
    RANK_CHECK_OK(context, all_reduce(party, party->send, party->recv));
    DRIVER_CHECK(context, driver.stream_end_capture(party->native, &graph));
    RANK_CHECK(context, graph != NULL, "the capture gave no graph");
    DRIVER_CHECK(context, driver.graph_instantiate(graph_exec, graph, 0));
    DRIVER_CHECK(context, driver.graph_destroy(graph));
    return 0;
}

static int replay(struct party *party, CUgraphExec graph, uint64_t round)
{
    if (fill(party, party->send, round))
        return 1;
    DRIVER_CHECK(party->context, driver.graph_launch(graph, party->native));
    RANK_CHECK_OK(party->context, weft_stream_synchronize(party->stream));
    RANK_CHECK_OK(party->context, weft_comm_status(party->comm, NULL));
    return check_reduced(party, party->recv, round);
}

static int replay_kind(struct party *party, enum device_memory_kind kind)
{
    struct ranks_context *context = party->context;
    const enum reach reach = device_memory_is_shareable(kind) ? DIRECT : STAGED;
    const uint64_t num_replays = reach == DIRECT ? NUM_REPLAYS : NUM_STAGED_REPLAYS;
    weft_capture *capture;
    CUgraphExec graphs[2];
    if (open_memory(party, kind))
        return 1;
    RANK_CHECK_OK(context, weft_capture_begin(party->coll, &capture));
    if (record(party, reach, &graphs[0]) || record(party, reach, &graphs[1]))
        return 1;
    RANK_CHECK_OK(context, weft_capture_end(capture));
    for (uint64_t round = 0; round < num_replays; round++) {
        if (replay(party, graphs[round % 2], round))
            return 1;
        /* What is recorded is registered for the graphs alone. */
        if (round % EAGER_EVERY == 0 && check_operations(party, STAGED, round))
            return 1;
    }
    for (int i = 0; i < 2; i++)
        DRIVER_CHECK(context, driver.graph_exec_destroy(graphs[i]));
    RANK_CHECK_OK(context, weft_capture_destroy(capture));
    return device_memory_free(context, &party->memory);
}

static int replay_kinds(struct ranks_context *context)
{
    static const enum device_memory_kind kinds[] = {MEMORY_PLAIN, MEMORY_SEGMENTS, MEMORY_OF_POOL};
    struct party party;
    if (open_party(&party, context))
        return 1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (replay_kind(&party, kinds[i]))
            return 1;
    return close_party(&party);
}

static void graphs_of_every_kind(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, replay_kinds, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, MAX_RANKS, replay_kinds, NULL), 0);
}

int main(void)
{
    driver_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_between_processes),
        cmocka_unit_test(between_threads),
        cmocka_unit_test(kinds_that_differ_by_rank),
        cmocka_unit_test(nothing_is_left_by_many_cycles),
        cmocka_unit_test(graphs_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
