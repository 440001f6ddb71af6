/* SPDX-License-Identifier: MIT */
/* Engine tcp and ranks that err: what is believed of what comes, and what an end of the connection
 * means. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "net/engine.h"
#include "net_pair.h"
#include "net_post.h"
#include "net_puppet.h"
#include "net_world.h"

enum { PAYLOAD_BYTES = 40000 };

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
