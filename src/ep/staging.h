/* SPDX-License-Identifier: MIT */
/*
 * The arrays of a dispatch or combine that other ranks access: where they are, if these reach them
 * there, else in the weft_ep's staging block of the heap, with copies before or after. Each rank
 * does this for itself: the others are told places, and need not know whose they are.
 */
#ifndef WEFT_EP_STAGING_H
#define WEFT_EP_STAGING_H

#include "ep/ep.h"
#include "programs/exchange.h"

struct weft__array {
    int message_array; /* enum wp_message_array, plus the plane */
    char *ptr;         /* the caller's: [message->capacity] rows; combine only reads them */
    uint64_t row_bytes;
    const char *name;
    char *staged; /* NULL: others reach it where it is */
};

struct weft__arrays {
    const weft_ep_handle *handle;
    struct wp_message *message; /* which tells the places */
    struct weft__array list[WP_NUM_MESSAGE_ARRAYS];
    int32_t num_arrays;
};

void weft__arrays_add(struct weft__arrays *arrays, int message_array, const void *ptr,
                      uint64_t row_bytes, const char *name);
/* Finds all places; UNSUPPORTED if what must be staged has more than staging_bytes. */
weft_result weft__arrays_place(struct weft__arrays *arrays);

enum weft__staging_way { WEFT__TO_STAGING, WEFT__FROM_STAGING };
/* Enqueues the copies of what is staged: of the rows that the last notify has announced. */
weft_result weft__arrays_copy(const struct weft__arrays *arrays, enum weft__staging_way way,
                              weft_stream *stream);

#endif
