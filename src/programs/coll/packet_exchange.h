/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/packet_area.h"

struct wp_packet_exchange_args {
    struct wp_packet_area area;
    struct wp_call_header header; /* num_bytes 0: of the row that goes to the rank */
    const char *in;
    char *out;
    struct wp_exchanged_rows rows; /* other ranks' are of at most region_bytes */
};
