/* SPDX-License-Identifier: MIT */
/*
 * The duties of an engine: messages, which are small, arrive once and whole, and in any order; and,
 * if it can, writes into a region of a peer with a flush that says that they have arrived.
 * Everything that the contract of net.h promises beyond that is made of these, above the engine.
 */
#pragma once

#include "net/net.h"

enum weft__net_kind {
    WEFT__NET_PUT = 1,    /* bytes for a place, and perhaps an add */
    WEFT__NET_SIGNAL = 2, /* takes effect when all messages with lower numbers have */
    WEFT__NET_FLUSH = 3,  /* likewise, and is acknowledged then */
    /* Without a number of their own. */
    WEFT__NET_ACKNOWLEDGE = 4, /* of the flush with this number */
    WEFT__NET_GOODBYE = 5,
    WEFT__NET_GET = 6,       /* `add` bytes of a place */
    WEFT__NET_FETCH_ADD = 7, /* to a word */
    /* Answers the get or the fetch-add with this number: bytes, and where they begin in the whole,
     * or the value. */
    WEFT__NET_ANSWER = 8,
    WEFT__NET_PACKET = 9 /* between NICs */
};

#define WEFT__NET_NO_WORD UINT64_MAX

/* In front of every message, in the byte order of the ranks. */
struct weft__net_header {
    /* The job's. An engine whose peers have proved that they know it vouches for them, and does not
     * send it. */
    uint8_t secret[WEFT__NONCE_BYTES];
    int32_t source; /* rank */
    uint32_t kind;
    uint64_t sequence; /* of the messages from source to target, from 0; of questions, their own */
    uint64_t place;
    uint64_t num_bytes;           /* that follow */
    uint64_t word, add;           /* a place, or WEFT__NET_NO_WORD */
    uint64_t also_word, also_add; /* of a put: an add that was asked for by itself, likewise */
};

/* Something that the engine does, in memory that stays until it is done. */
struct weft__net_operation {
    struct weft__net_operation *next; /* the net's */
    struct weft__net *net;
    int32_t peer;
    enum { WEFT__NET_MESSAGE, WEFT__NET_WRITE, WEFT__NET_WRITE_FLUSH } type;
    struct weft__net_header header; /* of a message; of a write place and num_bytes */
    const void *payload;            /* [header.num_bytes] */
    uint64_t source;                /* the net's: the payload's place */
    void *staged;                   /* the net's: NULL, or the payload's copy */
    uint64_t num_writes;            /* the net's: of the peer, before this operation */
    struct weft__net_request *request;
    void *engine; /* the engine's own */
};

enum weft__net_start {
    WEFT__NET_DONE,    /* at once: the payload may be reused */
    WEFT__NET_STARTED, /* weft__net_done follows */
    WEFT__NET_FULL,    /* not now: again after a progress (messages only) */
    WEFT__NET_LOST     /* the peer has failed, by weft__net_fail_peer */
};

enum { WEFT__NET_MAX_ADDRESS_BYTES = 4096 };

struct weft__net_engine {
    const char *name;
    /* That it sends of a header: all of it, or, as an engine that vouches for its peers, what is
     * behind the secret. */
    size_t header_bytes;
    /* UNSUPPORTED, with a message that says why, if this engine cannot be had here. */
    weft_result (*probe)(void);
    weft_result (*open)(struct weft__net *net, const struct weft__net_config *config, void **state);
    size_t (*max_message_bytes)(void *state);
    /* From which a put goes by `write`; shorter ones, and without it all, go in messages of at most
     * max_message_bytes. */
    size_t (*min_write_bytes)(void *state);
    /* Makes memory known, of any kind; writes the key for peers, of at most
     * WEFT__NET_MAX_KEY_BYTES. With writes only, like the next two. */
    weft_result (*reg)(void *state, uint32_t region, void *memory, size_t num_bytes, void *key,
                       uint32_t *key_bytes);
    /* A peer's key. */
    weft_result (*learn)(void *state, int32_t peer, uint32_t region, const void *key,
                         uint32_t key_bytes);
    /* The reverse of both, of the memory here and the keys of all peers. */
    void (*unreg)(void *state, uint32_t region);
    /* Whether memory of NVIDIA GPUs may be registered. Optional: not. */
    int (*knows_gpus)(void *state);
    weft_result (*address)(void *state, void *address, size_t *address_bytes);
    /* addresses[num_ranks]; an empty one: no peer. */
    weft_result (*connect)(void *state, const struct weft__net_blob *addresses);
    /* When peers have answered: how they are reached; UNSUPPORTED if that is not what the config
     * demands. Optional: connect knows. */
    weft_result (*find_transports)(void *state);

    enum weft__net_start (*send)(void *state, struct weft__net_operation *operation);
    /* Both NULL, with min_write_bytes: it has no writes. */
    enum weft__net_start (*write)(void *state, struct weft__net_operation *operation);
    enum weft__net_start (*flush_writes)(void *state, struct weft__net_operation *operation);

    int (*progress)(void *state);
    enum weft__net_armed (*arm)(void *state);
    int (*fd)(const void *state);
    /* Ends what is under way with the peer, now or in later calls of progress. */
    void (*disconnect)(void *state, int32_t peer);
    /* Hands out what it has taken, until the deadline; then every operation is done. */
    void (*close)(void *state, int64_t deadline_ns);
};

extern const struct weft__net_engine weft__net_tcp, weft__net_ucx;

/* An engine calls these, beside weft__net_fail_peer; from progress and close alone. */
void weft__net_done(struct weft__net_operation *operation, weft_result result);
/* How it reaches the peer; from connect and find_transports. */
enum weft__net_reach { WEFT__NET_WITHOUT_RDMA, WEFT__NET_BY_RDMA };
void weft__net_found_transport(struct weft__net *net, int32_t peer, const char *transport,
                               enum weft__net_reach reach);
/* The least time that anything took there and back, whatever the ends had to do besides; from
 * find_transports. */
void weft__net_found_round_trip(struct weft__net *net, int32_t peer, double us);
/* So many packets were sent to the peer again, so far. */
void weft__net_found_retransmits(struct weft__net *net, int32_t peer, uint64_t num);
/* `peer` is who sent it, if the engine vouches for that, else -1, and the header must have the
 * secret. The header may be anything; it is copied, and the payload is read once. */
void weft__net_receive(struct weft__net *net, int32_t peer, const void *header, size_t header_bytes,
                       const void *payload, size_t payload_bytes);

/* For an engine that vouches for its peers and whose messages come bit by bit: where the payload of
 * one, whose header alone is here, belongs. */
enum weft__net_landing {
    /* At *place, and when it is there weft__net_landed; unless unreg takes the place away. */
    WEFT__NET_LANDS,
    WEFT__NET_GATHERED, /* anywhere, and then weft__net_receive */
    WEFT__NET_REFUSED   /* the peer has failed */
};
enum weft__net_landing weft__net_announce(struct weft__net *net, int32_t peer,
                                          const struct weft__net_header *header, void **place);
void weft__net_landed(struct weft__net *net, int32_t peer, const struct weft__net_header *header);
