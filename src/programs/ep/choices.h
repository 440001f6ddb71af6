/* SPDX-License-Identifier: MIT */
/* Rows of dispatch, and the expanded rows of their choices. */
#pragma once

#include "programs/ep/routing.h"
#include "programs/share.h"

struct wp_choices {
    int32_t num_topk;
    int32_t capacity; /* rows of dispatch that the caller's arrays hold */
    int32_t expanded_capacity;
    const int32_t *recv_rows; /* [1] rows that have come; NULL: the capacity */
    const int32_t *rows;      /* [capacity][num_topk] -1: none */
};

WP_FN int32_t wp_rows_there(const int32_t *recv_rows, int32_t capacity)
{
    return recv_rows != NULL && *recv_rows < capacity ? *recv_rows : capacity;
}

/* The rows of dispatch, shared among the warps of the launch. */
WP_FN struct wp_share wp_choices_share(struct wp_warp *warp, const struct wp_choices *choices)
{
    return wp_share_rows(wp_num_launch_warps(warp),
                         wp_rows_there(choices->recv_rows, choices->capacity), NULL);
}

/* The expanded row of a choice, or -1. */
WP_FN int32_t wp_choice_row(const struct wp_choices *choices, int32_t row, int32_t k)
{
    const int32_t expanded = choices->rows[(int64_t)row * choices->num_topk + k];
    return expanded < choices->expanded_capacity ? expanded : -1;
}

/* Gives the warp's pointers the expanded rows of a row, in the order of its choices: in an array of
 * row_bytes each, from byte `offset` on. Returns how many. */
WP_FN int32_t wp_choices_find(struct wp_warp *warp, const struct wp_choices *choices, int32_t row,
                              const char *rows, uint64_t row_bytes, uint64_t offset)
{
    const void **pointers = wp_warp_pointers(warp);
    int32_t num_found = 0;
    wp_warp_sync(warp); /* the pointers before have been used */
    for (int32_t first = 0; first < choices->num_topk; first += WP_WARP_SIZE) {
        const int32_t k = first + wp_lane_idx(warp);
        const int32_t expanded = k < choices->num_topk ? wp_choice_row(choices, row, k) : -1;
        const uint32_t ballot = wp_ballot(warp, expanded >= 0);
        if (expanded >= 0)
            pointers[num_found + wp_lanes_below(warp, ballot)] =
                rows + (uint64_t)expanded * row_bytes + offset;
        num_found += wp_popcount(ballot);
    }
    wp_warp_sync(warp);
    return num_found;
}
