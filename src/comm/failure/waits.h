/* SPDX-License-Identifier: MIT */
/* Whom this rank waits for, for others who ask: they may wait for this rank while it waits
 * itself. */
#pragma once

#include <pthread.h>
#include <stdint.h>

enum {
    WEFT__NOBODY = -1,
    WEFT__OBSERVER = -2,    /* as an asker: no rank (rendezvous/observers.h) */
    WEFT__INQUIRY_MS = 500, /* who has not answered after that is taken for stopped */
    WEFT__MAX_LISTED_WAITS = 16
};

struct weft__wait {
    int32_t rank;       /* whose signal is awaited */
    int32_t call;       /* enum weft__call; WEFT__CALL_UNKNOWN in lists of this rank */
    uint64_t exchange;  /* its mailbox's offset in every heap; 0: the host's all-gather */
    uint64_t waited_ms; /* in answers: so far, or until it failed; 0: it has just begun */
};

/* An answer: each wait once. Warps that work for different ranks wait for each of them, so that one
 * wait alone may lead back to whoever asks, past the rank that holds up both. */
struct weft__wait_list {
    int32_t num_waits; /* 0: held up by nobody */
    int32_t unused;
    uint64_t count; /* times that the rank has made the asker's call (standing.h) */
    struct weft__wait waits[WEFT__MAX_LISTED_WAITS];
};

/* Adds a wait unless it is there already, or the list is full: the first ones lead far enough. */
void weft__wait_list_add(struct weft__wait_list *list, const struct weft__wait *wait);
/* Whether a list that came from another rank can be used. */
int weft__wait_list_is_valid(const struct weft__wait_list *list, int32_t num_ranks);

/* A wait that is going on; memory of whoever waits. */
struct weft__wait_entry {
    struct weft__wait wait;
    int64_t begin_ns; /* set by weft__waits_begin */
    struct weft__wait_entry *next;
};

struct weft__waits {
    pthread_mutex_t mutex;
    struct weft__wait_entry *first;
    struct weft__wait_list failed; /* stay, for those who ask later */
};

enum weft__wait_end { WEFT__WAIT_CAME, WEFT__WAIT_FAILED };

void weft__waits_init(struct weft__waits *waits);
void weft__waits_destroy(struct weft__waits *waits);

void weft__waits_begin(struct weft__waits *waits, struct weft__wait_entry *entry);
void weft__waits_end(struct weft__waits *waits, struct weft__wait_entry *entry,
                     enum weft__wait_end how);
/* Notes a wait that has failed and was not begun here. */
void weft__waits_fail(struct weft__waits *waits, const struct weft__wait *wait);

/* The answer to one who waits for this rank in `exchange`: the waits in the same exchange if there
 * are any, else all, since those hold this rank up as well. Failed ones come first. */
struct weft__wait_list weft__waits_find(struct weft__waits *waits, uint64_t exchange);
