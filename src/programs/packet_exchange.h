/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_PACKET_EXCHANGE_H
#define WEFT_PROGRAMS_PACKET_EXCHANGE_H

#include "programs/packet_area.h"

struct weft_packet_exchange_args {
    struct weft_packet_area area;
    struct weft_call_header header; /* num_bytes 0: of the row that goes to the rank */
    const char *in;
    char *out;
    struct weft_exchanged_rows rows; /* other ranks' are of at most region_bytes */
};

#endif
