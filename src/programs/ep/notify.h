/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/routing.h"
#include "programs/exchange.h"

/* Every heap has, for every source rank, a buffer in each half (parity.h): the source's row counts
 * for all ranks, its tag, then its selections of the owner's experts. */
struct wp_notify_args {
    struct wp_exchange exchange;
    struct wp_message message;
    struct wp_routing routing; /* written: rank_base and what is received */
    struct wp_placement placement;
    struct wp_expansion expansion; /* written: what is of notify */
    uint64_t counts_offset;        /* of the buffers in every heap */
    int32_t counts_stride;         /* numbers in one buffer */
    int32_t expert_alignment;
    int32_t tag;
};

/* The selections come after the row counts and the tag. */
WP_FN int32_t wp_notify_first_selection(int32_t num_ranks)
{
    return num_ranks + 1;
}

/* max_local: most local experts of any rank. */
WP_FN int32_t wp_notify_counts_stride(int32_t num_ranks, int32_t max_local)
{
    return wp_notify_first_selection(num_ranks) + max_local;
}

WP_FN uint64_t wp_notify_counts_bytes(int32_t num_ranks, int32_t counts_stride)
{
    return WP_NUM_BUFFERS * (uint64_t)num_ranks * (uint64_t)counts_stride * sizeof(int32_t);
}
