/* SPDX-License-Identifier: MIT */
/* Connections to the rendezvous that nobody knows: how many it bears, and for how long. */
#include <fcntl.h>
#include <poll.h>

#include "descriptors.h"
#include "harness/cmocka.h"
#include "knock.h"

/* As in comm/rendezvous/rendezvous.c. */
enum { MAX_STRANGERS = 512, STRANGER_TIMEOUT_S = 5, PATIENCE_MS = 60000 };
enum { MAX_FILES = 64 }; /* of a process that has few */

/* 1 if the rendezvous closes the socket. Behind its greeting, which knock() has read, it sends
 * nothing to strangers. */
static int is_closed(int fd, int timeout_ms)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    return poll(&readable, 1, timeout_ms) > 0;
}

/* Waits until the rendezvous has accepted, and read, all that came before: it turns this one
 * away. */
static int go_around(const struct ranks_context *context)
{
    struct weft__hello hello = good_hello(context, 0, 2);
    char byte;
    hello.version++;
    const int fd = knock(context);
    if (fd < 0)
        return -1;
    send_hello(fd, &hello, sizeof(hello));
    const ssize_t num_bytes = recv(fd, &byte, 1, 0);
    close(fd);
    return num_bytes <= 0 ? 0 : -1;
}

TEST_ON_RANKS(who_says_nothing_is_dropped, RANKS_THREADS, 1)
{
    const int fd = knock(context);
    CHECK(fd >= 0, "the rendezvous refused a connection");
    CHECK(go_around(context) == 0 && !is_closed(fd, 0), "it was dropped at once");
    CHECK(is_closed(fd, PATIENCE_MS), "it was not dropped within %d ms", PATIENCE_MS);
    close(fd);
    return 0;
}

/* For one more the longest waiting one goes, long before its time is over. */
static int come_in_numbers(struct ranks_context *context)
{
    enum { NUM_TOO_MANY = 8, NUM_ATTEMPTS = 20 };
    int fds[MAX_STRANGERS + NUM_TOO_MANY];
    for (int attempt = 0; attempt < NUM_ATTEMPTS; attempt++) {
        const double begin_s = clock_s();
        int num_closed = 0;
        for (int i = 0; i < MAX_STRANGERS + NUM_TOO_MANY; i++) {
            fds[i] = knock(context);
            CHECK(fds[i] >= 0, "connection %d was refused", i);
        }
        CHECK(go_around(context) == 0, "the rendezvous answered a bad hello");
        for (int i = 0; i < NUM_TOO_MANY; i++)
            num_closed += is_closed(fds[i], 0);
        const int is_last_closed = is_closed(fds[MAX_STRANGERS + NUM_TOO_MANY - 1], 0);
        for (int i = 0; i < MAX_STRANGERS + NUM_TOO_MANY; i++)
            close(fds[i]);
        /* Their time was over before all had come: that says nothing. */
        if (clock_s() - begin_s >= STRANGER_TIMEOUT_S)
            continue;
        CHECK(num_closed == NUM_TOO_MANY, "%d were dropped", num_closed);
        CHECK(!is_last_closed, "the last one was dropped");
        return 0;
    }
    ranks_note(__FILE__, __LINE__, "all came in time", "in none of %d attempts, within %d s",
               NUM_ATTEMPTS, STRANGER_TIMEOUT_S);
    return 1;
}

/* Members are no strangers: they do not count, also not when they have gone. */
static int come_as_members(struct ranks_context *context)
{
    struct weft__hello hello = good_hello(context, 0, 2);
    for (uint64_t i = 0; i < MAX_STRANGERS + 1; i++) {
        const int fd = knock(context);
        char byte;
        CHECK(fd >= 0, "the rendezvous refused a connection");
        hello.key = 1000 + i;
        hello.timeout_ms = 10;
        send_hello(fd, &hello, sizeof(hello));
        CHECK(recv(fd, &byte, 1, 0) == 1, "member %d is not welcome", (int)i);
        close(fd);
    }
    const double begin_s = clock_s();
    const int silent = knock(context);
    CHECK(go_around(context) == 0 && go_around(context) == 0, "no answer");
    const int was_closed = is_closed(silent, 0);
    close(silent);
    CHECK(!was_closed || clock_s() - begin_s >= STRANGER_TIMEOUT_S,
          "one stranger alone was dropped");
    return 0;
}

/* Nobody else waits, so who has the last descriptor has time to say who it is. */
static int come_last(struct ranks_context *context)
{
    const struct weft__hello hello = good_hello(context, 0, 2);
    int fds[MAX_FILES], num_fds = 0;
    char byte;
    while (num_fds < MAX_FILES && (fds[num_fds] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        num_fds++;
    CHECK(num_fds >= 2 && num_fds < MAX_FILES, "%d descriptors were free", num_fds);
    close(fds[--num_fds]); /* for the rendezvous, */
    close(fds[--num_fds]); /* and for this end */
    const int fd = knock(context);
    const int was_closed = is_closed(fd, 100);
    send_hello(fd, &hello, sizeof(hello));
    const ssize_t num_bytes = recv(fd, &byte, 1, 0);
    close(fd);
    while (num_fds > 0)
        close(fds[--num_fds]);
    CHECK(fd >= 0, "the rendezvous refused a connection");
    CHECK(!was_closed && num_bytes == 1, "it was dropped");
    return 0;
}

/* Both ends of a connection are the process's of the rank, which has the rendezvous, too. */
struct crowd {
    rlim_t num_descriptors;
    rank_function come;
};

static int come_with_descriptors(struct ranks_context *context)
{
    const struct crowd *crowd = context->argument;
    struct rlimit before;
    CHECK(limit_descriptors(crowd->num_descriptors, &before) == 0, "not so many descriptors");
    const int failed = crowd->come(context);
    setrlimit(RLIMIT_NOFILE, &before);
    return failed;
}

static void run_with_descriptors(rlim_t num_descriptors, rank_function come)
{
    const struct crowd crowd = {num_descriptors, come};
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < num_descriptors)
        skip();
    assert_int_equal(ranks_run(RANKS_THREADS, 1, come_with_descriptors, &crowd), 0);
}

TEST_CALL(who_has_the_last_descriptor_keeps_it_while_nobody_waits,
          run_with_descriptors(MAX_FILES, come_last))
TEST_CALL(of_too_many_the_longest_waiting_are_dropped,
          run_with_descriptors(4 * MAX_STRANGERS, come_in_numbers))
TEST_CALL(members_do_not_count_as_strangers,
          run_with_descriptors(4 * MAX_STRANGERS, come_as_members))
