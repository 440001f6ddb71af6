/* SPDX-License-Identifier: MIT */
/* Engine tcp and those at the other end of its connections who are no ranks, or ranks that err: who
 * may connect, what is believed of what comes, and what an end of the connection means. */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/error.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "net/engine.h"
#include "net_post.h"
#include "net_puppet.h"
#include "net_world.h"

enum { NUM_RANKS = 2, HEAP_BYTES = 1 << 16, PAYLOAD_BYTES = 40000, NUM_WORDS = 8, WORD = 1 };

static const uint8_t secret[WEFT__NONCE_BYTES] = {9, 8, 7};

/* Rank 1, who is dialed, and rank 0, if there is a net for it, who dials. */
struct pair {
    struct weft__net *nets[NUM_RANKS];
    struct weft__net_blob blobs[NUM_RANKS];
    unsigned char *heap; /* of rank 1: pages that can be taken away */
    _Atomic uint64_t words[NUM_WORDS];
};

static struct weft__net *open_net(int32_t rank, uint8_t first_of_secret)
{
    struct weft__net *net = NULL;
    struct weft__net_config config = {.engine = "tcp",
                                      .rank = rank,
                                      .num_ranks = NUM_RANKS,
                                      .close_ms = 50,
                                      .timeout_ms = 20000,
                                      .devices = "lo"};
    memcpy(config.secret, secret, sizeof(secret));
    config.secret[0] = first_of_secret;
    assert_ok(weft__net_open(&config, &net));
    return net;
}

static void open_pair(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        pair->nets[rank] = open_net(rank, secret[0]);
        assert_ok(weft__net_address(pair->nets[rank], &pair->blobs[rank]));
    }
    pair->heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pair->heap, MAP_FAILED);
}

static void connect_rank(struct pair *pair, int32_t rank)
{
    assert_ok(weft__net_connect(pair->nets[rank], pair->blobs));
    if (rank == 0)
        return;
    assert_ok(weft__net_reg(pair->nets[1], 0, pair->heap, HEAP_BYTES, WEFT__NET_HOST_MEMORY));
    assert_ok(
        weft__net_reg(pair->nets[1], 1, pair->words, sizeof(pair->words), WEFT__NET_HOST_MEMORY));
}

static void close_pair(struct pair *pair)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        if (pair->nets[rank] != NULL)
            weft__net_close(pair->nets[rank]);
    munmap(pair->heap, HEAP_BYTES);
}

/* Until rank 0's signal has come to rank 1. */
static void expect_to_meet(struct pair *pair)
{
    struct weft__net_region_card card;
    weft__net_tell_region(pair->nets[1], 1, &card);
    assert_ok(weft__net_learn_region(pair->nets[0], 1, 1, &card));
    assert_ok(net_signal(pair->nets[0], 1, weft__net_place(1, 8 * WORD), 5));
    for (int ms = 0; ms < 10000 && atomic_load(&pair->words[WORD]) == 0; ms++) {
        if (weft__net_progress(pair->nets[0]) + weft__net_progress(pair->nets[1]) == 0)
            poll(NULL, 0, 1);
        assert_ok(weft__net_peer_error(pair->nets[0], 1));
    }
    assert_int_equal(atomic_load(&pair->words[WORD]), 5);
    for (int rank = 0; rank < 2;
         rank++) { /* the kernel has seen how far they are from each other */
        assert_ok(weft__net_find_transports(pair->nets[rank]));
        const double us = weft__net_round_trip_us(pair->nets[rank]);
        assert_true(us > 0 && us < 10e6);
    }
}

/* Until the net has lost its peer. */
static void expect_failure(struct weft__net *net, int32_t peer, const char *reason)
{
    for (int ms = 0; ms < 10000 && weft__net_peer_error(net, peer) == WEFT_OK; ms++)
        if (weft__net_progress(net) == 0)
            poll(NULL, 0, 1);
    assert_error(weft__net_peer_error(net, peer), WEFT_ERROR_RANK_FAILED, reason);
}

static int num_descriptors(void)
{
    int num = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL)
        num++;
    closedir(all);
    return num;
}

/* Each of its calls of progress has something to send; what comes is taken all the same. */
TEST(who_always_sends_takes_what_comes)
{
    struct pair pair;
    struct weft__net_request flush = {.num_left = 0};
    open_pair(&pair);
    connect_rank(&pair, 0);
    connect_rank(&pair, 1);
    expect_to_meet(&pair);
    assert_ok(net_flush(pair.nets[0], 1, &flush));
    for (int round = 0; round < 1000 && !weft__net_is_done(&flush); round++) {
        assert_ok(net_signal(pair.nets[0], 1, weft__net_place(1, 8 * WORD), 1));
        assert_true(weft__net_progress(pair.nets[0]) > 0);
        weft__net_progress(pair.nets[1]);
    }
    assert_true(weft__net_is_done(&flush));
    close_pair(&pair);
}

/* ---------------------------------------------------------------- who may connect */

static struct weft__tcp_address address_of(const struct pair *pair, int32_t rank)
{
    return puppet_addresses(&pair->blobs[rank]).at[0];
}

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
    expect_failure(pair.nets[0], 1, "connection to rank 1 at 127.0.0.1, port ");
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
    expect_failure(pair.nets[0], 1, "connection to rank 1 at 127.0.0.1, port ");
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

/* ---------------------------------------------------------------- what is believed */

static struct weft__net_header put_header(uint64_t sequence)
{
    return (struct weft__net_header){.source = 0,
                                     .kind = WEFT__NET_PUT,
                                     .sequence = sequence,
                                     .num_bytes = PAYLOAD_BYTES,
                                     .word = weft__net_place(1, 8 * WORD),
                                     .add = 1,
                                     .also_word = WEFT__NET_NO_WORD};
}

/* Rank 1 with a puppet as rank 0. */
static int open_with_puppet(struct pair *pair)
{
    open_pair(pair);
    connect_rank(pair, 1);
    weft__net_close(pair->nets[0]);
    pair->nets[0] = NULL;
    const struct weft__tcp_address address = address_of(pair, 1);
    const struct weft__tcp_hello hello = puppet_hello(0, 1, NUM_RANKS);
    const int fd = puppet_join(&address, pair->nets[1], &hello, secret);
    assert_true(fd >= 0);
    return fd;
}

static const unsigned char payload[PAYLOAD_BYTES] = {[0] = 1, [PAYLOAD_BYTES - 1] = 2};

static void drive_until_word(struct pair *pair, uint64_t value)
{
    for (int ms = 0; ms < 5000 && atomic_load(&pair->words[WORD]) != value; ms++)
        if (weft__net_progress(pair->nets[1]) == 0)
            poll(NULL, 0, 1);
    assert_int_equal(atomic_load(&pair->words[WORD]), value);
}

/* Cut anywhere, on the way. */
TEST(messages_come_bit_by_bit)
{
    struct pair pair;
    const int fd = open_with_puppet(&pair);
    static unsigned char message[WEFT__TCP_HEADER_BYTES + PAYLOAD_BYTES];
    uint64_t random = 9;
    for (uint64_t number = 0; number < 20; number++) {
        struct weft__net_header header = put_header(number);
        memcpy(message, weft__tcp_wire_header(&header), WEFT__TCP_HEADER_BYTES);
        memcpy(message + WEFT__TCP_HEADER_BYTES, payload, PAYLOAD_BYTES);
        memset(pair.heap, 0, PAYLOAD_BYTES);
        for (size_t sent = 0; sent < sizeof(message);) {
            size_t num_bytes = 1 + net_draw(&random, number % 2 == 0 ? 9000 : 90);
            if (num_bytes > sizeof(message) - sent)
                num_bytes = sizeof(message) - sent;
            assert_true(puppet_write(fd, message + sent, num_bytes));
            sent += num_bytes;
            weft__net_progress(pair.nets[1]);
        }
        drive_until_word(&pair, number + 1);
        assert_memory_equal(pair.heap, payload, PAYLOAD_BYTES);
    }
    close(fd);
    close_pair(&pair);
}

static void expect_blame(struct weft__net_header header, size_t num_bytes, const char *offence)
{
    struct pair pair;
    const int fd = open_with_puppet(&pair);
    assert_true(puppet_send(fd, header, payload, num_bytes));
    expect_failure(pair.nets[1], 0, offence);
    assert_int_equal(pair.heap[0] + pair.heap[PAYLOAD_BYTES - 1], 0);
    close(fd);
    close_pair(&pair);
}

TEST(headers_are_checked_before_the_payload)
{
    struct weft__net_header header = put_header(0);
    header.num_bytes = UINT64_MAX;
    expect_blame(header, 100, "rank 0 sent a message that makes no sense: its length is wrong");
    header.num_bytes = WEFT__TCP_MAX_MESSAGE_BYTES + 1;
    expect_blame(header, 100, "rank 0 sent a message that makes no sense: its length is wrong");
    header = put_header(0);
    header.place = HEAP_BYTES - PAYLOAD_BYTES + 1;
    expect_blame(header, 100, "outside");
    header = put_header(0);
    header.source = 1;
    expect_blame(header, 100, "another name");
    header = put_header(0);
    header.kind = WEFT__NET_ANSWER;
    expect_blame(header, PAYLOAD_BYTES, "not asked");
    header.kind = 77;
    expect_blame(header, 0, "its kind is unknown");
}

/* The word of a message that is under way is taken away with its region. */
TEST(memory_is_taken_away_under_way)
{
    for (uint32_t region = 0; region < 2; region++) {
        struct pair pair;
        const int fd = open_with_puppet(&pair);
        assert_true(puppet_send(fd, put_header(0), payload, 1000));
        for (int ms = 0; ms < 5000 && pair.heap[0] != payload[0]; ms++)
            if (weft__net_progress(pair.nets[1]) == 0)
                poll(NULL, 0, 1);
        assert_int_equal(pair.heap[0], payload[0]);
        weft__net_unreg(pair.nets[1], region);
        if (region == 0)
            assert_int_equal(mprotect(pair.heap, HEAP_BYTES, PROT_NONE), 0);
        puppet_write(fd, payload + 1000, PAYLOAD_BYTES - 1000);
        expect_failure(pair.nets[1], 0, region == 0 ? "has taken back" : "its word is none");
        assert_int_equal(atomic_load(&pair.words[WORD]), 0);
        close(fd);
        close_pair(&pair);
    }
}

/* ---------------------------------------------------------------- streams */

/* A stream of messages that make sense, at first: puts of any size, adds, goodbyes. */
static size_t write_stream(unsigned char *bytes, size_t most_bytes, uint64_t *random)
{
    size_t num_bytes = 0;
    for (uint64_t number = 0; number < 6; number++) {
        struct weft__net_header header = put_header(number);
        header.num_bytes =
            net_draw(random, 2) == 0 ? net_draw(random, 200) : net_draw(random, 6000);
        header.place = net_draw(random, HEAP_BYTES - header.num_bytes);
        if (net_draw(random, 8) == 0)
            header.kind = 1 + (uint32_t)net_draw(random, WEFT__NET_ANSWER);
        if (num_bytes + WEFT__TCP_HEADER_BYTES + header.num_bytes > most_bytes)
            break;
        memcpy(bytes + num_bytes, weft__tcp_wire_header(&header), WEFT__TCP_HEADER_BYTES);
        num_bytes += WEFT__TCP_HEADER_BYTES + header.num_bytes;
    }
    return num_bytes;
}

/* In pieces, each in memory of its own size, as reads would bring them, some of them where the
 * stream wants them. */
static void feed(struct weft__tcp_stream *stream, const unsigned char *bytes, size_t num_bytes,
                 uint64_t *random)
{
    while (num_bytes > 0 && stream->state != WEFT__TCP_BROKEN) {
        size_t piece = 1 + net_draw(random, net_draw(random, 3) == 0 ? 80 : 3000);
        if (piece > num_bytes)
            piece = num_bytes;
        if (stream->state != WEFT__TCP_IN_HEADER && net_draw(random, 2) == 0) {
            if (piece > stream->num_left)
                piece = stream->num_left;
            memcpy(stream->place, bytes, piece);
            weft__tcp_stream_landed(stream, piece);
        } else {
            unsigned char *exact = malloc(piece);
            assert_non_null(exact);
            memcpy(exact, bytes, piece);
            weft__tcp_stream_take(stream, exact, piece);
            free(exact);
        }
        bytes += piece;
        num_bytes -= piece;
    }
}

/* What a peer sends once it is admitted, whatever that is, stays within what is registered (with
 * sanitizers also within the arrays), and leaves no message behind. */
TEST(spoiled_streams_harm_nobody)
{
    enum { FEW_STREAMS = 5000, MAX_BYTES = 40000, SENT_FROM = 0 };
    static unsigned char bytes[MAX_BYTES];
    const char *text = getenv("WEFT_TEST_STREAMS");
    const long num_streams = text != NULL ? atol(text) : FEW_STREAMS;
    long num_refused = 0;
    struct pair pair;
    uint64_t random = 21;
    open_pair(&pair);
    connect_rank(&pair, 1);
    for (long number = 0; number < num_streams; number++) {
        struct weft__tcp_stream stream;
        size_t num_bytes = write_stream(bytes, sizeof(bytes), &random);
        for (uint64_t spoiled = net_draw(&random, 5); spoiled > 0; spoiled--)
            bytes[net_draw(&random, 2) == 0 ? net_draw(&random, WEFT__TCP_HEADER_BYTES)
                                            : net_draw(&random, num_bytes)] ^=
                1 << net_draw(&random, 8);
        if (net_draw(&random, 3) == 0)
            num_bytes = net_draw(&random, num_bytes);
        weft__tcp_stream_init(&stream, pair.nets[1], SENT_FROM);
        feed(&stream, bytes, num_bytes, &random);
        weft__tcp_stream_destroy(&stream);
        weft__net_progress(pair.nets[1]);
        if (weft__net_peer_error(pair.nets[1], 0) == WEFT_OK && number % 16 != 15)
            continue;
        num_refused += weft__net_peer_error(pair.nets[1], 0) != WEFT_OK;
        for (int32_t rank = 0; rank < NUM_RANKS; rank++)
            weft__net_set_close_ms(pair.nets[rank], 1);
        close_pair(&pair);
        open_pair(&pair);
        connect_rank(&pair, 1);
    }
    close_pair(&pair);
    assert_in_range(num_refused, num_streams / 8, num_streams);
}

/* ---------------------------------------------------------------- ends */

TEST(an_end_in_mid_message_is_a_loss)
{
    for (int rst = 0; rst < 2; rst++) {
        struct pair pair;
        const int fd = open_with_puppet(&pair);
        assert_true(puppet_send(fd, put_header(0), payload, PAYLOAD_BYTES / 2));
        if (rst)
            puppet_hang_up(fd);
        else
            close(fd);
        expect_failure(pair.nets[1], 0, "connection to rank 0 is lost");
        assert_int_equal(atomic_load(&pair.words[WORD]), 0);
        close_pair(&pair);
    }
}

/* What the peer said last counts, also where the connection is broken since, and shows it first
 * when something is sent. */
TEST(goodbyes_come_before_the_end)
{
    for (int rst = 0; rst < 2; rst++) {
        struct pair pair;
        struct weft__net_header header = put_header(0);
        struct weft__net_request flushed = {.num_left = 0};
        const int fd = open_with_puppet(&pair);
        header.num_bytes = 1000;
        assert_true(puppet_send(fd, header, payload, 1000));
        header = (struct weft__net_header){.source = 0, .kind = WEFT__NET_GOODBYE};
        assert_true(puppet_send(fd, header, NULL, 0));
        if (rst)
            puppet_hang_up(fd);
        else
            close(fd);
        assert_ok(net_flush(pair.nets[1], 0, &flushed));
        for (int ms = 0; ms < 5000 && !weft__net_is_done(&flushed); ms++)
            if (weft__net_progress(pair.nets[1]) == 0)
                poll(NULL, 0, 1);
        assert_int_equal(atomic_load(&pair.words[WORD]), 1);
        assert_ok(weft__net_peer_error(pair.nets[1], 0));
        assert_true(weft__net_is_done(&flushed));
        assert_int_equal(flushed.result, WEFT_ERROR_RANK_FAILED);
        close_pair(&pair);
    }
}

/* Nothing of the net is left. */
TEST(descriptors_are_closed)
{
    const int num_before = num_descriptors();
    struct pair pair;
    open_pair(&pair);
    connect_rank(&pair, 1);
    connect_rank(&pair, 0);
    expect_to_meet(&pair);
    close_pair(&pair);
    open_pair(&pair);
    connect_rank(&pair, 0);
    weft__net_progress(pair.nets[0]);
    close_pair(&pair);
    const int fd = open_with_puppet(&pair);
    close_pair(&pair);
    close(fd);
    assert_int_equal(num_descriptors(), num_before);
}
