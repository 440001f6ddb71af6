/* SPDX-License-Identifier: MIT */
/*
 * The arrays of a dispatch or combine that other ranks access: where they are, if these reach them
 * there, else in the weft_ep's staging block of the heap. If what is staged fits it, rows have the
 * same places there, with copies before or after; else they go in rounds (programs/ep/rounds.h).
 * Each rank does this for itself: the others are told places, and whether there are rounds.
 */
#pragma once

#include "ep/ep.h"
#include "programs/ep/rounds.h"

struct weft__array {
    int message_array; /* enum wp_message_array, plus the plane */
    char *ptr;         /* the caller's: [message->capacity] rows; combine only reads them */
    uint64_t row_bytes;
    const char *name;
    char *staged; /* where it is copied from or to; NULL: it is not */
};

struct weft__arrays {
    const weft_ep_handle *handle;
    struct wp_message *message; /* which tells the places */
    struct wp_rounds *rounds;
    struct weft__array list[WP_NUM_MESSAGE_ARRAYS];
    int32_t num_arrays;
};

/* Heap memory for the words of rounds, which is zero at first. */
uint64_t weft__staging_words_bytes(uint64_t staging_bytes);

void weft__arrays_add(struct weft__arrays *arrays, int message_array, const void *ptr,
                      uint64_t row_bytes, const char *name);
/* Finds all places, once the message has the call; UNSUPPORTED where the staging block is too
 * small. */
weft_result weft__arrays_place(struct weft__arrays *arrays);

enum weft__staging_way { WEFT__TO_STAGING, WEFT__FROM_STAGING };
/* Enqueues the copies of what is staged at once: of the rows that the last notify has announced. */
weft_result weft__arrays_copy(const struct weft__arrays *arrays, enum weft__staging_way way,
                              weft_stream *stream);
