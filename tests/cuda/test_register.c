/* SPDX-License-Identifier: MIT */
/* Memory of CUDA that is registered, or recorded in graphs: reached where it is if CUDA shares it,
 * else staged, with the same results. */
#include <dirent.h>
#include <stdlib.h>

#include "cuda/device_memory.h"
#include "cuda/party.h"
#include "harness/cmocka.h"
#include "harness/memory.h"

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

struct member {
    struct party party;
    struct device_memory memory;
    /* In the memory: across the borders of segments, and not aligned to 16 bytes. */
    int32_t *send, *recv;
    uint32_t *host; /* as long as these */
    uint32_t num_words;
};

static int open_member(struct member *member, struct ranks_context *context)
{
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.staging_bytes = STAGING_BYTES;
    config.choices = WEFT_ARGS(weft_coll_choice, .collective = WEFT_ALL_REDUCE,
                               .algorithm = WEFT_ALGORITHM_TWOSHOT);
    config.num_choices = 1;
    config.num_blocks = 2;
    config.num_warps = 4;
    member->num_words = (uint32_t)(context->num_ranks * ROW_WORDS);
    member->host = tests_alloc(member->num_words * sizeof *member->host);
    return party_open(&member->party, context, &config);
}

static int close_member(struct member *member)
{
    tests_free(member->host);
    return party_close(&member->party);
}

static int open_memory(struct member *member, enum device_memory_kind kind)
{
    struct device_memory *memory = &member->memory;
    if (device_memory_alloc(kind, memory))
        return 1;
    member->recv = (int32_t *)(void *)(memory->base + memory->segment_bytes - 1004);
    member->send = (int32_t *)(void *)(memory->base + 2 * memory->segment_bytes - 2012);
    return 0;
}

/* ---------------------------------------------------------------- operations */

static int fill(struct member *member, int32_t *array, uint64_t round)
{
    for (uint32_t i = 0; i < member->num_words; i++)
        member->host[i] = party_word(round, member->party.context->rank, i);
    CHECK_OK(weft_memory_copy(member->party.comm, array, member->host,
                              member->num_words * sizeof *array));
    return 0;
}

static int pull(struct member *member, const int32_t *array)
{
    CHECK_OK(weft_memory_copy(member->party.comm, member->host, array,
                              member->num_words * sizeof *array));
    return 0;
}

static weft_result all_reduce(struct member *member, const int32_t *send, int32_t *recv)
{
    return weft_coll_all_reduce(member->party.coll,
                                WEFT_ARGS(weft_coll_args, .send = send, .recv = recv,
                                          .count = (int64_t)member->num_words, .dtype = WEFT_INT32,
                                          .op = WEFT_SUM),
                                member->party.stream);
}

static int check_reduced(struct member *member, const int32_t *recv, uint64_t round)
{
    if (pull(member, recv))
        return 1;
    for (uint32_t i = 0; i < member->num_words; i++) {
        const uint32_t expected = party_sum(&member->party, round, i);
        CHECK(member->host[i] == expected, "%s, round %llu: word %u is %x, not %x",
              device_memory_name(member->memory.kind), (unsigned long long)round, i,
              member->host[i], expected);
    }
    return 0;
}

/* Rows of any length are received directly, or must fit the staging buffer: these do not. */
static weft_result exchange(struct member *member)
{
    int64_t counts[MAX_RANKS], offsets[MAX_RANKS];
    weft_coll_all_to_all_v_args args = WEFT_INIT(weft_coll_all_to_all_v_args);
    for (int32_t rank = 0; rank < member->party.context->num_ranks; rank++) {
        counts[rank] = ROW_WORDS;
        offsets[rank] = (int64_t)rank * ROW_WORDS;
    }
    args.send = member->send;
    args.recv = member->recv;
    args.dtype = WEFT_INT32;
    args.send_counts = args.recv_counts = counts;
    args.send_offsets = args.recv_offsets = offsets;
    return weft_coll_all_to_all_v(member->party.coll, &args, member->party.stream);
}

static int check_exchanged(struct member *member, uint64_t round)
{
    const uint32_t begin = (uint32_t)(member->party.context->rank * ROW_WORDS);
    if (pull(member, member->recv))
        return 1;
    for (uint32_t i = 0; i < member->num_words; i++) {
        const uint32_t expected =
            party_word(round, (int32_t)(i / ROW_WORDS), begin + i % ROW_WORDS);
        CHECK(member->host[i] == expected, "%s, round %llu: word %u is %x, not %x",
              device_memory_name(member->memory.kind), (unsigned long long)round, i,
              member->host[i], expected);
    }
    return 0;
}

enum reach { STAGED, DIRECT };

static int check_operations(struct member *member, enum reach reach, uint64_t round)
{
    if (fill(member, member->send, round))
        return 1;
    CHECK_OK(all_reduce(member, member->send, member->recv));
    CHECK_OK(weft_stream_synchronize(member->party.stream));
    if (check_reduced(member, member->recv, round))
        return 1;
    if (reach == STAGED) {
        CHECK_ERROR(exchange(member), WEFT_ERROR_UNSUPPORTED, "staging_bytes");
    } else {
        CHECK_OK(exchange(member));
        CHECK_OK(weft_stream_synchronize(member->party.stream));
        if (check_exchanged(member, round))
            return 1;
    }
    CHECK_OK(all_reduce(member, member->send, member->send));
    CHECK_OK(weft_stream_synchronize(member->party.stream));
    return check_reduced(member, member->send, round);
}

/* ---------------------------------------------------------------- registered */

static int register_kind(struct member *member, enum device_memory_kind kind)
{
    const enum reach expected = device_memory_is_shareable(kind) ? DIRECT : STAGED;
    int32_t is_direct = -1;
    if (open_memory(member, kind) || check_operations(member, STAGED, 1))
        return 1;
    char *registered = member->memory.base + 24;
    CHECK_OK(weft_memory_register(member->party.comm, registered, member->memory.bytes - 24,
                                  &is_direct));
    CHECK(is_direct == (expected == DIRECT), "%s: is_direct is %d", device_memory_name(kind),
          is_direct);
    for (uint64_t round = 2; round < 10; round++)
        if (check_operations(member, expected, round))
            return 1;
    CHECK_OK(weft_memory_unregister(member->party.comm, registered));
    return check_operations(member, STAGED, 10) || device_memory_free(&member->memory);
}

static int register_kinds(struct ranks_context *context)
{
    struct member member;
    if (open_member(&member, context))
        return 1;
    for (int kind = 0; kind < MEMORY_NUM_KINDS; kind++)
        if (register_kind(&member, (enum device_memory_kind)kind))
            return 1;
    return close_member(&member);
}

TEST(every_kind_between_processes)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, register_kinds, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, MAX_RANKS, register_kinds, NULL), 0);
}

/* Allocating waits for kernels of the process, which wait for the rank that allocates: so all of it
 * comes before the first operation. */
TEST_ON_RANKS(between_threads, RANKS_THREADS, 3)
{
    static const enum device_memory_kind kinds[] = {MEMORY_PLAIN, MEMORY_SEGMENTS};
    struct member members[2];
    int32_t is_direct = -1;
    if (open_member(&members[0], context))
        return 1;
    members[1] = members[0];
    for (int i = 0; i < 2; i++) {
        if (open_memory(&members[i], kinds[i]))
            return 1;
        CHECK_OK(weft_memory_register(members[i].party.comm, members[i].memory.base,
                                      members[i].memory.bytes, &is_direct));
        CHECK(is_direct == 1, "%s is staged", device_memory_name(kinds[i]));
    }
    for (uint64_t round = 1; round < 10; round++)
        if (check_operations(&members[round % 2], DIRECT, round))
            return 1;
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_memory_unregister(members[i].party.comm, members[i].memory.base));
    for (int i = 0; i < 2; i++)
        if (device_memory_free(&members[i].memory))
            return 1;
    return close_member(&members[0]);
}

/* Kinds that differ by rank are registered together or not at all. */
TEST_ON_RANKS(kinds_that_differ_by_rank, RANKS_PROCESSES, 3)
{
    static const enum device_memory_kind shareable[] = {MEMORY_PLAIN, MEMORY_SEGMENTS};
    struct member member;
    int32_t is_direct = -1;
    if (open_member(&member, context) || open_memory(&member, shareable[context->rank % 2]))
        return 1;
    CHECK_OK(weft_memory_register(member.party.comm, member.memory.base, member.memory.bytes,
                                  &is_direct));
    CHECK(is_direct == 1, "plain memory and segments are staged");
    if (check_operations(&member, DIRECT, 1))
        return 1;
    CHECK_OK(weft_memory_unregister(member.party.comm, member.memory.base));
    if (device_memory_free(&member.memory) ||
        open_memory(&member, context->rank == 1 ? MEMORY_OF_POOL : MEMORY_SEGMENTS))
        return 1;
    CHECK_OK(weft_memory_register(member.party.comm, member.memory.base, member.memory.bytes,
                                  &is_direct));
    CHECK(is_direct == 0, "memory of a pool is reached");
    if (check_operations(&member, STAGED, 2))
        return 1;
    CHECK_OK(weft_memory_unregister(member.party.comm, member.memory.base));
    return device_memory_free(&member.memory) || close_member(&member);
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

static int cycle_once(struct member *member, enum device_memory_kind kind)
{
    int32_t is_direct = -1;
    if (open_memory(member, kind))
        return 1;
    CHECK_OK(weft_memory_register(member->party.comm, member->memory.base, member->memory.bytes,
                                  &is_direct));
    CHECK(is_direct == 1, "%s is staged", device_memory_name(kind));
    CHECK_OK(weft_memory_unregister(member->party.comm, member->memory.base));
    return device_memory_free(&member->memory);
}

/* Memory that somebody still had mapped would not be free. */
static int cycle_kind(struct member *member, enum device_memory_kind kind)
{
    size_t free_before, free_after;
    if (cycle_once(member, kind)) /* opens what the driver keeps */
        return 1;
    const int num_fds = count_fds();
    CHECK_OK(weft_comm_host_barrier(member->party.comm));
    if (device_memory_count_free(&free_before))
        return 1;
    CHECK_OK(weft_comm_host_barrier(member->party.comm));
    for (int i = 0; i < NUM_CYCLES; i++)
        if (cycle_once(member, kind))
            return 1;
    CHECK_OK(weft_comm_host_barrier(member->party.comm));
    if (device_memory_count_free(&free_after))
        return 1;
    CHECK(free_after + NUM_CYCLES / 2 * member->memory.bytes > free_before,
          "%s: %zu bytes were free, %zu are", device_memory_name(kind), free_before, free_after);
    CHECK(count_fds() == num_fds, "%s: %d descriptors, before %d", device_memory_name(kind),
          count_fds(), num_fds);
    CHECK_OK(weft_comm_host_barrier(member->party.comm));
    return 0;
}

TEST_ON_RANKS(nothing_is_left_by_many_cycles, RANKS_PROCESSES, 2)
{
    struct member member;
    return open_member(&member, context) || cycle_kind(&member, MEMORY_PLAIN) ||
           cycle_kind(&member, MEMORY_SEGMENTS) || close_member(&member);
}

/* ---------------------------------------------------------------- graphs */

/* An all-reduce, and before it, of memory that is reached, rows of any length. */
static int record(struct member *member, enum reach reach, CUgraphExec *graph_exec)
{
    if (party_record_begin(&member->party))
        return 1;
    if (reach == DIRECT)
        CHECK_OK(exchange(member));
    else
        CHECK_ERROR(exchange(member), WEFT_ERROR_UNSUPPORTED, "staging_bytes");
    CHECK_OK(all_reduce(member, member->send, member->recv));
    return party_record_end(&member->party, graph_exec);
}

static int replay(struct member *member, CUgraphExec graph, uint64_t round)
{
    if (fill(member, member->send, round))
        return 1;
    DRIVER_CHECK(driver.graph_launch(graph, member->party.native));
    CHECK_OK(weft_stream_synchronize(member->party.stream));
    CHECK_OK(weft_comm_status(member->party.comm, NULL));
    return check_reduced(member, member->recv, round);
}

static int replay_kind(struct member *member, enum device_memory_kind kind)
{
    const enum reach reach = device_memory_is_shareable(kind) ? DIRECT : STAGED;
    const uint64_t num_replays = reach == DIRECT ? NUM_REPLAYS : NUM_STAGED_REPLAYS;
    weft_coll_record *capture;
    CUgraphExec graphs[2];
    if (open_memory(member, kind))
        return 1;
    CHECK_OK(weft_coll_record_begin(member->party.coll, &capture));
    if (record(member, reach, &graphs[0]) || record(member, reach, &graphs[1]))
        return 1;
    CHECK_OK(weft_coll_record_end(capture));
    for (uint64_t round = 0; round < num_replays; round++) {
        if (replay(member, graphs[round % 2], round))
            return 1;
        /* What is recorded is registered for the graphs alone. */
        if (round % EAGER_EVERY == 0 && check_operations(member, STAGED, round))
            return 1;
    }
    for (int i = 0; i < 2; i++)
        DRIVER_CHECK(driver.graph_exec_destroy(graphs[i]));
    CHECK_OK(weft_coll_record_destroy(capture));
    return device_memory_free(&member->memory);
}

static int replay_kinds(struct ranks_context *context)
{
    static const enum device_memory_kind kinds[] = {MEMORY_PLAIN, MEMORY_SEGMENTS, MEMORY_OF_POOL};
    struct member member;
    if (open_member(&member, context))
        return 1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (replay_kind(&member, kinds[i]))
            return 1;
    return close_member(&member);
}

TEST(graphs_of_every_kind)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, replay_kinds, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, MAX_RANKS, replay_kinds, NULL), 0);
}
