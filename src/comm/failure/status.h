/* SPDX-License-Identifier: MIT */
/* The health of one communicator as this rank knows it: written by the monitor of the rendezvous
 * connection and by failing operations, polled by every wait. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "comm/host/doorbell.h"
#include "comm/rendezvous/wire.h"
#include "weft.h"

enum weft__rank_state {
    WEFT__RANK_ALIVE = 0,
    WEFT__RANK_LEFT = 1, /* destroyed its communicator in good order: what it signalled stands */
    WEFT__RANK_DEAD = 2
};

struct weft__status {
    _Atomic int32_t result;       /* weft_result: WEFT_OK, then for good the first failure */
    _Atomic int32_t num_tolerant; /* objects that go on without a rank that has died */
    _Atomic uint8_t *rank_states; /* [num_ranks] enum weft__rank_state */
    _Atomic int32_t num_dead;     /* ranks in that state: grows after the state is set */
    int32_t num_ranks;
    const struct weft__identity *identities; /* [num_ranks], for messages; NULL: not known */
    int32_t failed_rank; /* culprit of the first failure or -1; stable once result is set */
    char message[512];   /* of the first failure; stable once result is set */
    enum { WEFT__TOLD_TO_NONE, WEFT__TOLD_TO_ALL } audience; /* of a failure; with mutex */
    /* A thread writes it when it hears of a failure. With the mutex. */
    enum {
        WEFT__RECORD_NONE,
        WEFT__RECORD_AWAITED,
        WEFT__RECORD_IS_LATE, /* nobody waits for it any more */
        WEFT__RECORD_IS_THERE
    } record;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* with mutex: broadcast on failure and when a rank changes state; the
                               host waits of the link use both too. Monotonic clock */
    struct weft__doorbell
        *own_bell; /* rung on failure so that sleepers look; NULL before the heap is up */
};

weft_result weft__status_init(struct weft__status *status, int32_t num_ranks);
/* From now on messages name processes and hosts: identities[num_ranks], which must outlive
 * `status`. */
void weft__status_know_ranks(struct weft__status *status, const struct weft__identity *identities);
void weft__status_destroy(struct weft__status *status);

/* Records the first failure (later ones are ignored), wakes every sleeper of this rank. Returns the
 * result that stands. */
weft_result weft__status_fail(struct weft__status *status, weft_result result, int32_t failed_rank,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The first failure, as the rendezvous tells it: to all ranks, to rank 0 last. */
void weft__status_hear(struct weft__status *status, weft_result result, int32_t failed_rank,
                       const char *message);
/* Waits up to timeout_ns until the rendezvous has told this rank of a failure. */
void weft__status_await_told(struct weft__status *status, int64_t timeout_ns);

/* A rank has died: the communicator's failure, unless it has objects that go on without. */
void weft__status_lose_rank(struct weft__status *status, int32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether there are such objects. */
int weft__status_is_tolerant(const struct weft__status *status);
/* Whether the rank has left or died: it signals nothing more, but what it signalled stands. */
/* A wait of the host ends early by the failure of `status`; or, with ranks, by the death of one of
 * them, whatever else has failed. */
struct weft__watch {
    struct weft__status *status; /* NULL: nothing does */
    const int32_t *ranks;        /* [num_ranks]; NULL: the failure */
    int32_t num_ranks;
};
weft_result weft__watch_check(const struct weft__watch *watch);

static inline int weft__status_rank_is_gone(const struct weft__status *status, int32_t rank)
{
    return atomic_load(&status->rank_states[rank]) != WEFT__RANK_ALIVE;
}

void weft__status_set_rank(struct weft__status *status, int32_t rank, enum weft__rank_state state);

/* From now on failures ring `bell`; NULL: no more. */
void weft__status_set_bell(struct weft__status *status, struct weft__doorbell *bell);

/* WEFT_OK, or the failure, with the thread's last error set to its message: when its record is
 * there, since the process may end then, or after a second. */
weft_result weft__status_check(struct weft__status *status);

/* The same, after waiting up to timeout_ns for a failure that must be on its way. */
weft_result weft__status_await_failure(struct weft__status *status, int64_t timeout_ns);
