/* SPDX-License-Identifier: MIT */
/*
 * Windows: pieces of the ranks' memory that all ranks have mapped. Every rank numbers its own;
 * number 0 is its heap. Where they are mapped is in one table per communicator, which the programs
 * read.
 *
 * A number is reserved first, without the others, then opened by all ranks together. It is used
 * again only after all ranks have closed it together, so that an entry of the table changes only
 * while no program reads it.
 */
#pragma once

#include <pthread.h>

#include "machine/host.h"

/* In place of a number. */
enum {
    WEFT__WINDOW_NONE = -1,  /* the rank has nothing to open or close */
    WEFT__WINDOW_FAILED = -2 /* it has, and cannot */
};

enum { WEFT__MAX_TOLD_REASONS = 16 };

struct weft__window {
    enum weft__window_state { WEFT__WINDOW_FREE, WEFT__WINDOW_RESERVED, WEFT__WINDOW_OPEN } state;
    struct weft__block block;
};

struct weft__windows {
    int32_t max_windows;
    void *table; /* char *[max_windows][num_ranks], in memory of the machine */
    /* Operations look up places while others are registered. */
    pthread_mutex_t mutex;    /* of own, of registrations and of told */
    struct weft__window *own; /* [max_windows] of this rank */
    struct weft__block
        *blocks; /* [max_windows][num_ranks] of the others, as they are mapped here */
    struct weft__registration *registrations; /* registered.h */
    /* Reasons why memory is staged, as hashes of their texts. */
    uint64_t told[WEFT__MAX_TOLD_REASONS];
    int32_t num_told;
};

/* Fills comm->windows: room for the machine's number of windows. */
weft_result weft__windows_create(weft_comm *comm);
/* Also closes what is open, on this rank. */
void weft__windows_destroy(weft_comm *comm);

/* A number for the block that [ptr, ptr + bytes) lies in. If others cannot be given it, or there is
 * no number left: why. */
weft_result weft__window_reserve(weft_comm *comm, const void *ptr, uint64_t bytes, int32_t *window);
/* Gives a number back that was not opened. */
void weft__window_release(weft_comm *comm, int32_t window);

/* Collective: opens what each rank has reserved, WEFT__WINDOW_NONE or WEFT__WINDOW_FAILED; on all
 * ranks or none. Whose is the obstacle, the same on all, is WEFT__NOBODY, or a rank that could not
 * give its memory or not map that of another, which tells its reason for all. `mine`: why this rank
 * fails, as in weft__comm_gather. */
struct weft__obstacle {
    int32_t rank;
    char reason[WEFT__MAX_TEXT_BYTES];
};
weft_result weft__window_open(weft_comm *comm, weft_result mine, int32_t window,
                              struct weft__obstacle *obstacle);
/* Collective: closes each rank's window, or WEFT__WINDOW_NONE; WEFT__WINDOW_FAILED makes it a
 * WEFT_ERROR_MISMATCH of the others. When it returns, nobody has them mapped, and the numbers are
 * free. */
weft_result weft__window_close(weft_comm *comm, int32_t window);

/* 1 if the bytes lie in the block of the reserved or open window: *place is then theirs. */
int weft__window_contains(const weft_comm *comm, int32_t window, const void *ptr, uint64_t bytes,
                          uint64_t *place);

/* Logs a reason why memory is staged; each once per communicator, addresses aside. */
void weft__windows_tell(weft_comm *comm, const char *reason);
