/* SPDX-License-Identifier: MIT */
/* Gets and fetch-adds on every engine: all parties get from all, at random, and look whether the
 * bytes are those of the peer and none beside them changes; and draw numbers from one word, each of
 * which must come once. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "net_post.h"
#include "net_world.h"

enum {
    NUM_FETCHES = 150,
    NUM_AT_A_TIME = 6,
    SLOT_BYTES = 100000, /* of staging, for each fetch at a time */
    GUARD_BYTES = 16,
    GUARD = 0xc3,
    COUNTER_RANK = 0,
    COUNTER_WORD = 0,
    /* In the shared words of rank 1: who drew the number. */
    DRAWN_RANK = 1,
    VICTIM = 2
};

enum kind { GET, FETCH_ADD };

struct fetch {
    enum { FREE, ASKED } state;
    enum kind kind;
    int32_t peer;
    uint64_t source, num_bytes;
    struct weft__net_request request;
};

struct story {
    struct fetch fetches[NUM_AT_A_TIME];
    int num_asked, num_done, num_failed;
};

static unsigned char value_at(int32_t rank, uint64_t byte)
{
    return (unsigned char)((uint64_t)rank * 59 + byte * 7 + (byte >> 9));
}

static void *begin(struct net_party *party)
{
    for (size_t byte = 0; byte < party->world->heap_bytes; byte++)
        party->heap[byte] = value_at(party->rank, byte);
    memset(party->staging, GUARD, party->world->staging_bytes);
    return calloc(1, sizeof(struct story));
}

static uint64_t slot_place(int slot)
{
    return weft__net_place(1, (uint64_t)slot * SLOT_BYTES + GUARD_BYTES);
}

static weft_result ask(struct net_party *party, int slot)
{
    struct story *story = party->own;
    struct fetch *fetch = &story->fetches[slot];
    static const uint64_t most[] = {8, 300, 5000, 70000, SLOT_BYTES - 2 * GUARD_BYTES};
    const uint64_t num_sizes = strcmp(party->world->engine, "fake") == 0 ? 3 : 5;
    fetch->peer =
        (party->rank + 1 + (int32_t)net_draw(&party->random, (uint64_t)party->num_ranks - 1)) %
        party->num_ranks;
    fetch->kind = fetch->peer == COUNTER_RANK && net_draw(&party->random, 2) == 0 ? FETCH_ADD : GET;
    fetch->num_bytes = net_draw(&party->random, most[net_draw(&party->random, num_sizes)] + 1);
    fetch->source = net_draw(&party->random, party->world->heap_bytes - fetch->num_bytes + 1);
    fetch->state = ASKED;
    story->num_asked++;
    const struct wp_access get = {.rank = fetch->peer,
                                  .source = weft__net_place(0, fetch->source),
                                  .target = slot_place(slot),
                                  .num_bytes = fetch->num_bytes};
    const struct wp_access add = {
        .rank = fetch->peer, .word = net_word(COUNTER_WORD), .add = 1, .target = slot_place(slot)};
    return fetch->kind == GET ? net_post_as(WP_ACCESS_GET, party->net, &get, &fetch->request)
                              : net_post_as(WP_ACCESS_FETCH_ADD, party->net, &add, &fetch->request);
}

/* ---------------------------------------------------------------- looking */

static enum net_verdict look_at_bytes(const struct net_party *party, const struct fetch *fetch,
                                      const unsigned char *bytes, uint64_t num_bytes)
{
    for (uint64_t byte = 0; byte < num_bytes; byte++)
        if (bytes[byte] != value_at(fetch->peer, fetch->source + byte))
            return net_fail(party, "byte %llu of %llu of rank %d is wrong",
                            (unsigned long long)byte, (unsigned long long)num_bytes, fetch->peer);
    return NET_AGAIN;
}

/* Each number goes to one fetch. */
static enum net_verdict look_at_number(const struct net_party *party, const unsigned char *bytes)
{
    uint64_t number;
    memcpy(&number, bytes, sizeof(number));
    _Atomic uint64_t *drawn = party->shared->words[DRAWN_RANK];
    if (number / 64 >= NET_MAX_WORDS)
        return net_fail(party, "a number is %llu", (unsigned long long)number);
    const uint64_t bit = UINT64_C(1) << number % 64;
    return (atomic_fetch_or(&drawn[number / 64], bit) & bit) == 0
               ? NET_AGAIN
               : net_fail(party, "number %llu came twice", (unsigned long long)number);
}

/* Compares with itself, one byte on: one call, where sanitizers would look at every byte of a
 * loop. */
static bool is_guard(const unsigned char *bytes, size_t num_bytes)
{
    return bytes[0] == GUARD && memcmp(bytes, bytes + 1, num_bytes - 1) == 0;
}

static enum net_verdict look_at(struct net_party *party, int slot)
{
    const struct story *story = party->own;
    const struct fetch *fetch = &story->fetches[slot];
    unsigned char *bytes = party->staging + (size_t)slot * SLOT_BYTES;
    const uint64_t num_bytes = fetch->kind == GET ? fetch->num_bytes : sizeof(uint64_t);
    enum net_verdict verdict = fetch->kind == GET
                                   ? look_at_bytes(party, fetch, bytes + GUARD_BYTES, num_bytes)
                                   : look_at_number(party, bytes + GUARD_BYTES);
    memset(bytes + GUARD_BYTES, GUARD, num_bytes);
    if (verdict == NET_AGAIN && !is_guard(bytes, SLOT_BYTES))
        verdict = net_fail(party, "bytes of a slot were written beside %llu",
                           (unsigned long long)num_bytes);
    return verdict;
}

/* ---------------------------------------------------------------- scenarios */

static enum net_verdict end_those_done(struct net_party *party)
{
    struct story *story = party->own;
    enum net_verdict verdict = NET_AGAIN;
    for (int slot = 0; slot < NUM_AT_A_TIME && verdict == NET_AGAIN; slot++) {
        struct fetch *fetch = &story->fetches[slot];
        if (fetch->state == FREE || !weft__net_is_done(&fetch->request))
            continue;
        fetch->state = FREE;
        story->num_done++;
        story->num_failed += fetch->request.result != WEFT_OK;
        if (fetch->request.result == WEFT_OK)
            verdict = look_at(party, slot);
        else
            memset(party->staging + (size_t)slot * SLOT_BYTES, GUARD, SLOT_BYTES);
    }
    return verdict;
}

static enum net_verdict fetch_from_all(struct net_party *party)
{
    struct story *story = party->own;
    const int slot = (int)net_draw(&party->random, NUM_AT_A_TIME);
    if (end_those_done(party) == NET_FAILED)
        return NET_FAILED;
    if (story->num_failed > 0)
        return net_fail(party, "a fetch failed");
    if (story->num_asked < NUM_FETCHES && story->fetches[slot].state == FREE) {
        if (ask(party, slot) != WEFT_OK)
            return net_fail(party, "%s", weft__last_error());
        return NET_AGAIN;
    }
    if (story->num_done < NUM_FETCHES)
        return story->num_asked < NUM_FETCHES ? NET_AGAIN : NET_IDLE;
    return NET_PASSED;
}

/* The victim answers no more: what it was asked ends, and nothing more is asked. */
static enum net_verdict outlive(struct net_party *party)
{
    struct story *story = party->own;
    struct weft__net_request refused;
    const struct wp_access get = {.rank = VICTIM, .target = slot_place(0), .num_bytes = 100};
    if (party->rank == VICTIM) {
        if (story->num_asked == 40)
            net_kill_self(party);
        return fetch_from_all(party) == NET_FAILED ? NET_FAILED : NET_AGAIN;
    }
    if (end_those_done(party) == NET_FAILED)
        return NET_FAILED;
    for (int slot = 0; slot < NUM_AT_A_TIME; slot++)
        if (story->fetches[slot].state == FREE &&
            weft__net_peer_error(party->net, VICTIM) == WEFT_OK)
            (void)ask(party, slot);
    if (weft__net_peer_error(party->net, VICTIM) == WEFT_OK)
        return NET_AGAIN;
    if (story->num_done < story->num_asked)
        return NET_IDLE;
    return net_post_as(WP_ACCESS_GET, party->net, &get, &refused) == WEFT_ERROR_RANK_FAILED &&
                   weft__net_is_done(&refused)
               ? NET_PASSED
               : net_fail(party, "a get from the dead is not refused");
}

/* ---------------------------------------------------------------- engines */

static void run(const char *engine, enum net_verdict (*step)(struct net_party *), uint64_t seed)
{
    const struct net_world world = {.engine = engine,
                                    .transports = "tcp",
                                    .num_ranks = step == outlive ? 3 : 2 + (int32_t)(seed % 3),
                                    .seed = seed,
                                    .heap_bytes = 1 << 20,
                                    .on_device = (uint32_t)seed * 3 % 8,
                                    .staging_bytes = (size_t)NUM_AT_A_TIME * SLOT_BYTES,
                                    .max_message_bytes = seed % 2 == 0 ? 4096 : 0,
                                    .max_delay = 50,
                                    .full_one_in = seed % 2 == 0 ? 4 : 0,
                                    .victim = step == outlive ? VICTIM : NET_NO_VICTIM,
                                    .after = NET_STAY,
                                    .begin = begin,
                                    .step = step,
                                    .end = free};
    assert_int_equal(net_world_run(&world), 0);
}

static void run_engine(const char *engine, enum net_verdict (*step)(struct net_party *))
{
    if (!net_engine_is_there(engine))
        skip();
    const int is_fake = strcmp(engine, "fake") == 0;
    const int32_t num_worlds = is_fake ? tests_grid_size(8, 3) : tests_grid_size(3, 1);
    for (uint64_t seed = 1; seed <= (uint64_t)num_worlds; seed++)
        run(engine, step, seed);
}

#define TESTS_OF(engine)                                                                           \
    TEST(engine##_fetches)                                                                         \
    {                                                                                              \
        run_engine(#engine, fetch_from_all);                                                       \
    }                                                                                              \
    TEST(engine##_ends_fetches_from_the_dead)                                                      \
    {                                                                                              \
        run_engine(#engine, outlive);                                                              \
    }

TESTS_OF(fake)
TESTS_OF(tcp)
TESTS_OF(ucx)
