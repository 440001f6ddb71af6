/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/direct.h"

/* Part p of the row is bytes [p * part_bytes, (p + 1) * part_bytes), as far as the row goes. The
 * p-th rank after the root passes it on, from part 0 for the first one. */
struct wp_relayed_broadcast_args {
    struct wp_direct direct; /* chunk_bytes: of a piece of a part */
    uint64_t words_offset;   /* in every heap, a word for each block: wp_relayed_number */
    const char *in;          /* of the root */
    char *out;
    int32_t root;
    uint64_t num_bytes;
    uint64_t part_bytes;
};

enum { WP_RELAYED_PIECE_BITS = 20, WP_RELAYED_MAX_PIECES = (1 << WP_RELAYED_PIECE_BITS) - 1 };

/* The value of a word when so many pieces of an operation have come. It only grows, from one root
 * to the next, and in graphs that run again. */
WP_FN uint64_t wp_relayed_number(uint64_t sequence, uint64_t num_pieces)
{
    return sequence << WP_RELAYED_PIECE_BITS | num_pieces;
}

WP_FN uint64_t wp_relayed_words_bytes(const struct wp_exchange *exchange)
{
    return (uint64_t)exchange->max_blocks * sizeof(uint64_t);
}
