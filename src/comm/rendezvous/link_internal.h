/* SPDX-License-Identifier: MIT */
/* Shared by the files of a link alone. */
#pragma once

#include "comm/failure/questions.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/heartbeat.h"
#include "comm/rendezvous/link.h"

struct weft__link {
    struct weft__link *next;
    pid_t pid; /* that opened the link: a child of fork must not use it */
    int32_t rank, num_ranks;
    uint32_t timeout_ms;
    struct weft__status *status;
    struct weft__waits *waits;
    struct weft__standing *standing;
    weft_comm *comm;
    const struct weft__meeting_point *point;
    struct weft__identity server;
    struct weft__identity *table; /* [num_ranks] */
    pthread_t monitor;
    int wake_fd;    /* makes the monitor look again */
    int process_fd; /* readable when the process of the rendezvous has ended; -1: not watched */
    pthread_mutex_t send_mutex; /* of the wire's sending side and what follows */
    struct weft__wire wire;
    int64_t close_ns; /* when the monitor gives up waiting for the goodbye's effect */
    struct weft__heartbeat heartbeat; /* the monitor's */
    int64_t look_ns;                  /* when the monitor next looks where this rank stands */

    /* The all-gather that a caller waits for; with the status's mutex and condition. */
    struct {
        uint64_t sequence;
        size_t blob_bytes;
        void *recv; /* NULL: nobody waits */
        enum { WEFT__GATHER_PENDING, WEFT__GATHER_DONE } state;
        weft_result result;
        int32_t failed_rank; /* whose own result it is, or WEFT__NOBODY */
        char text[WEFT__MAX_TEXT_BYTES];
    } gather;
    /* Sent where there is no memory for others, so that nobody waits for what this rank cannot
     * say. */
    struct weft__message *spare_gather, *spare_notice, *goodbye;
    struct weft__questions questions;
    enum {
        WEFT__SERVER_THERE,
        WEFT__SERVER_GONE
    } server_state; /* gone after its rank's goodbye: no failure */
};

/* link_exit.c: registers a link whose process may end without closing it. */
void weft__link_enter(struct weft__link *link);
void weft__link_leave(struct weft__link *link);

/* Takes over the message; NULL, for lack of memory, sends nothing. The monitor is woken only to
 * send what does not go at once: with more ranks than cores each wake-up delays another rank. */
void weft__link_send(struct weft__link *link, struct weft__message *message);

/* link_monitor.c: the thread that listens to the rendezvous. */
void *weft__link_monitor(void *link);
