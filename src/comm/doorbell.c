/* SPDX-License-Identifier: MIT */
#include "comm/doorbell.h"

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

void weft__doorbell_ring(struct weft__doorbell *bell)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bell->num_sleepers, memory_order_relaxed) == 0)
        return;
    atomic_fetch_add_explicit(&bell->num_rings, 1, memory_order_release);
    futex_wake_all(&bell->num_rings);
}

/* num_rings is read before the caller's re-check: a ring after it makes the sleep return at once. */
uint32_t weft__doorbell_prepare(struct weft__doorbell *bell)
{
    atomic_fetch_add_explicit(&bell->num_sleepers, 1, memory_order_relaxed);
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
    atomic_fetch_sub_explicit(&bell->num_sleepers, 1, memory_order_relaxed);
}
