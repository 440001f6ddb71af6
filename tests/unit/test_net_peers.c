/* SPDX-License-Identifier: MIT */
/* What a net believes of its peers: that they leave in good order, and what they tell of their
 * memory; which requests to a peer may share a message; and who is rung for when words are added
 * to. */
#include <string.h>

#include "comm/host/error.h"
#include "fake_nets.h"
#include "harness/cmocka.h"
#include "net/net_internal.h"
#include "net_post.h"

enum { HEAP, AREA, BYTES = 4096, ENOUGH_ROUNDS = 1000, MOST_RANKS = 3 };

struct pair { /* or one rank more */
    struct fake_nets fake;
    struct weft__doorbell bells[MOST_RANKS];
    _Atomic uint64_t num_bytes;
    uint64_t num_received; /* by rank 0, of count_rings */
    uint64_t heaps[MOST_RANKS][BYTES / sizeof(uint64_t)], areas[2][BYTES / sizeof(uint64_t)];
};

static int open_ranks(void **state, int32_t num_ranks)
{
    static struct pair pair;
    memset(&pair, 0, sizeof pair);
    pair.num_bytes = BYTES;
    pair.fake = (struct fake_nets){.num_ranks = num_ranks, .bells = pair.bells};
    fake_nets_open(&pair.fake, 0);
    for (int32_t rank = 0; rank < num_ranks; rank++)
        assert_ok(weft__net_reg_growing(pair.fake.nets[rank], HEAP, pair.heaps[rank], BYTES,
                                        &pair.num_bytes));
    fake_nets_connect(&pair.fake);
    *state = &pair;
    return 0;
}

static int open_pair(void **state)
{
    return open_ranks(state, 2);
}

static int open_three(void **state)
{
    return open_ranks(state, 3);
}

static int close_pair(void **state)
{
    struct pair *pair = *state;
    fake_nets_close(&pair->fake);
    return 0;
}

/* ---------------------------------------------------------------- ends */

/* What it signalled stands, and what is sent to it is lost, but it has not failed. */
TEST_AS(who_takes_leave_has_not_failed,
        cmocka_unit_test_setup_teardown(who_takes_leave_has_not_failed, open_pair, close_pair))
{
    struct pair *pair = *state;
    struct weft__net *net = pair->fake.nets[0];
    struct weft__net_request request = {.num_left = 0};
    const struct wp_access put = {.rank = 1, .num_bytes = 8, .word = 8, .add = 1};
    const struct weft__net_header goodbye = {.source = 1, .kind = WEFT__NET_GOODBYE};
    assert_ok(net_signal(pair->fake.nets[1], 0, weft__net_place(HEAP, 16), 7));
    for (int round = 0; round < ENOUGH_ROUNDS; round++)
        for (int32_t rank = 0; rank < 2; rank++)
            weft__net_progress(pair->fake.nets[rank]);
    assert_int_equal(pair->heaps[0][2], 7);
    weft__net_receive(net, 1, &goodbye, sizeof goodbye, NULL, 0);
    for (int round = 0; round < ENOUGH_ROUNDS; round++)
        weft__net_progress(net);
    assert_int_equal(net->peers[1].state, WEFT__NET_LEFT);
    assert_int_equal(weft__net_failed_peer(net), -1);
    assert_ok(weft__net_peer_error(net, 1));
    assert_int_equal(net_post_as(WP_ACCESS_PUT_SIGNAL, net, &put, &request),
                     WEFT_ERROR_RANK_FAILED);
    assert_true(weft__net_is_done(&request));
    assert_int_equal(weft__net_failed_peer(net), -1);
}

/* Of a flush to all peers that one has left is told at once, and what others were sent is waited
 * for. */
TEST_AS(who_has_left_keeps_no_other_from_its_flush,
        cmocka_unit_test_setup_teardown(who_has_left_keeps_no_other_from_its_flush, open_three,
                                        close_pair))
{
    struct pair *pair = *state;
    struct weft__net *net = pair->fake.nets[0];
    struct weft__net_request request = {.num_left = 0};
    const struct weft__net_header goodbye = {.source = 1, .kind = WEFT__NET_GOODBYE};
    weft__net_receive(net, 1, &goodbye, sizeof goodbye, NULL, 0);
    for (int round = 0; round < ENOUGH_ROUNDS; round++)
        weft__net_progress(net);
    assert_int_equal(net->peers[1].state, WEFT__NET_LEFT);
    assert_ok(net_signal(net, 2, weft__net_place(HEAP, 16), 7));
    assert_int_equal(net_flush(net, WEFT__NET_ALL_PEERS, &request), WEFT_ERROR_RANK_FAILED);
    assert_false(weft__net_is_done(&request));
    for (int round = 0; round < ENOUGH_ROUNDS && !weft__net_is_done(&request); round++) {
        weft__net_progress(net);
        weft__net_progress(pair->fake.nets[2]);
    }
    assert_true(weft__net_is_done(&request));
    assert_int_equal(pair->heaps[2][2], 7);
}

/* An engine that closes finds connections broken, which is nobody's failure any more. */
static struct {
    const struct weft__net_engine *engine;
    struct weft__net *net;
    int32_t peer, failed_peer;
} closing;

static void break_and_close(void *state, int64_t deadline_ns)
{
    weft__net_fail_peer(closing.net, closing.peer, "rank %d has hung up", closing.peer);
    closing.failed_peer = weft__net_failed_peer(closing.net);
    closing.engine->close(state, deadline_ns);
}

TEST(nobody_fails_while_a_net_is_closed)
{
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(open_pair(state), 0);
        struct pair *pair = *state;
        struct weft__net_engine breaks = *pair->fake.nets[rank]->engine;
        closing.engine = pair->fake.nets[rank]->engine;
        closing.net = pair->fake.nets[rank];
        closing.peer = 1 - rank;
        closing.failed_peer = rank;
        breaks.close = break_and_close;
        closing.net->engine = &breaks;
        weft__net_close(closing.net);
        pair->fake.nets[rank] = NULL;
        assert_int_equal(closing.failed_peer, -1);
        assert_int_equal(close_pair(state), 0);
    }
}

/* ---------------------------------------------------------------- bells */

enum { NUM_WORDS = 5, FIRST_WORD = 16 };

/* Adds to words from FIRST_WORD on; returns how often the bell has rung for who sleeps until
 * `awaited` changes. */
static uint32_t count_rings(struct pair *pair, uint64_t awaited)
{
    struct weft__doorbell *bell = &pair->bells[0];
    const uint32_t prepared = weft__doorbell_prepare(bell, awaited);
    for (uint64_t i = 0; i < NUM_WORDS; i++) {
        const struct weft__net_header add = {
            .source = 1,
            .kind = WEFT__NET_PUT,
            .sequence = pair->num_received++,
            .word = weft__net_place(HEAP, FIRST_WORD + i * sizeof(uint64_t)),
            .add = 1,
            .also_word = WEFT__NET_NO_WORD};
        weft__net_receive(pair->fake.nets[0], 1, &add, sizeof add, NULL, 0);
    }
    weft__net_progress(pair->fake.nets[0]);
    weft__net_progress(pair->fake.nets[0]); /* nothing more was added */
    weft__doorbell_cancel(bell);
    return atomic_load(&bell->num_rings) - prepared;
}

TEST_AS(the_bell_rings_once_for_all_that_has_come,
        cmocka_unit_test_setup_teardown(the_bell_rings_once_for_all_that_has_come, open_pair,
                                        close_pair))
{
    struct pair *pair = *state;
    const uint64_t end = FIRST_WORD + NUM_WORDS * sizeof(uint64_t);
    assert_int_equal(count_rings(pair, FIRST_WORD), 1);
    assert_int_equal(count_rings(pair, end - sizeof(uint64_t)), 1);
    assert_int_equal(count_rings(pair, WEFT__ANY_WORD), 1);
    assert_int_equal(count_rings(pair, FIRST_WORD - sizeof(uint64_t)), 0);
    assert_int_equal(count_rings(pair, end), 0);
    assert_int_equal(pair->heaps[0][FIRST_WORD / sizeof(uint64_t)], 5);
}

/* ---------------------------------------------------------------- memory */

static void expect_nonsense(struct weft__net *net, const struct weft__net_region_card *card)
{
    const struct wp_access put = {.rank = 1, .target = weft__net_place(AREA, 0), .num_bytes = 8};
    assert_int_equal(weft__net_learn_region(net, 1, AREA, card), WEFT_ERROR_MISMATCH);
    assert_string_equal(weft__last_error(), "what rank 1 tells of region 1 makes no sense");
    assert_int_equal(net_post_as(WP_ACCESS_PUT, net, &put, NULL), WEFT_ERROR_INVALID_ARGUMENT);
}

TEST_AS(nonsense_about_regions_is_not_believed,
        cmocka_unit_test_setup_teardown(nonsense_about_regions_is_not_believed, open_pair,
                                        close_pair))
{
    struct pair *pair = *state;
    struct weft__net *net = pair->fake.nets[0];
    struct weft__net_region_card good, card;
    assert_ok(
        weft__net_reg(pair->fake.nets[1], AREA, pair->areas[1], BYTES, WEFT__NET_HOST_MEMORY));
    weft__net_tell_region(pair->fake.nets[1], AREA, &good);
    card = good;
    card.key_bytes = WEFT__NET_MAX_KEY_BYTES + 1;
    expect_nonsense(net, &card);
    for (int i = 0; i < 3; i++) {
        static const uint32_t accesses[] = {WEFT__NET_NOT_THERE, WEFT__NET_BY_WRITES + 1,
                                            UINT32_MAX};
        card = good;
        card.access = accesses[i];
        expect_nonsense(net, &card);
    }
    card = good;
    card.num_bytes = UINT64_C(1) << WP_PLACE_OFFSET_BITS;
    expect_nonsense(net, &card);
    assert_ok(weft__net_learn_region(net, 1, AREA, &good));
    assert_int_equal(net->peers[1].region_bytes[AREA], BYTES);
}

/* An engine that has no writes learns of none. */
TEST_AS(writes_are_not_learned_without_writes,
        cmocka_unit_test_setup_teardown(writes_are_not_learned_without_writes, open_pair,
                                        close_pair))
{
    struct pair *pair = *state;
    struct weft__net *net = pair->fake.nets[0];
    struct weft__net_engine without = *net->engine;
    const struct weft__net_engine *with = net->engine;
    struct weft__net_region_card card = {.num_bytes = BYTES, .access = WEFT__NET_BY_BOTH};
    without.learn = NULL;
    net->engine = &without;
    expect_nonsense(net, &card);
    card.access = WEFT__NET_BY_MESSAGES;
    assert_ok(weft__net_learn_region(net, 1, AREA, &card));
    net->engine = with;
}

/* ---------------------------------------------------------------- messages that are shared */

/* Two share a message if both may be lost or neither: what becomes of the message becomes of
 * both. */
TEST_AS(only_what_is_lost_alike_shares_a_message,
        cmocka_unit_test_setup_teardown(only_what_is_lost_alike_shares_a_message, open_pair,
                                        close_pair))
{
    const struct pair *pair = *state;
    const struct wp_access rows = {.operation = WP_ACCESS_PUT_SIGNAL,
                                   .rank = 1,
                                   .num_bytes = 64,
                                   .word = 8,
                                   .add = 1,
                                   .loss = WP_ACCESS_MAY_BE_LOST};
    struct wp_access credit = rows;
    credit.num_bytes = 0;
    credit.word = 16;
    assert_true(weft__net_can_share(pair->fake.nets[0], &rows, &credit));
    assert_true(weft__net_can_share(pair->fake.nets[0], &credit, &rows));
    assert_true(weft__net_can_share(pair->fake.nets[0], &credit, &credit));
    assert_false(weft__net_can_share(pair->fake.nets[0], &rows, &rows));
    struct wp_access other = credit;
    other.loss = WP_ACCESS_MUST_NOT_BE_LOST;
    assert_false(weft__net_can_share(pair->fake.nets[0], &rows, &other));
    assert_false(weft__net_can_share(pair->fake.nets[0], &other, &rows));
    other = credit;
    other.rank = 0;
    assert_false(weft__net_can_share(pair->fake.nets[0], &rows, &other));
    other = credit;
    other.operation = WP_ACCESS_SIGNAL;
    assert_false(weft__net_can_share(pair->fake.nets[0], &rows, &other));
    other = credit;
    other.word = 4; /* wrong: it must not hold up the good one */
    assert_false(weft__net_can_share(pair->fake.nets[0], &rows, &other));
    assert_false(weft__net_can_share(pair->fake.nets[0], &other, &rows));
}
