/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_DISPATCH_H
#define WEFT_PROGRAMS_DISPATCH_H

#include "programs/exchange.h"
#include "programs/routing.h"

struct weft_source_plane {
    const char *rows;
    uint64_t stride_bytes;
};

struct weft_dispatch_args {
    struct weft_exchange exchange;
    struct weft_message message; /* where this rank wants its rows */
    struct weft_routing routing;
    struct weft_placement placement;
    struct weft_source_plane planes[WEFT_MAX_PLANES];
    const void *topk_idx;
    const float *topk_weights;
};

#endif
