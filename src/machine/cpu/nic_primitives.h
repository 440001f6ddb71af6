/* SPDX-License-Identifier: MIT */
/* Primitives of machine/nic_post.h on the cpu machine: fibers of one or more threads post, and the
 * thread that drives the network is the NIC. Stores to the record and the doorbell are releases, so
 * that the fences have nothing to add. */
#pragma once

#include "machine/nic_wait.h"
#include "net/nic/queue.h"

#define wp_nic_load(word)                 __atomic_load_n(word, __ATOMIC_RELAXED)
#define wp_nic_load_before(word)          __atomic_load_n(word, __ATOMIC_ACQUIRE)
#define wp_nic_load_body(word)            __atomic_load_n(word, __ATOMIC_RELAXED)
#define wp_nic_load_acquire(word)         __atomic_load_n(word, __ATOMIC_ACQUIRE)
#define wp_nic_load_tail_acquire(word)    __atomic_load_n(word, __ATOMIC_ACQUIRE)
#define wp_nic_load_step(pointer)         __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define wp_nic_fetch_add(word, addend)    __atomic_fetch_add(word, addend, __ATOMIC_RELAXED)
#define wp_nic_store_release(word, value) __atomic_store_n(word, value, __ATOMIC_RELEASE)
#define wp_nic_store_record(word, value)  __atomic_store_n(word, value, __ATOMIC_RELEASE)
#define wp_nic_ring(doorbell, value)      __atomic_store_n(doorbell, value, __ATOMIC_RELEASE)
#define wp_nic_fence()                    ((void)0)

WP_FN uint64_t wp_nic_exchange_if(uint64_t *word, uint64_t expected, uint64_t value)
{
    __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

WP_FN void wp_nic_raise_release(uint64_t *word, uint64_t value)
{
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (seen < value &&
           !__atomic_compare_exchange_n(word, &seen, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        continue;
}

WP_FN void wp_nic_store_unit(struct weft__nic_unit *slot, const struct weft__nic_unit *unit,
                             uint32_t num_bytes)
{
    memcpy(slot, unit, num_bytes);
}

/* Until the channel has news. */
WP_FN enum wp_status wp_nic_pause(struct wp_nic_wait *wait, const struct weft__nic_queue *queue)
{
    (void)queue;
    wait->status = wp_wait(wait->warp, wait->news, wait->seen + 1, wait->site);
    wait->seen = __atomic_load_n(wait->news, __ATOMIC_ACQUIRE);
    return wait->status;
}
