/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/routing.h"
#include "programs/exchange.h"

/* In every heap, for every source rank a buffer in each half (parity.h): the source's row counts for
 * all ranks, then its selections of the owner's experts. */
struct wp_notify_args {
    struct wp_exchange exchange;
    struct wp_message message;
    struct wp_routing routing; /* written: rank_base and what is received */
    struct wp_placement placement;
    uint64_t counts_offset; /* of the buffers in every heap */
    int32_t counts_stride;  /* numbers in one buffer: num_ranks + most local experts of any rank */
    int32_t expert_alignment;
};

WP_FN uint64_t wp_notify_counts_bytes(int32_t num_ranks, int32_t counts_stride)
{
    return WP_NUM_HALVES * (uint64_t)num_ranks * (uint64_t)counts_stride * sizeof(int32_t);
}
