/* SPDX-License-Identifier: MIT */
/*
 * The protocol of low latency: read this page first. The rest of the folder is its details.
 *
 * Dispatch sends the row of each token to the ranks that have one of the token's experts. Combine
 * sends an answer to each row back to the token's owner, which sums the answers. Each is one
 * launch, or two: a send phase, then a receive phase. No rank waits for word of another rank before
 * it sends, except for a credit of an earlier step.
 *
 * Slots. Every rank has memory for the rows of all other ranks. So a sender knows by itself where a
 * row goes. A choice is one top-k entry of a token.
 *
 *     rows     slot [source rank][index] of the target. The index counts the earlier tokens of the
 *              source that go to this target. Of many tokens in packets it is the token's own
 *              index.
 *     answers  slot [token][choice] of the token's owner; if a rank answers for several choices,
 *              the first of them. With masks, and in packets, slot [answering rank][token], so that
 *              each slot has one writer.
 *
 * Numbers and buffers. Operations are counted: dispatch n sends rows n, combine n sends answers n.
 * The two are counted apart, since a result may be answered twice (keep) or released. Receive
 * memory has num_buffers buffers: as many as results at a time, 1 or 2. Number n
 * lies in buffer n % num_buffers, and overwrites number n - num_buffers.
 *
 * Credits. A rank writes number n when the target no longer needs number n - num_buffers. The
 * target gives this credit:
 *
 *     rows     when its own result n has ended: it has received the answers to its own tokens, or
 *              has released the result. By then it has also answered the rows of the others.
 *     answers  when it has summed them.
 *
 * There are two ways to know that a row has come.
 *
 * Signals. Block b does the same part of the work on every rank. It sends the b-th share of its
 * rank's tokens, receives what block b of the other ranks has sent, and answers that. So the blocks
 * of one rank never wait for each other: each block counts the tokens of the blocks before it. Each
 * pair of ranks has two words for each block and each kind of payload, which is rows or answers:
 *
 *     arrived[payload][source][block]  in the memory of the target: the last number that has come.
 *                                      The source stores it with release behind its rows.
 *     credit[payload][target][block]   in the memory of the source: the last number with credit.
 *
 * A launch of dispatch:
 *   begin    load the numbers of the block's last launch                            (ll_launch.h)
 *   send     wait for credit of rows; find the routes of the block's tokens: targets and indices;
 *            write rows and ranges, which are the slots that this block fills; signal (ll_send.h,
 *            ll_launch.h)
 *   receive  wait for `arrived` of each source (ll_waits.h); by expert, pack the rows (ll_pack.h)
 *   end      remember the numbers
 * A launch of combine:
 *   send     wait for credit of answers; write them; signal
 *   receive  wait for `arrived` of answers; sum them; give credit of answers and, if the result
 *            ends, of rows. A release gives credit of rows, too.                     (ll_combine.h)
 *
 * By expert, a source also sends each target a head, once: how many rows each of the target's
 * experts gets. From the heads of all sources a rank knows where each row is packed.
 *
 * Packets. A slot of 16 bytes, 8 on CPUs, is empty until that much of a row is stored there at
 * once. So a warp receives its part of a row without waiting for the rest. It then empties the
 * slots. Data that would look empty are told by a second word, so there is as much memory again
 * (machine/packets.h). One word of each source tells how many rows come. Credit is for what a rank
 * has received, and the rank gives it when its next launch begins (ll_packets.h). How ranks know
 * where rows go:
 *
 *     few tokens   each warp of the sender computes where its part of a row goes. By expert, a
 *                  source also sends the expert of each choice, and the choice's position among its
 *                  choices of that expert. (packet_low_latency_dispatch.c)
 *     many tokens  a source sends rows at once. Meanwhile it sends for each token which row it is
 *                  and where it is packed. Some blocks only send, the others only receive.
 *                  (told_low_latency_dispatch.c)
 *
 * docs/low-latency.md has the limits: few tokens are WEFT_LL_PACKETS, many WEFT_LL_TOLD_PACKETS,
 * and beyond these there are signals.
 *
 * Ranks of other nodes are reached by puts into the same slots (ll_nodes.h). By a setting, a row
 * goes once to each node, where one rank relays it (ll_relay.h), and sums the answers of its node
 * (ll_relay_sums.h). Programs of one node have nothing of either. Programs between nodes include
 * ll_internode.h before the same steps. Where these meet a rank of another node, macro WP_LL_NODES
 * calls it (ll_launch.h).
 *
 * Masks. With WEFT_LL_MASK a rank that does not come in time is masked: it is neither sent to nor
 * awaited from then on. Each rank masks for itself. The masked rank is not told; it masks the other
 * rank in turn when its own deadline has passed. All words and slots then belong to a pair of
 * ranks, so a masked rank that still writes harms nobody (ll_waits.h). Ranks come back in a launch
 * of all ranks of the new set: all stop, clear the words and slots that the others write, and begin
 * again with numbers of 0 (low_latency_unmask.c).
 *
 * Where to look next:
 *
 *   ll_plan.h, ll_layout.h         sizes, offsets and addresses; looked up, not read
 *   ll_launch.h                    begin and end; signals, credits
 *   ll_waits.h                     waits, and with masks how long they last
 *   low_latency_dispatch.c         signals: with ll_send.h and ll_pack.h
 *   ll_packet_dispatch.h           packets: a launch of dispatch, and the interface of its routes;
 *                                  with ll_packets.h
 *   ll_expert_signals.h            tells which experts have all their rows
 *   packet_low_latency_dispatch.c, told_low_latency_dispatch.c
 *                                  the routes of few tokens, and of many
 *   *_low_latency_combine.c        the way back: with ll_combine.h
 *   ll_internode.h                 between nodes: with ll_nodes.h, ll_relay.h and ll_relay_sums.h
 *   variants.def, variant.c        programs that are compiled once more for one case alone
 *
 * The arguments of all programs follow.
 */
#pragma once

#include "programs/low_latency/ll_plan.h"

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
    uint64_t *expert_signals;     /* [local experts], the same (ll_expert_signals.h) */
};

/* By expert: words that tell which of the caller's rows are finished. */
struct wp_ll_row_signals {
    const uint32_t *words; /* [local experts][words of an expert]; NULL: all rows are finished */
    uint32_t at_least;     /* then the rows of a word are */
    int32_t rows_per_word;
    int32_t words_per_expert;
    int32_t capacity; /* rows of an expert */
};

struct wp_low_latency_combine_args {
    struct wp_low_latency ll;
    enum wp_ll_phase phases;
    enum wp_ll_use use;
    /* To send: rows of plan.dtype, [num_ranks][max_tokens] or [local experts][capacity]; NULL: they
     * are in the slots, and stay there. */
    const char *rows;
    uint64_t row_stride_bytes;
    struct wp_ll_row_signals signals;
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
