/* SPDX-License-Identifier: MIT */
/*
 * The queue of a net: plain memory in which threads of the rank, or its GPU, write what they want
 * to be sent, as in RDMA's send queues. The rank's progress thread, or who drives the net in its
 * place (progress.h), takes it from there.
 *
 *     num_completed     num_taken           num_reserved
 *          |  under way     |  posted, or being    |
 *   -------v----------------v--- written ----------v-----> numbers
 *
 * Number n is in slot n % num_slots. Posting: reserve a number (fetch-add), wait for its slot
 * (num_taken), write the slot, write its `ready` last (release), then wake the thread if it sleeps.
 * Numbers complete in their order: all below num_completed are done, in the sense of the operation
 * (sources may be reused; flushes have been flushed; what was fetched is here), or have failed; of
 * what may be lost, that nobody waits for, they have been given to the net.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "comm/host/doorbell.h"
#include "net/access.h"

_Static_assert(sizeof(struct wp_access) == WP_ACCESS_BYTES, "an access is a cache line");

struct weft__work_queue {
    _Alignas(WP_ACCESS_BYTES) _Atomic uint64_t num_reserved; /* by those who post */
    _Alignas(WP_ACCESS_BYTES) _Atomic uint64_t num_taken;    /* by the thread, as the rest */
    /* For a device: the communicator has, before what that takes along completes. */
    _Atomic uint32_t comm_has_failed;
    _Atomic uint64_t num_completed;
    struct weft__doorbell completed; /* rung for those who sleep until num_completed has grown */
    _Alignas(WP_ACCESS_BYTES) struct wp_access slots[];
};
