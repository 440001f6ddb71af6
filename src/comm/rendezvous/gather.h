/* SPDX-License-Identifier: MIT */
/* One all-gather at the rendezvous: blobs come in by rank, and one message with all of them, or
 * with the reason why not, goes out to everybody. */
#pragma once

#include "comm/rendezvous/wire.h"

/* Why there is no result. What weighs more comes later, and stands. */
enum weft__gather_fault_kind {
    WEFT__GATHER_FAULTLESS,
    WEFT__GATHER_BYTES_DIFFER,
    WEFT__GATHER_RANK_FAILED, /* before it came; of several the lowest rank stands */
    WEFT__GATHER_CALLS_DIFFER
};

struct weft__gather_fault {
    enum weft__gather_fault_kind kind;
    int32_t rank; /* that failed, or WEFT__NOBODY */
    weft_result result;
    char text[WEFT__MAX_TEXT_BYTES];
};

struct weft__gather {
    uint64_t sequence;
    int32_t num_in; /* 0: no gather is under way */
    int32_t first_rank;
    struct weft__call_step first_step;
    int64_t deadline_ns;           /* the earliest of the contributors' */
    int32_t blob_rank;             /* whose blob was the first, of those who have one */
    uint64_t blob_bytes;           /* as that rank has it */
    struct weft__message *message; /* filled with the blobs; NULL: none has come */
    struct weft__gather_fault fault;
};

/* A contribution as it came over the wire; `header` is that of the frame, checked for its
 * length. */
struct weft__contribution {
    int32_t rank, num_ranks;
    int64_t deadline_ns;
    struct weft__gather_header header;
    const unsigned char *blob;
};

/* Starts the gather if none is under way. */
void weft__gather_add(struct weft__gather *gather, const struct weft__contribution *contribution);

/* The result for everybody, when all are in; a reference for the caller. NULL: no memory. */
struct weft__message *weft__gather_result(const struct weft__gather *gather);

void weft__gather_drop(struct weft__gather *gather);
