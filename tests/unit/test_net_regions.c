/* SPDX-License-Identifier: MIT */
/* Regions that come and go while a network is used: their numbers, more of them than there are
 * numbers, and what goes to memory that the engine alone accesses. */
#include <string.h>

#include "comm/host/error.h"
#include "fake_nets.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "machine/host.h"
#include "net/attach.h"
#include "net/engine.h"
#include "net_post.h"

/* ---------------------------------------------------------------- of a communicator */

enum {
    NUM_RANKS = 4,
    NUM_NODES = 2,
    NUM_AREAS = WEFT__NET_MAX_REGIONS + 3, /* the heap is a region, too */
    HALF_BYTES = 100000
};

struct area { /* sent and received */
    unsigned char *halves[2];
    uint64_t place;
};

static unsigned char value_at(int32_t from, int area, size_t byte)
{
    return (unsigned char)((size_t)from * 77 + (size_t)area * 13 + byte + (byte >> 8));
}

static int alloc_area(weft_comm *comm, struct area *area)
{
    void *memory;
    CHECK_OK(
        weft__host_machine.network_alloc(comm, (uint64_t)2 * HALF_BYTES, &memory, &area->place));
    CHECK_OK(weft__net_add_staging(comm, memory, (uint64_t)2 * HALF_BYTES, &area->place));
    area->halves[0] = memory;
    area->halves[1] = area->halves[0] + HALF_BYTES;
    memset(area->halves[1], 0, HALF_BYTES);
    return 0;
}

static int check_places(weft_comm *comm, const struct area *areas)
{
    uint64_t own[NUM_AREAS], all[NUM_RANKS][NUM_AREAS];
    for (int i = 0; i < NUM_AREAS; i++)
        own[i] = areas[i].place;
    CHECK_OK(weft_comm_host_all_gather(comm, own, sizeof own, all));
    for (int i = 0; i < NUM_AREAS; i++) {
        const uint32_t region = weft__net_region_of(own[i]);
        const uint32_t expected = i + 1 < WEFT__NET_MAX_REGIONS ? (uint32_t)i + 1 : 0;
        CHECK(region == expected, "area %d is in region %u", i, region);
        for (int rank = 0; rank < NUM_RANKS; rank++)
            CHECK(all[rank][i] == own[i], "area %d is elsewhere on rank %d", i, rank);
    }
    return 0;
}

/* From each to its partner. */
static int put_all(struct ranks_context *context, weft_comm *comm, const struct area *areas)
{
    const int32_t partner = (context->rank + NUM_RANKS / NUM_NODES) % NUM_RANKS;
    CHECK_OK(weft_comm_host_barrier(comm)); /* what is received into is zero */
    for (int i = 0; i < NUM_AREAS; i++) {
        const struct wp_access put = {.operation = WP_ACCESS_PUT,
                                      .rank = partner,
                                      .source = areas[i].place,
                                      .target = areas[i].place + HALF_BYTES,
                                      .num_bytes = HALF_BYTES};
        for (size_t byte = 0; byte < HALF_BYTES; byte++)
            areas[i].halves[0][byte] = value_at(context->rank, i, byte);
        weft__progress_post(comm->network->progress, &put, WEFT__POSTER_WAITS, NULL);
    }
    weft__net_drain(comm);
    CHECK_OK(weft_comm_host_barrier(comm));
    for (int i = 0; i < NUM_AREAS; i++)
        for (size_t byte = 0; byte < HALF_BYTES; byte++)
            CHECK(areas[i].halves[1][byte] == value_at(partner, i, byte),
                  "byte %zu of area %d is wrong", byte, i);
    return 0;
}

TEST_ON_RANKS_OVER_ENGINES(areas_come_and_go, RANKS_PROCESSES, NUM_RANKS)
{
    struct area areas[NUM_AREAS];
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < NUM_AREAS; i++)
            if (alloc_area(comm, &areas[i]) != 0)
                return 1;
        if (check_places(comm, areas) != 0 || put_all(context, comm, areas) != 0)
            return 1;
        for (int i = 0; i < NUM_AREAS; i++) {
            weft__net_remove_region(comm, areas[i].halves[0]);
            weft__host_machine.network_free(comm, areas[i].halves[0]);
        }
    }
    return 0;
}

/* A rank that has freed fewer regions, or others, than the rest. */
TEST_ON_RANKS_OVER(numbers_are_free_on_all_ranks, "tcp", RANKS_PROCESSES, NUM_RANKS)
{
    unsigned char memory[3][64];
    uint64_t places[3];
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES));
    for (int i = 0; i < 2; i++) {
        const struct weft__net_part part = {memory[i], sizeof memory[i], WEFT__NET_HOST_MEMORY};
        CHECK_OK(weft__net_add_region(comm, &part, &places[i]));
    }
    weft__net_remove_region(comm, memory[context->rank == 2]);
    const struct weft__net_part part = {memory[2], sizeof memory[2], WEFT__NET_HOST_MEMORY};
    CHECK_OK(weft__net_add_region(comm, &part, &places[2]));
    CHECK(weft__net_region_of(places[2]) == 3, "it is region %u", weft__net_region_of(places[2]));
    const struct weft__net_part none = {NULL, sizeof memory[2], WEFT__NET_HOST_MEMORY};
    CHECK_ERROR(weft__net_add_region(comm, context->rank == 1 ? &none : &part, &places[2]),
                WEFT_ERROR_UNSUPPORTED, "no such memory for the network");
    return 0;
}

/* ---------------------------------------------------------------- memory of a device */

enum { HOST, DEVICE, ACCESSED, NUM_REGIONS, BYTES = 4096 };

struct pair {
    struct fake_nets fake;
    _Atomic uint64_t num_bytes;
    uint64_t memory[2][NUM_REGIONS][BYTES / sizeof(uint64_t)];
};

static weft_result refuse_to_read(void *context, void *bytes, uint64_t offset, size_t num_bytes)
{
    (void)context;
    (void)bytes;
    (void)offset;
    (void)num_bytes;
    return weft__error(WEFT_ERROR_SYSTEM, "nobody reads here");
}

static void open_pair(struct pair *pair)
{
    const struct weft__net_accessor accessor = {.read = refuse_to_read};
    struct weft__net_region_card card;
    memset(pair, 0, sizeof *pair);
    pair->num_bytes = BYTES;
    pair->fake.num_ranks = 2;
    fake_nets_open(&pair->fake, 0);
    for (int32_t rank = 0; rank < 2; rank++)
        assert_ok(weft__net_reg_accessed(pair->fake.nets[rank], ACCESSED, &accessor, BYTES,
                                         &pair->num_bytes));
    fake_nets_connect(&pair->fake);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_ok(weft__net_reg(pair->fake.nets[rank], HOST, pair->memory[rank][HOST], BYTES,
                                WEFT__NET_HOST_MEMORY));
        assert_ok(weft__net_reg(pair->fake.nets[rank], DEVICE, pair->memory[rank][DEVICE], BYTES,
                                WEFT__NET_DEVICE_MEMORY));
    }
    for (int32_t rank = 0; rank < 2; rank++)
        for (uint32_t region = HOST; region <= DEVICE; region++) {
            weft__net_tell_region(pair->fake.nets[1 - rank], region, &card);
            assert_ok(weft__net_learn_region(pair->fake.nets[rank], 1 - rank, region, &card));
        }
}

static struct wp_access put_between(uint32_t source, uint32_t target)
{
    return (struct wp_access){.rank = 1,
                              .source = weft__net_place(source, 0),
                              .target = weft__net_place(target, 0),
                              .num_bytes = 8};
}

TEST(only_puts_reach_a_device)
{
    static const struct {
        uint32_t source, target;
        weft_result result;
    } puts[] = {{DEVICE, DEVICE, WEFT_OK},
                {HOST, DEVICE, WEFT_OK},
                {DEVICE, HOST, WEFT_OK},
                {HOST, HOST, WEFT_OK},
                {ACCESSED, DEVICE, WEFT_ERROR_INVALID_ARGUMENT},
                {DEVICE, ACCESSED, WEFT_ERROR_INVALID_ARGUMENT}};
    struct pair pair;
    open_pair(&pair);
    for (size_t i = 0; i < sizeof puts / sizeof puts[0]; i++) {
        const struct wp_access put = put_between(puts[i].source, puts[i].target);
        assert_int_equal(net_post_as(WP_ACCESS_PUT, pair.fake.nets[0], &put, NULL), puts[i].result);
    }
    const struct wp_access get_there = {.rank = 1,
                                        .source = weft__net_place(DEVICE, 0),
                                        .target = weft__net_place(HOST, 0),
                                        .num_bytes = 8};
    const struct wp_access get_here = {.rank = 1,
                                       .source = weft__net_place(HOST, 0),
                                       .target = weft__net_place(DEVICE, 0),
                                       .num_bytes = 8};
    assert_int_equal(net_post_as(WP_ACCESS_GET, pair.fake.nets[0], &get_there, NULL),
                     WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(net_post_as(WP_ACCESS_GET, pair.fake.nets[0], &get_here, NULL),
                     WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(net_signal(pair.fake.nets[0], 1, weft__net_place(DEVICE, 0), 1),
                     WEFT_ERROR_INVALID_ARGUMENT);
    fake_nets_close(&pair.fake);
}

/* A peer that sends what it must not. */
TEST(messages_for_a_device_are_refused)
{
    static const unsigned char payload[8] = {1};
    const struct weft__net_header header = {.source = 1,
                                            .kind = WEFT__NET_PUT,
                                            .place = weft__net_place(DEVICE, 0),
                                            .num_bytes = sizeof payload,
                                            .word = WEFT__NET_NO_WORD};
    struct pair pair;
    open_pair(&pair);
    weft__net_receive(pair.fake.nets[0], 1, &header, sizeof header, payload, sizeof payload);
    assert_int_equal(weft__net_peer_error(pair.fake.nets[0], 1), WEFT_ERROR_RANK_FAILED);
    assert_int_equal(pair.memory[0][DEVICE][0], 0);
    fake_nets_close(&pair.fake);
}

TEST(what_is_unregistered_is_refused)
{
    struct pair pair;
    open_pair(&pair);
    const struct wp_access put = put_between(HOST, DEVICE);
    assert_int_equal(weft__net_find_region(pair.fake.nets[0], pair.memory[0][DEVICE]), DEVICE);
    weft__net_unreg(pair.fake.nets[0], DEVICE);
    assert_int_equal(net_post_as(WP_ACCESS_PUT, pair.fake.nets[0], &put, NULL),
                     WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft__net_find_region(pair.fake.nets[0], pair.memory[0][DEVICE]),
                     WEFT__NET_MAX_REGIONS);
    assert_int_equal(weft__net_free_regions(pair.fake.nets[0]) & 7, 1 << DEVICE);
    fake_nets_close(&pair.fake);
}

/* An engine without writes, and memory that is there already. */
TEST(what_cannot_be_registered_is_an_error)
{
    const struct weft__net_config config = {.engine = "tcp", .num_ranks = 1};
    uint64_t memory[2];
    struct weft__net *net;
    assert_ok(weft__net_open(&config, &net));
    assert_int_equal(weft__net_reg(net, 0, memory, sizeof memory, WEFT__NET_DEVICE_MEMORY),
                     WEFT_ERROR_UNSUPPORTED);
    assert_ok(weft__net_reg(net, 0, memory, sizeof memory, WEFT__NET_HOST_MEMORY));
    assert_int_equal(weft__net_reg(net, 0, memory, sizeof memory, WEFT__NET_HOST_MEMORY),
                     WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(
        weft__net_reg(net, 1, (char *)memory + 1, sizeof memory[0], WEFT__NET_HOST_MEMORY),
        WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(
        weft__net_reg(net, WEFT__NET_MAX_REGIONS, memory, sizeof memory, WEFT__NET_HOST_MEMORY),
        WEFT_ERROR_INVALID_ARGUMENT);
    weft__net_close(net);
}

/* ---------------------------------------------------------------- steps of a region that grows */

enum {
    GROWING = 0,
    STEP_BYTES = 8192,
    NUM_STEPS = 3,
    FIRST_STEP = WEFT__NET_MAX_REGIONS,
    MAX_DELAY = 10
};

struct growing_pair {
    struct fake_nets fake;
    _Atomic uint64_t num_bytes[2];
    uint64_t memory[2][NUM_STEPS * STEP_BYTES / sizeof(uint64_t)];
};

/* Two steps are there. */
static void open_growing(struct growing_pair *pair)
{
    memset(pair, 0, sizeof *pair);
    pair->fake.num_ranks = 2;
    fake_nets_open(&pair->fake, MAX_DELAY);
    for (int32_t rank = 0; rank < 2; rank++) {
        atomic_store(&pair->num_bytes[rank], 2 * STEP_BYTES);
        assert_ok(weft__net_reg_growing(pair->fake.nets[rank], GROWING, pair->memory[rank],
                                        sizeof pair->memory[rank], &pair->num_bytes[rank]));
    }
    fake_nets_connect(&pair->fake);
}

static weft_result add_step(struct growing_pair *pair, uint32_t step)
{
    for (int32_t rank = 0; rank < 2; rank++)
        WEFT__TRY(weft__net_reg_step(pair->fake.nets[rank], FIRST_STEP + step,
                                     weft__net_place(GROWING, (uint64_t)step * STEP_BYTES),
                                     STEP_BYTES));
    return WEFT_OK;
}

static weft_result learn_step(struct growing_pair *pair, int32_t rank, uint32_t step)
{
    struct weft__net_region_card card;
    weft__net_tell_region(pair->fake.nets[1 - rank], FIRST_STEP + step, &card);
    return weft__net_learn_region(pair->fake.nets[rank], 1 - rank, FIRST_STEP + step, &card);
}

/* Puts bytes of rank 0 to the same place at rank 1, waits for the word behind them, and tells how
 * many the engine has written. */
static uint64_t put_and_look(struct growing_pair *pair, uint64_t begin, uint64_t num_bytes)
{
    const uint64_t word = 8;
    const struct wp_access put = {.rank = 1,
                                  .source = weft__net_place(GROWING, begin),
                                  .target = weft__net_place(GROWING, begin),
                                  .num_bytes = num_bytes,
                                  .word = weft__net_place(GROWING, word),
                                  .add = 1};
    const uint64_t before = weft__net_counts(pair->fake.nets[0]).num_written_bytes;
    const uint64_t signalled = pair->memory[1][word / sizeof(uint64_t)] + 1;
    unsigned char *source = (unsigned char *)pair->memory[0], *target = (void *)pair->memory[1];
    memset(target + begin, 0, num_bytes);
    for (uint64_t byte = begin; byte < begin + num_bytes; byte++)
        source[byte] = (unsigned char)(byte * 7 + byte / 251 + signalled);
    assert_ok(net_post_as(WP_ACCESS_PUT_SIGNAL, pair->fake.nets[0], &put, NULL));
    while (pair->memory[1][word / sizeof(uint64_t)] != signalled)
        for (int32_t rank = 0; rank < 2; rank++)
            weft__net_progress(pair->fake.nets[rank]);
    assert_memory_equal(target + begin, source + begin, num_bytes);
    return weft__net_counts(pair->fake.nets[0]).num_written_bytes - before;
}

TEST(steps_are_written_once_they_are_known)
{
    enum { FROM = 4096, LONG_BYTES = 2 * STEP_BYTES - FROM, TAIL_BYTES = 40 };
    struct growing_pair pair;
    open_growing(&pair);
    assert_int_equal(put_and_look(&pair, FROM, LONG_BYTES), 0);
    assert_ok(add_step(&pair, 0));
    assert_int_equal(put_and_look(&pair, FROM, LONG_BYTES), 0); /* nobody has told rank 0 */
    assert_ok(learn_step(&pair, 0, 0));
    assert_int_equal(put_and_look(&pair, FROM, LONG_BYTES), STEP_BYTES - FROM);
    assert_ok(add_step(&pair, 1));
    assert_ok(learn_step(&pair, 0, 1));
    assert_int_equal(put_and_look(&pair, FROM, LONG_BYTES), LONG_BYTES);
    /* Short ones are messages, also as the rest of a long one. */
    assert_int_equal(put_and_look(&pair, STEP_BYTES - TAIL_BYTES, 2 * TAIL_BYTES), 0);
    assert_int_equal(put_and_look(&pair, FROM, STEP_BYTES - FROM + TAIL_BYTES), STEP_BYTES - FROM);
    /* As it grows. */
    for (int32_t rank = 0; rank < 2; rank++)
        atomic_store(&pair.num_bytes[rank], NUM_STEPS * STEP_BYTES);
    assert_int_equal(put_and_look(&pair, FROM, LONG_BYTES + STEP_BYTES), LONG_BYTES);
    assert_ok(add_step(&pair, 2));
    assert_ok(learn_step(&pair, 0, 2));
    assert_int_equal(put_and_look(&pair, FROM, LONG_BYTES + STEP_BYTES), LONG_BYTES + STEP_BYTES);
    fake_nets_close(&pair.fake);
}

TEST(steps_that_make_no_sense_are_refused)
{
    struct growing_pair pair;
    struct weft__net_region_card card;
    open_growing(&pair);
    static const struct {
        uint32_t number;
        uint64_t place;
        size_t num_bytes;
    } steps[] = {{FIRST_STEP - 1, 0, STEP_BYTES},
                 {WEFT__NET_MAX_NUMBERS, 0, STEP_BYTES},
                 {FIRST_STEP, STEP_BYTES, 2 * STEP_BYTES}, /* more than is there */
                 {FIRST_STEP, UINT64_C(1) << WP_PLACE_OFFSET_BITS, 8}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        assert_int_equal(weft__net_reg_step(pair.fake.nets[0], steps[i].number, steps[i].place,
                                            steps[i].num_bytes),
                         WEFT_ERROR_INVALID_ARGUMENT);
    assert_ok(add_step(&pair, 0));
    assert_int_equal(add_step(&pair, 0), WEFT_ERROR_INVALID_ARGUMENT); /* it is there */
    weft__net_tell_region(pair.fake.nets[1], FIRST_STEP, &card);
    card.num_bytes += 8;
    assert_int_equal(weft__net_learn_region(pair.fake.nets[0], 1, FIRST_STEP, &card),
                     WEFT_ERROR_MISMATCH);
    /* Steps are the engine's: in places there are regions alone. */
    assert_ok(learn_step(&pair, 0, 0));
    const struct wp_access to_step = {
        .rank = 1, .target = weft__net_place(FIRST_STEP, 0), .num_bytes = 8};
    const struct wp_access from_step = {
        .rank = 1, .source = weft__net_place(FIRST_STEP, 0), .num_bytes = 8};
    assert_int_equal(net_post_as(WP_ACCESS_PUT, pair.fake.nets[0], &to_step, NULL),
                     WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(net_post_as(WP_ACCESS_PUT, pair.fake.nets[0], &from_step, NULL),
                     WEFT_ERROR_INVALID_ARGUMENT);
    fake_nets_close(&pair.fake);
}
