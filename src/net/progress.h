/* SPDX-License-Identifier: MIT */
/* A rank's progress thread, which drives its net unless others do so just now. Everything here
 * may be called from any thread. */
#pragma once

#include "comm/failure/status.h"
#include "comm/host/cores.h"
#include "net/net.h"
#include "net/nic/adapter.h"
#include "net/work_queue.h"

struct weft__progress;

struct weft__progress_options {
    struct weft__net *net; /* connected; the thread's from now on, which closes it */
    int32_t rank, num_ranks;
    uint32_t num_slots; /* of the queue, a power of two */
    /* Where the rank has two, the thread looks at the net for some microseconds before it sleeps;
     * elsewhere it would take them from those that have something to do. */
    enum weft__cores cores;
    uint32_t sleep_ms;        /* the longest sleep; 0: 100 */
    uint32_t post_timeout_ms; /* how long a post waits for a free slot, and fails then; 0: 60000 */
    /* Another queue, for a device, zero at first: it has nobody's bell to ring, so the thread
     * looks again after 50 us at most. NULL: none. */
    struct weft__work_queue *device_queue;
    uint32_t num_device_slots;
    struct weft__nic_adapter *nic; /* moved on in the net's rounds; NULL: none */
    /* The communicator's, or NULL: a peer that it knows to be dead has failed here too. */
    const struct weft__status *status;
    /* Rung when num_completed of the queue has grown; NULL: nobody sleeps there. */
    struct weft__doorbell *bell;
    /* Called by who drives the net: once for each peer that fails. */
    void (*on_peer_failure)(void *context, int32_t peer, const char *message);
    /* for each request that was lost and must not be, and with peer -1 for the first request that
     * is wrong. NULL: nobody is told. */
    void (*on_failure)(void *context, int32_t peer, weft_result result, const char *message);
    void *context;
};

/* The way of what is posted: the poster waits for others to send it, or soon sends it
 * itself, by weft__progress_drive or weft__progress_drive_posted. */
enum weft__work_poster { WEFT__POSTER_WAITS, WEFT__POSTER_DRIVES };

/* On failure the net is still the caller's. */
weft_result weft__progress_start(const struct weft__progress_options *options,
                                 struct weft__progress **progress);
/* Takes what has been posted, closes the net, and ends the thread. Nobody may post any more. */
void weft__progress_stop(struct weft__progress *progress);

/* Waits while the queue is full, WEFT_ERROR_TIMEOUT after post_timeout_ms. What is wrong with
 * the access shows in weft__progress_error. */
weft_result weft__progress_post(struct weft__progress *progress, const struct wp_access *access,
                                enum weft__work_poster poster, uint64_t *number);
/* Until all up to `number` are completed, failed ones included; WEFT_ERROR_TIMEOUT after the
 * deadline. */
weft_result weft__progress_await(struct weft__progress *progress, uint64_t number,
                                 int64_t deadline_ns);
/* Drives the net once in the thread's place, unless somebody does so just now; for who waits and
 * has nothing better to do. From the first call on the thread rests, until a millisecond after
 * the last at most. */
void weft__progress_drive(struct weft__progress *progress);
/* The same if something is posted that the thread, because it rests, does not see. */
void weft__progress_drive_posted(struct weft__progress *progress);
/* After a doorbell of the NIC. */
void weft__progress_ring(struct weft__progress *progress, enum weft__work_poster poster);
/* A round, as soon as the net has no other owner: failures that are known by now are told when it
 * returns. */
void weft__progress_run(struct weft__progress *progress);
/* Does what only the owner of the net may, between two of its rounds. */
weft_result weft__progress_act(struct weft__progress *progress,
                               weft_result (*act)(struct weft__net *net, void *context),
                               void *context);
/* Ends the rest: who drove the net is about to sleep. */
void weft__progress_hand_back(struct weft__progress *progress);

/* WEFT_OK, or the first failure of what was posted, with its message. */
weft_result weft__progress_error(struct weft__progress *progress);

struct weft__work_queue *weft__progress_queue(struct weft__progress *progress);
/* And signals, that were started; several can share a message. */
uint64_t weft__progress_num_puts(const struct weft__progress *progress);
/* How often the thread's loop has run; grows slowly while nothing happens. */
uint64_t weft__progress_num_rounds(const struct weft__progress *progress);
