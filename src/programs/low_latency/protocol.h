/* SPDX-License-Identifier: MIT */
/*
 * The protocol of low latency: read this page first. The rest of the folder is its details.
 *
 * Dispatch sends the row of each token to the ranks that have one of the token's experts. Combine
 * sends an answer to each row back to the token's owner, which sums the answers. Each is one launch.
 * No layout, no notify and no handshake come before the rows.
 *
 * Slots. Every rank has memory for the rows of all other ranks. So a sender knows by itself where a
 * row goes: to slot [source rank][index] of the target. The index counts the source's tokens for that
 * target. An answer goes to slot [place of the token][choice] of the token's owner. A choice is one
 * top-k entry of a token.
 *
 * Numbers and halves. Operations are numbered: dispatch n sends rows n, combine n sends answers n.
 * Receive memory has num_halves buffers, 1 or 2, each called a half. Number n lies in half
 * n % num_halves. It overwrites number n - num_halves.
 *
 * Credits. A sender waits until the target no longer needs number n - num_halves. The target says so
 * by a credit, which this code calls room. It needs rows until it has received the answers that end
 * their result, or the result is released. It needs answers until it has summed them. So nothing that
 * is still read is overwritten, whatever runs on which stream.
 *
 * Blocks. Block b does the same part of the work on every rank: it sends the b-th share of its rank's
 * tokens, receives what block b of the other ranks has sent, and answers that. So the blocks of one
 * rank never wait for each other.
 *
 * There are two ways to know that a row has come:
 *
 *   Signals  Behind its rows a block signals a word of each target. The pair of words keeps order:
 *
 *                arrived[mail][source][block]  the last number that has come   (the source signals)
 *                room[mail][target][block]     the last number with credit     (the target signals)
 *
 *            Mail is rows or answers. The signal has release order; whoever waits acquires.
 *   Packets  Every 16 bytes of a row tell that they have come, so a warp takes a row's part without
 *            waiting for the rest (packets.h). One word of each source tells how many rows come.
 *            Of few tokens each warp computes the routes of all tokens itself (routes_few.h). Of many
 *            tokens the ranks send each other the routes while rows are under way (routes_many.h).
 *
 * By expert, a rank packs the rows that come. It needs to know where each source's rows begin, so each
 * source sends a head: how many rows each expert of the target gets.
 *
 * A launch of dispatch, with signals:
 *
 *   begin    load what the block remembers: the numbers of its last launch            (launch.h)
 *   send     wait for credit; find the routes of the block's tokens; send heads, rows
 *            and ranges of slots; signal                               (send.h, waits.h)
 *   receive  wait for the word of each source; pack rows by expert              (waits.h, pack.h)
 *   end      remember the numbers. Combine sends room when it has received.         (launch.h)
 *
 * Ranks of other nodes are reached by puts into the same slots (nodes.h). By a setting, a row goes once
 * to each node, where one rank relays it, and sums the answers of its node (relay.h).
 *
 * Masks. With WEFT_LL_MASK a rank that does not come in time is masked: it is neither sent to nor
 * awaited from then on. Each rank masks for itself. All words and slots belong to a pair of ranks, so
 * a masked rank that still writes harms nobody (waits.h).
 *
 * Where to look next:
 *
 *   plan.h, layout.h               sizes, offsets and addresses; looked up, not read
 *   launch.h, waits.h              begin and end; waits, signals, credits, masks
 *   low_latency_dispatch.c         signals: with send.h and pack.h
 *   packet_low_latency_dispatch.c  few tokens: with packets.h, packet_rows.h and routes_few.h
 *   told_low_latency_dispatch.c    many tokens: with packets.h, packet_rows.h and routes_many.h
 *   *_low_latency_combine.c        the way back: with combine.h
 *   low_latency_unmask.c           how masked ranks come back
 *   variants.def, variant.c        programs that are compiled once more for one case alone
 *
 * The arguments of all programs follow.
 */
#pragma once

#include "programs/low_latency/plan.h"

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

struct wp_low_latency_combine_args {
    struct wp_low_latency ll;
    enum wp_ll_phase phases;
    enum wp_ll_use use;
    /* To send: rows of plan.dtype, [num_ranks][max_tokens] or [local experts][capacity]; NULL: they are
     * in the slots, and stay there. */
    const char *rows;
    uint64_t row_stride_bytes;
    const float *late_weights; /* [num_tokens][num_topk], where they come late; NULL: 1 */
    /* To receive: */
    const float *topk_weights; /* [num_tokens][num_topk], of answers by choice; NULL: 1 */
    char *out;                 /* [num_tokens] rows of plan.dtype */
    int32_t *missing_ranks;    /* [num_ranks], or NULL */
};

enum wp_ll_release {
    WP_LL_RELEASES_RESULT, /* the oldest one */
    WP_LL_LEAVES /* for good: this rank reads no more, and nobody reads what has stayed here */
};

struct wp_low_latency_release_args {
    struct wp_low_latency ll;
    enum wp_ll_release what;
};

struct wp_low_latency_mask_args {
    struct wp_low_latency ll;
    const int32_t *more; /* [num_ranks] nonzero: masked from now on; NULL: none */
    int32_t *mask;       /* [num_ranks] what is masked then, 0 or 1; NULL: nobody asks */
};

struct wp_low_latency_unmask_args {
    struct wp_low_latency ll;
    const int32_t *mask; /* [num_ranks] nonzero: stays masked, or becomes so */
    uint64_t epoch;      /* greater than any before, the same on all ranks that take part */
};
