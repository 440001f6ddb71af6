/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "comm/rendezvous/wire.h"
#include "harness/cmocka.h"

enum { MAX_BODY_BYTES = 1 << 20 };

struct pair {
    struct weft__wire wire; /* receives */
    struct weft__wire peer; /* sends */
};

static struct pair make_pair(void)
{
    struct pair pair;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    weft__wire_init(&pair.wire, fds[0], MAX_BODY_BYTES);
    weft__wire_init(&pair.peer, fds[1], MAX_BODY_BYTES);
    return pair;
}

static void close_pair(struct pair *pair)
{
    weft__wire_close(&pair->wire);
    weft__wire_close(&pair->peer);
}

static struct weft__message *make_message(uint32_t seed, size_t body_bytes)
{
    unsigned char *body = malloc(body_bytes + 1);
    assert_non_null(body);
    for (size_t byte = 0; byte < body_bytes; byte++)
        body[byte] = (unsigned char)(seed + byte * 7 + byte / 256);
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_GATHER, body, body_bytes / 3, body + body_bytes / 3,
                             body_bytes - body_bytes / 3);
    assert_non_null(message);
    free(body);
    return message;
}

static void check_frame(const struct weft__frame *frame, uint32_t seed, size_t body_bytes)
{
    struct weft__message *message = make_message(seed, body_bytes);
    assert_int_equal(frame->type, WEFT__FRAME_GATHER);
    assert_int_equal(frame->body_bytes, body_bytes);
    assert_int_equal(memcmp(frame->body, message->body, body_bytes), 0);
    weft__message_release(message);
}

TEST(frames_of_all_sizes_keep_their_order)
{
    static const size_t sizes[] = {0, 1, 15, 4080, 4081, 100000, 3, MAX_BODY_BYTES, 0, 17};
    enum { NUM_SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    struct pair pair = make_pair();
    struct weft__frame frame;
    for (uint32_t index = 0; index < NUM_SIZES; index++) {
        struct weft__message *message = make_message(index, sizes[index]);
        assert_int_equal(weft__wire_send(&pair.peer, message), WEFT__WIRE_OK);
        weft__message_release(message);
    }
    /* More than the socket holds: the rest waits in the queue. */
    assert_true(weft__wire_has_output(&pair.peer));
    for (uint32_t index = 0; index < NUM_SIZES; index++) {
        enum weft__wire_result result;
        while ((result = weft__wire_receive(&pair.wire, &frame)) == WEFT__WIRE_EMPTY)
            assert_int_equal(weft__wire_flush(&pair.peer), WEFT__WIRE_OK);
        assert_int_equal(result, WEFT__WIRE_OK);
        check_frame(&frame, index, sizes[index]);
    }
    assert_false(weft__wire_has_output(&pair.peer));
    assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_EMPTY);
    close_pair(&pair);
}

TEST(a_frame_may_come_byte_by_byte)
{
    struct pair pair = make_pair();
    struct weft__frame frame;
    struct weft__message *message = make_message(9, 40);
    const unsigned char *bytes =
        (const unsigned char *)message + offsetof(struct weft__message, header);
    for (size_t byte = 0; byte < message->num_bytes; byte++) {
        assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_EMPTY);
        assert_int_equal(send(pair.peer.fd, bytes + byte, 1, 0), 1);
    }
    weft__message_release(message);
    assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_OK);
    check_frame(&frame, 9, 40);
    close_pair(&pair);
}

TEST(what_came_before_the_end_is_delivered)
{
    struct pair pair = make_pair();
    struct weft__frame frame;
    for (uint32_t index = 0; index < 3; index++) {
        struct weft__message *message = make_message(index, 10);
        assert_int_equal(weft__wire_send(&pair.peer, message), WEFT__WIRE_OK);
        weft__message_release(message);
    }
    weft__wire_close(&pair.peer);
    for (uint32_t index = 0; index < 3; index++) {
        assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_OK);
        check_frame(&frame, index, 10);
    }
    assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_CLOSED);
    struct weft__message *message = make_message(0, 10);
    assert_int_equal(weft__wire_send(&pair.wire, message), WEFT__WIRE_CLOSED);
    weft__message_release(message);
    close_pair(&pair);
}

static void check_garbage(struct weft__frame_header header)
{
    struct pair pair = make_pair();
    struct weft__frame frame;
    assert_int_equal(send(pair.peer.fd, &header, sizeof(header), 0), sizeof(header));
    assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_GARBAGE);
    close_pair(&pair);
}

TEST(impossible_headers_are_garbage)
{
    check_garbage((struct weft__frame_header){.type = 0});
    check_garbage((struct weft__frame_header){.type = WEFT__NUM_FRAME_TYPES});
    check_garbage((struct weft__frame_header){.type = UINT32_MAX, .body_bytes = 4});
    check_garbage(
        (struct weft__frame_header){.type = WEFT__FRAME_GATHER, .body_bytes = MAX_BODY_BYTES + 1});
    check_garbage(
        (struct weft__frame_header){.type = WEFT__FRAME_GATHER, .body_bytes = UINT64_MAX});
}

TEST(every_frame_type_is_carried)
{
    struct pair pair = make_pair();
    const struct weft__answer answer = {
        .asker = 1,
        .asked = 2,
        .number = 3,
        .waits = {.num_waits = 1, .waits = {{.rank = 4, .exchange = 256}}}};
    for (int type = WEFT__FRAME_HELLO; type < WEFT__NUM_FRAME_TYPES; type++) {
        struct weft__frame frame;
        struct weft__message *message =
            weft__message_create((enum weft__frame_type)type, &answer, sizeof(answer), NULL, 0);
        assert_non_null(message);
        assert_int_equal(weft__wire_send(&pair.peer, message), WEFT__WIRE_OK);
        weft__message_release(message);
        assert_int_equal(weft__wire_receive(&pair.wire, &frame), WEFT__WIRE_OK);
        assert_int_equal(frame.type, type);
        assert_int_equal(frame.body_bytes, sizeof(answer));
        assert_memory_equal(frame.body, &answer, sizeof(answer));
    }
    close_pair(&pair);
}

TEST(several_wires_share_a_message)
{
    enum { NUM_PAIRS = 4 };
    struct pair pairs[NUM_PAIRS];
    struct weft__message *message = make_message(3, MAX_BODY_BYTES);
    for (int index = 0; index < NUM_PAIRS; index++) {
        pairs[index] = make_pair();
        assert_int_equal(weft__wire_send(&pairs[index].peer, message), WEFT__WIRE_OK);
    }
    weft__message_release(message);
    close_pair(&pairs[0]); /* with the message half sent */
    for (int index = 1; index < NUM_PAIRS; index++) {
        struct weft__frame frame;
        enum weft__wire_result result;
        while ((result = weft__wire_receive(&pairs[index].wire, &frame)) == WEFT__WIRE_EMPTY)
            assert_int_equal(weft__wire_flush(&pairs[index].peer), WEFT__WIRE_OK);
        assert_int_equal(result, WEFT__WIRE_OK);
        check_frame(&frame, 3, MAX_BODY_BYTES);
        close_pair(&pairs[index]);
    }
}
