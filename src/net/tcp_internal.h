/* SPDX-License-Identifier: MIT */
/* Shared by the files of the engine on TCP. */
#pragma once

#include "net/engine.h"
#include "net/tcp_address.h"
#include "net/tcp_admission.h"
#include "net/tcp_stream.h"

enum {
    WEFT__TCP_MAX_QUEUED = 1024, /* operations of a peer; more wait in the net */
    /* One read takes so much where a header is awaited: a message that is not longer comes in one
     * call. Behind a payload that lands it takes less, since what follows a long message is mostly
     * as long: little of it is copied. */
    WEFT__TCP_BUFFER_BYTES = 32 * 1024,
    WEFT__TCP_BYTES_BEHIND_PAYLOAD = 4 * 1024,
    WEFT__TCP_MAX_MORE_GUESTS = 64, /* beside one for each rank */
    WEFT__TCP_GUEST_MS = 5000       /* in which a stranger must prove who it is */
};

/* The subject of an event of epoll: the first member of each. */
enum weft__tcp_kind { WEFT__TCP_LISTENER, WEFT__TCP_GUEST, WEFT__TCP_PEER };
struct weft__tcp_watched {
    enum weft__tcp_kind kind;
    int fd; /* -1: none */
};

/* A connection that is not admitted yet, of whichever role. */
struct weft__tcp_guest {
    struct weft__tcp_watched watched;
    struct weft__tcp_guest *next;
    enum weft__tcp_role role; /* this end's */
    int32_t rank;             /* of the other end; as it says, if it has dialed */
    enum {
        WEFT__TCP_CONNECTING, /* the dialer until there is a connection */
        WEFT__TCP_TALKING
    } state;
    struct weft__tcp_talk talk;
    unsigned char in[64]; /* of what is expected next */
    size_t in_bytes;
    enum { WEFT__TCP_AWAITS_HELLO, WEFT__TCP_AWAITS_CHALLENGE, WEFT__TCP_AWAITS_PROOF } awaits;
    int64_t deadline_ns;
};

struct weft__tcp_peer {
    struct weft__tcp_watched watched;
    int32_t rank;
    enum {
        WEFT__TCP_GONE,    /* or none */
        WEFT__TCP_AWAITED, /* it dials */
        WEFT__TCP_DIALED,  /* this rank does */
        WEFT__TCP_OPEN
    } state;
    /* Whom to dial, and how that went. */
    struct weft__tcp_addresses addresses;
    uint32_t num_dials;
    int64_t dial_at_ns; /* again; INT64_MAX: a guest is under way */
    int last_errno;

    int64_t stuck_since_ns; /* since when nothing of what was sent has been acknowledged, as far as
                               anybody has looked */

    struct weft__net_operation *first, *last; /* to be sent; operation->engine is the next */
    uint32_t num_queued;
    uint64_t sent_bytes; /* of the first */
    struct weft__tcp_stream stream;
    /* Edges of epoll: what may be there to read, and whether there may be room to write. */
    enum { WEFT__TCP_NOTHING_TO_READ, WEFT__TCP_READABLE, WEFT__TCP_AT_END } input;
    enum { WEFT__TCP_WRITABLE, WEFT__TCP_NO_ROOM } output;
    /* In the list of those that have something to do. */
    enum { WEFT__TCP_IDLE, WEFT__TCP_LISTED } work;
    struct weft__tcp_peer *next_busy;
};

struct weft__tcp {
    struct weft__net *net;
    int32_t rank, num_ranks;
    uint8_t secret[WEFT__NONCE_BYTES];
    uint32_t timeout_ms, silence_ms;
    int epoll_fd;
    struct weft__tcp_addresses addresses; /* this rank's, with ports */
    struct weft__tcp_watched listeners[WEFT__TCP_MAX_ADDRESSES];
    struct weft__tcp_guest *guests;
    int32_t num_guests, num_unsettled; /* peers that are awaited or dialed */
    uint64_t num_strangers;            /* refused */
    int64_t deadline_ns;               /* for all peers to be there */
    int64_t looked_ns;                 /* for silent peers */
    uint32_t num_calls;
    uint32_t num_not_looked;      /* calls of progress since the last look at epoll */
    struct weft__tcp_peer *peers; /* [num_ranks] */
    struct weft__tcp_peer *first_busy, *last_busy;
    unsigned char *buffer; /* [WEFT__TCP_BUFFER_BYTES] */
};

/* tcp.c. */
/* The peer has failed, if it had not left; its connection is closed when the net asks for that. */
void weft__tcp_lose(struct weft__tcp *tcp, struct weft__tcp_peer *peer, int error);
void weft__tcp_make_busy(struct weft__tcp *tcp, struct weft__tcp_peer *peer);
/* 0: it could not be. */
int weft__tcp_watch(struct weft__tcp *tcp, struct weft__tcp_watched *watched, uint32_t events);
/* Messages of the peer are believed from now on. */
void weft__tcp_open_peer(struct weft__tcp *tcp, struct weft__tcp_peer *peer, int fd);

/* tcp_connect.c: what happens until all peers are there. */
weft_result weft__tcp_listen(struct weft__tcp *tcp, const char *devices);
weft_result weft__tcp_connect(void *state, const struct weft__net_blob *addresses);
void weft__tcp_accept(struct weft__tcp *tcp, struct weft__tcp_watched *listener);
void weft__tcp_serve_guest(struct weft__tcp *tcp, struct weft__tcp_guest *guest);
/* By the clock: dials again, drops who is late, and frees those that are dropped. */
void weft__tcp_look_at_guests(struct weft__tcp *tcp);
void weft__tcp_stop_listening(struct weft__tcp *tcp);

/* tcp_round_trip.c: the least that the kernel has seen; 0: it does not tell. */
double weft__tcp_round_trip_us(int fd);

/* tcp_traffic.c. */
enum weft__net_start weft__tcp_send(void *state, struct weft__net_operation *operation);
/* Both: the number of events. */
int weft__tcp_write_out(struct weft__tcp *tcp, struct weft__tcp_peer *peer);
int weft__tcp_read_in(struct weft__tcp *tcp, struct weft__tcp_peer *peer);
/* Ends what is queued. */
void weft__tcp_drop_queue(struct weft__tcp_peer *peer);
