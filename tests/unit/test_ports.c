/* SPDX-License-Identifier: MIT */
/* Others may have a job's ports. The job then takes the next port, and its ranks send nothing to
 * the others. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rendezvous/bootstrap.h"
#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 3 };

static void become(int32_t rank, const char *master_port)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", NUM_RANKS);
    setenv("WORLD_SIZE", text, 1);
    setenv("LOCAL_WORLD_SIZE", text, 1);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", master_port, 1);
    setenv("TORCHELASTIC_RUN_ID", "test_ports", 1);
}

/* Returns -1 if somebody else has the port. */
static int listen_on(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 100) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Counts the connections. Each must have ended without a byte. */
static int count_silent(int fd)
{
    int num_silent = 0, peer;
    while ((peer = accept(fd, NULL, NULL)) >= 0) {
        char byte;
        assert_int_equal(recv(peer, &byte, 1, 0), 0);
        close(peer);
        num_silent++;
    }
    return num_silent;
}

static int meet(struct ranks_context *context)
{
    weft_comm *comms[2];
    become(context->rank, context->argument);
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_comm_create_from_env(NULL, &comms[i]));
    CHECK_OK(weft_comm_host_barrier(comms[0]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_comm_destroy(comms[i]));
    ranks_barrier(context);
    return 0;
}

/* Stores of other jobs have the first two ports. Such a store waits for its client's first byte. */
TEST(ranks_meet_on_the_next_port_and_leave_others_alone)
{
    char master_port[16];
    int fds[2] = {-1, -1}, next_fd = -1;
    struct weft__bootstrap bootstrap;
    struct weft__meeting_point at;
    for (int port = 10000 + getpid() % 9000; next_fd < 0; port++) {
        for (int i = 0; i < 2; i++)
            close(fds[i]);
        snprintf(master_port, sizeof(master_port), "%d", port);
        become(0, master_port);
        assert_ok(weft__bootstrap_read(&bootstrap));
        for (int i = 0; i < 2; i++) {
            assert_true(weft__meeting_point_at_port(&bootstrap.point, i, &at));
            fds[i] = listen_on(at.port);
        }
        assert_true(weft__meeting_point_at_port(&bootstrap.point, 2, &at));
        next_fd = fds[0] >= 0 && fds[1] >= 0 ? listen_on(at.port) : -1;
    }
    close(next_fd);
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = RANKS_ID_NONE,
                                          .num_ranks = NUM_RANKS,
                                          .argument = master_port,
                                          .argument_bytes = sizeof(master_port)};
    assert_int_equal(ranks_run_with(&options, meet), 0);
    assert_true(count_silent(fds[0]) > 0);
    assert_true(count_silent(fds[1]) > 0);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
}

/* Rank 0 waits for the user's port as long as it waits for ranks: a rank 0 that is ending may still
 * have that port. */
static int wait_for_the_port(struct ranks_context *context)
{
    weft_comm *comm;
    setenv("WEFT_PORT", context->argument, 1);
    if (context->rank == NUM_RANKS) { /* it has the port */
        const int fd = listen_on((uint16_t)atoi(context->argument));
        CHECK(fd >= 0, "port %s is taken", (const char *)context->argument);
        ranks_barrier(context);
        sleep(5); /* longer than anybody was once waited for */
        close(fd);
    } else {
        ranks_barrier(context);
        become(context->rank, "29500");
        CHECK_OK(weft_comm_create_from_env(NULL, &comm));
        CHECK_OK(weft_comm_destroy(comm));
    }
    ranks_barrier(context);
    return 0;
}

TEST(a_port_that_is_named_is_waited_for)
{
    char port[16];
    int fd = -1;
    for (int number = 10000 + getpid() % 9000; fd < 0; number++) {
        fd = listen_on((uint16_t)number);
        snprintf(port, sizeof(port), "%d", number);
    }
    close(fd);
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = RANKS_ID_NONE,
                                          .num_ranks = NUM_RANKS + 1,
                                          .argument = port,
                                          .argument_bytes = sizeof(port)};
    assert_int_equal(ranks_run_with(&options, wait_for_the_port), 0);
}
