/* SPDX-License-Identifier: MIT */
/* What strangers and broken ranks do to the rendezvous: here the last rank of a run is no rank, but
 * speaks to the server by hand, while the others make a communicator without it. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rendezvous/connect_retry.h"
#include "comm/rendezvous/wire.h"
#include "descriptors.h"
#include "harness/cmocka.h"
#include "knock.h"

enum { NUM_RANKS = 3, NUM_PLAYERS = NUM_RANKS + 1 };
enum { STRANGER_TIMEOUT_S = 5 }; /* as in comm/rendezvous/rendezvous.c */

static int is_stranger(const struct ranks_context *context)
{
    return context->rank == context->num_ranks - 1;
}

/* 1 if the server closes the connection before it says anything. */
static int is_turned_away(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

/* The life of a communicator of the first ranks. */
static int live(struct ranks_context *context)
{
    weft_comm *comm;
    int32_t sum = 0, all[NUM_PLAYERS];
    int32_t num_ranks = context->num_ranks - 1;
    CHECK_OK(weft_comm_create(&context->id, context->rank, num_ranks, NULL, &comm));
    for (int round = 0; round < 20; round++) {
        int32_t mine = round * (context->rank + 1);
        CHECK_OK(weft_comm_host_all_gather(comm, &mine, sizeof(mine), all));
        for (int32_t rank = 0; rank < num_ranks; rank++)
            sum += all[rank] - round * (rank + 1);
    }
    CHECK(sum == 0, "the gathered values are off by %d", sum);
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

/* ---------------------------------------------------------------- strangers */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int send_noise(struct ranks_context *context)
{
    enum { NUM_CONNECTIONS = 1000, NUM_HELD = 50 };
    int held[NUM_HELD];
    uint32_t random = 1;
    for (int index = 0; index < NUM_HELD; index++)
        held[index] = -1;
    for (int index = 0; index < NUM_CONNECTIONS; index++) {
        unsigned char noise[200];
        int fd = knock(context);
        CHECK(fd >= 0, "connection %d was refused", index);
        size_t num_bytes = next_random(&random) % sizeof(noise);
        for (size_t byte = 0; byte < num_bytes; byte++)
            noise[byte] = (unsigned char)next_random(&random);
        /* In some the beginning is right. */
        struct weft__frame_header header = {.type = index % 3 == 0 ? WEFT__FRAME_HELLO
                                                                   : WEFT__FRAME_GATHER,
                                            .body_bytes = sizeof(struct weft__hello)};
        if (index % 2 == 0 && num_bytes >= sizeof(header))
            memcpy(noise, &header, sizeof(header));
        send(fd, noise, num_bytes, MSG_NOSIGNAL);
        int slot = (int)(next_random(&random) % NUM_HELD);
        if (held[slot] >= 0)
            close(held[slot]);
        held[slot] = fd;
    }
    for (int index = 0; index < NUM_HELD; index++)
        if (held[index] >= 0)
            close(held[index]);
    return 0;
}

TEST_IN_BOTH_MODES(noise_does_not_keep_ranks_from_meeting, NUM_PLAYERS)
{
    if (is_stranger(context))
        return send_noise(context);
    for (int round = 0; round < 10; round++)
        if (live(context) != 0)
            return 1;
    return 0;
}

static int turn_away(struct ranks_context *context, const struct weft__hello *hello,
                     size_t body_bytes)
{
    int fd = knock(context);
    CHECK(fd >= 0, "the rendezvous refused a connection");
    send_hello(fd, hello, body_bytes);
    int turned_away = is_turned_away(fd);
    close(fd);
    CHECK(turned_away, "the rendezvous answered a bad hello");
    return 0;
}

/* Who has another secret is told so, before the end. */
static int tell_of_the_secret(struct ranks_context *context, const struct weft__hello *hello)
{
    int fd = knock(context);
    CHECK(fd >= 0, "the rendezvous refused a connection");
    send_hello(fd, hello, sizeof(*hello));
    struct {
        struct weft__frame_header header;
        struct weft__failure_notice notice;
    } told = {.header = {.type = 0}};
    const ssize_t num_bytes = recv(fd, &told, sizeof(told), MSG_WAITALL);
    const int turned_away = is_turned_away(fd);
    close(fd);
    CHECK(num_bytes == sizeof(told) && told.header.type == WEFT__FRAME_FAILED, "%zd bytes",
          num_bytes);
    CHECK(strstr(told.notice.text, "WEFT_SECRET") != NULL, "%s", told.notice.text);
    CHECK(turned_away, "the rendezvous went on after a bad secret");
    return 0;
}

static int introduce_badly(struct ranks_context *context)
{
    struct weft__hello good = good_hello(context, 0, NUM_RANKS), bad = good;
    bad.nonce[7] ^= 1;
    if (tell_of_the_secret(context, &bad) != 0)
        return 1;
    bad = good;
    bad.magic = htonl(WEFT__HELLO_MAGIC);
    if (turn_away(context, &bad, sizeof(bad)) != 0)
        return 1;
    bad = good;
    bad.version++;
    if (turn_away(context, &bad, sizeof(bad)) != 0)
        return 1;
    const int32_t bad_ranks[][2] = {{-1, 3}, {3, 3}, {0, 0}, {0, -1}, {0, WEFT__MAX_RANKS + 1}};
    for (size_t index = 0; index < sizeof(bad_ranks) / sizeof(bad_ranks[0]); index++) {
        bad = good_hello(context, bad_ranks[index][0], bad_ranks[index][1]);
        if (turn_away(context, &bad, sizeof(bad)) != 0)
            return 1;
    }
    return turn_away(context, &good, sizeof(good) - 8) || turn_away(context, &good, UINT32_MAX);
}

TEST_ON_RANKS(bad_hellos_are_turned_away, RANKS_THREADS, NUM_PLAYERS)
{
    return is_stranger(context) ? introduce_badly(context) : live(context);
}

/* Holds many connections without a word until the ranks are done. */
static int hold_connections(struct ranks_context *context)
{
    enum { NUM_CONNECTIONS = 50 };
    int fds[NUM_CONNECTIONS];
    for (int index = 0; index < NUM_CONNECTIONS; index++)
        fds[index] = knock(context);
    ranks_barrier(context);
    ranks_barrier(context);
    for (int index = 0; index < NUM_CONNECTIONS; index++)
        if (fds[index] >= 0)
            close(fds[index]);
    return 0;
}

/* Has the rendezvous for all, but no room for all of the stranger's connections. */
static int serve_with_few_descriptors(struct ranks_context *context)
{
    enum { FEW_DESCRIPTORS = 48 };
    struct rlimit before;
    CHECK(limit_descriptors(FEW_DESCRIPTORS, &before) == 0, "cannot have so few descriptors");
    CHECK_OK(weft_unique_id_create(context->shared));
    for (int i = 0; i < 3; i++)
        ranks_barrier(context);
    setrlimit(RLIMIT_NOFILE, &before);
    return 0;
}

/* Before the silent ones' time is over: they have made room, and did not just go. */
static int meet_among_silent_ones(struct ranks_context *context)
{
    if (context->rank == NUM_PLAYERS)
        return serve_with_few_descriptors(context);
    ranks_barrier(context);
    memcpy(&context->id, context->shared, sizeof(context->id));
    context->num_ranks = NUM_PLAYERS;
    const double begin_s = clock_s();
    if (is_stranger(context))
        return hold_connections(context);
    ranks_barrier(context);
    int failed = live(context);
    const double end_s = clock_s();
    ranks_barrier(context);
    CHECK(failed || end_s - begin_s < STRANGER_TIMEOUT_S, "%.1f s", end_s - begin_s);
    return failed;
}

/* A machine may be too slow once. */
TEST(silent_connections_do_not_use_up_the_descriptors)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = RANKS_ID_NONE,
                                          .num_ranks = NUM_PLAYERS + 1,
                                          .shared_bytes = sizeof(weft_unique_id)};
    int num_failed = -1;
    for (int attempt = 0; attempt < 3 && num_failed != 0; attempt++)
        num_failed = ranks_run_with(&options, meet_among_silent_ones);
    assert_int_equal(num_failed, 0);
}

/* ---------------------------------------------------------------- broken ranks */

static int connect_as_last(struct ranks_context *context, struct weft__wire *wire)
{
    struct weft__meeting_point point = point_of(context);
    struct weft__hello hello = good_hello(context, context->num_ranks - 1, context->num_ranks);
    struct weft__identity server, table[NUM_PLAYERS];
    const struct weft__connection_request request = {.point = &point, .hello = &hello};
    CHECK_OK(weft__connect(&request, wire, &server, table));
    CHECK(table[context->rank].pid == 4242, "the table lacks this rank");
    return 0;
}

static void send_gather(struct weft__wire *wire, struct weft__gather_header header,
                        size_t blob_bytes)
{
    static const char blob[64];
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_GATHER, &header, sizeof(header), blob, blob_bytes);
    weft__wire_send(wire, message);
    weft__message_release(message);
}

enum offence {
    SKIPS_A_SEQUENCE,
    LIES_ABOUT_BYTES,
    SENDS_A_SERVERS_FRAME,
    SAYS_HELLO_AGAIN,
    ASKS_NO_RANK,
    ASKS_TOO_LITTLE,
    ANSWERS_NO_RANK,
    WAITS_FOR_NO_RANK,
    WAITS_FOR_TOO_MANY,
    LEAVES_WITHOUT_A_WORD,
    LEAVES_FOR_NO_RANK,
    NUM_OFFENCES
};

static struct weft__message *bad_frame(enum offence offence, const struct weft__hello *hello)
{
    const struct weft__question question = {.asked = NUM_PLAYERS};
    const struct weft__answer no_asker = {.asker = WEFT__NOBODY - 1};
    const struct weft__answer no_awaited = {
        .waits = {.num_waits = 1, .waits = {{.rank = NUM_PLAYERS}}}};
    const struct weft__answer too_many = {.waits = {.num_waits = WEFT__MAX_LISTED_WAITS + 1}};
    const struct weft__wait_list no_rank = {.num_waits = 1, .waits = {{.rank = WEFT__NOBODY}}};
    switch (offence) {
    case SENDS_A_SERVERS_FRAME:
        return weft__message_create(WEFT__FRAME_FAILED, hello, 16, NULL, 0);
    case SAYS_HELLO_AGAIN:
        return weft__message_create(WEFT__FRAME_HELLO, hello, sizeof(*hello), NULL, 0);
    case ASKS_NO_RANK:
        return weft__message_create(WEFT__FRAME_QUESTION, &question, sizeof(question), NULL, 0);
    case ASKS_TOO_LITTLE:
        return weft__message_create(WEFT__FRAME_QUESTION, &question, 8, NULL, 0);
    case ANSWERS_NO_RANK:
        return weft__message_create(WEFT__FRAME_ANSWER, &no_asker, sizeof(no_asker), NULL, 0);
    case WAITS_FOR_NO_RANK:
        return weft__message_create(WEFT__FRAME_ANSWER, &no_awaited, sizeof(no_awaited), NULL, 0);
    case WAITS_FOR_TOO_MANY:
        return weft__message_create(WEFT__FRAME_ANSWER, &too_many, sizeof(too_many), NULL, 0);
    case LEAVES_WITHOUT_A_WORD:
        return weft__message_create(WEFT__FRAME_GOODBYE, NULL, 0, NULL, 0);
    case LEAVES_FOR_NO_RANK:
        return weft__message_create(WEFT__FRAME_GOODBYE, &no_rank, sizeof(no_rank), NULL, 0);
    default:
        return NULL;
    }
}

static int offend(struct ranks_context *context)
{
    struct weft__wire wire;
    if (connect_as_last(context, &wire) != 0)
        return 1;
    struct weft__hello hello = good_hello(context, 0, NUM_PLAYERS);
    const enum offence offence = *(const enum offence *)context->argument;
    struct weft__message *message = bad_frame(offence, &hello);
    if (offence == SKIPS_A_SEQUENCE)
        send_gather(&wire, (struct weft__gather_header){.sequence = 2, .blob_bytes = 4}, 4);
    if (offence == LIES_ABOUT_BYTES)
        send_gather(&wire, (struct weft__gather_header){.sequence = 1, .blob_bytes = 1 << 30}, 4);
    if (message != NULL) {
        weft__wire_send(&wire, message);
        weft__message_release(message);
    }
    struct weft__frame frame;
    struct pollfd readable = {.fd = wire.fd, .events = POLLIN};
    enum weft__wire_result result;
    while ((result = weft__wire_receive(&wire, &frame)) == WEFT__WIRE_EMPTY ||
           result == WEFT__WIRE_OK)
        poll(&readable, 1, -1);
    weft__wire_close(&wire);
    return 0;
}

/* ---------------------------------------------------------------- late answers */

/* The next frame of this type; others are thrown away. -1: the connection has ended. */
static int await_frame(struct weft__wire *wire, enum weft__frame_type type,
                       struct weft__frame *frame)
{
    struct pollfd readable = {.fd = wire->fd, .events = POLLIN};
    for (;;) {
        enum weft__wire_result result = weft__wire_receive(wire, frame);
        if (result == WEFT__WIRE_OK && frame->type == type)
            return 0;
        if (result == WEFT__WIRE_OK)
            continue;
        if (result != WEFT__WIRE_EMPTY)
            return -1;
        poll(&readable, 1, -1);
    }
}

static void send_frame(struct weft__wire *wire, enum weft__frame_type type, const void *body,
                       size_t body_bytes)
{
    struct weft__message *message = weft__message_create(type, body, body_bytes, NULL, 0);
    weft__wire_send(wire, message);
    weft__message_release(message);
}

/* Asks itself, twice: by then the rendezvous has done whatever was to be done before. */
static int go_around(struct weft__wire *wire, int32_t rank)
{
    const struct weft__question question = {.asked = rank};
    struct weft__frame frame;
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        send_frame(wire, WEFT__FRAME_QUESTION, &question, sizeof(question));
        failed |= await_frame(wire, WEFT__FRAME_QUESTION, &frame);
    }
    return failed;
}

/* Comes to two gathers when it is asked for them, and answers the first question after the
 * second. */
static int answer_late(struct ranks_context *context)
{
    const int32_t rank = context->num_ranks - 1;
    struct weft__wire wire;
    struct weft__frame frame;
    if (connect_as_last(context, &wire) != 0)
        return 1;
    CHECK(await_frame(&wire, WEFT__FRAME_QUESTION, &frame) == 0, "no question");
    send_gather(&wire, (struct weft__gather_header){.sequence = 1}, 0);
    CHECK(await_frame(&wire, WEFT__FRAME_GATHERED, &frame) == 0, "no result");
    CHECK(await_frame(&wire, WEFT__FRAME_QUESTION, &frame) == 0, "no question");
    const struct weft__answer late = {.asker = WEFT__NOBODY, .asked = rank, .number = 1};
    send_frame(&wire, WEFT__FRAME_ANSWER, &late, sizeof(late));
    CHECK(go_around(&wire, rank) == 0, "the connection has ended");
    send_gather(&wire, (struct weft__gather_header){.sequence = 2}, 0);
    CHECK(await_frame(&wire, WEFT__FRAME_GATHERED, &frame) == 0, "no result");
    weft__wire_close(&wire);
    return 0;
}

/* By hand, too, so that no more is exchanged than this. */
TEST_ON_RANKS(an_answer_that_comes_late_counts_for_nothing, RANKS_THREADS, NUM_PLAYERS)
{
    if (is_stranger(context))
        return answer_late(context);
    struct weft__meeting_point point = point_of(context);
    struct weft__hello hello = good_hello(context, context->rank, context->num_ranks);
    struct weft__identity server, table[NUM_PLAYERS];
    const struct weft__connection_request request = {.point = &point, .hello = &hello};
    struct weft__wire wire;
    struct weft__frame frame;
    hello.timeout_ms = 300;
    CHECK_OK(weft__connect(&request, &wire, &server, table));
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        send_gather(&wire, (struct weft__gather_header){.sequence = sequence}, 0);
        CHECK(await_frame(&wire, WEFT__FRAME_GATHERED, &frame) == 0, "no result of gather %d",
              (int)sequence);
    }
    weft__wire_close(&wire);
    return 0;
}

/* ---------------------------------------------------------------- offences */

static int suffer(struct ranks_context *context)
{
    weft_comm *comm;
    if (is_stranger(context))
        return offend(context);
    /* The heap's first all-gather is the first thing that fails. */
    CHECK_ERROR(ranks_comm_create(context, NULL, &comm), WEFT_ERROR_RANK_FAILED, "rank 3 died");
    return 0;
}

TEST(a_rank_that_breaks_the_protocol_counts_as_dead)
{
    for (int kind = SKIPS_A_SEQUENCE; kind < NUM_OFFENCES; kind++) {
        enum offence chosen = (enum offence)kind;
        assert_int_equal(ranks_run(RANKS_THREADS, NUM_PLAYERS, suffer, &chosen), 0);
    }
}

/* Says hello as the last rank but one, and leaves when it has been heard: the others, of whom the
 * last never comes, must not wait for their deadline. */
static int die_before_the_meeting(struct ranks_context *context)
{
    struct weft__identity server;
    struct weft__frame_header header;
    struct weft__hello hello = good_hello(context, context->rank, NUM_PLAYERS + 1);
    int fd = knock(context);
    CHECK(fd >= 0, "the rendezvous refused a connection");
    send_hello(fd, &hello, sizeof(hello));
    CHECK(recv(fd, &header, sizeof(header), MSG_WAITALL) == sizeof(header), "no answer");
    CHECK(header.type == WEFT__FRAME_WELCOME, "frame %u", header.type);
    CHECK(recv(fd, &server, sizeof(server), MSG_WAITALL) == sizeof(server), "half an answer");
    close(fd);
    return 0;
}

static int wait_for_the_dead(struct ranks_context *context)
{
    weft_comm *comm;
    if (is_stranger(context))
        return die_before_the_meeting(context);
    CHECK_ERROR(weft_comm_create(&context->id, context->rank, NUM_PLAYERS + 1, NULL, &comm),
                WEFT_ERROR_RANK_FAILED, "rank 3 died (pid 4242 on ");
    return 0;
}

TEST(a_death_before_the_meeting_is_told_at_once)
{
    struct ranks_options options = {.mode = RANKS_THREADS, .num_ranks = NUM_PLAYERS};
    assert_int_equal(ranks_run_with(&options, wait_for_the_dead), 0);
    options.mode = RANKS_PROCESSES;
    assert_int_equal(ranks_run_with(&options, wait_for_the_dead), 0);
}
