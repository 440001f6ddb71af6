/* SPDX-License-Identifier: MIT */
/* The engine on TCP until all peers are there. The lower rank dials; nobody waits, for all of it
 * happens in calls of progress. When all peers are there, nobody listens any more. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/listener.h"
#include "comm/rendezvous/wire.h"
#include "net/tcp_internal.h"

enum {
    PATIENCE_MS = 3000, /* with a port that is taken for a moment */
    PAUSE_MS = 100,     /* between dials */
    CONNECT_MS = 3000,  /* for a connection, with several addresses to try */
    MAX_REFUSALS = 3    /* of each address, by a host that is up */
};

/* ---------------------------------------------------------------- listening */

static weft_result open_listener(struct weft__tcp *tcp, uint32_t index)
{
    struct weft__tcp_address *address = &tcp->addresses.at[index];
    struct weft__meeting_point point = {.port = 0};
    char name[WEFT__TCP_NAME_BYTES];
    weft__tcp_name_address(address, name);
    *strchr(name, ',') = '\0';
    snprintf(point.address, sizeof(point.address), "%s", name);
    WEFT__TRY(weft__listener_open(&point, WEFT__LISTEN_ON_ADDRESS, PATIENCE_MS,
                                  &tcp->listeners[index].fd));
    address->port = point.port;
    return weft__tcp_watch(tcp, &tcp->listeners[index], EPOLLIN) ? WEFT_OK
                                                                 : weft__system_error("epoll_ctl");
}

weft_result weft__tcp_listen(struct weft__tcp *tcp, const char *devices)
{
    weft_result result = weft__tcp_find_addresses(devices, tcp->rank, &tcp->addresses);
    for (uint32_t index = 0; index < tcp->addresses.num && result == WEFT_OK; index++)
        result = open_listener(tcp, index);
    return result;
}

void weft__tcp_stop_listening(struct weft__tcp *tcp)
{
    for (int index = 0; index < WEFT__TCP_MAX_ADDRESSES; index++) {
        if (tcp->listeners[index].fd >= 0)
            close(tcp->listeners[index].fd);
        tcp->listeners[index].fd = -1;
    }
}

/* ---------------------------------------------------------------- guests */

/* It is freed by weft__tcp_look_at_guests, since events may still name it. */
static void drop(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    if (guest->watched.fd >= 0)
        close(guest->watched.fd);
    guest->watched.fd = -1;
    tcp->num_guests--;
}

/* Somebody who looked in, or a rank that died. */
static void let_go(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    weft__log(WEFT__LOG_INFO, tcp->rank,
              "a connection to the network has ended before its other end proved who it is");
    drop(tcp, guest);
}

static void refuse(struct weft__tcp *tcp, struct weft__tcp_guest *guest, const char *reason)
{
    char name[WEFT__PEER_NAME_BYTES];
    if (tcp->num_strangers++ == 0) {
        weft__listener_name_peer(guest->watched.fd, name);
        weft__log(WEFT__LOG_WARN, tcp->rank,
                  "refused a connection to the network from %s: %s; further ones are not reported",
                  name, reason);
    }
    drop(tcp, guest);
}

static struct weft__tcp_guest *add_guest(struct weft__tcp *tcp, int fd, enum weft__tcp_role role)
{
    struct weft__tcp_guest *guest = calloc(1, sizeof(*guest));
    if (guest == NULL || weft__socket_prepare(fd) != WEFT_OK) {
        free(guest);
        close(fd);
        return NULL;
    }
    guest->watched = (struct weft__tcp_watched){WEFT__TCP_GUEST, fd};
    guest->role = role;
    guest->deadline_ns = weft__now_ns() + WEFT__TCP_GUEST_MS * WEFT__NS_PER_MS;
    guest->next = tcp->guests;
    tcp->guests = guest;
    tcp->num_guests++;
    return guest;
}

static void drop_oldest_stranger(struct weft__tcp *tcp)
{
    struct weft__tcp_guest *oldest = NULL;
    for (struct weft__tcp_guest *guest = tcp->guests; guest != NULL; guest = guest->next)
        if (guest->watched.fd >= 0 && guest->role == WEFT__TCP_ACCEPTOR)
            oldest = guest; /* new ones are in front */
    if (oldest != NULL)
        refuse(tcp, oldest, "too many are there that have not proved who they are");
}

void weft__tcp_accept(struct weft__tcp *tcp, struct weft__tcp_watched *listener)
{
    enum { MOST_AT_ONCE = 16 };
    for (int num = 0; num < MOST_AT_ONCE && listener->fd >= 0; num++) {
        const int fd =
            weft__descriptor_keep(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            drop_oldest_stranger(tcp);
        if (fd < 0)
            return;
        struct weft__tcp_guest *guest = add_guest(tcp, fd, WEFT__TCP_ACCEPTOR);
        if (guest == NULL)
            return;
        guest->state = WEFT__TCP_TALKING;
        guest->awaits = WEFT__TCP_AWAITS_HELLO;
        if (tcp->num_guests > tcp->num_ranks + WEFT__TCP_MAX_MORE_GUESTS)
            drop_oldest_stranger(tcp);
        if (!weft__tcp_watch(tcp, &guest->watched, EPOLLIN))
            drop(tcp, guest);
    }
}

/* ---------------------------------------------------------------- dialing */

/* Perhaps again, in a while: `error` says how it went, 0 that the other end closed the connection.
 */
static void give_up_dial(struct weft__tcp *tcp, struct weft__tcp_guest *guest, int error)
{
    struct weft__tcp_peer *peer = &tcp->peers[guest->rank];
    drop(tcp, guest);
    if (peer->state != WEFT__TCP_DIALED)
        return;
    peer->last_errno = error;
    peer->num_dials++;
    peer->dial_at_ns = weft__now_ns() + PAUSE_MS * WEFT__NS_PER_MS;
    const int is_there =
        error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == 0;
    if (is_there && peer->num_dials >= MAX_REFUSALS * peer->addresses.num)
        weft__tcp_lose(tcp, peer, error);
}

static void dial(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    const struct weft__tcp_address *address =
        &peer->addresses.at[peer->num_dials % peer->addresses.num];
    union weft__tcp_sockaddr to;
    const socklen_t to_bytes = weft__tcp_sockaddr_of(address, &to);
    const int fd = weft__descriptor_keep(
        socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    struct weft__tcp_guest *guest = fd >= 0 ? add_guest(tcp, fd, WEFT__TCP_DIALER) : NULL;
    if (guest == NULL) {
        peer->last_errno = errno;
        peer->num_dials++;
        peer->dial_at_ns = weft__now_ns() + PAUSE_MS * WEFT__NS_PER_MS;
        return;
    }
    guest->rank = peer->rank;
    guest->state = WEFT__TCP_CONNECTING;
    guest->deadline_ns =
        peer->addresses.num > 1 ? weft__now_ns() + CONNECT_MS * WEFT__NS_PER_MS : tcp->deadline_ns;
    peer->dial_at_ns = INT64_MAX;
    if ((connect(fd, &to.any, to_bytes) != 0 && errno != EINPROGRESS) ||
        !weft__tcp_watch(tcp, &guest->watched, EPOLLIN | EPOLLOUT | EPOLLET))
        give_up_dial(tcp, guest, errno);
}

weft_result weft__tcp_connect(void *state, const struct weft__net_blob *addresses)
{
    struct weft__tcp *tcp = state;
    for (int32_t rank = 0; rank < tcp->num_ranks; rank++) {
        struct weft__tcp_peer *peer = &tcp->peers[rank];
        if (addresses[rank].num_bytes == 0 || peer->state != WEFT__TCP_GONE)
            continue;
        WEFT__TRY(weft__tcp_read_addresses(rank, addresses[rank].bytes, addresses[rank].num_bytes,
                                           &peer->addresses));
        peer->state = rank < tcp->rank ? WEFT__TCP_AWAITED : WEFT__TCP_DIALED;
        tcp->num_unsettled++;
    }
    tcp->deadline_ns = weft__now_ns() + tcp->timeout_ms * WEFT__NS_PER_MS;
    weft__tcp_look_at_guests(tcp);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- proofs */

/* 0 if not all of it could be sent, which on a new connection is no lack of room. */
static int say(const struct weft__tcp_guest *guest, const void *bytes, size_t num_bytes)
{
    return send(guest->watched.fd, bytes, num_bytes, MSG_NOSIGNAL) == (ssize_t)num_bytes;
}

static int say_proof(const struct weft__tcp *tcp, const struct weft__tcp_guest *guest)
{
    uint8_t proof[WEFT__MAC_BYTES];
    weft__tcp_prove(tcp->secret, guest->role, &guest->talk, proof);
    return say(guest, proof, sizeof(proof));
}

static int is_proof(const struct weft__tcp *tcp, const struct weft__tcp_guest *guest)
{
    uint8_t expected[WEFT__MAC_BYTES];
    const enum weft__tcp_role other =
        guest->role == WEFT__TCP_DIALER ? WEFT__TCP_ACCEPTOR : WEFT__TCP_DIALER;
    weft__tcp_prove(tcp->secret, other, &guest->talk, expected);
    return weft__mac_equal(expected, guest->in);
}

static int say_hello(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    struct weft__tcp_hello *hello = &guest->talk.hello;
    *hello = (struct weft__tcp_hello){.magic = WEFT__TCP_MAGIC,
                                      .from = tcp->rank,
                                      .to = guest->rank,
                                      .num_ranks = tcp->num_ranks,
                                      .header_bytes = WEFT__TCP_HEADER_BYTES};
    guest->state = WEFT__TCP_TALKING;
    guest->awaits = WEFT__TCP_AWAITS_CHALLENGE;
    guest->deadline_ns = tcp->deadline_ns;
    return weft__random_bytes(hello->nonce, sizeof(hello->nonce)) == WEFT_OK &&
           say(guest, hello, sizeof(*hello));
}

static int is_expected(const struct weft__tcp *tcp, const struct weft__tcp_hello *hello)
{
    return hello->magic == WEFT__TCP_MAGIC && hello->to == tcp->rank &&
           hello->num_ranks == tcp->num_ranks && hello->header_bytes == WEFT__TCP_HEADER_BYTES &&
           hello->from >= 0 && hello->from < tcp->num_ranks &&
           tcp->peers[hello->from].state == WEFT__TCP_AWAITED;
}

static void answer_hello(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    struct weft__tcp_talk *talk = &guest->talk;
    memcpy(&talk->hello, guest->in, sizeof(talk->hello));
    if (!is_expected(tcp, &talk->hello)) {
        refuse(tcp, guest, "it is no rank that is waited for");
        return;
    }
    guest->rank = talk->hello.from;
    guest->awaits = WEFT__TCP_AWAITS_PROOF;
    if (weft__random_bytes(talk->challenge.nonce, sizeof(talk->challenge.nonce)) != WEFT_OK ||
        !say(guest, &talk->challenge, sizeof(talk->challenge)))
        let_go(tcp, guest);
}

static void answer_challenge(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    memcpy(&guest->talk.challenge, guest->in, sizeof(guest->talk.challenge));
    guest->awaits = WEFT__TCP_AWAITS_PROOF;
    if (!say_proof(tcp, guest))
        give_up_dial(tcp, guest, errno);
}

static void admit(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    const int fd = guest->watched.fd;
    struct weft__tcp_peer *peer = &tcp->peers[guest->rank];
    guest->watched.fd = -1; /* it stays open */
    drop(tcp, guest);
    if (peer->state != WEFT__TCP_AWAITED && peer->state != WEFT__TCP_DIALED)
        close(fd);
    else
        weft__tcp_open_peer(tcp, peer, fd);
}

static void check_proof(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    if (!is_proof(tcp, guest)) {
        const int32_t rank = guest->rank;
        const enum weft__tcp_role role = guest->role;
        refuse(tcp, guest, "it does not know the job's secret");
        if (role == WEFT__TCP_DIALER && tcp->peers[rank].state == WEFT__TCP_DIALED)
            weft__tcp_lose(tcp, &tcp->peers[rank], EACCES);
        return;
    }
    if (guest->role == WEFT__TCP_ACCEPTOR && !say_proof(tcp, guest))
        let_go(tcp, guest);
    else
        admit(tcp, guest);
}

static size_t expected_bytes(const struct weft__tcp_guest *guest)
{
    static const size_t expected[] = {[WEFT__TCP_AWAITS_HELLO] = sizeof(struct weft__tcp_hello),
                                      [WEFT__TCP_AWAITS_CHALLENGE] =
                                          sizeof(struct weft__tcp_challenge),
                                      [WEFT__TCP_AWAITS_PROOF] = WEFT__MAC_BYTES};
    return expected[guest->awaits];
}

static void answer(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    guest->in_bytes = 0;
    if (guest->awaits == WEFT__TCP_AWAITS_HELLO)
        answer_hello(tcp, guest);
    else if (guest->awaits == WEFT__TCP_AWAITS_CHALLENGE)
        answer_challenge(tcp, guest);
    else
        check_proof(tcp, guest);
}

/* Reads what is expected and no byte more: what follows is for the peer that it becomes. */
static void listen_to(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    while (guest->watched.fd >= 0) {
        const ssize_t num_bytes = recv(guest->watched.fd, guest->in + guest->in_bytes,
                                       expected_bytes(guest) - guest->in_bytes, 0);
        if (num_bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (num_bytes <= 0 && guest->role == WEFT__TCP_DIALER)
            give_up_dial(tcp, guest, num_bytes < 0 ? errno : 0);
        else if (num_bytes <= 0)
            let_go(tcp, guest);
        else if ((guest->in_bytes += (size_t)num_bytes) == expected_bytes(guest))
            answer(tcp, guest);
    }
}

void weft__tcp_serve_guest(struct weft__tcp *tcp, struct weft__tcp_guest *guest)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    if (guest->watched.fd < 0)
        return;
    if (guest->state == WEFT__TCP_CONNECTING) {
        union weft__tcp_sockaddr other;
        socklen_t other_bytes = sizeof(other);
        getsockopt(guest->watched.fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes);
        if (error == 0 && getpeername(guest->watched.fd, &other.any, &other_bytes) != 0)
            return; /* not yet */
        if (error != 0 || !say_hello(tcp, guest)) {
            give_up_dial(tcp, guest, error != 0 ? error : errno);
            return;
        }
    }
    listen_to(tcp, guest);
}

/* ---------------------------------------------------------------- the clock */

static void free_dropped(struct weft__tcp *tcp)
{
    struct weft__tcp_guest **link = &tcp->guests;
    while (*link != NULL) {
        struct weft__tcp_guest *guest = *link;
        if (guest->watched.fd >= 0) {
            link = &guest->next;
            continue;
        }
        *link = guest->next;
        free(guest);
    }
}

static void look_at_peers(struct weft__tcp *tcp, int64_t now_ns)
{
    for (int32_t rank = 0; rank < tcp->num_ranks && tcp->num_unsettled > 0; rank++) {
        struct weft__tcp_peer *peer = &tcp->peers[rank];
        if (peer->state != WEFT__TCP_AWAITED && peer->state != WEFT__TCP_DIALED)
            continue;
        if (now_ns >= tcp->deadline_ns)
            weft__tcp_lose(tcp, peer, ETIMEDOUT);
        else if (peer->state == WEFT__TCP_DIALED && now_ns >= peer->dial_at_ns)
            dial(tcp, peer);
    }
}

void weft__tcp_look_at_guests(struct weft__tcp *tcp)
{
    const int64_t now_ns = weft__now_ns();
    for (struct weft__tcp_guest *guest = tcp->guests; guest != NULL; guest = guest->next) {
        const int is_stranger = guest->role == WEFT__TCP_ACCEPTOR;
        if (guest->watched.fd < 0 || (now_ns < guest->deadline_ns && tcp->num_unsettled > 0))
            continue;
        if (!is_stranger)
            give_up_dial(tcp, guest, ETIMEDOUT);
        else if (tcp->num_unsettled == 0)
            drop(tcp, guest); /* nobody is waited for */
        else
            refuse(tcp, guest, "it has not proved who it is");
    }
    look_at_peers(tcp, now_ns);
    if (tcp->num_unsettled == 0)
        weft__tcp_stop_listening(tcp);
    free_dropped(tcp);
}
