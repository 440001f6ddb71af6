/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/packet_area.h"

struct wp_packet_reduce_args {
    struct wp_packet_area area;
    struct wp_call_header header;
    const char *in;
    uint64_t
        in_stride_bytes; /* from the row for one rank to that for the next; 0: all get the same */
    char *out;
    uint64_t row_bytes; /* at most region_bytes */
    struct wp_reduction reduction;
    int32_t root; /* who alone gets the result; WP_NO_RANK: every rank does */
};
