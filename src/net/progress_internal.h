/* SPDX-License-Identifier: MIT */
/* Shared by the progress thread and those that drive the net in its place. */
#pragma once

#include <pthread.h>

#include "net/line.h"
#include "net/progress.h"

/* Whether on_peer_failure has been told that the peer has failed. */
enum weft__peer_news { WEFT__NOT_TOLD, WEFT__TOLD };

enum weft__progress_thread {
    WEFT__THREAD_AWAKE,
    WEFT__THREAD_NAPS,  /* for others drive the net */
    WEFT__THREAD_SLEEPS /* until the net, which is armed, or somebody wakes it */
};

struct weft__progress {
    /* Who holds it owns the net. Only the thread waits for it, and who has something rare to do
     * (weft__progress_act). */
    pthread_mutex_t rounds;
    struct weft__net *net;
    struct weft__progress_options options;
    struct weft__line own, device;
    pthread_t thread;
    int event_fd;
    _Atomic uint32_t thread_state; /* enum weft__progress_thread */
    _Atomic int is_driven;         /* by another thread, since the thread looked last */
    _Atomic int should_stop;
    enum weft__peer_news *news; /* [num_ranks], by who holds `rounds`, as the next */
    int32_t num_known_dead; /* ranks that the communicator knows to be so, of which the net knows */
    _Atomic uint64_t num_rounds;
    _Atomic uint64_t num_puts; /* and signals, that were started */

    pthread_mutex_t mutex; /* of what follows */
    weft_result result;    /* of what was posted, the first failure */
    char message[WEFT__ERROR_BYTES];
};

/* Without a NIC it is idle; from any thread. */
int weft__progress_nic_is_idle(const struct weft__progress *progress);
int weft__progress_step_nic(struct weft__progress *progress);

/* From any thread: true if something is posted that can be taken now. */
int weft__progress_has_work(const struct weft__progress *progress);

/* By who holds `rounds`: takes what is posted, moves the net on, tells of failures, completes what
 * is done. Returns the number of events. */
int weft__progress_round(struct weft__progress *progress);

/* Those that a round does first and last, for when the net is about to be closed and is closed. */
int weft__progress_take(struct weft__progress *progress);
int weft__progress_complete(struct weft__progress *progress);
