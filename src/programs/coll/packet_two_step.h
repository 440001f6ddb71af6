/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/packet_area.h"

struct wp_packet_two_step_args {
    struct wp_packet_area area;
    struct wp_call_header header;
    const char *in;
    char *out;
    uint64_t row_bytes;
    uint64_t part_bytes; /* of each rank but the last ones; at most half of region_bytes */
    struct wp_reduction reduction;
};
