/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/low_latency/low_latency.h"

/* Where scales of rows go, by expert. */
struct wp_ll_scales {
    char *words;
    int32_t num_words; /* of a row; 0: there are none */
    int32_t word_bytes;
    int64_t row_stride, word_stride, expert_stride; /* in words */
};

struct wp_low_latency_dispatch_args {
    struct wp_low_latency ll;
    enum wp_ll_phase phases;
    /* To send: */
    int32_t num_tokens;
    int32_t num_tokens_per_block; /* at least; so many of the first blocks have one more: */
    int32_t num_blocks_with_more;
    const char *tokens;
    uint64_t token_stride_bytes;
    weft_dtype index_type;
    const void *topk_idx;      /* [num_tokens][num_topk] */
    const float *topk_weights; /* the same, or NULL: 1 */
    /* To receive: */
    int32_t *num_rows_per_rank; /* [num_ranks], or NULL */
    int32_t *missing_ranks;     /* the same */
    /* The same by expert; all may be NULL but the rows. */
    char *rows; /* [local experts][capacity][row_bytes] */
    struct wp_ll_scales scales;
    int32_t *src_tokens;          /* [local experts][capacity] */
    int32_t *num_rows_per_expert; /* [local experts], also of those that there was no room for */
    int64_t *row_ranges;          /* [local experts][num_ranks] count, and first row << 32 */
    int32_t *cumulative_rows;     /* [local experts], added to */
};
