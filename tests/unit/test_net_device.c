/* SPDX-License-Identifier: MIT */
/* Regions that the net reaches by functions of their owner alone: a long put is staged in a few
 * pieces at a time, and a function that fails is the failure of the peer that waits for it. What
 * else is promised for them the tests of the contract and of fetches show. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "net_post.h"
#include "net_world.h"

enum {
    HEAP,
    STAGING,
    ALL_ON_DEVICES = 7,
    MESSAGE_BYTES = 64,
    NUM_MESSAGES = 200,
    LONG_BYTES = NUM_MESSAGES * MESSAGE_BYTES,
    BYTES = 40,
    WORD = 1
};

struct story {
    enum { BEFORE, AFTER } put;
    struct weft__net_request request;
};

static const char *take_packet(void *context, int32_t peer, const void *bytes, size_t num_bytes)
{
    (void)context;
    (void)peer;
    (void)bytes;
    (void)num_bytes;
    return NULL;
}

static void *begin(struct net_party *party)
{
    weft__net_set_packets(party->net, &(struct weft__net_packets){.take = take_packet});
    for (size_t byte = 0; byte < party->world->staging_bytes; byte++)
        party->staging[byte] = (unsigned char)(byte * 7 + byte / 256 + (size_t)party->rank);
    return calloc(1, sizeof(struct story));
}

static void run(enum net_verdict (*step)(struct net_party *))
{
    const struct net_world world = {.engine = "fake",
                                    .num_ranks = 2,
                                    .seed = 5,
                                    .heap_bytes = LONG_BYTES,
                                    .staging_bytes = LONG_BYTES,
                                    .on_device = ALL_ON_DEVICES,
                                    .max_message_bytes = MESSAGE_BYTES,
                                    .max_delay = 30,
                                    .victim = NET_NO_VICTIM,
                                    .begin = begin,
                                    .step = step,
                                    .end = free};
    assert_int_equal(net_world_run(&world), 0);
}

/* ---------------------------------------------------------------- how much is staged */

static int num_packets_before;

/* Before the first call of progress no message is done, and the engine takes all that it is
 * given. */
static enum net_verdict put_at_once(struct net_party *party)
{
    struct story *story = party->own;
    const struct wp_access put = {.rank = 1,
                                  .source = weft__net_place(STAGING, 0),
                                  .target = weft__net_place(HEAP, 0),
                                  .num_bytes = LONG_BYTES,
                                  .word = net_word(WORD),
                                  .add = 1};
    story->put = AFTER;
    for (int i = 0; i < num_packets_before; i++)
        if (!weft__net_send_packet(party->net, 1, "packet", 7))
            return net_fail(party, "packet %d is lost", i);
    if (net_post_as(WP_ACCESS_PUT_SIGNAL, party->net, &put, &story->request) != WEFT_OK)
        return net_fail(party, "%s", weft__last_error());
    const uint64_t num_reads = party->devices[STAGING].num_reads;
    return num_reads == WEFT__NET_MAX_STAGED
               ? NET_AGAIN
               : net_fail(party, "%d pieces are staged at once", (int)num_reads);
}

static enum net_verdict put_and_look(struct net_party *party)
{
    struct story *story = party->own;
    if (party->rank == 0 && story->put == BEFORE)
        return put_at_once(party);
    if (party->rank == 0 && !weft__net_is_done(&story->request))
        return NET_IDLE;
    if (atomic_load(&party->shared->words[1][WORD]) == 0)
        return NET_IDLE;
    if (party->rank == 0 && party->devices[STAGING].num_reads != NUM_MESSAGES)
        return net_fail(party, "%d reads", (int)party->devices[STAGING].num_reads);
    if (party->rank == 1)
        return NET_PASSED;
    return memcmp(net_heap(party, 1), party->staging, LONG_BYTES) == 0
               ? NET_PASSED
               : net_fail(party, "bytes are wrong");
}

TEST_CALL(a_long_put_is_staged_piece_by_piece, run(put_and_look))

/* Packets of NICs have copies of their own. */
TEST(packets_are_not_staged)
{
    for (num_packets_before = WEFT__NET_MAX_STAGED - 1;
         num_packets_before <= WEFT__NET_MAX_STAGED + 1; num_packets_before++)
        run(put_and_look);
    num_packets_before = 0;
}

/* ---------------------------------------------------------------- what breaks */

static struct {
    enum { PUT, PUT_SIGNAL, SIGNAL, GET, FETCH_ADD } operation;
    int32_t rank; /* whose device breaks */
    uint32_t region;
} trial;

/* By rank 0, at rank 1. */
static weft_result start_operation(struct net_party *party)
{
    struct story *story = party->own;
    struct wp_access put = {.rank = 1,
                            .source = weft__net_place(STAGING, 0),
                            .target = weft__net_place(HEAP, 0),
                            .num_bytes = BYTES,
                            .word = net_word(WORD),
                            .add = 1};
    const struct wp_access get = {.rank = 1,
                                  .source = weft__net_place(HEAP, 0),
                                  .target = weft__net_place(STAGING, 0),
                                  .num_bytes = BYTES};
    const struct wp_access fetch_add = {
        .rank = 1, .word = net_word(WORD), .add = 1, .target = weft__net_place(STAGING, 0)};
    switch (trial.operation) {
    case PUT:
        return net_post_as(WP_ACCESS_PUT, party->net, &put, &story->request);
    case PUT_SIGNAL:
        return net_post_as(WP_ACCESS_PUT_SIGNAL, party->net, &put, &story->request);
    case SIGNAL:
        return net_signal(party->net, 1, put.word, put.add);
    case GET:
        return net_post_as(WP_ACCESS_GET, party->net, &get, &story->request);
    default:
        return net_post_as(WP_ACCESS_FETCH_ADD, party->net, &fetch_add, &story->request);
    }
}

/* That of the rank whose device breaks is what the test is about; the other one learns of it by the
 * communicator. */
static enum net_verdict break_and_look(struct net_party *party)
{
    struct story *story = party->own;
    const int32_t peer = 1 - party->rank;
    if (party->rank == trial.rank)
        party->devices[trial.region].state = NET_BROKEN;
    if (party->rank == 0 && story->put == BEFORE) {
        story->put = AFTER;
        if (start_operation(party) != WEFT_OK)
            return net_fail(party, "%s", weft__last_error());
    }
    if (party->rank != trial.rank)
        return party->rank == 1 || story->put == AFTER ? NET_PASSED : NET_AGAIN;
    if (weft__net_peer_error(party->net, peer) == WEFT_OK)
        return NET_IDLE;
    if (strstr(weft__last_error(), "cannot access its memory for rank") == NULL ||
        strstr(weft__last_error(), "the device broke") == NULL)
        return net_fail(party, "%s", weft__last_error());
    if (!weft__net_is_done(&story->request))
        return NET_IDLE;
    return party->rank == 1 || story->request.result == WEFT_ERROR_RANK_FAILED
               ? NET_PASSED
               : net_fail(party, "the request is done with %d", story->request.result);
}

TEST(what_the_device_does_not_do_fails_the_peer)
{
    static const struct {
        int operation;
        int32_t rank;
        uint32_t region;
    } trials[] = {{PUT, 0, STAGING},
                  {PUT, 1, HEAP},
                  {PUT_SIGNAL, 1, NET_WORDS_REGION},
                  {SIGNAL, 1, NET_WORDS_REGION},
                  {GET, 1, HEAP},
                  {GET, 0, STAGING},
                  {FETCH_ADD, 1, NET_WORDS_REGION},
                  {FETCH_ADD, 0, STAGING}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        trial.operation = trials[i].operation;
        trial.rank = trials[i].rank;
        trial.region = trials[i].region;
        run(break_and_look);
    }
}
