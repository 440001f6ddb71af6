/* SPDX-License-Identifier: MIT */
/* A rank's connection to the rendezvous, and the monitor thread that listens to it: news about
 * other ranks go into the status, results of all-gathers to whoever waits. */
#pragma once

#include "comm/comm.h"
#include "comm/failure/status.h"
#include "comm/rendezvous/wire.h"
#include "weft.h"

struct weft__link;

struct weft__link_options {
    struct weft__meeting_point *point; /* must outlive the link; gets the port that is found */
    struct weft__hello *hello;         /* magic, version and nonce are filled in */
    struct weft__status *status;       /* news go here; must outlive the link */
    struct weft__waits *waits;         /* for answers to other ranks; must outlive the link */
    struct weft__standing *standing;   /* for the rendezvous; must outlive the link */
    weft_comm *comm;          /* whose link it is: its monitor reports on it (weft__comm_report) */
    struct weft__watch watch; /* of the communicator that is split; ends the meeting */
};

/* Connects to the point, which may come up later, introduces this rank and waits until all ranks of
 * its communicator have met: table[num_ranks] tells who they are. */
weft_result weft__link_open(const struct weft__link_options *options, struct weft__identity *table,
                            struct weft__link **link);

/* Bytes up to WEFT__MAX_BLOB_BYTES. One at a time. */
weft_result weft__link_all_gather(struct weft__link *link, struct weft__share *share);
/* Tells the other ranks, as far as they can be reached, of the failure that the status holds. */
void weft__link_tell_failure(struct weft__link *link);

/* Tells those who wait for this rank at the same rendezvous, to make another communicator, that it
 * will not come. */
void weft__link_tell_absence(struct weft__link *link, const struct weft__absence *absence);

/* Asks question->asked, a rank that may be this one, through the rendezvous. From any thread. */
enum weft__ask_result weft__link_ask(struct weft__link *link, const struct weft__question *question,
                                     int64_t deadline_ns, struct weft__wait_list *waits);
/* The lowest rank that lives in the process of the rendezvous, or WEFT__NOBODY. */
int32_t weft__link_rank_of_server(const struct weft__link *link);
/* Random, and the same for all whom this rendezvous serves. */
const uint64_t *weft__link_mark_of_server(const struct weft__link *link);

/* The connected socket. */
int weft__link_fd(const struct weft__link *link);

/* Says goodbye, waits a moment until the rendezvous has passed it on, and joins the monitor. */
void weft__link_close(struct weft__link *link);
