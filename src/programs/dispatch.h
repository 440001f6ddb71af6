/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_DISPATCH_H
#define WEFT_PROGRAMS_DISPATCH_H

#include "programs/exchange.h"
#include "programs/routing.h"

struct wp_source_plane {
    const char *rows;
    uint64_t stride_bytes;
};

struct wp_dispatch_args {
    struct wp_exchange exchange;
    struct wp_message message; /* where this rank wants its rows */
    struct wp_routing routing;
    struct wp_placement placement;
    struct wp_source_plane planes[WEFT_MAX_PLANES];
    const void *topk_idx;
    const float *topk_weights;
    char *recv_topk_idx; /* of this rank, wherever the others write them to */
};

#endif
