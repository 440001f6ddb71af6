/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_PACKET_EXCHANGE_H
#define WEFT_PROGRAMS_PACKET_EXCHANGE_H

#include "programs/packet_area.h"

/* A row in memory: what goes to a rank, or comes from it. */
struct weft_exchanged_row {
    uint64_t offset;
    uint64_t bytes; /* at most region_bytes, of other ranks' rows */
};

struct weft_packet_exchange_args {
    struct weft_packet_area area;
    struct weft_call_header header; /* num_bytes 0: of the row that goes to the rank */
    const char *in;
    char *out;
    struct weft_exchanged_row sent[WEFT_COLL_MAX_RANKS];
    struct weft_exchanged_row received[WEFT_COLL_MAX_RANKS];
};

#endif
