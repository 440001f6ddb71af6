/* SPDX-License-Identifier: MIT */
/* A rank that waits for others sleeps on its doorbell; whoever signals it rings. Lives in shared
 * memory: the bell of every rank is at the start of its heap. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct weft__doorbell {
    _Atomic uint32_t num_rings; /* the futex word */
    /* How many sleep (upper 16 bits), and the one word that they wait for, as heap offset: ringers
     * skip the system call while nobody sleeps, and while all wait for another word. With more
     * ranks than cores that spares most wake-ups, for a rank mostly waits for the ranks one by
     * one. */
    _Atomic uint64_t sleepers;
};

enum { WEFT__ANY_WORD = 0 }; /* no signal is at the start of a heap */

/* Call after the store to `word` that a sleeper may be waiting for. The full fence between that
 * store and the read of `sleepers` pairs with the one in weft__doorbell_prepare: either the ringer
 * sees the sleeper, or the sleeper's re-check sees the store. */
void weft__doorbell_ring(struct weft__doorbell *bell, uint64_t word);
/* Rings after stores to words in [begin, end). */
void weft__doorbell_ring_words(struct weft__doorbell *bell, uint64_t begin, uint64_t end);

/* Sleeping takes three steps: prepare, re-check what is waited for, then sleep (or cancel). `word`
 * is all that the re-check looks at that ringers store to, or WEFT__ANY_WORD. */
uint32_t weft__doorbell_prepare(struct weft__doorbell *bell, uint64_t word);
void weft__doorbell_sleep(struct weft__doorbell *bell, uint32_t prepared, int64_t timeout_ns);
void weft__doorbell_cancel(struct weft__doorbell *bell);

uint32_t weft__doorbell_num_sleepers(const struct weft__doorbell *bell);
