/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/choices.h"

struct wp_expanded_plane {
    const char *src;
    char *dst;
    uint64_t row_bytes;
    uint64_t src_stride_bytes;
};

struct wp_expand_rows_args {
    struct wp_choices choices;
    struct wp_expansion expansion;
    const int32_t *recv_expert_rows; /* as of a routing */
    struct wp_expanded_plane planes[WEFT_MAX_PLANES];
    int32_t num_planes;
    weft_ep_gaps gaps;
    const float *recv_topk_weights;
    float *row_weights; /* this and the next may be NULL */
    int32_t *src_rows;
};
