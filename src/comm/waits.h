/* SPDX-License-Identifier: MIT */
/* Whom this rank waits for, for others who ask: they may wait for this rank while it waits itself. */
#ifndef WEFT_COMM_WAITS_H
#define WEFT_COMM_WAITS_H

#include <pthread.h>
#include <stdint.h>

enum {
    WEFT__NOBODY = -1,
    WEFT__INQUIRY_MS = 500 /* who has not answered after that is taken for stopped */
};

struct weft__wait {
    int32_t rank; /* whose signal is awaited, or WEFT__NOBODY */
    int32_t unused;
    uint64_t exchange; /* its mailbox's offset in every heap; 0: the host's all-gather */
};

/* A wait that is going on; memory of whoever waits. */
struct weft__wait_entry {
    struct weft__wait wait;
    struct weft__wait_entry *next;
};

struct weft__waits {
    pthread_mutex_t mutex;
    struct weft__wait_entry *first;
    struct weft__wait failed; /* the first; stays, for those who ask later */
};

enum weft__wait_end { WEFT__WAIT_CAME, WEFT__WAIT_FAILED };

void weft__waits_init(struct weft__waits *waits);
void weft__waits_destroy(struct weft__waits *waits);

void weft__waits_begin(struct weft__waits *waits, struct weft__wait_entry *entry);
void weft__waits_end(struct weft__waits *waits, struct weft__wait_entry *entry,
                     enum weft__wait_end how);
/* Notes a wait that has failed and was not begun here. */
void weft__waits_fail(struct weft__waits *waits, const struct weft__wait *wait);

/* The answer to one who waits for this rank in `exchange`: a wait in the same exchange if there is
 * one, else any, since that holds this rank up as well. */
struct weft__wait weft__waits_find(struct weft__waits *waits, uint64_t exchange);

#endif
