/* SPDX-License-Identifier: MIT */
/* What the progress thread and those that drive the net in its place have in common. */
#ifndef WEFT_NET_PROGRESS_INTERNAL_H
#define WEFT_NET_PROGRESS_INTERNAL_H

#include <pthread.h>

#include "net/progress.h"

/* A queue and what has become of what was posted there. */
struct weft__work_line {
    struct weft__work_queue *queue; /* NULL: there is none */
    uint32_t num_slots;
    struct weft__net_request *requests; /* [num_slots], of those under way */
};

enum weft__failure_news { WEFT__NOT_TOLD, WEFT__TOLD }; /* to on_failure */

struct weft__peer_state {
    weft_result result;
    enum weft__failure_news news;
    enum { WEFT__NO_ORDER, WEFT__TO_BE_FAILED } order;
    char message[WEFT__NET_REASON_BYTES];
};

enum weft__progress_thread {
    WEFT__THREAD_AWAKE,
    WEFT__THREAD_NAPS,  /* for others drive the net */
    WEFT__THREAD_SLEEPS /* until the net, which is armed, or somebody wakes it */
};

struct weft__progress {
    /* Who holds it owns the net. Only the thread waits for it: so it may hold it while it tells of failures. */
    pthread_mutex_t rounds;
    struct weft__net *net;
    struct weft__progress_options options;
    struct weft__work_line own, device;
    pthread_t thread;
    int event_fd;
    _Atomic uint32_t thread_state; /* enum weft__progress_thread */
    _Atomic int is_driven;         /* by another thread, since the thread looked last */
    _Atomic int should_stop, has_orders;
    _Atomic uint64_t num_rounds;
    _Atomic uint64_t num_bytes, num_messages; /* sent */

    pthread_mutex_t mutex;          /* of what follows */
    struct weft__peer_state *peers; /* [num_ranks] */
    weft_result result;             /* of what was posted, the first failure */
    enum weft__failure_news news;
    char message[WEFT__ERROR_BYTES];
};

/* Of what is posted; from any thread. */
int weft__progress_has_work(const struct weft__progress *progress);

/* All that follow: by who holds `rounds`. */

/* Takes what is posted and moves the net on. Returns the number of events. */
int weft__progress_advance(struct weft__progress *progress);
/* Tells those who await what is done by now; also when the net is closed. Likewise. */
int weft__progress_complete(struct weft__progress *progress);

/* Whether anything has failed. Then only the thread drives, because who is told may take its time. */
int weft__progress_has_failed(const struct weft__progress *progress);
void weft__progress_tell_request_failure(struct weft__progress *progress);
void weft__progress_tell_peer_failures(struct weft__progress *progress);

#endif
