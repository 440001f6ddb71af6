/* SPDX-License-Identifier: MIT */
/* weft_comm_barrier: nobody passes before all have come, of all nodes, and memory written before it
 * is read after, where ranks can reach it. */
#include <stdatomic.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/coll_rank.h"

enum {
    WORDS_PER_RANK = 512,
    ROW_BYTES = WORDS_PER_RANK * sizeof(uint64_t),
    NUM_BETWEEN_SYNCHRONISATIONS = 50
};

struct visitor {
    struct ep_rank rank;
    uint64_t *words; /* [num_ranks][WORDS_PER_RANK], in the heap: row r is written by rank r */
    uint64_t *copy;  /* of words, for the host */
    uint64_t round;
    int64_t num_wrong;
    _Atomic uint64_t *num_arrived; /* shared by all ranks */
};

static uint64_t word_value(uint64_t round, int32_t from, int32_t to, int i)
{
    return round * 1000003 + (uint64_t)(from * 97 + to) * 4096 + (uint64_t)i;
}

/* Writes this rank's row in the heap of every rank of its node, its own included. */
static void write_to_all(void *argument)
{
    struct visitor *visitor = argument;
    const int32_t own = visitor->rank.context->rank;
    visitor->round++;
    for (int32_t rank = 0; rank < visitor->rank.context->num_ranks; rank++) {
        uint64_t *words = weft_heap_ptr(visitor->rank.comm, visitor->words, rank);
        if (words == NULL)
            continue;
        for (int i = 0; i < WORDS_PER_RANK; i++)
            visitor->copy[i] = word_value(visitor->round, own, rank, i);
        visitor->num_wrong += ep_rank_copy(&visitor->rank, words + own * WORDS_PER_RANK,
                                           visitor->copy, ROW_BYTES) != WEFT_OK;
    }
    atomic_fetch_add(visitor->num_arrived, 1);
}

static int is_neighbour(const struct visitor *visitor, int32_t rank)
{
    return weft_comm_node(visitor->rank.comm, rank) ==
           weft_comm_node(visitor->rank.comm, visitor->rank.context->rank);
}

static void read_from_all(void *argument)
{
    struct visitor *visitor = argument;
    const int32_t own = visitor->rank.context->rank;
    const int32_t num_ranks = visitor->rank.context->num_ranks;
    visitor->num_wrong += atomic_load(visitor->num_arrived) < visitor->round * (uint64_t)num_ranks;
    visitor->num_wrong += ep_rank_copy(&visitor->rank, visitor->copy, visitor->words,
                                       (size_t)num_ranks * ROW_BYTES) != WEFT_OK;
    for (int32_t rank = 0; rank < num_ranks; rank++)
        for (int i = 0; i < WORDS_PER_RANK && is_neighbour(visitor, rank); i++)
            visitor->num_wrong += visitor->copy[rank * WORDS_PER_RANK + i] !=
                                  word_value(visitor->round, rank, own, i);
}

static int step(struct visitor *visitor)
{
    struct ep_rank *rank = &visitor->rank;
    if (ep_rank_call(rank, write_to_all, visitor))
        return 1;
    CHECK_OK(weft_comm_barrier(rank->comm, rank->stream));
    if (ep_rank_call(rank, read_from_all, visitor))
        return 1;
    CHECK_OK(weft_comm_barrier(rank->comm, rank->stream));
    return 0;
}

struct visit_of {
    struct coll_nodes nodes;
    int32_t num_ranks; /* of the world of these nodes */
};

static int visit(struct ranks_context *context)
{
    const struct visit_of *of = context->argument;
    const int32_t num_nodes = of->nodes.num_nodes;
    weft_comm *comm;
    /* Ranks of several processes take turns on a GPU, by the millisecond; others sleep in the
     * network. */
    const int32_t num_steps =
        num_nodes > 1 ? tests_grid_size(200, 60) : tests_rounds(tests_grid_size(1000, 100), 200);
    if (coll_nodes_open(context, &of->nodes, of->num_ranks, &comm))
        return 1;
    if (comm == NULL)
        return 0;
    struct visitor *visitor = tests_alloc(sizeof *visitor);
    void *words;
    if (ep_rank_open_on(&visitor->rank, context, comm, 4096))
        return 1;
    visitor->num_arrived = context->shared;
    const size_t bytes = (size_t)context->num_ranks * ROW_BYTES;
    CHECK_OK(weft_heap_alloc(visitor->rank.comm, bytes, &words));
    visitor->words = words;
    visitor->copy = tests_alloc(bytes);
    for (int32_t i = 0; i < num_steps; i++) {
        if (step(visitor))
            return 1;
        if (i % NUM_BETWEEN_SYNCHRONISATIONS == 0)
            CHECK_OK(weft_stream_synchronize(visitor->rank.stream));
    }
    CHECK_OK(weft_stream_synchronize(visitor->rank.stream));
    CHECK(visitor->num_wrong == 0, "%lld wrong words", (long long)visitor->num_wrong);
    CHECK_OK(weft_heap_free(visitor->rank.comm, visitor->words));
    if (ep_rank_close(&visitor->rank))
        return 1;
    tests_free(visitor->copy);
    tests_free(visitor);
    return 0;
}

static void run_some(enum ranks_mode mode, const struct visit_of *of)
{
    const struct ranks_options options = {.mode = mode,
                                          .num_ranks = of->nodes.num_nodes * of->nodes.num_local,
                                          RANKS_ARGUMENT(of),
                                          .shared_bytes = sizeof(uint64_t)};
    assert_int_equal(ranks_run_with(&options, visit), 0);
}

static void run_on_nodes(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes)
{
    const struct visit_of of = {{num_nodes, num_ranks / num_nodes, 0, COLL_NODE_AFTER_NODE},
                                num_ranks};
    run_some(mode, &of);
}

static void run(enum ranks_mode mode, int32_t num_ranks)
{
    run_on_nodes(mode, num_ranks, 1);
}

TEST(in_threads)
{
    run(RANKS_THREADS, 1);
    run(RANKS_THREADS, 2);
    run(RANKS_THREADS, 5);
}

TEST_CALL(in_processes, run(RANKS_PROCESSES, 3))

TEST_OVER_ENGINES(between_nodes)
{
    run_on_nodes(RANKS_PROCESSES, 2, 2);
    run_on_nodes(RANKS_PROCESSES, 4, 2);
    run_on_nodes(RANKS_PROCESSES, 4, 4);
    run_on_nodes(RANKS_THREADS, 6, 3);
    run_some(RANKS_THREADS, &(struct visit_of){{2, 3, 2, COLL_NODE_AFTER_NODE}, 4}); /* 1 + 3 */
    run_some(RANKS_PROCESSES, &(struct visit_of){{5, 2, 1, COLL_NODE_AFTER_NODE}, 8});
}

/* Barriers given to different streams are still ordered among each other. */
static int alternate(struct ranks_context *context)
{
    struct ep_rank self;
    weft_stream *other;
    if (ep_rank_open(&self, context, *(const int32_t *)context->argument, 4096))
        return 1;
    CHECK_OK(weft_stream_create(self.comm, &other));
    const int32_t num_barriers = tests_grid_size(300, 100);
    for (int32_t i = 0; i < num_barriers; i++)
        CHECK_OK(weft_comm_barrier(self.comm, (i + context->rank) % 2 == 0 ? self.stream : other));
    CHECK_OK(weft_stream_synchronize(other));
    CHECK_OK(weft_stream_synchronize(self.stream));
    CHECK_OK(weft_stream_destroy(other));
    return ep_rank_close(&self);
}

TEST(on_alternating_streams)
{
    int32_t num_nodes = 1;
    assert_int_equal(ranks_run(RANKS_THREADS, 4, alternate, &num_nodes), 0);
    num_nodes = 2;
    if (tests_network_is_there("auto"))
        assert_int_equal(ranks_run(RANKS_THREADS, 4, alternate, &num_nodes), 0);
}
