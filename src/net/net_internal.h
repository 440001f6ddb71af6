/* SPDX-License-Identifier: MIT */
/* Shared by the files that keep the contract. */
#pragma once

#include "net/engine.h"
#include "net/ledger.h"

enum { WEFT__NET_MAX_WAITING = 1 << 16 }; /* messages of a peer that wait for others */

struct weft__net_operations {
    struct weft__net_operation *first, *last;
};

/* At the target a message that waits for those before it, at the source a flush that waits for its
 * acknowledgement. */
struct weft__net_waiting {
    struct weft__net_waiting *next;
    struct weft__net_header header;
    struct weft__net_request *request;
};

/* How a peer's region is reached. */
enum weft__net_access {
    WEFT__NET_NOT_THERE,
    WEFT__NET_BY_MESSAGES,
    WEFT__NET_BY_BOTH, /* and long puts by writes */
    WEFT__NET_BY_WRITES
};

struct weft__net_peer {
    enum {
        WEFT__NET_NO_PEER,
        WEFT__NET_CONNECTED,
        WEFT__NET_LEFT, /* in good order: what it signalled stands */
        WEFT__NET_FAILED
    } state;
    enum { WEFT__NET_NOTHING_LEFT, WEFT__NET_TO_BE_DROPPED } rest; /* of a peer that is gone */
    char reason[WEFT__NET_REASON_BYTES];
    double round_trip_us;                         /* 0: not known */
    uint64_t region_bytes[WEFT__NET_MAX_NUMBERS]; /* of regions and steps */
    uint8_t region_access[WEFT__NET_MAX_NUMBERS]; /* enum weft__net_access */

    /* As the source. A message is `held` until the writes before it have been flushed, and
     * `unsent` while the engine is full; it gets its number when it stops being held. */
    uint64_t next_sequence, num_acknowledged;
    struct weft__net_operations held, unsent;
    uint64_t num_writes, num_writes_flushed;
    /* Messages whose payload has been copied from where the net cannot load; no packets. */
    uint32_t num_staged;
    enum { WEFT__NET_NOT_FLUSHING, WEFT__NET_FLUSHING } write_flush;
    struct weft__net_waiting *flushes;
    struct weft__net_fetch *first_fetch, *last_fetch; /* in the order in which they were asked */

    /* As the target. */
    struct weft__ledger ledger;
    struct weft__net_waiting *waiting; /* ascending by sequence */
    size_t num_waiting;
};

struct weft__net_region {
    enum {
        WEFT__NET_NO_REGION,
        WEFT__NET_GROWING,
        WEFT__NET_ACCESSED,
        WEFT__NET_REGISTERED, /* this and the next with the engine, when connected */
        WEFT__NET_REGISTERED_DEVICE
    } kind;
    unsigned char *memory;              /* NULL: there is an accessor */
    struct weft__net_accessor accessor; /* else */
    uint64_t num_bytes;                 /* at most */
    const _Atomic uint64_t *num_there;  /* bytes; NULL: all */
    uint64_t place;                     /* of a step: in the region that grows */
    unsigned char *key;                 /* of the engine's making; NULL: none */
    uint32_t key_bytes;
};

struct weft__net {
    const struct weft__net_engine *engine;
    void *state; /* the engine's */
    struct weft__net_config config;
    size_t max_message_bytes, min_write_bytes;
    struct weft__net_region regions[WEFT__NET_MAX_NUMBERS]; /* the steps behind the regions */
    unsigned char *address;                                 /* the blob for the others */
    struct weft__net_peer *peers;                           /* [num_ranks] */
    struct weft__net_operation *unused;
    uint64_t num_under_way; /* operations */
    uint64_t num_flushes;   /* names them */
    uint64_t num_fetches;   /* likewise */
    /* See weft__net_counts: whoever has heard of a message finds it counted. */
    _Atomic uint64_t num_put_bytes, num_header_bytes, num_written_bytes;
    uint64_t num_unsent, num_to_be_dropped, num_strangers;
    /* In region 0, around all words that were added to since the bell was rung; end 0: none. */
    uint64_t added_begin, added_end;
    struct weft__net_packets packets;
    int32_t num_without_rdma;            /* peers */
    char reason[WEFT__NET_REASON_BYTES]; /* why this engine */
    char transport[WEFT__NET_TRANSPORT_BYTES];
};

/* Adds to what is counted of the peer. */
static inline void weft__net_add_traffic(struct weft__net *net, int32_t peer,
                                         struct weft__peer_traffic more)
{
    if (net->config.counters == NULL)
        return;
    struct weft__peer_traffic *traffic = &net->config.counters[peer].traffic;
    __atomic_fetch_add(&traffic->sent_bytes, more.sent_bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&traffic->received_bytes, more.received_bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&traffic->num_under_way, more.num_under_way, __ATOMIC_RELAXED);
}

/* net.c. */
void weft__net_finish(struct weft__net_request *request, weft_result result);

/* send.c. */
/* NULL: no memory. The request has one part more. */
struct weft__net_operation *weft__net_operation_new(struct weft__net *net, int32_t peer,
                                                    struct weft__net_request *request);
void weft__net_operation_delete_all(struct weft__net *net);
/* Gives the message its number if its kind has one, and it to the engine. */
void weft__net_send(struct weft__net_operation *operation);
/* The same once all writes to the peer until now have been flushed. */
void weft__net_hold(struct weft__net_operation *operation);
/* A message without a number: kind, sequence and place are the header's. */
void weft__net_send_control(struct weft__net *net, int32_t peer,
                            const struct weft__net_header *header);
int weft__net_send_unsent(struct weft__net *net);
int weft__net_has_unflushed(const struct weft__net_peer *peer);
/* 0 if there is no such flush. */
int weft__net_take_acknowledgement(struct weft__net_peer *peer,
                                   const struct weft__net_header *header);
void weft__net_drop_source(struct weft__net *net, int32_t rank);
weft_result weft__net_lose_memory(struct weft__net *net, int32_t peer);

/* put.c and fetch.c: the operations of an access, by post.c. The request is done until they
 * start it. */
weft_result weft__net_put(struct weft__net *net, const struct wp_access *put,
                          struct weft__net_request *request);
/* `also`: NULL, or one to the same rank that has no bytes, in the same message if `put` is one. */
weft_result weft__net_put_signal(struct weft__net *net, const struct wp_access *put,
                                 const struct wp_access *also, struct weft__net_request *request);
weft_result weft__net_signal(struct weft__net *net, const struct wp_access *signal);
weft_result weft__net_flush(struct weft__net *net, int32_t peer, struct weft__net_request *request);
weft_result weft__net_get(struct weft__net *net, const struct wp_access *get,
                          struct weft__net_request *request);
weft_result weft__net_fetch_add(struct weft__net *net, const struct wp_access *fetch,
                                struct weft__net_request *request);

/* put.c. */
/* WEFT_OK, or why it would not be started. */
weft_result weft__net_check_put_signal(const struct weft__net *net, const struct wp_access *put);
weft_result weft__net_check_peer(const struct weft__net *net, int32_t peer);
/* Whether the bytes lie in what the peer has and messages reach; `name` is that of the argument. */
weft_result weft__net_check_remote(const struct weft__net *net, int32_t rank, const char *name,
                                   uint64_t place, uint64_t num_bytes);
weft_result weft__net_check_word(const struct weft__net *net, int32_t rank, uint64_t word);
/* A flush that adds a part to the request, of a peer that is connected. */
weft_result weft__net_flush_peer(struct weft__net *net, int32_t peer,
                                 struct weft__net_request *request);

/* engines.c: writes why it is this one. */
weft_result weft__net_choose(const struct weft__net_config *config,
                             const struct weft__net_engine **engine, char *reason,
                             size_t reason_bytes);

/* fetch.c. */
void weft__net_answer_get(struct weft__net *net, int32_t rank,
                          const struct weft__net_header *question);
void weft__net_answer_fetch_add(struct weft__net *net, int32_t rank,
                                const struct weft__net_header *question);
/* 0 if that was not asked. */
int weft__net_take_answer(struct weft__net *net, int32_t rank,
                          const struct weft__net_header *header, const void *payload);
void weft__net_drop_fetches(struct weft__net_peer *peer);

/* region.c. */
/* How large this rank's region is; 0: there is no such region. */
uint64_t weft__net_region_bytes(const struct weft__net *net, uint32_t region);
int weft__net_is_registered(const struct weft__net *net, uint64_t place, uint64_t num_bytes);
/* The same, and the net can load from there and store to it. */
int weft__net_is_accessible(const struct weft__net *net, uint64_t place, uint64_t num_bytes);
/* As the engine knows it, which is where it can be accessed if its place is accessible; NULL: by
 * an accessor. */
unsigned char *weft__net_address_of(const struct weft__net *net, uint64_t place);
/* The same place as the engine knows it, here and at peers: in the step that it lies in, if any.
 * *num_bytes, from there on, gets no more than are in the same step, or before the next one. */
uint64_t weft__net_step_of(const struct weft__net *net, uint64_t place, uint64_t *num_bytes);
enum weft__net_access weft__net_access_of(const struct weft__net *net, uint32_t region);
/* Both change an accessible place for a peer, which has failed if the result is not WEFT_OK. */
weft_result weft__net_write(struct weft__net *net, int32_t rank, uint64_t place, const void *bytes,
                            uint64_t num_bytes);
weft_result weft__net_add_to_word(struct weft__net *net, int32_t rank, uint64_t word,
                                  uint64_t summand, uint64_t *before);
/* Tells who sleeps of all that was added. Once for all that has come, since each ring is a call of
 * the system as long as who sleeps has not got a core. */
void weft__net_ring(struct weft__net *net);
/* The bytes that the operation sends. */
void weft__net_set_payload(struct weft__net_operation *operation, uint64_t source,
                           uint64_t num_bytes);
/* Makes sure that the payload is in memory of the host: DONE; FULL: not now; LOST: the peer has
 * failed. */
enum weft__net_start weft__net_stage(struct weft__net_operation *operation);
void weft__net_unstage(struct weft__net_operation *operation);

/* receive.c. */
void weft__net_drop_target(struct weft__net_peer *peer);

/* blob.c. */
weft_result weft__net_blob_write(struct weft__net *net, struct weft__net_blob *blob);
/* Into the peer, and the engine's address, which is in the blob. */
weft_result weft__net_blob_read(struct weft__net *net, int32_t rank,
                                const struct weft__net_blob *blob, struct weft__net_blob *address);
