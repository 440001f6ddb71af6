/* SPDX-License-Identifier: MIT */
/* One all-gather at the rendezvous: blobs come in by rank, and one message with all of them, or
 * with the reason why not, goes out to everybody. */
#ifndef WEFT_COMM_GATHER_H
#define WEFT_COMM_GATHER_H

#include "comm/wire.h"

struct weft__gather {
    uint64_t sequence;
    uint64_t blob_bytes; /* as the first contributor has it */
    int32_t first_rank, num_in;
    int32_t differing_rank; /* whose blob has another size; -1: none */
    uint64_t differing_bytes;
    int64_t deadline_ns;           /* the earliest of the contributors' */
    struct weft__message *message; /* filled with the blobs; NULL: no gather under way */
};

/* A contribution as it came over the wire; `header` is that of the frame, checked for its length. */
struct weft__contribution {
    int32_t rank, num_ranks;
    int64_t deadline_ns;
    struct weft__gather_header header;
    const unsigned char *blob;
};

/* Starts the gather if none is under way. Returns WEFT__WIRE_GARBAGE without memory. */
enum weft__wire_result weft__gather_add(struct weft__gather *gather,
                                        const struct weft__contribution *contribution);

/* What everybody is to get, when all are in; a reference for the caller. NULL: no memory. */
struct weft__message *weft__gather_result(const struct weft__gather *gather);

void weft__gather_drop(struct weft__gather *gather);

#endif
