/* SPDX-License-Identifier: MIT */
/*
 * The queue of a net: plain memory in which threads of the rank, or its GPU, write what they want to
 * be sent, as in RDMA's send queues. The rank's progress thread, or who drives the net in its place (progress.h),
 * takes it from there.
 *
 *     num_completed     num_taken           num_reserved
 *          |  under way     |  posted, or being    |
 *   -------v----------------v--- written ----------v-----> numbers; number n is in slot n % num_slots
 *
 * Posting: reserve a number (fetch-add), wait for its slot (num_taken), write the slot, write its `ready`
 * last (release), then wake the thread if it sleeps. Numbers complete in their order: all below
 * num_completed are done, in the sense of the operation (sources may be reused; flushes have been flushed; what was
 * fetched is here), or have failed.
 */
#ifndef WEFT_NET_WORK_QUEUE_H
#define WEFT_NET_WORK_QUEUE_H

#include <stdatomic.h>
#include <stdint.h>

#include "comm/doorbell.h"
#include "weft.h"

struct weft__net;
struct weft__net_request;

enum { WEFT__WORK_LINE_BYTES = 64 };

/* The first ones as those of programs (machine/remote.h). */
enum weft__work_operation {
    WEFT__WORK_PUT,
    WEFT__WORK_PUT_SIGNAL,
    WEFT__WORK_GET,       /* source is a place at the peer, target one here */
    WEFT__WORK_FETCH_ADD, /* target is a place here, for the value */
    WEFT__WORK_FLUSH,     /* peer: WEFT__NET_ALL_PEERS for all */
    WEFT__WORK_SIGNAL
};

/* What it means that a request's peer has left, or dies, before the request is done. */
enum weft__work_loss {
    WEFT__WORK_MAY_BE_LOST,     /* nothing: whoever waits hears of it otherwise */
    WEFT__WORK_MUST_NOT_BE_LOST /* the failure of all, before the request completes */
};

/* One cache line. */
struct weft__work_slot {
    _Alignas(
        WEFT__WORK_LINE_BYTES) _Atomic uint64_t ready; /* number + 1 once the rest is written */
    uint64_t source, target;                           /* places */
    uint64_t num_bytes;
    uint64_t word, add;
    uint32_t operation;
    int32_t peer;
    uint32_t loss;
};

_Static_assert(sizeof(struct weft__work_slot) == WEFT__WORK_LINE_BYTES,
               "a descriptor is a cache line");

struct weft__work_queue {
    _Alignas(WEFT__WORK_LINE_BYTES) _Atomic uint64_t num_reserved; /* by those who post */
    _Alignas(WEFT__WORK_LINE_BYTES) _Atomic uint64_t num_taken;    /* by the thread, as the rest */
    /* For a device: the communicator has, before what that takes along completes. */
    _Atomic uint32_t comm_has_failed;
    _Atomic uint64_t num_completed;
    struct weft__doorbell completed; /* rung for those who sleep until num_completed has grown */
    _Alignas(WEFT__WORK_LINE_BYTES) struct weft__work_slot slots[];
};

/* Asks the net for what a slot says. */
weft_result weft__work_start(struct weft__net *net, const struct weft__work_slot *work,
                             struct weft__net_request *request);
/* The same of two put_signals, if they can share a message: one of them is an add alone, and neither is wrong, so that
 * neither is held up by the other. */
int weft__work_can_share(const struct weft__net *net, const struct weft__work_slot *work,
                         const struct weft__work_slot *other);
weft_result weft__work_start_both(struct weft__net *net, const struct weft__work_slot *work,
                                  const struct weft__work_slot *other,
                                  struct weft__net_request *request);

#endif
