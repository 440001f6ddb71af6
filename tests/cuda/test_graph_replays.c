/* SPDX-License-Identifier: MIT */
/* A small all-reduce, or a group of a send and a receive, in a graph that is replayed up to 10,000
 * times: by the algorithms of a node, in pieces, and over nodes. The stream brings other inputs
 * before every replay and takes the results away after it, all of which are compared. The host
 * waits in between as seldom as it can, so that ranks run ahead of each other and buffers are used
 * again. */
#include "cuda/device_memory.h"
#include "cuda/party.h"
#include "harness/cmocka.h"
#include "harness/machine.h"

enum {
    /* A thread that launches into a full queue would keep others of its process from launching. */
    NUM_AT_ONCE = 40,
    NUM_WORDS = 100,
    MAX_RANKS = 4
};

/* What the graph does. */
struct way {
    weft_algorithm algorithm;
    enum { ALL_REDUCE, GROUP } operation;
    enum { ON_ONE_NODE, ON_A_NODE_EACH } placement;
    uint64_t num_replays;
};

struct player {
    struct party party;
    const struct way *way;
    struct device_memory arrays; /* what the graph reads and writes */
    int32_t *send, *recv;
    struct device_memory rings; /* of the host, where the stream can copy from and to */
    uint32_t (*inputs)[NUM_WORDS], (*results)[NUM_WORDS]; /* [NUM_AT_ONCE] */
    weft_coll_record *capture;
    CUgraphExec graph;
};

/* ---------------------------------------------------------------- life */

/* Neither array is aligned to 16 bytes. */
static int open_memory(struct player *player)
{
    if (device_memory_alloc(MEMORY_PLAIN, &player->arrays) ||
        device_memory_alloc(MEMORY_PINNED, &player->rings))
        return 1;
    player->send = (int32_t *)(void *)(player->arrays.base + 20);
    player->recv = (int32_t *)(void *)(player->arrays.base + player->arrays.segment_bytes - 12);
    player->inputs = (uint32_t(*)[NUM_WORDS])(void *)player->rings.base;
    player->results = player->inputs + NUM_AT_ONCE;
    return 0;
}

static int32_t neighbour(const struct player *player, int32_t distance)
{
    const struct ranks_context *context = player->party.context;
    return (context->rank + context->num_ranks + distance) % context->num_ranks;
}

/* To the next rank, from the one before. */
static int record_group(struct player *player)
{
    struct party *party = &player->party;
    CHECK_OK(weft_coll_group_begin(party->coll));
    CHECK_OK(weft_coll_send(party->coll,
                            WEFT_ARGS(weft_coll_send_args, .send = player->send, .count = NUM_WORDS,
                                      .dtype = WEFT_INT32, .peer = neighbour(player, 1)),
                            party->stream));
    CHECK_OK(weft_coll_recv(party->coll,
                            WEFT_ARGS(weft_coll_recv_args, .recv = player->recv, .count = NUM_WORDS,
                                      .dtype = WEFT_INT32, .peer = neighbour(player, -1)),
                            party->stream));
    CHECK_OK(weft_coll_group_end(party->coll));
    return 0;
}

static int record_all_reduce(struct player *player)
{
    struct party *party = &player->party;
    CHECK_OK(
        weft_coll_all_reduce(party->coll,
                             WEFT_ARGS(weft_coll_args, .send = player->send, .recv = player->recv,
                                       .count = NUM_WORDS, .dtype = WEFT_INT32, .op = WEFT_SUM),
                             party->stream));
    return 0;
}

static int record(struct player *player)
{
    struct party *party = &player->party;
    CHECK_OK(weft_coll_record_begin(party->coll, &player->capture));
    if (party_record_begin(party) ||
        (player->way->operation == GROUP ? record_group(player) : record_all_reduce(player)) ||
        party_record_end(party, &player->graph))
        return 1;
    CHECK_OK(weft_coll_record_end(player->capture));
    return 0;
}

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* Ordered by the stream. */
static int copy(struct player *player, void *to, const void *from)
{
    DRIVER_CHECK(driver.memcpy_async(address_of(to), address_of(from), NUM_WORDS * sizeof(uint32_t),
                                     player->party.native));
    return 0;
}

/* What the driver does only the first time may wait for kernels of the process, which wait for
 * other ranks: so all of it comes before the first replay of any rank. */
static int warm_up(struct player *player)
{
    struct party *party = &player->party;
    DRIVER_CHECK(driver.graph_upload(player->graph, party->native));
    if (copy(player, player->send, player->inputs[0]) ||
        copy(player, player->results[0], player->recv))
        return 1;
    CHECK_OK(weft_stream_synchronize(party->stream));
    CHECK_OK(weft_comm_host_barrier(party->comm));
    return 0;
}

static int close_player(struct player *player)
{
    CHECK_OK(weft_comm_host_barrier(player->party.comm)); /* all replays have ended */
    DRIVER_CHECK(driver.graph_exec_destroy(player->graph));
    CHECK_OK(weft_coll_record_destroy(player->capture));
    return device_memory_free(&player->arrays) || device_memory_free(&player->rings) ||
           party_close(&player->party);
}

/* ---------------------------------------------------------------- replays */

static void write_inputs(struct player *player, uint64_t first)
{
    for (uint64_t slot = 0; slot < NUM_AT_ONCE; slot++)
        for (uint32_t i = 0; i < NUM_WORDS; i++)
            player->inputs[slot][i] = party_word(first + slot, player->party.context->rank, i);
}

static uint32_t expected_word(const struct player *player, uint64_t replay, uint32_t i)
{
    return player->way->operation == GROUP ? party_word(replay, neighbour(player, -1), i)
                                           : party_sum(&player->party, replay, i);
}

static int check_results(struct player *player, uint64_t first)
{
    for (uint64_t slot = 0; slot < NUM_AT_ONCE; slot++)
        for (uint32_t i = 0; i < NUM_WORDS; i++) {
            const uint32_t expected = expected_word(player, first + slot, i);
            CHECK(player->results[slot][i] == expected, "replay %llu: word %u is %x, not %x",
                  (unsigned long long)(first + slot), i, player->results[slot][i], expected);
        }
    return 0;
}

static int replay_some(struct player *player, uint64_t first)
{
    struct party *party = &player->party;
    write_inputs(player, first);
    for (uint64_t slot = 0; slot < NUM_AT_ONCE; slot++) {
        if (copy(player, player->send, player->inputs[slot]))
            return 1;
        DRIVER_CHECK(driver.graph_launch(player->graph, party->native));
        if (copy(player, player->results[slot], player->recv))
            return 1;
    }
    CHECK_OK(weft_stream_synchronize(party->stream));
    CHECK_OK(weft_comm_status(party->comm, NULL));
    return check_results(player, first);
}

static int play(struct ranks_context *context)
{
    const struct way *way = context->argument;
    const int32_t num_nodes = way->placement == ON_A_NODE_EACH ? context->num_ranks : 0;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    struct player player = {.way = way};
    config.choices =
        WEFT_ARGS(weft_coll_choice, .collective = WEFT_ALL_REDUCE, .algorithm = way->algorithm);
    config.num_choices = 1;
    config.num_blocks = 2; /* those of all ranks of a GPU must fit it */
    config.num_warps = 4;
    config.num_channels = 2;
    if (party_open_on_nodes(&player.party, context, num_nodes, &config) || open_memory(&player) ||
        record(&player) || warm_up(&player))
        return 1;
    for (uint64_t first = 0; first < way->num_replays; first += NUM_AT_ONCE)
        if (replay_some(&player, first))
            return 1;
    return close_player(&player);
}

/* By every algorithm; over nodes fewer times, since the host takes part in each. */
static void replay_on(enum ranks_mode mode, int32_t num_ranks)
{
    static const struct way ways[] = {
        {WEFT_ALGORITHM_ONESHOT, ALL_REDUCE, ON_ONE_NODE, 10000},
        {WEFT_ALGORITHM_TWOSHOT_PACKETS, ALL_REDUCE, ON_ONE_NODE, 10000},
        {WEFT_ALGORITHM_ONESHOT_PULL, ALL_REDUCE, ON_ONE_NODE, 10000},
        {WEFT_ALGORITHM_TWOSHOT, ALL_REDUCE, ON_ONE_NODE, 10000},
        {WEFT_ALGORITHM_AUTO, GROUP, ON_ONE_NODE, 2000},
        {WEFT_ALGORITHM_RAILS, ALL_REDUCE, ON_A_NODE_EACH, 400},
        {WEFT_ALGORITHM_RAILS, GROUP, ON_A_NODE_EACH, 400}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct way way = ways[i];
        if (ranks_run(mode, num_ranks, play, &way) != 0)
            fail_msg("%s on %d ranks, operation %d, %s", weft_coll_algorithm_name(way.algorithm),
                     num_ranks, (int)way.operation,
                     way.placement == ON_ONE_NODE ? "one node" : "a node each");
    }
}

/* The kernels of threads run side by side on one GPU. */
TEST_CALL(between_threads, replay_on(RANKS_THREADS, 3))

/* Those of processes take turns of milliseconds there: ten thousand replays need a GPU each. */
TEST(between_processes)
{
    const int32_t num_devices = tests_num_devices();
    if (num_devices < 2)
        skip();
    replay_on(RANKS_PROCESSES, num_devices < MAX_RANKS ? num_devices : MAX_RANKS);
}
