/* SPDX-License-Identifier: MIT */
/* Where the rendezvous listens, and what it says of strangers. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rendezvous/listener.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/wire.h"
#include "harness/cmocka.h"

/* The address on which it listens for `address`; "any" for all. */
static weft_result listen_at(const char *address, enum weft__listen_on listen_on, char *found,
                             socklen_t found_bytes)
{
    struct weft__meeting_point point = {.port = 0};
    struct sockaddr_storage bound = {0};
    socklen_t bound_bytes = sizeof(bound);
    int fd;
    snprintf(point.address, sizeof(point.address), "%s", address);
    weft_result result = weft__listener_open(&point, listen_on, 0, &fd);
    if (result != WEFT_OK)
        return result;
    assert_int_not_equal(point.port, 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&bound, &bound_bytes), 0);
    close(fd);
    if (bound.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&bound)->sin_addr, found, found_bytes);
    else
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&bound)->sin6_addr, found, found_bytes);
    if (strcmp(found, "::") == 0 || strcmp(found, "0.0.0.0") == 0)
        snprintf(found, found_bytes, "any");
    return WEFT_OK;
}

static void expect(const char *address, enum weft__listen_on listen_on, const char *expected)
{
    char found[INET6_ADDRSTRLEN] = "";
    assert_ok(listen_at(address, listen_on, found, sizeof(found)));
    assert_string_equal(found, expected);
}

TEST(it_listens_where_it_is_told_to)
{
    char found[INET6_ADDRSTRLEN];
    expect("127.0.0.1", WEFT__LISTEN_ON_ADDRESS, "127.0.0.1");
    expect("127.0.0.1", WEFT__LISTEN_ON_REACHABLE, "127.0.0.1");
    assert_ok(listen_at("localhost", WEFT__LISTEN_ON_REACHABLE, found, sizeof(found)));
    assert_true(strcmp(found, "127.0.0.1") == 0 || strcmp(found, "::1") == 0);
    /* Not this host's: an error, or wherever others can reach it. */
    assert_int_equal(listen_at("203.0.113.77", WEFT__LISTEN_ON_ADDRESS, found, sizeof(found)),
                     WEFT_ERROR_SYSTEM);
    expect("203.0.113.77", WEFT__LISTEN_ON_REACHABLE, "any");
    /* As a name, since it is none that inet_pton knows: this host calls itself so, others do
     * not. */
    expect("127.1", WEFT__LISTEN_ON_REACHABLE, "any");
}

/* A daemon's standard input may be closed: its number stays free. */
TEST(descriptor_0_is_not_taken)
{
    struct weft__meeting_point point = {.address = "203.0.113.77"};
    const int input = dup(STDIN_FILENO);
    int fd = -1;
    close(STDIN_FILENO);
    const weft_result result = weft__listener_open(&point, WEFT__LISTEN_ON_REACHABLE, 0, &fd);
    close(fd);
    if (input >= 0) {
        dup2(input, STDIN_FILENO);
        close(input);
    }
    assert_ok(result);
    assert_true(fd > STDERR_FILENO);
}

/* An IPv4 address of this host that others can use; 0: it has none. */
static uint32_t outside_address(void)
{
    struct ifaddrs *first = NULL;
    uint32_t address = 0;
    if (getifaddrs(&first) != 0)
        return 0;
    for (const struct ifaddrs *at = first; at != NULL; at = at->ifa_next)
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET &&
            (at->ifa_flags & IFF_LOOPBACK) == 0 && (at->ifa_flags & IFF_UP) != 0)
            address = ntohl(((const struct sockaddr_in *)at->ifa_addr)->sin_addr.s_addr);
    freeifaddrs(first);
    return address;
}

TEST(a_name_known_outside_is_one_interface)
{
    char name[16], number[INET_ADDRSTRLEN];
    struct in_addr address = {.s_addr = htonl(outside_address())};
    if (address.s_addr == 0)
        skip();
    snprintf(name, sizeof(name), "0x%08x", outside_address());
    inet_ntop(AF_INET, &address, number, sizeof(number));
    expect(name, WEFT__LISTEN_ON_REACHABLE, number);
}

/* ---------------------------------------------------------------- strangers */

static int knock(const struct weft__meeting_point *point)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(point->port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct {
        struct weft__frame_header header;
        struct weft__greeting greeting;
    } greeting;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(recv(fd, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_int_equal(greeting.header.type, WEFT__FRAME_GREETING);
    return fd;
}

TEST(a_stranger_is_named_in_the_log)
{
    struct weft__meeting_point point = {.address = "127.0.0.1", .nonce = {1}};
    struct {
        struct weft__frame_header header;
        struct weft__hello hello;
    } hello = {.header = {.type = WEFT__FRAME_HELLO, .body_bytes = sizeof(hello.hello)},
               .hello = {.magic = WEFT__HELLO_MAGIC,
                         .version = WEFT__HELLO_VERSION,
                         .num_ranks = 2,
                         .identity = {.pid = 4242}}};
    char log[4096], expected[160];
    struct weft__frame_header answer = {.type = 0};
    struct sockaddr_in address = {.sin_port = 0};
    socklen_t address_bytes = sizeof(address);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_ok(weft__rendezvous_serve(&point, WEFT__LISTEN_ON_ADDRESS, 0));
    int saved = dup(STDERR_FILENO), fd = knock(&point);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &address_bytes), 0);
    dup2(fileno(file), STDERR_FILENO);
    ssize_t num_sent = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
    ssize_t num_answered = recv(fd, &answer, sizeof(answer), MSG_WAITALL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(num_sent, sizeof(hello));
    assert_int_equal(num_answered, sizeof(answer));
    assert_int_equal(answer.type, WEFT__FRAME_FAILED); /* it is told why, and nothing else */
    rewind(file);
    log[fread(log, 1, sizeof(log) - 1, file)] = '\0';
    fclose(file);
    snprintf(expected, sizeof(expected), "refused rank 0 (pid 4242) from 127.0.0.1, port %u: its",
             ntohs(address.sin_port));
    assert_non_null(strstr(log, expected));
    close(fd);
}
