/* SPDX-License-Identifier: MIT */
/* Graphs of weft's own: they do what was recorded, on streams that wait for the captured one too;
 * what fails in them is told by the stream that they were launched on; misuse is refused. */
#include "cuda/party.h"
#include "harness/cmocka.h"

enum { NUM_RANKS = 2, NUM_WORDS = 3000, NUM_ROUNDS = 50, TIMEOUT_MS = 2000 };

/* Where the operations of a graph are enqueued. */
enum place { ON_THE_STREAM, ON_ANOTHER };

/* One stream is captured, and takes another along if it is to. */
struct player {
    struct ranks_context *context;
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *captured, *other;
    weft_event *fork, *join;
    void *send, *sums, *doubled; /* [NUM_WORDS] in the heap */
    weft_graph *graph;
};

/* ---------------------------------------------------------------- life */

static int open_objects(struct player *player)
{
    weft_comm *comm = player->comm;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.num_blocks = 2; /* those of all ranks of a GPU must fit it */
    config.num_warps = 4;
    CHECK_OK(weft_coll_create(comm, &config, &player->coll));
    CHECK_OK(weft_stream_create(comm, &player->captured));
    CHECK_OK(weft_stream_create(comm, &player->other));
    CHECK_OK(weft_event_create(comm, &player->fork));
    CHECK_OK(weft_event_create(comm, &player->join));
    CHECK_OK(weft_heap_alloc(comm, NUM_WORDS * 4, &player->send));
    CHECK_OK(weft_heap_alloc(comm, NUM_WORDS * 4, &player->sums));
    CHECK_OK(weft_heap_alloc(comm, NUM_WORDS * 4, &player->doubled));
    return 0;
}

static int open_player(struct player *player, struct ranks_context *context, uint32_t timeout_ms)
{
    *player = (struct player){.context = context};
    if (driver_use_device(context->rank))
        return 1;
    CHECK_OK(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .timeout_ms = timeout_ms),
                               &player->comm));
    return open_objects(player);
}

static int destroy_streams(struct player *player)
{
    CHECK_OK(weft_event_destroy(player->fork));
    CHECK_OK(weft_event_destroy(player->join));
    CHECK_OK(weft_stream_destroy(player->captured));
    CHECK_OK(weft_stream_destroy(player->other));
    return 0;
}

/* The graph goes last, when nothing is left of what it recorded. */
static int close_player(struct player *player)
{
    struct ranks_context *context = player->context;
    ranks_barrier(context); /* the others may still read this rank's heap */
    CHECK_OK(weft_heap_free(player->comm, player->send));
    CHECK_OK(weft_heap_free(player->comm, player->sums));
    CHECK_OK(weft_heap_free(player->comm, player->doubled));
    CHECK_OK(weft_coll_destroy(player->coll));
    CHECK_OK(weft_comm_destroy(player->comm));
    if (destroy_streams(player))
        return 1;
    CHECK_OK(weft_graph_destroy(player->graph));
    return driver_leave_device(context->rank);
}

/* ---------------------------------------------------------------- recording */

/* The sums of all ranks, and those once more. */
static int enqueue(struct player *player, weft_stream *stream)
{
    CHECK_OK(
        weft_coll_all_reduce(player->coll,
                             WEFT_ARGS(weft_coll_args, .send = player->send, .recv = player->sums,
                                       .count = NUM_WORDS, .dtype = WEFT_INT32, .op = WEFT_SUM),
                             stream));
    CHECK_OK(weft_coll_all_reduce(player->coll,
                                  WEFT_ARGS(weft_coll_args, .send = player->sums,
                                            .recv = player->doubled, .count = NUM_WORDS,
                                            .dtype = WEFT_INT32, .op = WEFT_SUM),
                                  stream));
    return 0;
}

static int enqueue_elsewhere(struct player *player)
{
    CHECK_OK(weft_event_record(player->fork, player->captured));
    CHECK_OK(weft_stream_wait_event(player->other, player->fork));
    if (enqueue(player, player->other))
        return 1;
    CHECK_OK(weft_event_record(player->join, player->other));
    CHECK_OK(weft_stream_wait_event(player->captured, player->join));
    return 0;
}

static int record(struct player *player, enum place place)
{
    CHECK_OK(weft_graph_begin(player->captured));
    if (place == ON_ANOTHER ? enqueue_elsewhere(player) : enqueue(player, player->captured))
        return 1;
    CHECK_OK(weft_graph_end(player->captured, &player->graph));
    CHECK_OK(weft_stream_synchronize(player->captured));
    CHECK_OK(weft_comm_host_barrier(player->comm));
    return 0;
}

/* ---------------------------------------------------------------- what launches do */

static int fill(struct player *player, uint64_t round)
{
    uint32_t words[NUM_WORDS];
    for (uint32_t i = 0; i < NUM_WORDS; i++)
        words[i] = party_word(round, player->context->rank, i);
    CHECK_OK(weft_memory_copy(player->comm, player->send, words, sizeof words));
    memset(words, 0xff, sizeof words);
    CHECK_OK(weft_memory_copy(player->comm, player->doubled, words, sizeof words));
    return 0;
}

static int check(struct player *player, uint64_t round)
{
    struct ranks_context *context = player->context;
    const struct party party = {.context = context};
    uint32_t words[NUM_WORDS];
    CHECK_OK(weft_memory_copy(player->comm, words, player->doubled, sizeof words));
    for (uint32_t i = 0; i < NUM_WORDS; i++) {
        const uint32_t expected = NUM_RANKS * party_sum(&party, round, i);
        CHECK(words[i] == expected, "round %llu: word %u is %x, not %x", (unsigned long long)round,
              i, words[i], expected);
    }
    return 0;
}

/* Also on a stream that had nothing to do with the recording. */
static int launch(struct ranks_context *context)
{
    const enum place *place = context->argument;
    struct player player;
    weft_stream *third;
    if (open_player(&player, context, 0) || record(&player, *place))
        return 1;
    CHECK_OK(weft_stream_create(player.comm, &third));
    for (uint64_t round = 0; round < NUM_ROUNDS; round++) {
        weft_stream *stream = round % 2 == 0 ? player.captured : third;
        if (fill(&player, round))
            return 1;
        for (uint64_t i = 0; i < 1 + round % 3; i++)
            CHECK_OK(weft_graph_launch(player.graph, stream));
        CHECK_OK(weft_stream_synchronize(stream));
        if (check(&player, round))
            return 1;
    }
    CHECK_OK(weft_stream_destroy(third));
    return close_player(&player);
}

/* The last rank launches nothing: the other's stream tells so once. */
static int launch_alone(struct ranks_context *context)
{
    const enum place *place = context->argument;
    struct player player;
    if (ranks_warm_up(context) || open_player(&player, context, TIMEOUT_MS) ||
        record(&player, *place))
        return 1;
    if (context->rank == 0) {
        CHECK_OK(weft_graph_launch(player.graph, player.captured));
        CHECK_ERROR(weft_stream_synchronize(player.captured), WEFT_ERROR_TIMEOUT, "rank 1");
        CHECK_OK(weft_stream_synchronize(player.captured));
        CHECK_ERROR(weft_comm_status(player.comm, NULL), WEFT_ERROR_TIMEOUT, "rank 1");
    }
    return close_player(&player);
}

/* ---------------------------------------------------------------- misuse */

static int misuse_streams(struct player *player)
{
    const weft_result invalid = WEFT_ERROR_INVALID_ARGUMENT;
    weft_graph *graph = NULL;
    CHECK_ERROR(weft_graph_end(player->other, &graph), invalid, "weft_graph_begin");
    CHECK_OK(weft_graph_begin(player->other));
    CHECK_ERROR(weft_graph_begin(player->other), invalid, "under capture");
    CHECK_ERROR(weft_stream_synchronize(player->other), invalid, "under capture");
    CHECK_ERROR(weft_graph_launch(player->graph, player->other), invalid, "under capture");
    CHECK_OK(weft_graph_end(player->other, &graph)); /* of nothing */
    CHECK_OK(weft_graph_launch(graph, player->other));
    CHECK_OK(weft_stream_synchronize(player->other));
    CHECK_OK(weft_graph_destroy(graph));
    CHECK_ERROR(weft_graph_end(player->other, &graph), invalid, "weft_graph_begin");
    return 0;
}

/* A wrapped stream that is under capture when weft lets go of it, and the legacy default stream. */
static int misuse_wrapped(struct player *player)
{
    CUstream native;
    weft_stream *wrapped;
    DRIVER_CHECK(driver.stream_create(&native, CU_STREAM_NON_BLOCKING));
    CHECK_OK(weft_stream_wrap(player->comm, native, &wrapped));
    CHECK_OK(weft_graph_begin(wrapped));
    if (enqueue(player, wrapped))
        return 1;
    CHECK_OK(weft_stream_destroy(wrapped));
    DRIVER_CHECK(driver.stream_synchronize(native)); /* it is under capture no more */
    DRIVER_CHECK(driver.stream_destroy(native));
    CHECK_OK(weft_stream_wrap(player->comm, NULL, &wrapped));
    const weft_result result = weft_graph_begin(wrapped);
    CHECK(result != WEFT_OK, "the legacy default stream is under capture");
    CHECK_OK(weft_stream_destroy(wrapped));
    return 0;
}

static int misuse(struct ranks_context *context)
{
    struct player player;
    if (open_player(&player, context, 0) || record(&player, ON_THE_STREAM) ||
        misuse_streams(&player) || misuse_wrapped(&player))
        return 1;
    if (fill(&player, 0)) /* none of it did any harm */
        return 1;
    CHECK_OK(weft_graph_launch(player.graph, player.captured));
    CHECK_OK(weft_stream_synchronize(player.captured));
    return check(&player, 0) || close_player(&player);
}

/* ---------------------------------------------------------------- cases */

static void run(rank_function function, enum place place)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, function, &place), 0);
}

TEST_CALL(launches_do_what_was_recorded, run(launch, ON_THE_STREAM))
TEST_CALL(other_streams_take_part, run(launch, ON_ANOTHER))

TEST(failures_are_told_by_the_stream)
{
    run(launch_alone, ON_THE_STREAM);
    run(launch_alone, ON_ANOTHER);
}

TEST_CALL(misuse_is_refused, run(misuse, ON_THE_STREAM))
