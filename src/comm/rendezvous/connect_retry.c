/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/connect_retry.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/thread.h"

enum {
    FIRST_PAUSE_MS = 5,     /* between attempts, doubled each time */
    LONGEST_PAUSE_MS = 200, /* up to this */
    ATTEMPT_MS = 2000,      /* for one address to answer */
    GREETING_MS = 500,      /* for one of several ports to greet, doubled each time */
    MAX_GREETING_MS = 4000, /* up to this */
    LOOK_UP_MS = 50,        /* between looks at what is watched */
    GOODBYE_MS = 1000,      /* for the rendezvous to read it */
    GRACE_MS = 2000         /* the rendezvous knows more about a timeout: it goes first */
};

static const char strange_listener[] = "who listens there is no rendezvous, or of another version";

struct meeting {
    const struct weft__meeting_point *point; /* with the port that is tried */
    const struct weft__hello *hello;
    struct weft__watch watch;
    struct weft__wire *wire;
    struct weft__identity *server, *table;
    int64_t deadline_ns;
    int64_t greeting_ns;                  /* deadline of the greeting */
    int64_t patience_ns;                  /* for a greeting, with several ports */
    char obstacle[WEFT__MAX_TEXT_BYTES];  /* why the last attempt failed */
    int is_unreachable;                   /* no address of the point has a route */
    int has_socket, socket_error;         /* for any address of the point; errno if one has none */
    enum { CONNECTED, INTRODUCED } phase; /* of this attempt */
    enum {
        NOT_REFUSED,
        REFUSED
    } outcome; /* of any attempt: the obstacle stands, whatever comes after */
};

static void note_obstacle(struct meeting *meeting, const char *obstacle)
{
    if (meeting->outcome == NOT_REFUSED)
        snprintf(meeting->obstacle, sizeof(meeting->obstacle), "%s", obstacle);
}

/* Another job's rendezvous may have been there for the moment; so this is not the end. */
static void note_refusal(struct meeting *meeting, const struct weft__frame *frame)
{
    struct weft__failure_notice notice;
    memcpy(&notice, frame->body, sizeof(notice));
    notice.text[sizeof(notice.text) - 1] = '\0';
    note_obstacle(meeting, notice.text);
    meeting->outcome = REFUSED;
}

/* -1 with the obstacle noted if nobody answers there. */
static int connect_to(struct meeting *meeting, const struct addrinfo *at)
{
    const int on = 1;
    int fd =
        weft__descriptor_keep(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) {
        meeting->socket_error = errno;
        note_obstacle(meeting, strerror(errno));
        return -1;
    }
    meeting->has_socket = 1;
    /* If the system gives this socket the very port that the rendezvous is about to listen on, it
     * must not stand in its way. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    int reason = connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (reason == EINPROGRESS) {
        int64_t attempt_ns = weft__now_ns() + ATTEMPT_MS * WEFT__NS_PER_MS;
        struct pollfd writable = {.fd = fd, .events = POLLOUT};
        socklen_t reason_bytes = sizeof(reason);
        poll(&writable, 1,
             weft__poll_timeout_ms(attempt_ns < meeting->deadline_ns ? attempt_ns
                                                                     : meeting->deadline_ns));
        if (writable.revents == 0)
            reason = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &reason_bytes);
    }
    if (reason == 0 && weft__socket_prepare(fd) == WEFT_OK)
        return fd;
    note_obstacle(meeting, strerror(reason));
    meeting->is_unreachable &= reason == ENETUNREACH;
    close(fd);
    return -1;
}

static int connect_once(struct meeting *meeting)
{
    char service[8];
    snprintf(service, sizeof(service), "%u", meeting->point->port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    meeting->is_unreachable = 0;
    int reason = getaddrinfo(meeting->point->address, service, &hints, &found);
    if (reason != 0) {
        note_obstacle(meeting, gai_strerror(reason));
        return -1;
    }
    int fd = -1;
    meeting->is_unreachable = 1;
    meeting->has_socket = 0;
    meeting->socket_error = 0;
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
        fd = connect_to(meeting, at);
    freeaddrinfo(found);
    return fd;
}

enum weft__wire_result weft__next_frame(const struct weft__watch *watch, struct weft__wire *wire,
                                        int64_t deadline_ns, struct weft__frame *frame)
{
    for (;;) {
        enum weft__wire_result result = weft__wire_receive(wire, frame);
        if (result != WEFT__WIRE_EMPTY || weft__now_ns() >= deadline_ns ||
            weft__watch_check(watch) != WEFT_OK)
            return result;
        int timeout_ms = weft__poll_timeout_ms(deadline_ns);
        if (watch->status != NULL && timeout_ms > LOOK_UP_MS)
            timeout_ms = LOOK_UP_MS;
        struct pollfd readable = {
            .fd = wire->fd, .events = weft__wire_has_output(wire) ? POLLIN | POLLOUT : POLLIN};
        poll(&readable, 1, timeout_ms);
        if (weft__wire_flush(wire) != WEFT__WIRE_OK)
            return WEFT__WIRE_CLOSED;
    }
}

/* Until the rendezvous has closed the connection: if what it has sent were still unread when this
 * side closes, it would lose what it has not read itself. */
static void drain(const struct weft__wire *wire, int64_t deadline_ns)
{
    char thrown_away[256];
    shutdown(wire->fd, SHUT_WR);
    while (weft__now_ns() < deadline_ns) {
        struct pollfd readable = {.fd = wire->fd, .events = POLLIN};
        if (poll(&readable, 1, weft__poll_timeout_ms(deadline_ns)) > 0 &&
            recv(wire->fd, thrown_away, sizeof(thrown_away), 0) <= 0)
            return;
    }
}

/* The rendezvous knows this rank: the others hear why it leaves. `result` and the thread's last
 * error say so. */
static weft_result give_up(struct weft__wire *wire, weft_result result, int32_t culprit)
{
    struct weft__failure_notice notice = {.result = result, .rank = culprit};
    snprintf(notice.text, sizeof(notice.text), "%s", weft__last_error());
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_GIVE_UP, &notice, sizeof(notice), NULL, 0);
    if (message != NULL) {
        weft__wire_send(wire, message);
        weft__message_release(message);
        drain(wire, weft__now_ns() + GOODBYE_MS * WEFT__NS_PER_MS);
    }
    return weft__error(result, "%s", notice.text);
}

/* If the watched communicator has failed, that is the reason. The culprit is perhaps no rank of
 * this meeting. */
static weft_result stop_waiting(const struct meeting *meeting, struct weft__wire *wire)
{
    const weft_result watched = weft__watch_check(&meeting->watch);
    return watched != WEFT_OK ? give_up(wire, watched, WEFT__NOBODY) : WEFT_OK;
}

static weft_result run_out_of_memory(const struct meeting *meeting, struct weft__wire *wire)
{
    const int32_t rank = meeting->hello->rank;
    const weft_result result =
        weft__no_memory("rank %d has no memory for what the rendezvous tells", rank);
    return give_up(wire, result, rank);
}

/* A drawn port may belong to any program, which must come to no harm. So the rendezvous speaks
 * first. */
static enum weft__wire_result await_greeting(struct meeting *meeting, struct weft__wire *wire)
{
    struct weft__frame frame;
    struct weft__greeting greeting;
    enum weft__wire_result result =
        weft__next_frame(&meeting->watch, wire, meeting->greeting_ns, &frame);
    if (result != WEFT__WIRE_OK)
        return result;
    if (frame.type != WEFT__FRAME_GREETING || frame.body_bytes != sizeof(greeting))
        return WEFT__WIRE_GARBAGE;
    memcpy(&greeting, frame.body, sizeof(greeting));
    return greeting.magic == WEFT__HELLO_MAGIC && greeting.version == WEFT__HELLO_VERSION
               ? WEFT__WIRE_OK
               : WEFT__WIRE_GARBAGE;
}

static enum weft__wire_result send_hello(struct meeting *meeting, struct weft__wire *wire)
{
    meeting->phase = INTRODUCED;
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_HELLO, meeting->hello, sizeof(*meeting->hello), NULL, 0);
    if (message == NULL)
        return WEFT__WIRE_NO_MEMORY;
    enum weft__wire_result result = weft__wire_send(wire, message);
    weft__message_release(message);
    return result;
}

/* A server that does not answer the hello is not our rendezvous, or not yet: try again. */
static enum weft__wire_result introduce(struct meeting *meeting, struct weft__wire *wire,
                                        struct weft__identity *server)
{
    struct weft__frame frame;
    enum weft__wire_result result = await_greeting(meeting, wire);
    if (result == WEFT__WIRE_OK)
        result = send_hello(meeting, wire);
    if (result == WEFT__WIRE_OK)
        result = weft__next_frame(&meeting->watch, wire, meeting->deadline_ns, &frame);
    if (result == WEFT__WIRE_OK && frame.type == WEFT__FRAME_FAILED &&
        frame.body_bytes == sizeof(struct weft__failure_notice))
        note_refusal(meeting, &frame);
    if (result == WEFT__WIRE_OK &&
        (frame.type != WEFT__FRAME_WELCOME || frame.body_bytes != sizeof(*server)))
        result = WEFT__WIRE_GARBAGE;
    if (result == WEFT__WIRE_OK)
        memcpy(server, frame.body, sizeof(*server));
    else if (result != WEFT__WIRE_EMPTY && result != WEFT__WIRE_NO_MEMORY)
        note_obstacle(meeting, strange_listener);
    else if (meeting->obstacle[0] == '\0') /* an attempt that the deadline cut short says little */
        note_obstacle(meeting, "it does not answer");
    return result;
}

static weft_result wait_for_table(struct meeting *meeting, struct weft__wire *wire,
                                  const struct weft__identity *server, struct weft__identity *table)
{
    struct weft__frame frame;
    size_t table_bytes = (size_t)meeting->hello->num_ranks * sizeof(*table);
    enum weft__wire_result result = weft__next_frame(
        &meeting->watch, wire, meeting->deadline_ns + GRACE_MS * WEFT__NS_PER_MS, &frame);
    if (result == WEFT__WIRE_OK && frame.type == WEFT__FRAME_TABLE &&
        frame.body_bytes == table_bytes) {
        memcpy(table, frame.body, table_bytes);
        return WEFT_OK;
    }
    struct weft__failure_notice notice;
    if (result == WEFT__WIRE_OK && frame.type == WEFT__FRAME_FAILED &&
        frame.body_bytes == sizeof(notice)) {
        memcpy(&notice, frame.body, sizeof(notice));
        return weft__error((weft_result)notice.result, "%.*s", (int)sizeof(notice.text),
                           notice.text);
    }
    if (result == WEFT__WIRE_NO_MEMORY)
        return run_out_of_memory(meeting, wire);
    WEFT__TRY(stop_waiting(meeting, wire));
    if (result == WEFT__WIRE_EMPTY)
        return weft__error(WEFT_ERROR_TIMEOUT,
                           "the rendezvous (pid %d) does not answer within %u ms", server->pid,
                           meeting->hello->timeout_ms);
    return weft__error(WEFT_ERROR_SYSTEM,
                       "the rendezvous is gone: its process (pid %d) died before all ranks had met",
                       server->pid);
}

/* One attempt; `*over` tells whether its result is final. */
static weft_result attempt(struct meeting *meeting, int *over)
{
    struct weft__wire *wire = meeting->wire;
    int fd = connect_once(meeting);
    *over = fd < 0 && meeting->socket_error != 0 && !meeting->has_socket;
    if (*over) {
        errno = meeting->socket_error;
        return weft__system_error("rank %d cannot make a socket to reach %s", meeting->hello->rank,
                                  meeting->point->address);
    }
    *over = fd < 0 && meeting->is_unreachable && weft__address_is_loopback(meeting->point->address);
    if (*over)
        return weft__error(WEFT_ERROR_SYSTEM,
                           "rank %d cannot reach %s: the loopback interface is down (ip link set "
                           "lo up)",
                           meeting->hello->rank, meeting->point->address);
    if (fd < 0)
        return WEFT_ERROR_TIMEOUT;
    weft__wire_init(wire, fd,
                    sizeof(struct weft__gather_header) +
                        (uint64_t)meeting->hello->num_ranks * WEFT__MAX_BLOB_BYTES);
    meeting->phase = CONNECTED;
    enum weft__wire_result introduced = weft__wire_keep_spare(wire);
    if (introduced == WEFT__WIRE_OK)
        introduced = introduce(meeting, wire, meeting->server);
    weft_result result = WEFT_ERROR_TIMEOUT;
    *over = introduced == WEFT__WIRE_OK || introduced == WEFT__WIRE_NO_MEMORY;
    if (introduced == WEFT__WIRE_OK)
        result = wait_for_table(meeting, wire, meeting->server, meeting->table);
    else if (introduced == WEFT__WIRE_NO_MEMORY)
        result = run_out_of_memory(meeting, wire);
    else if (meeting->phase == INTRODUCED)
        (void)stop_waiting(meeting, wire);
    if (result != WEFT_OK)
        weft__wire_close(wire);
    return result;
}

/* Tries each port of the point once; `*over` as above. */
static weft_result attempt_ports(struct meeting *meeting, struct weft__meeting_point *point,
                                 int *over)
{
    struct weft__meeting_point at;
    weft_result result = WEFT_ERROR_TIMEOUT;
    *over = 0;
    for (int i = 0; !*over && weft__meeting_point_at_port(point, i, &at); i++) {
        meeting->point = &at;
        meeting->greeting_ns = meeting->deadline_ns;
        if (point->port_choice == WEFT__PORT_DRAWN &&
            weft__now_ns() + meeting->patience_ns < meeting->deadline_ns)
            meeting->greeting_ns = weft__now_ns() + meeting->patience_ns;
        result = attempt(meeting, over);
    }
    if (result == WEFT_OK)
        *point = at;
    return result;
}

weft_result weft__connect_to_rendezvous(const struct weft__meeting_point *point,
                                        uint64_t max_body_bytes, int64_t deadline_ns,
                                        struct weft__wire *wire)
{
    struct meeting meeting = {.point = point,
                              .deadline_ns = deadline_ns,
                              .greeting_ns = deadline_ns,
                              .obstacle = "it does not answer: it is stopped, or cut off"};
    const int fd = connect_once(&meeting);
    weft_result result = WEFT_ERROR_SYSTEM;
    if (fd >= 0) {
        weft__wire_init(wire, fd, max_body_bytes);
        const enum weft__wire_result greeted = await_greeting(&meeting, wire);
        if (greeted == WEFT__WIRE_OK)
            return WEFT_OK;
        if (greeted == WEFT__WIRE_EMPTY)
            result = WEFT_ERROR_TIMEOUT;
        else
            note_obstacle(&meeting, strange_listener);
        weft__wire_close(wire);
    }
    return weft__error(result, "no rendezvous at %s, port %u: %s", point->address, point->port,
                       meeting.obstacle);
}

static weft_result find_nobody(const struct meeting *meeting,
                               const struct weft__connection_request *request)
{
    const int is_drawn = request->point->port_choice == WEFT__PORT_DRAWN;
    return weft__error(
        WEFT_ERROR_TIMEOUT, "rank %d found no rendezvous at %s, port %u%s within %u ms: %s",
        request->hello->rank, request->point->address, request->point->port,
        is_drawn ? " or those after it," : "", request->hello->timeout_ms, meeting->obstacle);
}

weft_result weft__connect(const struct weft__connection_request *request, struct weft__wire *wire,
                          struct weft__identity *server, struct weft__identity *table)
{
    const struct weft__hello *hello = request->hello;
    struct meeting meeting = {.hello = hello,
                              .watch = request->watch,
                              .wire = wire,
                              .server = server,
                              .table = table,
                              .deadline_ns = weft__now_ns() + hello->timeout_ms * WEFT__NS_PER_MS,
                              .patience_ns = GREETING_MS * WEFT__NS_PER_MS};
    int pause_ms = FIRST_PAUSE_MS;
    for (;;) {
        int over;
        weft_result result = attempt_ports(&meeting, request->point, &over);
        if (over)
            return result;
        result = weft__watch_check(&meeting.watch);
        if (result != WEFT_OK)
            return result;
        if (weft__now_ns() >= meeting.deadline_ns)
            return find_nobody(&meeting, request);
        poll(NULL, 0, pause_ms);
        pause_ms = 2 * pause_ms < LONGEST_PAUSE_MS ? 2 * pause_ms : LONGEST_PAUSE_MS;
        if (meeting.patience_ns < MAX_GREETING_MS * WEFT__NS_PER_MS)
            meeting.patience_ns *= 2;
    }
}
