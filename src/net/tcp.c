/* SPDX-License-Identifier: MIT */
/* The engine over TCP sockets: one connection for each peer, and one epoll for all of them. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/settings.h"
#include "comm/host/thread.h"
#include "net/tcp_internal.h"

enum {
    NUM_EVENTS = 64, /* of one look at epoll */
    /* Calls of progress that had something to do and did not look at epoll; then others have a
     * turn. */
    MAX_NOT_LOOKED = 4,
    LOOK_MS = 200, /* between looks at who is silent */
    LONGEST_LOOK_MS = 1000,
    CALLS_PER_LOOK = 256 /* calls of progress between looks at the clock */
};

/* ---------------------------------------------------------------- opening */

static weft_result probe(void)
{
    return WEFT_OK;
}

static void free_tcp(struct weft__tcp *tcp)
{
    weft__tcp_stop_listening(tcp);
    while (tcp->guests != NULL) {
        struct weft__tcp_guest *guest = tcp->guests;
        tcp->guests = guest->next;
        if (guest->watched.fd >= 0)
            close(guest->watched.fd);
        free(guest);
    }
    for (int32_t rank = 0; tcp->peers != NULL && rank < tcp->num_ranks; rank++) {
        if (tcp->peers[rank].watched.fd >= 0)
            close(tcp->peers[rank].watched.fd);
        weft__tcp_stream_destroy(&tcp->peers[rank].stream);
    }
    if (tcp->epoll_fd >= 0)
        close(tcp->epoll_fd);
    free(tcp->buffer);
    free(tcp->peers);
    free(tcp);
}

static weft_result prepare(struct weft__tcp *tcp, const char *devices)
{
    for (int index = 0; index < WEFT__TCP_MAX_ADDRESSES; index++)
        tcp->listeners[index] = (struct weft__tcp_watched){WEFT__TCP_LISTENER, -1};
    tcp->peers = calloc((size_t)tcp->num_ranks, sizeof(*tcp->peers));
    tcp->buffer = malloc(WEFT__TCP_BUFFER_BYTES);
    /* Also before a failure: descriptor 0 may be anybody's, and free_tcp closes what is there. */
    for (int32_t rank = 0; tcp->peers != NULL && rank < tcp->num_ranks; rank++) {
        tcp->peers[rank].watched = (struct weft__tcp_watched){WEFT__TCP_PEER, -1};
        tcp->peers[rank].rank = rank;
    }
    if (tcp->peers == NULL || tcp->buffer == NULL)
        return weft__no_memory("no memory for %d peers", tcp->num_ranks);
    tcp->epoll_fd = weft__descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (tcp->epoll_fd < 0)
        return weft__system_error("epoll_create1");
    return weft__tcp_listen(tcp, devices);
}

static weft_result open_tcp(struct weft__net *net, const struct weft__net_config *config,
                            void **state)
{
    if (config->demand == WEFT__NET_RDMA)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "RDMA is demanded; the network engine is tcp, which has none");
    struct weft__tcp *tcp = calloc(1, sizeof(*tcp));
    WEFT__CHECK_MEMORY(tcp, "no memory for a network");
    tcp->net = net;
    tcp->rank = config->rank;
    tcp->num_ranks = config->num_ranks;
    tcp->timeout_ms = config->timeout_ms;
    tcp->silence_ms = config->silence_ms;
    tcp->epoll_fd = -1;
    memcpy(tcp->secret, config->secret, sizeof(tcp->secret));
    weft_result result = prepare(tcp, config->devices);
    if (result == WEFT_OK)
        *state = tcp;
    else
        free_tcp(tcp);
    return result;
}

static size_t max_message_bytes(void *state)
{
    (void)state;
    return WEFT__TCP_MAX_MESSAGE_BYTES;
}

static weft_result address(void *state, void *bytes, size_t *num_bytes)
{
    const struct weft__tcp *tcp = state;
    *num_bytes = weft__tcp_addresses_bytes(&tcp->addresses);
    memcpy(bytes, &tcp->addresses, *num_bytes);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- peers */

int weft__tcp_watch(struct weft__tcp *tcp, struct weft__tcp_watched *watched, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.ptr = watched}};
    return epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, watched->fd, &event) == 0;
}

void weft__tcp_make_busy(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    if (peer->work == WEFT__TCP_LISTED)
        return;
    peer->work = WEFT__TCP_LISTED;
    peer->next_busy = NULL;
    if (tcp->last_busy != NULL)
        tcp->last_busy->next_busy = peer;
    else
        tcp->first_busy = peer;
    tcp->last_busy = peer;
}

void weft__tcp_open_peer(struct weft__tcp *tcp, struct weft__tcp_peer *peer, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data = {.ptr = &peer->watched}};
    peer->watched.fd = fd;
    peer->state = WEFT__TCP_OPEN;
    peer->input = WEFT__TCP_READABLE;
    peer->output = WEFT__TCP_WRITABLE;
    peer->stuck_since_ns = weft__now_ns();
    tcp->num_unsettled--;
    weft__tcp_stream_init(&peer->stream, tcp->net, peer->rank);
    if (epoll_ctl(tcp->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0)
        weft__tcp_lose(tcp, peer, errno);
    weft__tcp_make_busy(tcp, peer);
}

/* Tells the user which ports a firewall between ranks must let through. */
static const char *hint_at_ports(void)
{
    return weft__setting_text(WEFT__SETTING_PORTS) != NULL
               ? "; ranks connect to each other on ports of WEFT_PORTS, which a firewall must let "
                 "through"
               : "; ranks connect to each other on ports that the system chooses, or on those of "
                 "WEFT_PORTS, which a firewall must let through";
}

static void tell_not_connected(struct weft__tcp *tcp, const struct weft__tcp_peer *peer, int error)
{
    char name[WEFT__TCP_NAME_BYTES] = "?";
    if (peer->state == WEFT__TCP_AWAITED) {
        if (tcp->addresses.num > 0)
            weft__tcp_name_address(&tcp->addresses.at[0], name);
        weft__net_fail_peer(tcp->net, peer->rank,
                            "rank %d has not connected to rank %d at %s within %u ms%s", peer->rank,
                            tcp->rank, name, tcp->timeout_ms, hint_at_ports());
        return;
    }
    const int reason = peer->last_errno != 0 ? peer->last_errno : error;
    if (peer->addresses.num > 0)
        weft__tcp_name_address(&peer->addresses.at[peer->num_dials % peer->addresses.num], name);
    weft__net_fail_peer(tcp->net, peer->rank, "rank %d cannot connect to rank %d at %s: %s%s",
                        tcp->rank, peer->rank, name,
                        reason != 0 ? strerror(reason) : "the other end closed the connection",
                        reason != 0 ? hint_at_ports() : "");
}

static void tell_loss(struct weft__tcp *tcp, const struct weft__tcp_peer *peer, int error)
{
    const int32_t rank = peer->rank;
    char name[WEFT__TCP_NAME_BYTES] = "?";
    if (peer->addresses.num > 0)
        weft__tcp_name_address(&peer->addresses.at[peer->num_dials % peer->addresses.num], name);
    if (peer->state != WEFT__TCP_AWAITED && error == EACCES)
        weft__net_fail_peer(tcp->net, rank,
                            "who answers for rank %d at %s does not know the job's secret", rank,
                            name);
    else if (peer->state == WEFT__TCP_AWAITED || peer->state == WEFT__TCP_DIALED)
        tell_not_connected(tcp, peer, error);
    else if (error == 0)
        weft__net_fail_peer(tcp->net, rank,
                            "connection to rank %d is lost: it ended without a goodbye", rank);
    else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        weft__net_fail_peer(tcp->net, rank,
                            "nothing passes between rank %d and rank %d any more: %s", tcp->rank,
                            rank, strerror(error));
    else
        weft__net_fail_peer(tcp->net, rank, "connection to rank %d is lost: %s", rank,
                            strerror(error));
}

void weft__tcp_lose(struct weft__tcp *tcp, struct weft__tcp_peer *peer, int error)
{
    if (peer->state == WEFT__TCP_GONE)
        return;
    tell_loss(tcp, peer, error);
    tcp->num_unsettled -= peer->state != WEFT__TCP_OPEN;
    peer->state = WEFT__TCP_GONE;
}

/* ---------------------------------------------------------------- progress */

static void note_events(struct weft__tcp *tcp, struct weft__tcp_peer *peer, uint32_t events)
{
    if (peer->state != WEFT__TCP_OPEN)
        return;
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
        peer->input = WEFT__TCP_AT_END;
    else if ((events & EPOLLIN) != 0 && peer->input == WEFT__TCP_NOTHING_TO_READ)
        peer->input = WEFT__TCP_READABLE;
    if ((events & EPOLLOUT) != 0)
        peer->output = WEFT__TCP_WRITABLE;
    weft__tcp_make_busy(tcp, peer);
}

static void look_at_events(struct weft__tcp *tcp)
{
    struct epoll_event events[NUM_EVENTS];
    const int num_events = epoll_wait(tcp->epoll_fd, events, NUM_EVENTS, 0);
    for (int index = 0; index < num_events; index++) {
        struct weft__tcp_watched *watched = events[index].data.ptr;
        if (watched->kind == WEFT__TCP_PEER)
            note_events(tcp, (struct weft__tcp_peer *)watched, events[index].events);
        else if (watched->kind == WEFT__TCP_GUEST)
            weft__tcp_serve_guest(tcp, (struct weft__tcp_guest *)watched);
        else
            weft__tcp_accept(tcp, watched);
    }
}

/* Whether something that was sent is still on its way, and nothing was acknowledged since the last
 * look. */
static int is_stuck(const struct weft__tcp *tcp, const struct weft__tcp_peer *peer,
                    int64_t since_last_look_ns)
{
    struct tcp_info info = {.tcpi_unacked = 0};
    socklen_t info_bytes = sizeof(info);
    if (getsockopt(peer->watched.fd, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) != 0)
        return 0;
    weft__net_found_retransmits(tcp->net, (int32_t)(peer - tcp->peers), info.tcpi_total_retrans);
    return info.tcpi_unacked > 0 && info.tcpi_last_ack_recv * WEFT__NS_PER_MS >= since_last_look_ns;
}

/* Linux tries for many minutes. Who takes nothing, but acknowledges that it is asked, is alive. If
 * this process did not look for a while, it was stopped itself, and begins anew. */
static void look_for_silent_peers(struct weft__tcp *tcp)
{
    const int64_t now_ns = weft__now_ns(), since_ns = now_ns - tcp->looked_ns;
    const int begins = since_ns > LONGEST_LOOK_MS * WEFT__NS_PER_MS;
    if (since_ns < LOOK_MS * WEFT__NS_PER_MS)
        return;
    tcp->looked_ns = now_ns;
    for (int32_t rank = 0; rank < tcp->num_ranks; rank++) {
        struct weft__tcp_peer *peer = &tcp->peers[rank];
        if (peer->state != WEFT__TCP_OPEN)
            continue;
        if (!is_stuck(tcp, peer, since_ns) || begins)
            peer->stuck_since_ns = now_ns;
        else if (tcp->silence_ms > 0 &&
                 now_ns - peer->stuck_since_ns > tcp->silence_ms * WEFT__NS_PER_MS)
            weft__tcp_lose(tcp, peer, ETIMEDOUT);
    }
}

static int serve(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    int num_events = 0;
    if (peer->state == WEFT__TCP_OPEN)
        num_events += weft__tcp_write_out(tcp, peer);
    if (peer->state == WEFT__TCP_OPEN)
        num_events += weft__tcp_read_in(tcp, peer);
    return num_events;
}

static int has_work(const struct weft__tcp_peer *peer)
{
    return peer->state == WEFT__TCP_OPEN &&
           (peer->input != WEFT__TCP_NOTHING_TO_READ ||
            (peer->first != NULL && peer->output == WEFT__TCP_WRITABLE));
}

/* Each of those that were busy before once. */
static int serve_all(struct weft__tcp *tcp)
{
    struct weft__tcp_peer *peer = tcp->first_busy;
    int num_events = 0;
    tcp->first_busy = tcp->last_busy = NULL;
    while (peer != NULL) {
        struct weft__tcp_peer *next = peer->next_busy;
        peer->work = WEFT__TCP_IDLE;
        num_events += serve(tcp, peer);
        if (has_work(peer))
            weft__tcp_make_busy(tcp, peer);
        peer = next;
    }
    return num_events;
}

static int progress(void *state)
{
    struct weft__tcp *tcp = state;
    int num_events = serve_all(tcp); /* what has been posted goes before anybody looks at epoll */
    if (num_events > 0 && ++tcp->num_not_looked < MAX_NOT_LOOKED)
        return num_events;
    tcp->num_not_looked = 0;
    look_at_events(tcp);
    if (tcp->num_unsettled > 0 || tcp->guests != NULL)
        weft__tcp_look_at_guests(tcp);
    if (++tcp->num_calls % CALLS_PER_LOOK == 0)
        look_for_silent_peers(tcp);
    num_events += serve_all(tcp);
    return num_events;
}

static enum weft__net_armed arm(void *state)
{
    struct weft__tcp *tcp = state;
    look_for_silent_peers(tcp);
    return tcp->first_busy != NULL ? WEFT__NET_BUSY : WEFT__NET_ARMED;
}

static int fd_of(const void *state)
{
    return ((const struct weft__tcp *)state)->epoll_fd;
}

static weft_result find_transports(void *state)
{
    const struct weft__tcp *tcp = state;
    for (int32_t rank = 0; rank < tcp->num_ranks; rank++) {
        char name[WEFT__TCP_NAME_BYTES];
        if (tcp->peers[rank].state != WEFT__TCP_OPEN)
            continue;
        weft__tcp_name_transport(tcp->peers[rank].watched.fd, name);
        weft__net_found_transport(tcp->net, rank, name, WEFT__NET_WITHOUT_RDMA);
        weft__net_found_round_trip(tcp->net, rank,
                                   weft__tcp_round_trip_us(tcp->peers[rank].watched.fd));
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------- ending */

/* A peer's write there has no place any more. */
static void unreg(void *state, uint32_t region)
{
    struct weft__tcp *tcp = state;
    for (int32_t rank = 0; rank < tcp->num_ranks; rank++) {
        struct weft__tcp_stream *stream = &tcp->peers[rank].stream;
        if (stream->state != WEFT__TCP_LANDING ||
            weft__net_region_of(stream->header.place) != region)
            continue;
        weft__net_fail_peer(tcp->net, rank,
                            "rank %d was writing to memory that rank %d has taken back", rank,
                            tcp->rank);
        stream->state = WEFT__TCP_BROKEN;
    }
}

static void disconnect(void *state, int32_t rank)
{
    struct weft__tcp *tcp = state;
    struct weft__tcp_peer *peer = &tcp->peers[rank];
    tcp->num_unsettled -= peer->state == WEFT__TCP_AWAITED || peer->state == WEFT__TCP_DIALED;
    peer->state = WEFT__TCP_GONE;
    if (peer->watched.fd >= 0)
        close(peer->watched.fd);
    peer->watched.fd = -1;
    weft__tcp_stream_destroy(&peer->stream);
    weft__tcp_drop_queue(peer);
}

/* Nobody hears it any more; but as long as bytes are unread, Linux would take back at the end what
 * was sent. */
static void discard_input(struct weft__tcp *tcp, const struct weft__tcp_peer *peer)
{
    while (recv(peer->watched.fd, tcp->buffer, WEFT__TCP_BUFFER_BYTES, 0) > 0)
        continue;
}

/* Until the peer's host has what was sent. */
static int has_sent_all(struct weft__tcp *tcp, struct weft__tcp_peer *peer)
{
    int num_bytes = 0;
    if (peer->state != WEFT__TCP_OPEN)
        return 1;
    peer->output = WEFT__TCP_WRITABLE;
    peer->input = WEFT__TCP_NOTHING_TO_READ;
    weft__tcp_write_out(tcp, peer);
    discard_input(tcp, peer);
    return peer->state != WEFT__TCP_OPEN ||
           (peer->first == NULL &&
            (ioctl(peer->watched.fd, SIOCOUTQ, &num_bytes) != 0 || num_bytes == 0));
}

static void close_tcp(void *state, int64_t deadline_ns)
{
    struct weft__tcp *tcp = state;
    int32_t num_left;
    do {
        num_left = 0;
        for (int32_t rank = 0; rank < tcp->num_ranks; rank++)
            num_left += !has_sent_all(tcp, &tcp->peers[rank]);
        if (num_left > 0)
            poll(NULL, 0, 1);
    } while (num_left > 0 && weft__now_ns() < deadline_ns);
    for (int32_t rank = 0; rank < tcp->num_ranks; rank++)
        disconnect(tcp, rank);
    free_tcp(tcp);
}

const struct weft__net_engine weft__net_tcp = {.name = "tcp",
                                               .header_bytes = WEFT__TCP_HEADER_BYTES,
                                               .probe = probe,
                                               .open = open_tcp,
                                               .max_message_bytes = max_message_bytes,
                                               .unreg = unreg,
                                               .address = address,
                                               .connect = weft__tcp_connect,
                                               .find_transports = find_transports,
                                               .send = weft__tcp_send,
                                               .progress = progress,
                                               .arm = arm,
                                               .fd = fd_of,
                                               .disconnect = disconnect,
                                               .close = close_tcp};
