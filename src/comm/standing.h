/* SPDX-License-Identifier: MIT */
/*
 * Where a rank stands: how often it has made each call in which all ranks take part, and which of
 * them its thread waits for. Ranks that wait for each other in different calls are found by that
 * before the deadline.
 *
 * A rank stands still if its only thread waits for calls that some other rank, which stands still
 * too, has made less often: that one will never make them. That is certain, however old what the
 * ranks have told. For take the first of these ranks to go on: what it waited for was complete, so
 * each of the others had made that call as often. But they tell their counts together with what
 * they wait for, and a rank that waits counts no further; so the others have told a count that is
 * high enough. Nor is it ever found of ranks that make the same calls in the same order: the one
 * that is farthest behind waits for calls that all others have made.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "comm/calls.h"
#include "comm/waits.h"

/* A call as it is told. */
struct weft__called {
    uint64_t key;   /* which call of which object; 0: the exchanges of the hosts */
    uint64_t count; /* how often it was made */
    uint64_t order; /* of the last time among all that the rank has made */
    int32_t call;   /* enum weft__call */
    int32_t peer;   /* the only other rank that makes it; WEFT__ANY_PEER: all do */
    int32_t is_awaited;
    int32_t unused;
};

enum {
    WEFT__ANY_PEER = -1,
    WEFT__MAX_CALLED = 256 /* that a rank remembers; with more it tells nothing */
};

/* What a thread waits for. */
enum weft__hold_kind {
    WEFT__HELD_BY_HOSTS,  /* an exchange of the hosts of `standing` */
    WEFT__HELD_BY_STREAM, /* all that is on the stream */
    WEFT__HELD_BY_ALL     /* all that `standing` has on any stream */
};
struct weft__standing;
struct weft__hold {
    enum weft__hold_kind kind;
    uint64_t stream_id;
    const struct weft__standing *standing;
};

struct weft__standing {
    pthread_mutex_t mutex;
    struct weft__standing_entry *entries;
    int32_t num_entries, max_entries;
    uint64_t num_calls;
    const void *thread; /* that makes the calls; NULL: none has */
    enum {
        WEFT__STANDING_KNOWN,
        WEFT__STANDING_OF_SEVERAL, /* threads: one that does not wait may make the next call */
        WEFT__STANDING_UNKNOWN     /* graphs make calls, ranks go on without others, or there was no
                                       memory */
    } state;
    uint64_t seen_hold, told_hold; /* the monitor's: numbers of the thread's holds */
};

/* A call on a stream that has been enqueued. */
struct weft__stream_call {
    int32_t object; /* which one: the same number on all ranks */
    /* Of a send and its receive, else WEFT__ANY_PEER. Sends may end before their receives begin. */
    int32_t src, dst;
    uint64_t exchange; /* where waits of its launches say they are */
    uint64_t stream_id;
    enum {
        WEFT__CALL_IS_NEW,
        WEFT__CALL_GOES_ON /* a second part of one that was counted */
    } part;
};

#define WEFT__CALL_OF_ALL .src = WEFT__ANY_PEER, .dst = WEFT__ANY_PEER

void weft__standing_init(struct weft__standing *standing);
void weft__standing_destroy(struct weft__standing *standing);

/* The call, of this rank, is weft__current_call. */
void weft__standing_note(struct weft__standing *standing, const struct weft__stream_call *call,
                         int32_t rank);
void weft__standing_note_exchange(struct weft__standing *standing, int32_t call);
/* What is made now runs at times that nobody here knows. */
void weft__standing_forget(struct weft__standing *standing);

/* The call that last used an exchange, or WEFT__CALL_UNKNOWN. */
enum weft__call weft__standing_find_call(struct weft__standing *standing, uint64_t exchange);
/* How often the call was made there; UINT64_MAX: there is no telling, or not all ranks make it as often. */
uint64_t weft__standing_count(struct weft__standing *standing, uint64_t exchange,
                              enum weft__call call);

/* What this rank answers one who waits for it so. */
struct weft__wait_list weft__standing_answer(struct weft__standing *standing,
                                             struct weft__waits *waits,
                                             const struct weft__wait *asked_in);

/* Around what the calling thread waits for. */
void weft__standing_hold(struct weft__hold hold);
void weft__standing_release(void);

/* For the monitor, at intervals: if the rank's thread has waited since the time before, and that
 * was not told yet, how many calls there are to tell, which the caller frees; else 0. */
int32_t weft__standing_look(struct weft__standing *standing, struct weft__called **called);
