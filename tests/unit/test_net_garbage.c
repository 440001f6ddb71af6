/* SPDX-License-Identifier: MIT */
/* Nothing that arrives is trusted: messages and addresses filled at random. Memory beside what is
 * registered must stay as it is (with sanitizers also memory beside the arrays), and who sent what
 * is wrong must be named. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "fake_nets.h"
#include "harness/cmocka.h"
#include "net/engine.h"
#include "net/ledger.h"
#include "net_post.h"
#include "net_world.h"

enum { NUM_RANKS = 3, HEAP_BYTES = 4096, GUARD_BYTES = 256, NUM_WORDS = 4, GUARD = 0xa5 };

/* Rank 0 of three; the other two are whatever sends to it. */
struct target {
    struct fake_nets fake;
    unsigned char memory[GUARD_BYTES + HEAP_BYTES + GUARD_BYTES];
    _Atomic uint64_t words[NUM_WORDS + 1]; /* the last is a guard */
};

static void register_all(struct target *target, int32_t rank)
{
    struct weft__net *net = target->fake.nets[rank];
    assert_ok(
        weft__net_reg(net, 0, target->memory + GUARD_BYTES, HEAP_BYTES, WEFT__NET_HOST_MEMORY));
    assert_ok(weft__net_reg(net, 1, target->words, NUM_WORDS * sizeof(target->words[0]),
                            WEFT__NET_HOST_MEMORY));
}

static void open_target(struct target *target)
{
    memset(target, 0, sizeof(*target));
    memset(target->memory, GUARD, sizeof(target->memory));
    target->fake.num_ranks = NUM_RANKS;
    fake_nets_open(&target->fake, 0);
    fake_nets_connect(&target->fake);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        register_all(target, rank);
    for (int32_t peer = 1; peer < NUM_RANKS; peer++)
        for (uint32_t region = 0; region < 2; region++) {
            struct weft__net_region_card card;
            weft__net_tell_region(target->fake.nets[peer], region, &card);
            assert_ok(weft__net_learn_region(target->fake.nets[0], peer, region, &card));
        }
}

static void check_guards(struct target *target)
{
    for (size_t byte = 0; byte < GUARD_BYTES; byte++) {
        assert_int_equal(target->memory[byte], GUARD);
        assert_int_equal(target->memory[GUARD_BYTES + HEAP_BYTES + byte], GUARD);
    }
    assert_int_equal(atomic_load(&target->words[NUM_WORDS]), 0);
}

static struct weft__net_header good_put(int32_t source, uint64_t sequence)
{
    struct weft__net_header header = {.source = source,
                                      .kind = WEFT__NET_PUT,
                                      .sequence = sequence,
                                      .place = weft__net_place(0, 64),
                                      .num_bytes = 32,
                                      .word = weft__net_place(1, sizeof(uint64_t)),
                                      .add = 5,
                                      .also_word = WEFT__NET_NO_WORD};
    memcpy(header.secret, fake_secret, sizeof(fake_secret));
    return header;
}

static void give(struct target *target, const struct weft__net_header *header)
{
    static const unsigned char payload[1024];
    weft__net_receive(target->fake.nets[0], -1, header, sizeof(*header), payload,
                      header->num_bytes < sizeof(payload) ? header->num_bytes : sizeof(payload));
}

/* ---------------------------------------------------------------- one thing wrong */

static void expect_blame(const char *offence, const struct weft__net_header *wrong)
{
    struct target target;
    open_target(&target);
    struct weft__net_header header = good_put(1, 0);
    give(&target, &header);
    assert_int_equal(atomic_load(&target.words[1]), 5);
    give(&target, wrong);
    assert_error(weft__net_peer_error(target.fake.nets[0], 1), WEFT_ERROR_RANK_FAILED,
                 "rank 1 sent a message that makes no sense");
    assert_non_null(strstr(weft__last_error(), offence));
    assert_ok(weft__net_peer_error(target.fake.nets[0], 2));
    /* It is not heard any more. */
    header = good_put(1, 1);
    give(&target, &header);
    assert_int_equal(atomic_load(&target.words[1]), 5);
    check_guards(&target);
    fake_nets_close(&target.fake);
}

/* A header with this change is blamed by a message that says so. */
#define BLAMED(offence, statement)                                                                 \
    do {                                                                                           \
        struct weft__net_header header = good_put(1, 1);                                           \
        statement;                                                                                 \
        expect_blame(offence, &header);                                                            \
    } while (0)

TEST(what_is_wrong_is_its_senders_failure)
{
    BLAMED("kind", header.kind = 0);
    BLAMED("kind", header.kind = 10);
    BLAMED("no NIC", header.kind = WEFT__NET_PACKET);
    BLAMED("outside", header.place = weft__net_place(2, 0));
    BLAMED("outside", header.place = HEAP_BYTES - 31);
    BLAMED("outside", header.place = (UINT64_C(1) << WP_PLACE_OFFSET_BITS) - 16);
    BLAMED("length", header.num_bytes = 4000);
    BLAMED("its word is none", header.word = weft__net_place(1, NUM_WORDS * sizeof(uint64_t)));
    BLAMED("its word is none", header.word = weft__net_place(2, 0));
    BLAMED("its word is none", header.word = weft__net_place(1, 4));
    BLAMED("its word is none", header.also_word = weft__net_place(1, NUM_WORDS * sizeof(uint64_t)));
    BLAMED("its word is none", header.also_word = weft__net_place(1, 4));
    BLAMED("its word is none", header.kind = WEFT__NET_SIGNAL; header.num_bytes = 0;
           header.word = WEFT__NET_NO_WORD);
    BLAMED("its word is none", header.num_bytes = 0; header.word = weft__net_place(0, HEAP_BYTES));
    BLAMED("it has bytes", header.kind = WEFT__NET_SIGNAL);
    BLAMED("there already", header.sequence = 0);
    BLAMED("missing", header.sequence = UINT64_MAX);
    BLAMED("there already", header.sequence = 0; header.kind = WEFT__NET_SIGNAL;
           header.num_bytes = 0);
    BLAMED("not asked", header.kind = WEFT__NET_ACKNOWLEDGE; header.num_bytes = 0);
    BLAMED("outside", header.kind = WEFT__NET_GET; header.num_bytes = 0; header.add = HEAP_BYTES;
           header.place = 1);
    BLAMED("outside", header.kind = WEFT__NET_GET; header.num_bytes = 0;
           header.place = weft__net_place(9000, 0));
    BLAMED("outside", header.kind = WEFT__NET_GET; header.num_bytes = 0; header.add = 0;
           header.place = weft__net_place(9000, 0));
    BLAMED("it has bytes", header.kind = WEFT__NET_GET);
    BLAMED("its word is none", header.kind = WEFT__NET_FETCH_ADD; header.num_bytes = 0;
           header.word = WEFT__NET_NO_WORD);
    BLAMED("its word is none", header.kind = WEFT__NET_FETCH_ADD; header.num_bytes = 0;
           header.word = weft__net_place(1, 12));
    BLAMED("not asked", header.kind = WEFT__NET_ANSWER);
}

TEST(strangers_are_refused_and_harm_nobody)
{
    struct target target;
    open_target(&target);
    struct weft__net_header header = good_put(1, 0);
    header.secret[15] ^= 1;
    give(&target, &header);
    header = good_put(0, 0); /* itself */
    give(&target, &header);
    header = good_put(NUM_RANKS, 0);
    give(&target, &header);
    header = good_put(-1, 0);
    give(&target, &header);
    header = good_put(1, 0);
    weft__net_receive(target.fake.nets[0], -1, &header, sizeof(header) - 1, NULL, 0);
    assert_int_equal(weft__net_failed_peer(target.fake.nets[0]), -1);
    assert_int_equal(atomic_load(&target.words[1]), 0);
    give(&target, &header);
    assert_int_equal(atomic_load(&target.words[1]), 5);
    /* Where the engine knows who it is, pretending does not help. */
    header = good_put(1, 1);
    weft__net_receive(target.fake.nets[0], 2, &header, sizeof(header), NULL, 0);
    assert_int_equal(weft__net_failed_peer(target.fake.nets[0]), 2);
    fake_nets_close(&target.fake);
}

/* ---------------------------------------------------------------- at random */

static void spoil(void *bytes, size_t num_bytes, uint64_t num_spoiled, uint64_t *random)
{
    for (; num_spoiled > 0; num_spoiled--) {
        unsigned char *spoiled = (unsigned char *)bytes + net_draw(random, num_bytes);
        *spoiled = (unsigned char)net_draw(random, 256);
    }
}

static struct weft__net_header draw_header(uint64_t *random)
{
    struct weft__net_header header = good_put(1 + (int32_t)net_draw(random, 2), 0);
    unsigned char *bytes = (unsigned char *)&header;
    const size_t first = offsetof(struct weft__net_header, kind); /* else it is a stranger's */
    do
        header.kind = 1 + (uint32_t)net_draw(random, WEFT__NET_ANSWER);
    while (header.kind == WEFT__NET_GOODBYE); /* who has left cannot fail */
    header.sequence = net_draw(random, 64);
    header.num_bytes = net_draw(random, 3) == 0 ? 0 : net_draw(random, 1024);
    header.place = weft__net_place(net_draw(random, 20) == 0, net_draw(random, HEAP_BYTES + 100));
    header.word = net_draw(random, 2) == 0
                      ? WEFT__NET_NO_WORD
                      : weft__net_place(1, net_draw(random, 5) * sizeof(uint64_t));
    if (net_draw(random, 3) == 0)
        header.also_word = weft__net_place(1, net_draw(random, 5) * sizeof(uint64_t));
    spoil(bytes + first, sizeof(header) - first, net_draw(random, 3), random);
    return header;
}

/* So that some answers are to questions. */
static void ask_peers(struct target *target, uint64_t *random)
{
    for (int32_t peer = 1; peer < NUM_RANKS; peer++)
        for (int question = 0; question < 8; question++) {
            const uint64_t num_bytes = 1 + net_draw(random, HEAP_BYTES);
            const struct wp_access get = {.rank = peer,
                                          .num_bytes = num_bytes,
                                          .target = question % 2 == 0 ? 0 : HEAP_BYTES - num_bytes};
            assert_ok(net_post_as(WP_ACCESS_GET, target->fake.nets[0], &get, NULL));
        }
}

TEST(random_messages_stay_within_what_is_registered)
{
    enum { NUM_MESSAGES = 100000 };
    struct target target;
    uint64_t random = 5, num_targets = 0;
    open_target(&target);
    ask_peers(&target, &random);
    for (int message = 0; message < NUM_MESSAGES; message++) {
        struct weft__net_header header = draw_header(&random);
        give(&target, &header);
        weft__net_progress(target.fake.nets[0]);
        if (weft__net_peer_error(target.fake.nets[0], 1) == WEFT_OK ||
            weft__net_peer_error(target.fake.nets[0], 2) == WEFT_OK)
            continue;
        check_guards(&target);
        fake_nets_close(&target.fake);
        open_target(&target);
        ask_peers(&target, &random);
        num_targets++;
    }
    check_guards(&target);
    fake_nets_close(&target.fake);
    assert_true(num_targets > 1000);
}

TEST(random_addresses_are_refused)
{
    enum { NUM_ADDRESSES = 20000 };
    struct target target;
    struct weft__net_blob good;
    uint64_t random = 3;
    int num_refused = 0;
    open_target(&target);
    assert_ok(weft__net_address(target.fake.nets[1], &good));
    unsigned char *bytes = malloc(good.num_bytes);
    assert_non_null(bytes);
    for (int address = 0; address < NUM_ADDRESSES; address++) {
        memcpy(bytes, good.bytes, good.num_bytes);
        spoil(bytes, good.num_bytes, net_draw(&random, 6), &random);
        size_t num_bytes =
            net_draw(&random, 2) ? good.num_bytes : net_draw(&random, good.num_bytes);
        /* A copy of its own length, so that reading past its end shows. */
        unsigned char *exact = malloc(num_bytes + 1);
        assert_non_null(exact);
        memcpy(exact, bytes, num_bytes);
        const struct weft__net_blob blobs[NUM_RANKS] = {{NULL, 0}, {exact, num_bytes}, {NULL, 0}};
        num_refused += weft__net_connect(target.fake.nets[0], blobs) != WEFT_OK;
        free(exact);
    }
    assert_true(num_refused > NUM_ADDRESSES / 2);
    assert_true(num_refused < NUM_ADDRESSES);
    free(bytes);
    fake_nets_close(&target.fake);
}

TEST(random_cards_are_refused_or_harm_nobody)
{
    enum { NUM_CARDS = 20000 };
    struct target target;
    struct weft__net_region_card good;
    uint64_t random = 5;
    int num_refused = 0;
    open_target(&target);
    weft__net_tell_region(target.fake.nets[1], 0, &good);
    for (int attempt = 0; attempt < NUM_CARDS; attempt++) {
        struct weft__net_region_card card = good;
        const size_t num_bytes = offsetof(struct weft__net_region_card, key);
        spoil(&card, num_bytes, net_draw(&random, 4), &random);
        num_refused += weft__net_learn_region(target.fake.nets[0], 1, 0, &card) != WEFT_OK;
    }
    assert_in_range(num_refused, NUM_CARDS / 4, NUM_CARDS - 1);
    fake_nets_close(&target.fake);
}

TEST(the_ledger_agrees_with_a_table)
{
    enum { NUM_NUMBERS = 300, NUM_ROUNDS = 300 };
    uint64_t random = 17;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        struct weft__ledger ledger = {0};
        uint8_t table[NUM_NUMBERS + 1] = {0};
        uint64_t prefix = 0;
        for (int step = 0; step < 4 * NUM_NUMBERS; step++) {
            uint64_t number = net_draw(&random, NUM_NUMBERS);
            enum weft__ledger_result expected =
                table[number] ? WEFT__LEDGER_TWICE : WEFT__LEDGER_MARKED;
            assert_int_equal(weft__ledger_look(&ledger, number), expected);
            assert_int_equal(weft__ledger_mark(&ledger, number), expected);
            table[number] = 1;
            while (table[prefix])
                prefix++;
            assert_int_equal(ledger.prefix, prefix);
        }
        assert_int_equal(weft__ledger_mark(&ledger, prefix + WEFT__LEDGER_WINDOW),
                         WEFT__LEDGER_TOO_FAR);
        weft__ledger_destroy(&ledger);
    }
}
