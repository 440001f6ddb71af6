/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/routing.h"
#include "programs/exchange.h"

struct wp_source_plane {
    const char *rows;
    uint64_t stride_bytes;
};

/* A plane that is quantised on its way: its rows here are of how.src_dtype, those of the receivers
 * of how.dst_dtype, and the call's last plane, which has no rows here, is their scales. */
struct wp_quantised_plane {
    int32_t idx;                /* of the plane */
    struct wp_quantisation how; /* of WEFT_DTYPE_NONE: no plane is */
};

WP_FN int wp_is_quantised(const struct wp_quantised_plane *plane)
{
    return plane->how.dst_dtype != WEFT_DTYPE_NONE;
}

struct wp_dispatch_args {
    struct wp_exchange exchange;
    struct wp_message message; /* where this rank wants its rows */
    struct wp_routing routing;
    struct wp_placement placement;
    struct wp_source_plane planes[WEFT_MAX_PLANES];
    struct wp_quantised_plane quantised; /* by quantised_dispatch alone */
    const void *topk_idx;
    const float *topk_weights;
    char *recv_topk_idx; /* of this rank, wherever the others write them to */
};
