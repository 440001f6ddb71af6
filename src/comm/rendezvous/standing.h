/* SPDX-License-Identifier: MIT */
/*
 * Where a rank stands: how often it has made each call in which all ranks take part, the order of
 * the last ones on each stream, and which of these calls its thread waits for. With it the
 * rendezvous finds ranks that wait for each other in different calls, before the deadline.
 *
 * A call ends on a rank, and lets the next call of its stream begin, only when all ranks have begun
 * it. A rank stands still if its only thread waits for a call in vain. A call is in vain if another
 * rank that stands still has made it fewer times, or has it behind another call in vain, on the
 * same stream. The largest set of ranks and calls for which this holds is found.
 *
 * A call in vain never begins on all ranks, however old the words of ranks are. Proof: suppose that
 * some do, and take the first. If a rank had made it fewer times, that rank makes it after its
 * wait, since it tells its counts together with its wait, and makes no calls while it waits. But it
 * waits for a call in vain, which all ranks then began earlier: a contradiction. If a rank has the
 * call behind another one in vain, all ranks began that other one earlier: a contradiction.
 *
 * Ranks that make the same calls in the same order are never found to stand still. Proof: take the
 * first call in vain, in their order. A rank that has made it fewer times waits for an earlier call
 * in vain, and a rank that has it behind another one in vain has that one earlier: a contradiction.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "comm/calls.h"
#include "comm/failure/waits.h"

enum weft__called_flags {
    WEFT__CALLED_LAST = 1, /* the rank has made the call no more often */
    WEFT__CALLED_AWAITED = 2,
    WEFT__CALLED_ENDS_ALONE = 4 /* without other ranks */
};

/* A call as a rank tells it, in the order of the rank's calls. */
struct weft__called {
    uint64_t key;   /* the call and its object; 0: the exchanges of the hosts */
    uint64_t count; /* the number of times that the rank had made it then */
    uint64_t order; /* among all calls of the rank; in a group of transfers it is one */
    int32_t call;   /* enum weft__call */
    int32_t peer;   /* the only other rank that takes part; WEFT__ANY_PEER: all do */
    int32_t flags;  /* enum weft__called_flags */
    int32_t behind; /* the call that comes before on the stream, among those told; -1: none */
};

enum {
    WEFT__ANY_PEER = -1,
    WEFT__MAX_KEYS = 256,   /* a rank that makes more different calls tells nothing */
    WEFT__MAX_EARLIER = 32, /* calls that it has made again since, which it tells too */
    WEFT__MAX_CALLED = WEFT__MAX_KEYS + WEFT__MAX_EARLIER
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

/* A call that the rank has made. */
struct weft__standing_entry {
    struct weft__called called;
    uint64_t exchange;
    uint64_t stream_id;   /* of its last part */
    uint64_t begin_order; /* of its first part */
    uint64_t begin_stream_id;
};

struct weft__standing {
    pthread_mutex_t mutex;
    struct weft__standing_entry *entries; /* the last call of each key */
    int32_t num_entries, max_entries;
    struct weft__standing_entry earlier[WEFT__MAX_EARLIER]; /* of the same keys; a ring */
    uint64_t num_earlier;
    uint64_t num_calls;
    const void *thread; /* that makes the calls; NULL: none yet */
    enum {
        WEFT__STANDING_KNOWN,
        WEFT__STANDING_OF_SEVERAL, /* threads: one that does not wait may make the next call */
        WEFT__STANDING_UNKNOWN     /* graphs make calls, ranks go on without others, or memory
                                      was short */
    } state;
    uint64_t seen_hold, told_hold; /* of the monitor: numbers of the thread's holds */
    int64_t seen_ns;               /* when it saw seen_hold first: the hold costs no clock */
};

enum weft__call_part {
    WEFT__CALL_IS_WHOLE,
    WEFT__CALL_BEGINS,   /* a first part, which ends alone */
    WEFT__CALL_GOES_ON,  /* the second part of a call that was counted */
    WEFT__CALL_IS_BESIDE /* the last call that was noted: they begin together */
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

/* For observers: the call that the rank made last, and for how long at least its thread has waited
 * for work. */
struct weft__last_call {
    int32_t call; /* enum weft__call */
    uint64_t count;
    uint64_t held_ms; /* 0: the thread does not wait */
};
struct weft__last_call weft__standing_last_call(struct weft__standing *standing);

/* Hold begins and release ends a wait of the calling thread. */
void weft__standing_hold(struct weft__hold hold);
void weft__standing_release(void);

/* The monitor calls this at intervals. If the rank's thread has been in one wait since the last
 * time, and has not told it yet, returns the number of calls, which the caller frees; else 0. */
int32_t weft__standing_look(struct weft__standing *standing, struct weft__called **called);
