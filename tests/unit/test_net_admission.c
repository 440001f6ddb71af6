/* SPDX-License-Identifier: MIT */
/* Whom engine tcp connects with, at which addresses, and what those get who are no ranks. */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "net_pair.h"
#include "net_puppet.h"
#include "net_world.h"

/* ---------------------------------------------------------------- who may connect */

/* What a stranger may do: 0 noise, 1 a hello with errors, 2 one that is cut, 3 a good one and a
 * proof that is none, 4 a good one and more than a proof, 5 nothing. */
static void play_stranger(struct pair *pair, uint64_t *random)
{
    const struct weft__tcp_address address = address_of(pair, 1);
    struct weft__tcp_hello hello = puppet_hello(0, 1, NUM_RANKS);
    unsigned char noise[4096];
    const uint64_t kind = net_draw(random, 6);
    const int fd = puppet_dial(&address);
    assert_true(fd >= 0);
    for (size_t byte = 0; byte < sizeof(noise); byte++)
        noise[byte] = (unsigned char)net_draw(random, 256);
    if (kind == 1)
        ((unsigned char *)&hello)[net_draw(random, 24)] ^= 1 << net_draw(random, 8);
    if (kind == 0)
        puppet_write(fd, noise, net_draw(random, sizeof(noise)));
    else if (kind < 5)
        puppet_write(fd, &hello, kind == 2 ? net_draw(random, sizeof(hello)) : sizeof(hello));
    if (kind == 3)
        assert_true(puppet_read(fd, pair->nets[1], noise, sizeof(struct weft__tcp_challenge)));
    if (kind == 3 || kind == 4)
        puppet_write(fd, noise, kind == 3 ? WEFT__MAC_BYTES : sizeof(noise));
    weft__net_progress(pair->nets[1]);
    puppet_hang_up(fd);
}

/* Until rank 1 has closed what it admits no longer. */
static void await_num_descriptors(struct pair *pair, int expected)
{
    for (int ms = 0; ms < 20000 && num_descriptors() > expected; ms += 20) {
        weft__net_progress(pair->nets[1]);
        poll(NULL, 0, 20);
    }
    assert_int_equal(num_descriptors(), expected);
}

TEST(strangers_harm_nobody)
{
    const int num_strangers = tests_grid_size(10000, 1000);
    struct pair pair;
    uint64_t random = 3;
    open_pair(&pair);
    connect_rank(&pair, 1);
    const int num_before = num_descriptors();
    for (int stranger = 0; stranger < num_strangers; stranger++)
        play_stranger(&pair, &random);
    await_num_descriptors(&pair, num_before);
    assert_int_equal(weft__net_failed_peer(pair.nets[1]), -1);
    connect_rank(&pair, 0);
    expect_to_meet(&pair);
    close_pair(&pair);
}

TEST(silent_strangers_are_few_and_go)
{
    enum { NUM_SILENT = 200, MOST = 80 };
    struct pair pair;
    int silent[NUM_SILENT];
    open_pair(&pair);
    connect_rank(&pair, 1);
    const struct weft__tcp_address address = address_of(&pair, 1);
    const int num_before = num_descriptors();
    for (int i = 0; i < NUM_SILENT; i++) {
        silent[i] = puppet_dial(&address);
        assert_true(silent[i] >= 0);
        weft__net_progress(pair.nets[1]);
    }
    assert_in_range(num_descriptors(), num_before + NUM_SILENT + 1, num_before + NUM_SILENT + MOST);
    await_num_descriptors(&pair, num_before + NUM_SILENT);
    connect_rank(&pair, 0);
    expect_to_meet(&pair);
    for (int i = 0; i < NUM_SILENT; i++)
        close(silent[i]);
    close_pair(&pair);
}

TEST(nobody_listens_when_all_are_there)
{
    struct pair pair;
    open_pair(&pair);
    connect_rank(&pair, 1);
    connect_rank(&pair, 0);
    expect_to_meet(&pair);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        const struct weft__tcp_address address = address_of(&pair, rank);
        assert_int_equal(puppet_dial(&address), -1);
    }
    close_pair(&pair);
}

TEST(who_does_not_know_the_secret_is_told_apart)
{
    struct pair pair;
    open_pair(&pair);
    weft__net_close(pair.nets[0]);
    pair.nets[0] = open_net(0, 1);
    assert_ok(weft__net_address(pair.nets[0], &pair.blobs[0]));
    connect_rank(&pair, 1);
    connect_rank(&pair, 0);
    for (int ms = 0; ms < 5000 && weft__net_failed_peer(pair.nets[0]) < 0; ms++) {
        weft__net_progress(pair.nets[1]);
        if (weft__net_progress(pair.nets[0]) == 0)
            poll(NULL, 0, 1);
    }
    expect_failure(pair.nets[0], 1, "cannot connect to rank 1 at 127.0.0.1, port ");
    assert_int_equal(weft__net_failed_peer(pair.nets[1]), -1); /* it still waits */
    close_pair(&pair);
}

/* ---------------------------------------------------------------- what was overheard */

/* All that the dialer of rank 0 says, by who sits in between; then the connection is up. */
static void overhear(struct pair *pair, struct weft__tcp_talk *talk, uint8_t proof[WEFT__MAC_BYTES])
{
    struct weft__tcp_addresses between = {.num = 1};
    unsigned char bytes[8192];
    const struct weft__net_blob own = pair->blobs[1];
    const struct weft__tcp_address address = address_of(pair, 1);
    const int listener = puppet_listen(&between.at[0]);
    pair->blobs[1] = puppet_blob(&own, &between, bytes);
    connect_rank(pair, 0);
    pair->blobs[1] = own;
    const int from = accept(listener, NULL, NULL), to = puppet_dial(&address);
    assert_true(from >= 0 && to >= 0);
    assert_true(puppet_read(from, pair->nets[0], &talk->hello, sizeof(talk->hello)));
    assert_true(puppet_write(to, &talk->hello, sizeof(talk->hello)));
    assert_true(puppet_read(to, pair->nets[1], &talk->challenge, sizeof(talk->challenge)));
    assert_true(puppet_write(from, &talk->challenge, sizeof(talk->challenge)));
    assert_true(puppet_read(from, pair->nets[0], proof, WEFT__MAC_BYTES));
    close(listener);
    close(from);
    close(to);
}

TEST(what_was_overheard_is_worth_nothing)
{
    struct pair pair;
    struct weft__tcp_talk talk = {.hello = {.magic = 0}};
    struct weft__tcp_challenge challenge;
    uint8_t proof[WEFT__MAC_BYTES], byte;
    open_pair(&pair);
    connect_rank(&pair, 1);
    overhear(&pair, &talk, proof);
    const struct weft__tcp_address address = address_of(&pair, 1);
    const int fd = puppet_dial(&address);
    assert_true(puppet_write(fd, &talk.hello, sizeof(talk.hello)));
    assert_true(puppet_read(fd, pair.nets[1], &challenge, sizeof(challenge)));
    assert_memory_not_equal(&challenge, &talk.challenge, sizeof(challenge));
    assert_true(puppet_write(fd, proof, sizeof(proof)));
    assert_false(puppet_read(fd, pair.nets[1], &byte, 1));
    close(fd);
    close_pair(&pair);
}

/* Who is dialed sends the dialer its own proof. */
TEST(a_proof_is_no_answer_to_itself)
{
    struct pair pair;
    struct weft__tcp_addresses own = {.num = 1};
    const struct weft__tcp_challenge challenge = {.nonce = {1}};
    struct weft__tcp_hello hello;
    uint8_t proof[WEFT__MAC_BYTES];
    unsigned char bytes[8192];
    open_pair(&pair);
    const int listener = puppet_listen(&own.at[0]);
    pair.blobs[1] = puppet_blob(&pair.blobs[1], &own, bytes);
    connect_rank(&pair, 0);
    const int fd = accept(listener, NULL, NULL);
    assert_true(puppet_read(fd, pair.nets[0], &hello, sizeof(hello)));
    assert_true(puppet_write(fd, &challenge, sizeof(challenge)));
    assert_true(puppet_read(fd, pair.nets[0], proof, sizeof(proof)));
    assert_true(puppet_write(fd, proof, sizeof(proof)));
    expect_failure(pair.nets[0], 1, "who answers for rank 1 at 127.0.0.1, port ");
    close(fd);
    close(listener);
    close_pair(&pair);
}

/* The same proof for another rank, another number of ranks, another role. */
TEST(a_proof_is_of_all_that_was_said)
{
    const struct weft__tcp_talk talk = {.hello = puppet_hello(0, 1, NUM_RANKS)};
    uint8_t proof[WEFT__MAC_BYTES], other[WEFT__MAC_BYTES];
    weft__tcp_prove(secret, WEFT__TCP_DIALER, &talk, proof);
    weft__tcp_prove(secret, WEFT__TCP_ACCEPTOR, &talk, other);
    assert_false(weft__mac_equal(proof, other));
    for (size_t byte = 0; byte < sizeof(talk); byte++) {
        struct weft__tcp_talk changed = talk;
        ((unsigned char *)&changed)[byte] ^= 1;
        weft__tcp_prove(secret, WEFT__TCP_DIALER, &changed, other);
        assert_false(weft__mac_equal(proof, other));
    }
    weft__tcp_prove(secret, WEFT__TCP_DIALER, &talk, other);
    assert_true(weft__mac_equal(proof, other));
    other[WEFT__MAC_BYTES - 1] ^= 1;
    assert_false(weft__mac_equal(proof, other));
}

/* RFC 4231, case 2. */
TEST(macs_are_hmac_sha256)
{
    const struct weft__mac_part parts[] = {{"what do ya want ", 16}, {"for nothing?", 12}};
    static const uint8_t expected[WEFT__MAC_BYTES] = {
        0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
        0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
        0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    uint8_t mac[WEFT__MAC_BYTES];
    weft__mac("Jefe", 4, parts, 2, mac);
    assert_memory_equal(mac, expected, sizeof(mac));
}

/* ---------------------------------------------------------------- addresses */

TEST(the_first_address_that_works_is_taken)
{
    struct pair pair;
    struct weft__tcp_address closed;
    unsigned char bytes[8192];
    open_pair(&pair);
    connect_rank(&pair, 1);
    const int listener = puppet_listen(&closed);
    close(listener);
    const struct weft__tcp_addresses both = {.num = 2, .at = {closed, address_of(&pair, 1)}};
    pair.blobs[1] = puppet_blob(&pair.blobs[1], &both, bytes);
    connect_rank(&pair, 0);
    expect_to_meet(&pair);
    close_pair(&pair);
}

TEST(a_rank_that_is_not_there_is_named)
{
    struct pair pair;
    struct weft__tcp_addresses closed = {.num = 1};
    unsigned char bytes[8192];
    open_pair(&pair);
    const int listener = puppet_listen(&closed.at[0]);
    close(listener);
    pair.blobs[1] = puppet_blob(&pair.blobs[1], &closed, bytes);
    connect_rank(&pair, 0);
    expect_failure(pair.nets[0], 1, "cannot connect to rank 1 at 127.0.0.1, port ");
    assert_non_null(strstr(weft__last_error(), "Connection refused"));
    close_pair(&pair);
}

TEST(ranks_meet_over_ipv6)
{
    struct pair pair;
    struct weft__tcp_addresses v6 = {.num = 0};
    unsigned char bytes[8192];
    open_pair(&pair);
    const struct weft__tcp_addresses all = puppet_addresses(&pair.blobs[1]);
    for (uint32_t index = 0; index < all.num; index++)
        if (all.at[index].family == AF_INET6)
            v6.at[v6.num++] = all.at[index];
    if (v6.num > 0) {
        connect_rank(&pair, 1);
        pair.blobs[1] = puppet_blob(&pair.blobs[1], &v6, bytes);
        connect_rank(&pair, 0);
        expect_to_meet(&pair);
    }
    close_pair(&pair);
    if (v6.num == 0)
        skip();
}
