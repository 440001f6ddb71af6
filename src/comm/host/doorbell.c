/* SPDX-License-Identifier: MIT */
#include "comm/host/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Not the private futex operations: sleeper and ringer are different processes. */
static void futex_wait(_Atomic uint32_t *word, uint32_t expected, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

enum { WORD_BITS = 48 };
static const uint64_t one_sleeper = (uint64_t)1 << WORD_BITS;
static const uint64_t word_mask = ((uint64_t)1 << WORD_BITS) - 1;

static int is_awaited(uint64_t sleepers, uint64_t begin, uint64_t end)
{
    const uint64_t awaited = sleepers & word_mask;
    return sleepers >= one_sleeper &&
           (awaited == WEFT__ANY_WORD || (begin <= awaited && awaited < end));
}

void weft__doorbell_ring_words(struct weft__doorbell *bell, uint64_t begin, uint64_t end)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!is_awaited(atomic_load_explicit(&bell->sleepers, memory_order_relaxed), begin, end))
        return;
    atomic_fetch_add_explicit(&bell->num_rings, 1, memory_order_release);
    futex_wake_all(&bell->num_rings);
}

void weft__doorbell_ring(struct weft__doorbell *bell, uint64_t word)
{
    weft__doorbell_ring_words(bell, word, word == WEFT__ANY_WORD ? UINT64_MAX : word + 1);
}

/* num_rings is read before the caller's re-check: a ring after it makes the sleep return at once. A
 * second sleeper makes it any word, until all have woken. */
uint32_t weft__doorbell_prepare(struct weft__doorbell *bell, uint64_t word)
{
    uint64_t before = atomic_load_explicit(&bell->sleepers, memory_order_relaxed);
    uint64_t after;
    do {
        const uint64_t num_before = before & ~word_mask;
        after = num_before + one_sleeper + (num_before == 0 ? word : WEFT__ANY_WORD);
    } while (!atomic_compare_exchange_weak_explicit(&bell->sleepers, &before, after,
                                                    memory_order_relaxed, memory_order_relaxed));
    uint32_t prepared = atomic_load_explicit(&bell->num_rings, memory_order_acquire);
    atomic_thread_fence(memory_order_seq_cst);
    return prepared;
}

void weft__doorbell_sleep(struct weft__doorbell *bell, uint32_t prepared, int64_t timeout_ns)
{
    if (timeout_ns > 0) {
        const int64_t second_ns = 1000000000;
        const struct timespec timeout = {.tv_sec = timeout_ns / second_ns,
                                         .tv_nsec = timeout_ns % second_ns};
        futex_wait(&bell->num_rings, prepared, &timeout);
    }
    weft__doorbell_cancel(bell);
}

void weft__doorbell_cancel(struct weft__doorbell *bell)
{
    atomic_fetch_sub_explicit(&bell->sleepers, one_sleeper, memory_order_relaxed);
}

uint32_t weft__doorbell_num_sleepers(const struct weft__doorbell *bell)
{
    return (uint32_t)(atomic_load_explicit(&bell->sleepers, memory_order_relaxed) >> WORD_BITS);
}
