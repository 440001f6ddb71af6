/* SPDX-License-Identifier: MIT */
/*
 * Traffic between ranks that cannot reach each other's memory. The contract is counted signals,
 * never the order of the wire; it is kept in one place (send.c, receive.c) for every engine below
 * it (engine.h).
 *
 *   put         copies bytes into a region of a peer. Puts are unordered, also with one another.
 *               Its request is done when the source may be reused, and that says nothing about the
 *               target.
 *   put_signal  a put, and an add to a word of the peer that is visible only after the bytes of
 *               this put. It is unordered with everything else. Without bytes it is the add alone.
 *   signal      an add that is visible only after all earlier puts and signals to that peer on this
 *               net.
 *   flush       its request is done when all earlier puts, signals and adds to the peer are visible
 *               there.
 *   get         copies bytes of a region of the peer. Its request is done when they are here.
 *   fetch_add   an add to a word of the peer, whose value before it is here when the request is
 *               done.
 *
 * Gets and fetch-adds are unordered with everything else, but that they see the writes of earlier
 * puts that have been flushed.
 *
 * Words are 64 bits, aligned, anywhere in the peer's regions. Adds commute, and are releases:
 * whoever sees the word (acquire) sees the bytes. They are made by the target's progress alone, so
 * no NIC needs atomics; and nothing arrives, nor is any flush done, unless the target calls
 * weft__net_progress.
 *
 * A peer that failed stays failed: every pending request to it ends, and every later one is
 * refused, with its name. What it was writing when it died is undefined. A peer that is stopped, or
 * cut off, is not noticed here: the heartbeat of comm is for that, and its news come by
 * weft__net_fail_peer.
 *
 * Nothing that arrives is trusted: regions, offsets, sizes, words and sequence numbers are checked,
 * and who sends one that is wrong has failed. Who lacks the job's secret is a stranger and not
 * heard.
 *
 * A net belongs to one thread (progress.h has it). Only open, connect and close block.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/host/doorbell.h"
#include "comm/rendezvous/meeting_point.h"
#include "net/access.h"
#include "record/record.h"
#include "weft.h"

struct weft__net;
struct weft__net_engine;

enum {
    WEFT__NET_MAX_REGIONS = 16, /* numbers in places */
    /* More numbers, for steps of regions that grow. */
    WEFT__NET_MAX_STEPS = 32,
    WEFT__NET_MAX_NUMBERS = WEFT__NET_MAX_REGIONS + WEFT__NET_MAX_STEPS,
    WEFT__NET_MAX_KEY_BYTES = 512,
    WEFT__NET_MAX_STAGED = 4,
    WEFT__NET_ALL_PEERS = -1,
    WEFT__NET_REASON_BYTES = 256,
    WEFT__NET_TRANSPORT_BYTES = 112
};

enum weft__net_demand {
    WEFT__NET_ANY_TRANSPORT,
    WEFT__NET_RDMA /* without it weft__net_find_transports fails, and names the transport */
};

/* Whether the engine may access memory of GPUs itself (GPUDirect). */
enum weft__net_gpudirect {
    WEFT__NET_GPUDIRECT_AUTO, /* if all peers are reached by RDMA */
    WEFT__NET_GPUDIRECT_ON,
    WEFT__NET_GPUDIRECT_OFF
};

/* Who starts what programs send; in the order of the setting's words. */
enum weft__net_initiator {
    WEFT__NET_BY_HOST, /* a thread, which takes it from a queue */
    WEFT__NET_BY_GPU,  /* the program, by queues of a NIC */
    WEFT__NET_BY_MODEL /* the same with a model of the NIC, whose packets the net carries */
};

struct weft__net_config {
    const char *engine; /* "tcp", "ucx"; "auto" or NULL: as fits the host */
    int32_t rank, num_ranks;
    uint8_t secret[WEFT__NONCE_BYTES]; /* of the job, the same on all ranks */
    enum weft__net_demand demand;
    enum weft__net_gpudirect gpudirect;
    enum weft__net_initiator initiator;
    const char *devices;    /* of the network, as the engine calls them; NULL: all that there are */
    const char *transports; /* likewise */
    uint32_t timeout_ms;    /* of connect, or until connections are made; 0: 30 s */
    /* How long what was sent may be on its way until the peer's host has it; 0: for ever.
     * Engines know it that see the acknowledgements. */
    uint32_t silence_ms;
    uint32_t close_ms; /* how long close waits for peers to take what is under way; 0: 1 s */
    size_t max_message_bytes, min_write_bytes; /* see engine.h; 0: as the engine likes it */
    /* Read (acquire) with each message; what its writers did before is ordered before what the
     * message does. NULL: nobody needs that. */
    const _Atomic uint64_t *order;
    /* Counts messages that have been taken (release), each before it is acknowledged; NULL:
     * nobody asks. */
    _Atomic uint64_t *num_taken;
    /* Rung once after the adds of a weft__net_progress, NULL: nobody sleeps. The bell's words are
     * offsets in region 0. */
    struct weft__doorbell *bell;
    const struct weft__net_engine *custom; /* an engine of the caller's, in place of `engine` */
    void *world;                           /* for `custom` */
    struct weft__peer_counters *counters;  /* [num_ranks]: their traffic is counted; NULL: not */
};

/* A rank's message to the others at start-up. No bytes: no peer, neither here nor there. */
struct weft__net_blob {
    const void *bytes;
    size_t num_bytes;
};

/* Places: see access.h. */
static inline uint64_t weft__net_place(uint32_t region, uint64_t offset)
{
    return (uint64_t)region << WP_PLACE_OFFSET_BITS | offset;
}

static inline uint32_t weft__net_region_of(uint64_t place)
{
    return (uint32_t)(place >> WP_PLACE_OFFSET_BITS);
}

static inline uint64_t weft__net_offset_of(uint64_t place)
{
    return place & (weft__net_place(1, 0) - 1);
}

/* Memory of the caller's, which must stay until the request is done. */
struct weft__net_request {
    uint32_t num_left; /* parts under way; 0: done */
    int32_t result;    /* weft_result of the first part that failed */
};

static inline int weft__net_is_done(const struct weft__net_request *request)
{
    return request->num_left == 0;
}

/* Engine, devices, demand, gpudirect and initiator, as the settings say (WEFT_NET ...). */
weft_result weft__net_read_settings(struct weft__net_config *config);

/* Logs which engine it is, and why. */
weft_result weft__net_open(const struct weft__net_config *config, struct weft__net **net);
/* Whether it leaves the engine to the library. */
int weft__net_is_automatic(const struct weft__net_config *config);
/* The engine that such a config gets here, and why this one. */
weft_result weft__net_choice(const struct weft__net_config *config, const char **chosen,
                             char *reason, size_t reason_bytes);
/* Whether an engine ("tcp", "ucx") can be had here; if not, why. */
weft_result weft__net_probe(const char *engine, char *reason, size_t reason_bytes);

/* Before connect: memory that peers may write, and puts read, and that grows up to max_bytes:
 * only the first *num_bytes are there. Aligned to 8. The engine is told of its steps alone
 * (weft__net_reg_step): else all goes in messages, which are checked against what is there when
 * they come. */
weft_result weft__net_reg_growing(struct weft__net *net, uint32_t region, void *memory,
                                  uint64_t max_bytes, const _Atomic uint64_t *num_bytes);
/* Memory that the net neither loads from nor stores to, as that of a device: its owner does what
 * the net asks for, one call at a time, from whatever thread drives the net, and each returns
 * when that is done. What cannot be done, for the reason that is the thread's last error, is the
 * failure of the peer that waits for it. */
struct weft__net_accessor {
    void *context;
    weft_result (*read)(void *context, void *bytes, uint64_t offset, size_t num_bytes);
    weft_result (*write)(void *context, uint64_t offset, const void *bytes, size_t num_bytes);
    /* Atomic with whatever else adds to the word, and a release of all that was written before. */
    weft_result (*add)(void *context, uint64_t offset, uint64_t add, uint64_t *before);
};
/* The same of such memory, whose accessor is copied. What is sent from it is staged in memory of
 * the host, for each peer WEFT__NET_MAX_STAGED messages at a time. */
weft_result weft__net_reg_accessed(struct weft__net *net, uint32_t region,
                                   const struct weft__net_accessor *accessor, uint64_t max_bytes,
                                   const _Atomic uint64_t *num_bytes);
/* The address for the others' connect. After these regions; the bytes are the net's. */
weft_result weft__net_address(struct weft__net *net, struct weft__net_blob *blob);
/* Collective over the ranks that have blobs: blobs[num_ranks], of which that of this rank is not
 * looked at. */
weft_result weft__net_connect(struct weft__net *net, const struct weft__net_blob *blobs);

/* When connected, and best when all peers have answered: finds and logs how they are reached.
 * UNSUPPORTED, with a peer's name, if that is not what is demanded. */
weft_result weft__net_find_transports(struct weft__net *net);

enum weft__net_memory_kind {
    WEFT__NET_HOST_MEMORY, /* long puts are writes by the engine, if it has them */
    /* All puts are, also those from there, which can go to such memory only; the net itself does
     * not access it, so that it has no words, and nothing is got. UNSUPPORTED if the engine has
     * no writes, or does not take the memory. */
    WEFT__NET_DEVICE_MEMORY
};
/* When connected: memory that does not grow, as a region that has none, nor at any peer. Peers
 * can put there once they have learned what it tells of it. */
weft_result weft__net_reg(struct weft__net *net, uint32_t region, void *memory, size_t num_bytes,
                          enum weft__net_memory_kind kind);
/* When connected: bytes of a region that grows, from the place on, which will stay, as a step with
 * this number, of MAX_REGIONS and above, ascending. Once peers have learned of it, puts to these
 * places, which stay what they are, are writes where they are long. On all ranks it is the same
 * part of the same region. */
weft_result weft__net_reg_step(struct weft__net *net, uint32_t number, uint64_t place,
                               size_t num_bytes);
/* The facts of a region or a step that peers must know. */
struct weft__net_region_card {
    uint64_t num_bytes;
    uint32_t access; /* enum weft__net_access */
    uint32_t key_bytes;
    unsigned char key[WEFT__NET_MAX_KEY_BYTES]; /* of the engine's making */
};
void weft__net_tell_region(const struct weft__net *net, uint32_t region,
                           struct weft__net_region_card *card);
weft_result weft__net_learn_region(struct weft__net *net, int32_t peer, uint32_t region,
                                   const struct weft__net_region_card *card);
/* The reverse of both, when nobody puts there any more. */
void weft__net_unreg(struct weft__net *net, uint32_t region);
/* The number of the region, registered when connected, that begins there; WEFT__NET_MAX_REGIONS:
 * there is none. */
uint32_t weft__net_find_region(const struct weft__net *net, const void *memory);
/* Bit per number that is no region's. */
uint32_t weft__net_free_regions(const struct weft__net *net);

/* Starts the access; its rank is WEFT__NET_ALL_PEERS in a flush of all. A request of NULL:
 * nobody asks. A failed call leaves the request done. */
weft_result weft__net_post(struct weft__net *net, const struct wp_access *access,
                           struct weft__net_request *request);
/* Whether two put_signals can share a message: one of them is an add alone, and neither is
 * wrong, so that neither is held up by the other. */
int weft__net_can_share(const struct weft__net *net, const struct wp_access *access,
                        const struct wp_access *other);
/* The same of two that can; unordered with each other, as all put_signals. */
weft_result weft__net_post_both(struct weft__net *net, const struct wp_access *access,
                                const struct wp_access *other, struct weft__net_request *request);

/* Packets between NICs (nic/adapter.h), which the net carries in the order of the engine: no
 * numbers, no flush. */
struct weft__net_packets {
    void *context;
    /* From progress and close. The bytes are the net's. Returns what is wrong with them, which
     * fails the peer, or NULL. */
    const char *(*take)(void *context, int32_t peer, const void *bytes, size_t num_bytes);
};
/* When connected: who takes those that come. */
void weft__net_set_packets(struct weft__net *net, const struct weft__net_packets *packets);
/* Copies the bytes, of one message. Returns 0 if the peer is gone, and lost. */
int weft__net_send_packet(struct weft__net *net, int32_t peer, const void *bytes, size_t num_bytes);
/* The word of the own heap, or WEFT__ANY_WORD, was added to by a packet: who sleeps hears of it
 * before progress returns. */
void weft__net_note_added(struct weft__net *net, uint64_t word);

/* The number of events that were handled. */
int weft__net_progress(struct weft__net *net);

enum weft__net_armed {
    WEFT__NET_ARMED, /* sleep: the descriptor gets readable when there is something to do */
    WEFT__NET_BUSY   /* there is something to do already */
};
enum weft__net_armed weft__net_arm(struct weft__net *net);
int weft__net_fd(const struct weft__net *net);

/* WEFT_OK, or why the peer has failed, with the message. */
weft_result weft__net_peer_error(const struct weft__net *net, int32_t peer);
/* The lowest peer that has failed; -1: none. */
int32_t weft__net_failed_peer(const struct weft__net *net);
/* The peer is gone, says the engine, or somebody else who knows. The first reason is kept; what
 * is under way ends in the next calls of progress. */
void weft__net_fail_peer(struct weft__net *net, int32_t peer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The sums of puts and signals that were sent; from any thread. */
struct weft__net_counts {
    uint64_t num_bytes; /* headers included */
    uint64_t num_header_bytes;
    uint64_t num_written_bytes; /* of num_bytes, by the engine, to where they belong */
};
struct weft__net_counts weft__net_counts(const struct weft__net *net);

const char *weft__net_engine_name(const struct weft__net *net);
/* Whether its engine writes to peers' memory here. */
int weft__net_has_writes(const struct weft__net *net);
/* Why it is this one. */
const char *weft__net_reason(const struct weft__net *net);
/* When connected: why memory of GPUs cannot be registered; NULL: it may be tried. */
const char *weft__net_gpu_obstacle(const struct weft__net *net);
/* "tcp/eth0", as far as the peers that are connected have the same; else several. */
const char *weft__net_transport(const struct weft__net *net);

/* The round trip to the median of the peers whose distance the engine knows, there and back;
 * 0: it knows none. */
double weft__net_round_trip_us(const struct weft__net *net);

/* Changes how long close may take, from now on. */
void weft__net_set_close_ms(struct weft__net *net, uint32_t close_ms);
/* Waits up to close_ms until the peers that live have taken what was sent to them, then takes
 * leave. */
void weft__net_close(struct weft__net *net);
