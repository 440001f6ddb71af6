/* SPDX-License-Identifier: MIT */
/*
 * Where a rank stands: how often it has made each call in which all ranks take part, and which of
 * these calls its thread waits for. With it the rendezvous finds ranks that wait for each other in
 * different calls, before the deadline.
 *
 * A rank stands still if its only thread waits for a call that some other rank, which also stands
 * still, has made fewer times. These ranks never go on, however old the counts are that they told.
 * Proof: suppose that some do, and take the first. The call that it waited for was complete, so
 * each of the others had made that call as often. A rank tells its counts together with its wait,
 * and makes no calls while it waits. So the others told counts that are high enough: a
 * contradiction.
 *
 * Ranks that make the same calls in the same order are never found to stand still: the rank that is
 * farthest behind waits for calls that all others have made.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "comm/calls.h"
#include "comm/waits.h"

/* A call as a rank tells it. */
struct weft__called {
    uint64_t key;   /* the call and its object; 0: the exchanges of the hosts */
    uint64_t count; /* the number of times that the rank has made it */
    uint64_t order; /* of the last time, among all calls of the rank */
    int32_t call;   /* enum weft__call */
    int32_t peer;   /* the only other rank that takes part; WEFT__ANY_PEER: all do */
    int32_t is_awaited;
    int32_t unused;
};

enum {
    WEFT__ANY_PEER = -1,
    WEFT__MAX_CALLED = 256 /* entries; a rank with more calls tells nothing */
};

/* The work that a thread waits for. */
enum weft__hold_kind {
    WEFT__HELD_BY_HOSTS,  /* an exchange of the hosts of `standing` */
    WEFT__HELD_BY_STREAM, /* all work on the stream */
    WEFT__HELD_BY_ALL     /* all work of `standing`, on any stream */
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
    const void *thread; /* that makes the calls; NULL: none yet */
    enum {
        WEFT__STANDING_KNOWN,
        WEFT__STANDING_OF_SEVERAL, /* threads: one that does not wait may make the next call */
        WEFT__STANDING_UNKNOWN     /* graphs make calls, ranks go on without others, or memory
                                      was short */
    } state;
    uint64_t seen_hold, told_hold; /* of the monitor: numbers of the thread's holds */
};

enum weft__call_part {
    WEFT__CALL_IS_NEW,
    WEFT__CALL_GOES_ON /* the second part of a call that was counted */
};

/* A call that has been enqueued on a stream. */
struct weft__stream_call {
    int32_t object; /* its number, the same on all ranks */
    /* The ranks of a send and its receive; other calls have WEFT__ANY_PEER. A send may end before
     * its receive begins. */
    int32_t src, dst;
    uint64_t exchange; /* that waits of its launches name */
    uint64_t stream_id;
    enum weft__call_part part;
};

#define WEFT__CALL_OF_ALL .src = WEFT__ANY_PEER, .dst = WEFT__ANY_PEER

void weft__standing_init(struct weft__standing *standing);
void weft__standing_destroy(struct weft__standing *standing);

/* Notes weft__current_call. `rank` is this rank. */
void weft__standing_note(struct weft__standing *standing, const struct weft__stream_call *call,
                         int32_t rank);
void weft__standing_note_exchange(struct weft__standing *standing, int32_t call);
/* The rank tells nothing any more: its calls now run at times that the host does not know. */
void weft__standing_forget(struct weft__standing *standing);

/* The call that last used an exchange, or WEFT__CALL_UNKNOWN. */
enum weft__call weft__standing_find_call(struct weft__standing *standing, uint64_t exchange);
/* The number of times that the call was made on the exchange. UINT64_MAX: unknown, or not all ranks
 * make the call equally often. */
uint64_t weft__standing_count(struct weft__standing *standing, uint64_t exchange,
                              enum weft__call call);

/* The answer to a rank that waits for this one in `asked_in`. */
struct weft__wait_list weft__standing_answer(struct weft__standing *standing,
                                             struct weft__waits *waits,
                                             const struct weft__wait *asked_in);

/* Hold begins and release ends a wait of the calling thread. */
void weft__standing_hold(struct weft__hold hold);
void weft__standing_release(void);

/* The monitor calls this at intervals. If the rank's thread has been in one wait since the last
 * time, and has not told it yet, returns the number of calls, which the caller frees; else 0. */
int32_t weft__standing_look(struct weft__standing *standing, struct weft__called **called);
