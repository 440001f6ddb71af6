/* SPDX-License-Identifier: MIT */
/* The symmetric heap and its arenas. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "harness/ranks.h"

enum { MAX_RANKS = 9, ALIGNMENT = 256 };

static uint64_t word_of(int32_t writer, int32_t owner, size_t index)
{
    return (uint64_t)writer << 48 ^ (uint64_t)owner << 32 ^ index * 2654435761u;
}

/* The first word of a rank's strip of num_words words. */
static size_t strip_begin(int32_t rank, int32_t num_ranks, size_t num_words)
{
    return num_words * (size_t)rank / (size_t)num_ranks;
}

/* `words` is the host's copy. */
static int write_strips(struct ranks_context *context, weft_comm *comm, void *ptr, uint64_t *words,
                        size_t num_words)
{
    const size_t begin = strip_begin(context->rank, context->num_ranks, num_words);
    const size_t end = strip_begin(context->rank + 1, context->num_ranks, num_words);
    for (int32_t owner = 0; owner < context->num_ranks; owner++) {
        uint64_t *copy = weft_heap_ptr(comm, ptr, owner);
        CHECK(copy != NULL, "rank %d's copy is not mapped", owner);
        CHECK((copy == ptr) == (owner == context->rank), "rank %d", owner);
        for (size_t index = begin; index < end; index++)
            words[index] = word_of(context->rank, owner, index);
        CHECK_OK(
            weft_memory_copy(comm, copy + begin, words + begin, (end - begin) * sizeof *words));
    }
    return 0;
}

static int check_strips(struct ranks_context *context, weft_comm *comm, const void *ptr,
                        uint64_t *words, size_t num_words)
{
    size_t num_wrong = 0;
    memset(words, 0, num_words * sizeof *words);
    CHECK_OK(weft_memory_copy(comm, words, ptr, num_words * sizeof *words));
    for (int32_t rank = 0; rank < context->num_ranks; rank++)
        for (size_t index = strip_begin(rank, context->num_ranks, num_words);
             index < strip_begin(rank + 1, context->num_ranks, num_words); index++)
            num_wrong += words[index] != word_of(rank, context->rank, index);
    CHECK(num_wrong == 0, "%zu of %zu words are wrong", num_wrong, num_words);
    return 0;
}

/* Every rank writes a strip of every rank's copy; after the barrier the owners read. */
static int write_all_check_own(struct ranks_context *context, weft_comm *comm, void *ptr,
                               size_t num_words)
{
    uint64_t *words = tests_alloc(num_words * sizeof *words);
    if (write_strips(context, comm, ptr, words, num_words) != 0)
        return 1;
    CHECK_OK(weft_comm_host_barrier(comm));
    if (check_strips(context, comm, ptr, words, num_words) != 0)
        return 1;
    tests_free(words);
    CHECK_OK(weft_comm_host_barrier(comm));
    return 0;
}

static int share_memory(struct ranks_context *context)
{
    void *early, *words;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_heap_alloc(comm, 4096, &early));
    char *addresses[MAX_RANKS];
    for (int32_t rank = 0; rank < context->num_ranks; rank++)
        addresses[rank] = weft_heap_ptr(comm, early, rank);
    if (write_all_check_own(context, comm, early, 4096 / sizeof(uint64_t)) != 0)
        return 1;
    /* Larger than what was committed: the heap grows, and nothing moves. */
    static const size_t sizes[] = {100, 3 << 20, 1, 6 << 20};
    for (size_t index = 0; index < sizeof(sizes) / sizeof(sizes[0]); index++) {
        CHECK_OK(weft_heap_alloc(comm, sizes[index], &words));
        CHECK((uintptr_t)words % ALIGNMENT == 0, "%p is not aligned", words);
        if (write_all_check_own(context, comm, words, sizes[index] / sizeof(uint64_t)) != 0)
            return 1;
    }
    for (int32_t rank = 0; rank < context->num_ranks; rank++)
        CHECK(weft_heap_ptr(comm, early, rank) == addresses[rank], "rank %d moved", rank);
    if (write_all_check_own(context, comm, early, 4096 / sizeof(uint64_t)) != 0)
        return 1;
    return 0;
}

TEST(ranks_see_each_others_memory)
{
    static const int32_t counts[] = {1, 2, 4, MAX_RANKS};
    const size_t step = (size_t)tests_rounds(1, 2);
    for (size_t index = 0; index < sizeof(counts) / sizeof(counts[0]); index += step)
        assert_int_equal(ranks_run_in_both_modes(counts[index], share_memory), 0);
}

/* Also where they are on one host. */
TEST_IN_BOTH_MODES(nodes_map_their_own_memory_alone, 4)
{
    void *words;
    weft_comm *const comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = 2));
    CHECK_OK(weft_heap_alloc(comm, 8000, &words));
    CHECK_OK(weft_heap_grow(comm, 8 << 20));
    for (int32_t rank = 0; rank < context->num_ranks; rank++) {
        const int is_mapped = weft_heap_ptr(comm, words, rank) != NULL;
        const int is_neighbour = weft_comm_node(comm, rank) == weft_comm_node(comm, context->rank);
        CHECK(is_mapped == is_neighbour, "rank %d's memory is%s mapped", rank,
              is_mapped ? "" : " not");
    }
    weft_comm *node;
    CHECK_OK(weft_comm_split(comm, weft_comm_node(comm, context->rank), 0, NULL, &node));
    struct ranks_context of_node = *context;
    of_node.num_ranks = 2;
    of_node.rank = context->rank % 2;
    CHECK_OK(weft_heap_alloc(node, 8000, &words));
    CHECK(write_all_check_own(&of_node, node, words, 1000) == 0, "%.900s", context->failure);
    CHECK_OK(weft_comm_destroy(node));
    return 0;
}

TEST_IN_BOTH_MODES(what_is_freed_can_be_had_again, 3)
{
    enum { NUM_BLOCKS = 40 };
    weft_heap_info before = WEFT_INIT(weft_heap_info), info = WEFT_INIT(weft_heap_info);
    char *blocks[NUM_BLOCKS];
    uint32_t random = 7;
    void *ptr = context;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_heap_query(comm, &before));
    CHECK(before.committed_bytes >= 1 << 20, "the heap is too small at first");
    CHECK(before.page_bytes >= 4096, "pages of %lu bytes", (unsigned long)before.page_bytes);
    for (int index = 0; index < NUM_BLOCKS; index++) {
        random = random * 1664525u + 1013904223u;
        CHECK_OK(weft_heap_alloc(comm, 1 + random % 9000, &ptr));
        blocks[index] = ptr;
    }
    for (int index = 0; index < NUM_BLOCKS; index++) {
        int victim = index * 7 % NUM_BLOCKS;
        CHECK_OK(weft_heap_free(comm, blocks[victim]));
        CHECK_ERROR(weft_heap_free(comm, blocks[victim]), WEFT_ERROR_INVALID_ARGUMENT, "ptr is");
    }
    CHECK_OK(weft_heap_query(comm, &info));
    CHECK(info.used_bytes == before.used_bytes, "%lu bytes are still in use",
          (unsigned long)info.used_bytes);
    CHECK(info.largest_free_bytes + info.used_bytes == info.committed_bytes,
          "the free memory is in pieces: %lu", (unsigned long)info.largest_free_bytes);
    CHECK_OK(weft_heap_alloc(comm, 0, &ptr));
    CHECK(ptr == NULL, "0 bytes are at %p", ptr);
    CHECK_OK(weft_heap_free(comm, NULL));
    CHECK_ERROR(weft_heap_free(comm, &random), WEFT_ERROR_INVALID_ARGUMENT, "ptr");
    CHECK_ERROR(weft_heap_free(comm, blocks[0] + ALIGNMENT), WEFT_ERROR_INVALID_ARGUMENT, "ptr");
    CHECK(weft_heap_ptr(comm, &random, 0) == NULL, "the stack is in the heap");
    CHECK(weft_heap_ptr(comm, NULL, 0) == NULL, "NULL is in the heap");
    CHECK(weft_heap_ptr(comm, blocks[0], context->num_ranks) == NULL, "no such rank");
    CHECK(weft_heap_ptr(comm, blocks[0], -1) == NULL, "no such rank");
    return 0;
}

/* To the last byte. */
static int write_bytes(weft_comm *comm, void *ptr, size_t num_bytes)
{
    char *content = tests_alloc(num_bytes);
    CHECK_OK(weft_memory_copy(comm, ptr, content, num_bytes));
    tests_free(content);
    return 0;
}

/* Each growth is a matter for all ranks, so there are few: a little more than there is doubles
 * it. */
TEST_IN_BOTH_MODES(heaps_grow_by_doubling, 2)
{
    weft_heap_info before = WEFT_INIT(weft_heap_info), after = before;
    void *ptr;
    weft_comm *const comm = ranks_comm(context, NULL);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_heap_query(comm, &before));
        CHECK_OK(weft_heap_alloc(comm, before.largest_free_bytes + 1, &ptr));
        CHECK_OK(weft_heap_query(comm, &after));
        CHECK(after.committed_bytes >= 2 * before.committed_bytes, "from %lu bytes to %lu",
              (unsigned long)before.committed_bytes, (unsigned long)after.committed_bytes);
        CHECK_OK(weft_heap_free(comm, ptr));
    }
    return 0;
}

TEST_IN_BOTH_MODES(heaps_grow_to_their_limit, 3)
{
    void *ptr, *rest;
    weft_heap_info before = WEFT_INIT(weft_heap_info), info = WEFT_INIT(weft_heap_info);
    const uint64_t max_bytes = 16 << 20;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .heap_max_bytes = max_bytes));
    CHECK_OK(weft_heap_grow(comm, (5 << 20) + 1));
    CHECK_OK(weft_heap_query(comm, &before));
    CHECK(before.max_bytes >= max_bytes, "max_bytes is %lu", (unsigned long)before.max_bytes);
    CHECK(before.committed_bytes > 5 << 20, "%lu bytes", (unsigned long)before.committed_bytes);
    CHECK_OK(weft_heap_grow(comm, 100));
    CHECK_OK(weft_heap_alloc(comm, before.largest_free_bytes, &ptr));
    CHECK_OK(weft_heap_query(comm, &info));
    CHECK(info.committed_bytes == before.committed_bytes, "it grew without need");
    CHECK(info.largest_free_bytes == 0, "%lu bytes are free",
          (unsigned long)info.largest_free_bytes);
    if (write_bytes(comm, ptr, before.largest_free_bytes) != 0)
        return 1;

    CHECK_ERROR(weft_heap_alloc(comm, before.max_bytes, &rest), WEFT_ERROR_OUT_OF_MEMORY,
                "heap_max_bytes is");
    CHECK_ERROR(weft_heap_alloc(comm, SIZE_MAX, &rest), WEFT_ERROR_OUT_OF_MEMORY,
                "heap_max_bytes is");
    CHECK_ERROR(weft_heap_grow(comm, before.max_bytes + 1), WEFT_ERROR_OUT_OF_MEMORY,
                "heap_max_bytes is");
    /* All that is left, to the last byte. */
    CHECK_OK(weft_heap_grow(comm, before.max_bytes));
    CHECK_OK(weft_heap_query(comm, &info));
    CHECK(info.committed_bytes == info.max_bytes, "%lu bytes", (unsigned long)info.committed_bytes);
    CHECK_OK(weft_heap_alloc(comm, info.largest_free_bytes, &rest));
    if (write_bytes(comm, rest, info.largest_free_bytes) != 0)
        return 1;
    CHECK_ERROR(weft_heap_alloc(comm, 1, &rest), WEFT_ERROR_OUT_OF_MEMORY, "heap");
    return 0;
}

/* Each rank wants all of the host's memory, or more than a GPU has: an error, and not a process
 * killed for want of it. */
TEST_ON_RANKS(lack_of_memory_is_an_error, RANKS_PROCESSES, 2)
{
    weft_heap_info before = WEFT_INIT(weft_heap_info), after = WEFT_INIT(weft_heap_info);
    const uint64_t host_bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 21 << 21;
    const uint64_t max_bytes = tests_on_cuda() ? UINT64_C(1) << 40 : host_bytes;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .heap_max_bytes = max_bytes));
    CHECK_OK(weft_heap_query(comm, &before));
    CHECK_ERROR(weft_heap_grow(comm, max_bytes), WEFT_ERROR_OUT_OF_MEMORY, "bytes");
    CHECK_OK(weft_heap_query(comm, &after));
    CHECK(memcmp(&before, &after, sizeof(before)) == 0, "the heap has changed");
    CHECK_OK(weft_comm_status(comm, NULL));
    return 0;
}

static int disagree(struct ranks_context *context)
{
    void *ptr, *other;
    weft_heap_info before = WEFT_INIT(weft_heap_info), after = WEFT_INIT(weft_heap_info);
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_heap_query(comm, &before));
    CHECK_ERROR(weft_heap_alloc(comm, context->rank == 1 ? 5 << 20 : 64, &ptr), WEFT_ERROR_MISMATCH,
                "64 on rank 0 and 5242880 on rank 1");
    CHECK_ERROR(weft_heap_grow(comm, context->rank == 2 ? 0 : 4 << 20), WEFT_ERROR_MISMATCH,
                "0 on rank 2");
    /* Nothing has happened. */
    CHECK_OK(weft_heap_query(comm, &after));
    CHECK(memcmp(&before, &after, sizeof(before)) == 0, "the heap has changed");
    CHECK_OK(weft_heap_alloc(comm, 64, &ptr));
    /* A rank that forgets to free has another heap from then on. */
    CHECK_OK(weft_heap_alloc(comm, 64, &other));
    if (context->rank != 2)
        CHECK_OK(weft_heap_free(comm, ptr));
    CHECK_ERROR(weft_heap_alloc(comm, 64, &other), WEFT_ERROR_MISMATCH, "rank 2");
    if (context->rank == 2)
        CHECK_OK(weft_heap_free(comm, ptr));
    CHECK_OK(weft_heap_alloc(comm, 64, &other));
    return 0;
}

static int disagree_on_the_heap(struct ranks_context *context)
{
    weft_comm *comm;
    CHECK_ERROR(ranks_comm_create(context,
                                  WEFT_ARGS(weft_comm_config,
                                            .heap_bytes = context->rank == 2 ? 1 << 20 : 2 << 20),
                                  &comm),
                WEFT_ERROR_MISMATCH, "heap_bytes: 2097152 on rank 0 and 1048576 on rank 2");
    return 0;
}

TEST(ranks_that_disagree_are_told_so)
{
    assert_int_equal(ranks_run_in_both_modes(3, disagree), 0);
    assert_int_equal(ranks_run_in_both_modes(3, disagree_on_the_heap), 0);
}

/* ---------------------------------------------------------------- limits */

enum { LIMIT_BYTES = 4 << 20 };

static int limit_files(rlim_t bytes, struct rlimit *before)
{
    getrlimit(RLIMIT_FSIZE, before);
    const struct rlimit limit = {bytes, before->rlim_max};
    return setrlimit(RLIMIT_FSIZE, &limit);
}

/* The limit of one rank is an error on all ranks; the heap is then as before. */
static int pass_limit(struct ranks_context *context)
{
    const rlim_t limit = context->rank == 1 ? LIMIT_BYTES : RLIM_INFINITY;
    struct rlimit before;
    void *ptr = NULL, *other = NULL;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK(limit_files(limit, &before) == 0, "no limit");
    const weft_result refused = weft_heap_alloc(comm, 2 * LIMIT_BYTES, &ptr);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_ERROR(refused, WEFT_ERROR_OUT_OF_MEMORY, "RLIMIT_FSIZE");
    CHECK(ptr == NULL, "it was written");
    CHECK_OK(weft_heap_alloc(comm, 2 * LIMIT_BYTES, &other));
    memset(other, 1, 2 * LIMIT_BYTES);
    return 0;
}

TEST(a_limit_on_files_is_an_error)
{
    if (!tests_on_cuda())
        assert_int_equal(ranks_run(RANKS_PROCESSES, 3, pass_limit, NULL), 0);
}

/* ---------------------------------------------------------------- arenas */

TEST_IN_BOTH_MODES(arenas_are_each_ranks_own, 4)
{
    enum { NUM_BLOCKS = 16, ARENA_BYTES = NUM_BLOCKS * ALIGNMENT };
    weft_arena *arena;
    void *blocks[NUM_BLOCKS], *ptr = context;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_arena_create(comm, ARENA_BYTES, &arena));
    /* Each rank for itself, another number of blocks, in another order. */
    for (int round = 0; round <= context->rank; round++) {
        for (int index = 0; index < NUM_BLOCKS; index++) {
            CHECK_OK(weft_arena_alloc(arena, (size_t)(1 + index), &blocks[index]));
            CHECK((uintptr_t)blocks[index] % ALIGNMENT == 0, "%p", blocks[index]);
            CHECK(weft_heap_ptr(comm, blocks[index], 0) != NULL, "not in the heap");
        }
        CHECK_ERROR(weft_arena_alloc(arena, 1, &ptr), WEFT_ERROR_OUT_OF_MEMORY,
                    "has 0 of its 4096 bytes");
        CHECK_OK(weft_arena_free(arena, blocks[3]));
        CHECK_OK(weft_arena_free(arena, blocks[5]));
        CHECK_ERROR(weft_arena_alloc(arena, 2 * ALIGNMENT, &ptr), WEFT_ERROR_OUT_OF_MEMORY,
                    "has 512 of its");
        CHECK_OK(weft_arena_free(arena, blocks[4]));
        CHECK_OK(weft_arena_alloc(arena, 3 * ALIGNMENT, &ptr));
        CHECK(ptr == blocks[3], "not the gap");
        CHECK_ERROR(weft_arena_free(arena, blocks[4]), WEFT_ERROR_INVALID_ARGUMENT, "ptr is");
        CHECK_OK(weft_arena_reset(arena));
    }
    CHECK_OK(weft_arena_alloc(arena, ARENA_BYTES, &ptr));
    CHECK_OK(weft_arena_free(arena, NULL));
    CHECK_OK(weft_arena_alloc(arena, 0, &ptr));
    CHECK(ptr == NULL, "0 bytes are at %p", ptr);
    CHECK_OK(weft_arena_destroy(arena));
    CHECK_OK(weft_arena_create(comm, 0, &arena));
    CHECK_ERROR(weft_arena_alloc(arena, 1, &ptr), WEFT_ERROR_OUT_OF_MEMORY, "bytes");
    CHECK_OK(weft_arena_destroy(arena));
    return 0;
}

/* Words that an object waits on must be zero, though they lie where rows have been. */
TEST_IN_BOTH_MODES(objects_take_memory_that_was_used, 3)
{
    enum { BYTES = 4 << 20, NUM_ELEMENTS = 1000 };
    weft_coll *coll;
    void *ptr;
    float *data = malloc(NUM_ELEMENTS * sizeof *data);
    unsigned char *used = malloc(BYTES);
    memset(used, 1, BYTES);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_heap_alloc(comm, BYTES, &ptr));
        CHECK_OK(weft_memory_copy(comm, ptr, used, BYTES));
        CHECK_OK(weft_heap_free(comm, ptr));
        CHECK_OK(ranks_coll_create(comm, &coll));
        CHECK_OK(weft_heap_alloc(comm, NUM_ELEMENTS * sizeof *data, &ptr));
        for (int i = 0; i < NUM_ELEMENTS; i++)
            data[i] = (float)(i + context->rank);
        CHECK_OK(weft_memory_copy(comm, ptr, data, NUM_ELEMENTS * sizeof *data));
        CHECK_OK(weft_coll_all_reduce(coll,
                                      WEFT_ARGS(weft_coll_args, .send = ptr, .recv = ptr,
                                                .count = NUM_ELEMENTS, .dtype = WEFT_FP32,
                                                .op = WEFT_SUM),
                                      stream));
        CHECK_OK(weft_stream_synchronize(stream));
        CHECK_OK(weft_memory_copy(comm, data, ptr, NUM_ELEMENTS * sizeof *data));
        for (int i = 0; i < NUM_ELEMENTS; i++)
            CHECK(data[i] == (float)(3 * i + 3), "round %d: element %d is %g", round, i,
                  (double)data[i]);
        CHECK_OK(weft_coll_destroy(coll));
        CHECK_OK(weft_heap_free(comm, ptr));
    }
    free(used);
    free(data);
    return 0;
}
