/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/routing.h"

/* A launch of each, one after the other. */
enum wp_placing { WP_COUNT_CHOICES, WP_PLACE_CHOICES };

struct wp_place_choices_args {
    enum wp_placing placing;
    int32_t num_topk;
    int32_t capacity; /* rows that dispatch has delivered at most */
    int32_t expanded_capacity;
    int32_t expert_alignment;
    int32_t num_chunks; /* of this launch, at most the expansion's */
    weft_dtype index_type;
    struct wp_expansion expansion; /* written: what is not of notify */
    /* As of a routing. NULL: all rows are there, and no notify tells of them: the other is
     * written. */
    const int32_t *recv_rows;
    int32_t *recv_expert_rows;
    const void *recv_topk_idx; /* [rows][num_topk] local experts, or -1 */
    int32_t *choice_rows;      /* [rows][num_topk] */
    uint32_t *num_blocks_done; /* zero between launches */
};
