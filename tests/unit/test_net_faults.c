/* SPDX-License-Identifier: MIT */
/* Peers that die, stop or leave while requests are under way, on every engine: all requests end,
 * with the right name, and traffic between the others goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "net_post.h"
#include "net_world.h"

enum {
    NUM_RANKS = 3,
    VICTIM = 2,
    NUM_PUTS = 40,
    PUT_BYTES = 3000,
    WORD = 1,
    DONE_WORD = 2,
    HELLO_WORD = 3,
    NUM_LARGE = 12
};

struct story {
    int has_greeted;
    int num_steps;
    int num_puts[NUM_RANKS];
    struct weft__net_request puts[NUM_RANKS][NUM_PUTS], flushes[NUM_RANKS], stuck, last;
    struct weft__net_request large[NUM_LARGE];
    enum { BEFORE, AFTER } failure;
    enum { NOT_ASKED, ASKED } survivor;
};

static void *begin(struct net_party *party)
{
    memset(party->staging, 1 + party->rank, party->world->staging_bytes);
    return calloc(1, sizeof(struct story));
}

static weft_result put_to(struct net_party *party, int32_t peer, struct weft__net_request *request)
{
    const struct wp_access put = {.rank = peer,
                                  .source = weft__net_place(1, 0),
                                  .target = weft__net_place(0, (uint64_t)party->rank * PUT_BYTES),
                                  .num_bytes = PUT_BYTES,
                                  .word = net_word(WORD),
                                  .add = 1};
    return net_post_as(WP_ACCESS_PUT_SIGNAL, party->net, &put, request);
}

/* ---------------------------------------------------------------- a peer dies, or stops */

enum end { IS_KILLED, IS_STOPPED };
enum traffic { BUSY, QUIET };

static enum end how;
static enum traffic traffic;

static int are_done(const struct story *story, int32_t peer)
{
    for (int index = 0; index < story->num_puts[peer]; index++)
        if (!weft__net_is_done(&story->puts[peer][index]))
            return 0;
    return weft__net_is_done(&story->flushes[peer]);
}

static enum net_verdict look_after_failure(struct net_party *party)
{
    struct story *story = party->own;
    struct weft__net_request refused;
    for (int index = 0; index < NUM_LARGE; index++)
        if (!weft__net_is_done(&story->large[index]))
            return NET_IDLE;
    if (!are_done(story, VICTIM) || !weft__net_is_done(&story->stuck))
        return NET_IDLE;
    if (strstr(weft__last_error(), "rank 2") == NULL)
        return net_fail(party, "the message lacks the name: %s", weft__last_error());
    if (how == IS_STOPPED && story->stuck.result != WEFT_ERROR_RANK_FAILED)
        return net_fail(party, "a flush to the stopped is done with %d", story->stuck.result);
    if (put_to(party, VICTIM, &refused) != WEFT_ERROR_RANK_FAILED || !weft__net_is_done(&refused) ||
        net_flush(party->net, WEFT__NET_ALL_PEERS, NULL) != WEFT_ERROR_RANK_FAILED ||
        weft__net_failed_peer(party->net) != VICTIM)
        return net_fail(party, "operations with the dead are not refused");
    /* The other survivor is there as before. */
    int32_t other = 1 - party->rank;
    if (story->survivor == NOT_ASKED) {
        story->survivor = ASKED;
        if (net_signal(party->net, other, net_word(DONE_WORD), 7) != WEFT_OK ||
            net_flush(party->net, other, &story->last) != WEFT_OK)
            return net_fail(party, "%s", weft__last_error());
    }
    if (!are_done(story, other) || !weft__net_is_done(&story->last) ||
        atomic_load(&party->words[DONE_WORD]) != 7)
        return NET_IDLE;
    return story->last.result == WEFT_OK && story->flushes[other].result == WEFT_OK
               ? NET_PASSED
               : net_fail(party, "the flush to a survivor failed");
}

static enum net_verdict send_some(struct net_party *party)
{
    struct story *story = party->own;
    int32_t peer = (party->rank + 1 + (int32_t)net_draw(&party->random, NUM_RANKS - 1)) % NUM_RANKS;
    if (traffic == QUIET || story->num_puts[peer] == NUM_PUTS)
        return NET_IDLE;
    weft_result result = put_to(party, peer, &story->puts[peer][story->num_puts[peer]++]);
    if (result == WEFT_OK && story->num_puts[peer] == NUM_PUTS / 2)
        result = net_flush(party->net, peer, &story->flushes[peer]);
    return result == WEFT_OK || peer == VICTIM ? NET_AGAIN
                                               : net_fail(party, "%s", weft__last_error());
}

/* More than the buffers of a connection take, so that an engine must let go of it. */
static weft_result start_what_gets_stuck(struct net_party *party)
{
    struct story *story = party->own;
    const struct wp_access put = {
        .rank = VICTIM, .source = weft__net_place(1, 0), .num_bytes = party->world->staging_bytes};
    weft_result result = WEFT_OK;
    for (int index = 0; index < NUM_LARGE && result == WEFT_OK; index++)
        result = net_post_as(WP_ACCESS_PUT, party->net, &put, &story->large[index]);
    return result == WEFT_OK ? net_flush(party->net, VICTIM, &story->stuck) : result;
}

static int has_greeted_all(struct net_party *party)
{
    struct story *story = party->own;
    for (int32_t peer = 0; peer < NUM_RANKS && !story->has_greeted; peer++)
        if (peer != party->rank && net_signal(party->net, peer, net_word(HELLO_WORD), 1) != WEFT_OK)
            return 0;
    story->has_greeted = 1;
    return 1;
}

static enum net_verdict survive(struct net_party *party)
{
    struct story *story = party->own;
    if (!has_greeted_all(party))
        return net_fail(party, "%s", weft__last_error());
    if (party->rank == VICTIM) {
        /* Not before all are connected: UCX 1.13 ends whoever connects to a peer that dies
         * meanwhile. */
        const int is_known = atomic_load(&party->words[HELLO_WORD]) == NUM_RANKS - 1;
        if (is_known && ++story->num_steps == 30) {
            if (how == IS_KILLED)
                net_kill_self(party);
            else
                net_stop_self(party);
        }
        return send_some(party) == NET_FAILED ? NET_FAILED : NET_AGAIN;
    }
    /* The heartbeat's news. */
    if (how == IS_STOPPED && story->failure == BEFORE && net_is_over(party, VICTIM)) {
        if (start_what_gets_stuck(party) != WEFT_OK)
            return net_fail(party, "%s", weft__last_error());
        weft__net_fail_peer(party->net, VICTIM, "rank %d does not answer", VICTIM);
    }
    if (story->failure == BEFORE && weft__net_peer_error(party->net, VICTIM) == WEFT_OK) {
        enum net_verdict sent = send_some(party);
        return how == IS_STOPPED && sent == NET_IDLE ? NET_AGAIN : sent;
    }
    story->failure = AFTER;
    weft__net_peer_error(party->net, VICTIM);
    return look_after_failure(party);
}

/* ---------------------------------------------------------------- leaving */

/* Rank 0 closes with everything under way; the others must get it all the same. */
static enum net_verdict leave_early(struct net_party *party)
{
    struct story *story = party->own;
    if (party->rank == 0) {
        for (int32_t peer = 1; peer < NUM_RANKS; peer++) {
            for (int index = 0; index < NUM_PUTS; index++)
                if (put_to(party, peer, &story->puts[peer][index]) != WEFT_OK)
                    return net_fail(party, "%s", weft__last_error());
            if (net_signal(party->net, peer, net_word(DONE_WORD), 1) != WEFT_OK)
                return net_fail(party, "%s", weft__last_error());
        }
        return NET_PASSED;
    }
    if (atomic_load_explicit(&party->words[DONE_WORD], memory_order_acquire) == 0)
        return NET_IDLE;
    if (atomic_load(&party->words[WORD]) != NUM_PUTS)
        return net_fail(party, "only %llu puts came",
                        (unsigned long long)atomic_load(&party->words[WORD]));
    for (size_t byte = 0; byte < PUT_BYTES; byte++)
        if (party->heap[byte] != 1)
            return net_fail(party, "byte %zu did not come", byte);
    return weft__net_peer_error(party->net, 0) == WEFT_OK
               ? NET_PASSED
               : net_fail(party, "who left counts as failed: %s", weft__last_error());
}

/* To close is to wait until the others have taken it. */
static enum net_verdict look_after_leaving(const struct net_party *party)
{
    for (int32_t peer = 1; party->rank == 0 && peer < NUM_RANKS; peer++)
        if (atomic_load(&party->shared->words[peer][DONE_WORD]) == 0)
            return net_fail(party, "closed before rank %d had taken all", peer);
    return NET_PASSED;
}

/* ---------------------------------------------------------------- worlds */

static void run(const char *engine, int32_t victim, enum net_verdict (*step)(struct net_party *))
{
    if (strcmp(engine, "ucx") == 0 && !net_engine_is_there("ucx"))
        skip();
    const int is_fake = strcmp(engine, "fake") == 0;
    const int32_t num_worlds = is_fake ? tests_grid_size(40, 10) : tests_grid_size(2, 1);
    for (uint64_t seed = 1; seed <= (uint64_t)num_worlds; seed++) {
        const struct net_world world = {.engine = engine,
                                        .transports = "tcp",
                                        .num_ranks = NUM_RANKS,
                                        .seed = seed,
                                        .heap_bytes = 1 << 20,
                                        .staging_bytes = 1 << 20,
                                        .max_delay = 50,
                                        .full_one_in = 5,
                                        .victim = victim,
                                        .after = step == survive ? NET_STAY : NET_LEAVE,
                                        .begin = begin,
                                        .step = step,
                                        .end = free,
                                        .closed = step == survive ? NULL : look_after_leaving};
        assert_int_equal(net_world_run(&world), 0);
    }
}

static void run_end(const char *engine, enum end end, enum traffic amount)
{
    how = end;
    traffic = amount;
    run(engine, VICTIM, survive);
}

#define TESTS_OF(engine)                                                                           \
    TEST(engine##_names_a_peer_that_is_killed)                                                     \
    {                                                                                              \
        run_end(#engine, IS_KILLED, BUSY);                                                         \
    }                                                                                              \
    TEST(engine##_wakes_for_a_peer_that_is_killed)                                                 \
    {                                                                                              \
        run_end(#engine, IS_KILLED, QUIET);                                                        \
    }                                                                                              \
    TEST(engine##_ends_requests_to_a_peer_that_is_stopped)                                         \
    {                                                                                              \
        run_end(#engine, IS_STOPPED, BUSY);                                                        \
    }                                                                                              \
    TEST(engine##_delivers_what_who_leaves_has_sent)                                               \
    {                                                                                              \
        run(#engine, NET_NO_VICTIM, leave_early);                                                  \
    }

TESTS_OF(fake)
TESTS_OF(tcp)
TESTS_OF(ucx)
