/* SPDX-License-Identifier: MIT */
/* A rank that waits for others sleeps on its doorbell; whoever signals it rings. Lives in shared
 * memory: the bell of every rank is at the start of its heap. */
#ifndef WEFT_COMM_DOORBELL_H
#define WEFT_COMM_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

struct weft__doorbell {
    _Atomic uint32_t num_rings;    /* the futex word */
    _Atomic uint32_t num_sleepers; /* ringers skip the system call while it is 0 */
};

/* Call after the store that a sleeper may be waiting for. The full fence between that store and the
 * read of num_sleepers pairs with the one in weft__doorbell_prepare: either the ringer sees the
 * sleeper, or the sleeper's re-check sees the store. */
void weft__doorbell_ring(struct weft__doorbell *bell);

/* Sleeping takes three steps: prepare, re-check what is waited for, then sleep (or cancel). */
uint32_t weft__doorbell_prepare(struct weft__doorbell *bell);
void weft__doorbell_sleep(struct weft__doorbell *bell, uint32_t prepared, int64_t timeout_ns);
void weft__doorbell_cancel(struct weft__doorbell *bell);

#endif
