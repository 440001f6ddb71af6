/* SPDX-License-Identifier: MIT */
/* A small all-reduce in a graph that is replayed 10,000 times. The stream brings other inputs before every
 * replay and takes the results away after it, all of which are compared. The host waits in between as
 * seldom as it can, so that ranks run ahead of each other and buffers are used again. */
#include "cuda/device_memory.h"
#include "cuda/party.h"
#include "harness/cmocka.h"
#include "harness/machine.h"

enum {
    NUM_REPLAYS = 10000,
    /* A thread that launches into a full queue would keep others of its process from launching. */
    NUM_AT_ONCE = 40,
    NUM_WORDS = 100,
    MAX_RANKS = 4
};

struct player {
    struct party party;
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
    struct ranks_context *context = player->party.context;
    if (device_memory_alloc(context, MEMORY_PLAIN, &player->arrays) ||
        device_memory_alloc(context, MEMORY_PINNED, &player->rings))
        return 1;
    player->send = (int32_t *)(void *)(player->arrays.base + 20);
    player->recv = (int32_t *)(void *)(player->arrays.base + player->arrays.segment_bytes - 12);
    player->inputs = (uint32_t(*)[NUM_WORDS])(void *)player->rings.base;
    player->results = player->inputs + NUM_AT_ONCE;
    return 0;
}

static int record(struct player *player)
{
    struct party *party = &player->party;
    RANK_CHECK_OK(party->context, weft_coll_record_begin(party->coll, &player->capture));
    if (party_record_begin(party))
        return 1;
    RANK_CHECK_OK(
        party->context,
        weft_coll_all_reduce(party->coll,
                             WEFT_ARGS(weft_coll_args, .send = player->send, .recv = player->recv,
                                       .count = NUM_WORDS, .dtype = WEFT_INT32, .op = WEFT_SUM),
                             party->stream));
    if (party_record_end(party, &player->graph))
        return 1;
    RANK_CHECK_OK(party->context, weft_coll_record_end(player->capture));
    return 0;
}

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* Ordered by the stream. */
static int copy(struct player *player, void *to, const void *from)
{
    DRIVER_CHECK(player->party.context,
                 driver.memcpy_async(address_of(to), address_of(from), NUM_WORDS * sizeof(uint32_t),
                                     player->party.native));
    return 0;
}

/* What the driver does only the first time may wait for kernels of the process, which wait for other
 * ranks: so all of it comes before the first replay of any rank. */
static int warm_up(struct player *player)
{
    struct party *party = &player->party;
    DRIVER_CHECK(party->context, driver.graph_upload(player->graph, party->native));
    if (copy(player, player->send, player->inputs[0]) ||
        copy(player, player->results[0], player->recv))
        return 1;
    RANK_CHECK_OK(party->context, weft_stream_synchronize(party->stream));
    RANK_CHECK_OK(party->context, weft_host_barrier(party->comm));
    return 0;
}

static int close_player(struct player *player)
{
    struct ranks_context *context = player->party.context;
    RANK_CHECK_OK(context, weft_host_barrier(player->party.comm)); /* all replays have ended */
    DRIVER_CHECK(context, driver.graph_exec_destroy(player->graph));
    RANK_CHECK_OK(context, weft_coll_record_destroy(player->capture));
    return device_memory_free(context, &player->arrays) ||
           device_memory_free(context, &player->rings) || party_close(&player->party);
}

/* ---------------------------------------------------------------- replays */

static void write_inputs(struct player *player, uint64_t first)
{
    for (uint64_t slot = 0; slot < NUM_AT_ONCE; slot++)
        for (uint32_t i = 0; i < NUM_WORDS; i++)
            player->inputs[slot][i] = party_word(first + slot, player->party.context->rank, i);
}

static int check_results(struct player *player, uint64_t first)
{
    const struct party *party = &player->party;
    for (uint64_t slot = 0; slot < NUM_AT_ONCE; slot++)
        for (uint32_t i = 0; i < NUM_WORDS; i++) {
            const uint32_t expected = party_sum(party, first + slot, i);
            RANK_CHECK(party->context, player->results[slot][i] == expected,
                       "replay %llu: word %u is %x, not %x", (unsigned long long)(first + slot), i,
                       player->results[slot][i], expected);
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
        DRIVER_CHECK(party->context, driver.graph_launch(player->graph, party->native));
        if (copy(player, player->results[slot], player->recv))
            return 1;
    }
    RANK_CHECK_OK(party->context, weft_stream_synchronize(party->stream));
    RANK_CHECK_OK(party->context, weft_comm_status(party->comm, NULL));
    return check_results(player, first);
}

static int play(struct ranks_context *context)
{
    const weft_algorithm *algorithm = context->argument;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    struct player player;
    config.choices =
        WEFT_ARGS(weft_coll_choice, .collective = WEFT_ALL_REDUCE, .algorithm = *algorithm);
    config.num_choices = 1;
    config.num_blocks = 2; /* those of all ranks of a GPU must fit it */
    config.num_warps = 4;
    if (party_open(&player.party, context, &config) || open_memory(&player) || record(&player) ||
        warm_up(&player))
        return 1;
    for (uint64_t first = 0; first < NUM_REPLAYS; first += NUM_AT_ONCE)
        if (replay_some(&player, first))
            return 1;
    return close_player(&player);
}

/* By every algorithm. */
static void replay_on(enum ranks_mode mode, int32_t num_ranks)
{
    static const weft_algorithm algorithms[] = {
        WEFT_ALGORITHM_ONESHOT, WEFT_ALGORITHM_TWOSHOT_PACKETS, WEFT_ALGORITHM_ONESHOT_PULL,
        WEFT_ALGORITHM_TWOSHOT};
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        weft_algorithm algorithm = algorithms[i];
        if (ranks_run(mode, num_ranks, play, &algorithm) != 0)
            fail_msg("%s on %d ranks", weft_coll_algorithm_name(algorithm), num_ranks);
    }
}

/* The kernels of threads run side by side on one GPU. */
TEST(between_threads)
{
    replay_on(RANKS_THREADS, 3);
}

/* Those of processes take turns of milliseconds there: ten thousand replays need a GPU each. */
TEST(between_processes)
{
    const int32_t num_devices = tests_num_devices();
    if (num_devices < 2)
        skip();
    replay_on(RANKS_PROCESSES, num_devices < MAX_RANKS ? num_devices : MAX_RANKS);
}

int main(void)
{
    driver_require();
    return tests_run(NULL, NULL);
}
