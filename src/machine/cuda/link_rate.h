/* SPDX-License-Identifier: MIT */
/* Arguments of the kernel in link_rate.cu. */
#pragma once

#include <stdint.h>

enum { WP_LINK_RATE_PIECE_BYTES = 2048 }; /* what a warp stores at a time */

struct wp_link_rate_args {
    int32_t rank;
    int32_t num_ranks;
    char *const *heap_bases;   /* [num_ranks] NULL: cannot be reached */
    uint64_t slice_offset;     /* in every heap: memory that this rank may overwrite */
    uint32_t num_slice_pieces; /* its size */
    uint32_t num_pieces;       /* for each rank, over the slice again and again */
};
