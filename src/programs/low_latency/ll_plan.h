/* SPDX-License-Identifier: MIT */
/* Arguments of the launches of low latency, and the state that they keep from one to the next. */
#pragma once

#include "programs/block.h"
#include "programs/exchange.h"
#include "programs/nodes.h"
#include "programs/placement.h"
#include "programs/share.h"

/* ================== how warps share a few rows */

/*
 * How the warps of a block share a few rows. It is programs/share.h for low latency, where each
 * instruction counts. The number of a row's parts is a power of two, so that nothing is divided: a
 * division takes as long as a load. Bytes of a row are counted in 32 bits, the width of a GPU's
 * adder.
 */

struct wp_ll_share {
    int32_t parts_log2; /* of each row */
    int32_t num_units;  /* parts of all rows, as far as it is known how many there are */
};

WP_FN struct wp_ll_share wp_ll_share_rows(int32_t num_warps, int32_t num_rows)
{
    enum { MAX_PARTS_LOG2 = 3 };
    int32_t parts_log2 = 0;
    while (parts_log2 < MAX_PARTS_LOG2 && num_rows << (parts_log2 + 1) <= num_warps)
        parts_log2++;
    const struct wp_ll_share share = {parts_log2, num_rows << parts_log2};
    return share;
}

WP_FN struct wp_part wp_ll_unit_part(const struct wp_ll_share *share, int32_t unit)
{
    const struct wp_part part = {unit >> share->parts_log2, unit & ((1 << share->parts_log2) - 1)};
    return part;
}

/* The last part has least bytes, or none. */
WP_FN int wp_ll_is_last_part(const struct wp_ll_share *share, int32_t part)
{
    return part + 1 == 1 << share->parts_log2;
}

/* Bytes of a row that a part has. */
struct wp_ll_span {
    uint32_t begin;
    uint32_t bytes;
};

WP_FN struct wp_ll_span wp_ll_part_span(const struct wp_ll_share *share, int32_t part,
                                        uint32_t row_bytes)
{
    const uint32_t num_steps = (row_bytes + WP_STEP_BYTES - 1) / WP_STEP_BYTES;
    const uint32_t part_steps = (num_steps + (1u << share->parts_log2) - 1) >> share->parts_log2;
    const uint32_t part_bytes = part_steps * WP_STEP_BYTES;
    const uint32_t begin = (uint32_t)part * part_bytes;
    const uint32_t rest = begin < row_bytes ? row_bytes - begin : 0;
    const struct wp_ll_span span = {begin, rest < part_bytes ? rest : part_bytes};
    return span;
}

/* ================== masks */

struct wp_ll_masks {          /* of this rank */
    uint32_t absent_after_ms; /* the deadline; 0: a missing rank fails the launch, without masks */
    int32_t *mask;            /* [num_ranks] nonzero: masked */
    /* [num_blocks][num_ranks] The ranks that a block goes on without: in low_latency_unmask.c, and
     * if memory of the block has no room for them. */
    int32_t *missing;
    int32_t *verdicts;         /* [num_ranks] of heads: number << 1, and whether it is there */
    uint32_t *num_blocks_done; /* that wait for nobody any more; zero between launches */
};

/* Variants define this macro (low_latency/variant.c). */
#ifndef WP_LL_HAS_MASKS
#define WP_LL_HAS_MASKS(masks) ((masks)->absent_after_ms > 0)
#endif

WP_FN int wp_ll_has_masks(const struct wp_ll_masks *masks)
{
    (void)masks; /* some need not look */
    return WP_LL_HAS_MASKS(masks);
}

enum { WP_LL_PERIODS = 4 /* of a deadline (ll_waits.h) */ };

/* 0 without masks. */
WP_FN uint32_t wp_ll_period_ms(const struct wp_ll_masks *masks)
{
    return wp_ll_has_masks(masks) ? (masks->absent_after_ms + WP_LL_PERIODS - 1) / WP_LL_PERIODS
                                  : 0;
}

WP_FN int wp_ll_is_masked(const struct wp_ll_masks *masks, int32_t rank)
{
    return wp_ll_has_masks(masks) && wp_load_relaxed(&masks->mask[rank]) != 0;
}

/* All lanes get the same answer, although lanes may see a mask at different times. */
WP_FN int wp_ll_warp_masks(struct wp_warp *warp, const struct wp_ll_masks *masks, int32_t rank)
{
    return wp_ll_has_masks(masks) && wp_ballot(warp, wp_ll_is_masked(masks, rank)) != 0;
}

/* Values in missing_ranks. */
enum wp_ll_missing { WP_LL_THERE, WP_LL_MASKED };

WP_FN void wp_ll_mask_out(const struct wp_ll_masks *masks, int32_t rank)
{
    wp_compare_swap_relaxed(&masks->mask[rank], 0, 1);
}

/* ================== plan */

/* Whether some ranks are on other nodes. Programs in which it counts know that when they are
 * compiled. */
#ifndef WP_LL_HAS_NODES
#define WP_LL_HAS_NODES(plan) ((plan)->has_nodes)
#endif

/* Whether rows that go to another node are relayed there. */
#ifndef WP_LL_HAS_RELAYS
#define WP_LL_HAS_RELAYS(plan) (WP_LL_HAS_NODES(plan) && (plan)->message.num_sources > 0)
#endif

enum wp_ll_payload {
    WP_LL_ROWS,
    WP_LL_ANSWERS,
    WP_LL_NUM_PAYLOADS,
    /* Rows on their way to the rank that relays them (ll_relay.h). They share the words of rows. */
    WP_LL_RELAYS = WP_LL_NUM_PAYLOADS,
    WP_LL_STOPPED = WP_LL_ROWS, /* of WP_LL_RETURNED: its steps (low_latency_unmask.c) */
    WP_LL_CLEAN = WP_LL_ANSWERS
};

enum wp_ll_phase { WP_LL_SEND = 1, WP_LL_RECEIVE = 2, WP_LL_BOTH = 3 };

/* Whether a result ends when it has been answered. */
enum wp_ll_use { WP_LL_RESULT_ENDS, WP_LL_RESULT_STAYS };

/* A choice of a token: a rank, and one of its experts. */
struct wp_ll_choice {
    int32_t rank; /* -1: nowhere */
    int32_t local_expert;
    int32_t row;   /* there; -1: a choice before is at the same rank */
    int32_t order; /* by expert: selections of the expert before */
};

/* Instead of a row index, by expert: the expert is on another rank, or its buffer is full. */
enum { WP_LL_NOT_HERE = -1, WP_LL_NO_ROOM = -2 };

/* By expert: as which row a choice has been packed, and its weight. */
struct wp_ll_packed_choice {
    int32_t packed;
    float weight;
};

/* The rows that a block has sent to a rank: [first, first + num_rows) of its source there. */
struct wp_ll_range {
    int32_t first;
    int32_t num_rows;
};

/* The sequence numbers of the last operations of a block; zero at first. */
struct wp_ll_numbers {
    uint64_t rows_sent;
    uint64_t rows_received;
    uint64_t rows_answered; /* the last result that has been answered for the last time */
    uint64_t rows_ended;    /* the same, and this rank has received its answers */
    uint64_t answers_sent;
    uint64_t answers_received;
    uint64_t epoch; /* in which it has begun anew (low_latency_unmask.c) */
};

/* A credit: the last numbers of rows and of answers that are no longer needed; 0: none. */
struct wp_ll_credit {
    uint64_t rows, answers;
};

/* The tokens of a block: [begin, end). */
struct wp_ll_tokens {
    int32_t begin;
    int32_t end;
};

struct wp_ll_buffer {
    struct wp_ll_tokens tokens; /* of this rank, in the result of this buffer */
    enum wp_ll_use use;         /* whether the answers of this buffer end a result, */
    uint64_t answered;          /* and which */
};

/* The state that a block keeps from launch to launch. */
struct wp_ll_block {
    struct wp_ll_numbers numbers;
    struct wp_ll_buffer buffers[WP_NUM_BUFFERS];
};

/* Offsets in the slot of a row, which begins with its elements. */
struct wp_ll_slot {
    uint64_t scales_offset;
    uint64_t token_offset;   /* int32_t: its index at the source */
    uint64_t answer_offset;  /* int32_t: the slot at the source for its (first) answer */
    uint64_t experts_offset; /* int32_t [num_topk], -1 where the choice is not here */
    uint64_t weights_offset; /* float [num_topk] */
    uint64_t order_offset;   /* int32_t [num_topk]: rows of the source before it, for the expert */
    uint64_t bytes;
};

/* Slots of answers: one for each choice of a token. The place of a token belongs to its block,
 * whatever the number of tokens, since a block waits for its own credit alone. With masks each rank
 * has slots of its own, since a masked rank may still write. Between nodes each block has slots, in
 * which the answers of a rank lie one behind the other; rows tell where. Ranks share these slots,
 * or with masks have a stride each. */
struct wp_ll_answer_slots {
    int32_t per_buffer;
    int32_t rank_stride;                 /* 0: ranks share them */
    int32_t place_stride, choice_stride; /* without nodes */
    int32_t block_stride;                /* with nodes */
};

/* One put of a block to the rank that relays its rows in another node (ll_relay.h): heads (last
 * block only), one range for each rank of that node, then the rows with their targets. */
struct wp_ll_message {
    int32_t num_nodes;
    int32_t node_sources; /* ranks of a node that have the same partner, at most */
    int32_t num_sources;  /* of all; 0: rows go straight to where they are wanted */
    int32_t row_ranks;    /* of a node that a row goes to, at most */
    uint64_t ranges_offset, rows_offset;
    uint64_t row_bytes;
    uint64_t bytes; /* with as many rows as a block has tokens */
};

/* Behind the slot of a row that is relayed, for each choice: where its row goes. */
struct wp_ll_target {
    int32_t rank; /* -1: it is not of this node */
    int32_t row;  /* there; -1: a choice before is at the same rank */
    /* To that row: its slot at the source, unless the partner sums those of his node. */
    int32_t answer;
};

/* How rows or answers in packets are cut (ll_packets.h). The last part has the elements that are
 * left. */
struct wp_ll_parts {
    int32_t num; /* 0: signals tell of what comes */
    int32_t elements;
    int32_t num_units; /* these, and what a row has besides */
    uint32_t units_reciprocal, ranks_reciprocal;
};
/* The most bytes of a part that is sent, and of its scales, which follow those of the part
 * before. */
enum { WP_LL_PART_BYTES = 512, WP_LL_PART_SCALES_BYTES = 16 };
/* Many tokens: longer parts are sent. In bf16 a lane has four packets. */
enum { WP_LL_TOLD_PART_ELEMENTS = 1024 };
/* As they are received: on 4x H200 dispatch of 128 tokens of FP8 by rank took 15.8 and 15.9 us with
 * parts of 2 and 3.5 KiB, 16.7 with one of 7 (2026-11-26, where one block in three sent). */
enum { WP_LL_TAKEN_PART_BYTES = 4096 };

struct wp_ll_plan { /* the same on all ranks */
    int32_t max_tokens;
    int32_t num_topk;
    int32_t num_topk_log2; /* rounded up */
    uint32_t topk_reciprocal;
    int32_t num_buffers;
    int32_t num_blocks;        /* of every launch */
    int32_t block_tokens;      /* that a block has at most */
    int32_t max_local_experts; /* of any rank */
    int32_t is_by_expert;      /* rows are packed by expert as they are taken; else they stay */
    int32_t answers_are_rows;  /* of each expert; else their sums, */
    int32_t answers_stay;      /* which ranks of the node read in the slots of the rows */
    int32_t weights_come_late; /* with combine; then there is one node */
    int32_t is_told;   /* packets of many tokens: a source sends the metadata of each token */
    int32_t has_nodes; /* several */
    struct wp_ll_answer_slots answer_slots;
    int32_t capacity;    /* rows that an expert has room for, by expert */
    int32_t drops_rows;  /* beyond it, as the caller has wished; else dispatch fails */
    enum wp_reuse reuse; /* of what is sent */
    int64_t hidden;
    /* Logarithms of the bytes of an element of dtype, and of one that is sent. GPUs shift in a
     * cycle, and divide in a hundred. */
    int32_t element_bytes_log2, sent_element_bytes_log2;
    weft_dtype dtype;        /* of tokens, and of what comes back */
    weft_dtype answer_dtype; /* on their way back */
    /* On their way there, from dtype; the same dst_dtype: as they are. */
    struct wp_quantisation quantisation;
    int32_t max_row_parts; /* of a row that is sent: 1 where parts would cut words of scales */
    uint64_t row_bytes;    /* of a row's elements */
    uint64_t scales_bytes;
    uint64_t answer_bytes; /* between slots of answers */
    struct wp_ll_slot slot;
    struct wp_ll_message message;
    /* Parts of rows as they are sent; of rows as they are received, which differ for many tokens;
     * of answers; and of their sums. */
    struct wp_ll_parts row_parts, taken_parts, answer_parts, sum_parts;
};

/* How a rank reaches the ranks of other nodes. Nothing of it is used on one node. */
struct wp_ll_network {
    int32_t num_remote;         /* ranks of other nodes */
    const int32_t *ranks;       /* [num_ranks] these first */
    const int32_t *idx_of_rank; /* [num_ranks] in `ranks` */
    int32_t range_bits;         /* of either part of a range in a word */
    int32_t staged_rows;        /* slots of each block for rows that it sends */
    int32_t staged_rank_rows;   /* of these for each remote rank; 0: they share them */
    int32_t staged_answers;     /* slots of each block for answers to a rank */
    int32_t num_answered; /* these ranks: num_remote, or the ranks whose sums this rank sends */
    /* Memory of the network, and where it is on every rank. At first words, then: */
    char *memory;
    uint64_t place;
    uint64_t heads_offset, rows_offset, messages_offset, answers_offset;
    /* [payloads][buffers][num_ranks][num_blocks] arrival words before the next payload. */
    uint64_t *taken;
    uint64_t *told_epochs; /* with masks: [payloads][num_ranks][num_blocks] signalled last */
    /* Where partners relay: */
    struct wp_nodes nodes;
    const int32_t *node_of_rank; /* [num_ranks] */
    int32_t *relayed_rows; /* [max_tokens][num_nodes] index in the block's message; -1: none */
};

/* The regions of the area that each rank has in its heap, in their order, behind its words.
 * Columns: name; how many things a buffer has, and the bytes of one, as wp_ll_offsets_of finds
 * (ll_layout.h). */
#define WP_LL_REGIONS(X)                                                                           \
    X(ranges, num_ranges, sizeof(struct wp_ll_range))                                              \
    X(heads, plan->is_by_expert ? ranks : 0, offsets.head_bytes)                                   \
    X(told, plan->is_told ? rows : 0, wp_ll_tagged_bytes(wp_ll_num_told_words(plan)))              \
    X(rows, has_packets && plan->is_by_expert ? 0 : rows, plan->slot.bytes)                        \
    X(answers, has_packets ? 0 : (uint64_t)plan->answer_slots.per_buffer, plan->answer_bytes)      \
    X(messages, num_messages, plan->message.bytes)                                                 \
    X(summands, (uint64_t)wp_ll_num_summands(plan), plan->answer_bytes)                            \
    X(late_weights, plan->weights_come_late ? rows : 0, wp_ll_tagged_bytes(plan->num_topk))        \
    X(comes, has_packets ? WP_LL_NUM_PAYLOADS *ranks : 0, sizeof(uint64_t))                        \
    X(row_packets, 2, offsets.row_packets_buffer) /* escape words take at most as much again */    \
    X(answer_packets, 2, offsets.answer_packets_buffer)

/* Where regions begin: found once, by the host. */
struct wp_ll_offsets {
#define WP_LL_DECLARE(name, num, bytes) uint64_t name;
    WP_LL_REGIONS(WP_LL_DECLARE)
#undef WP_LL_DECLARE
    uint64_t end;
    uint64_t head_bytes;                                /* of each head */
    uint64_t row_packets_buffer, answer_packets_buffer; /* bytes of a buffer */
};

/* Offsets in memory of a block, behind the words of wp_block_max and, with masks, the missing
 * ranks: found once, by the host. What has no room there is in a table. */
struct wp_ll_near {
    uint32_t counters; /* or, later, the bases of experts' rows */
    uint32_t choices;
    uint32_t ranks_of_tokens;
    uint32_t end;
};

/* The most top-k entries of a token in variants (low_latency/usual.h). */
enum { WP_LL_USUAL_TOPK = 32 };
#ifndef WP_LL_TOPK_IS_USUAL
#define WP_LL_TOPK_IS_USUAL 0
#endif
/* Returns 1 if a token has choices from `first` on, when each lane of a warp has looked at one.
 * Most variants know that a warp has lanes for all. */
WP_FN int wp_ll_has_more_choices(const struct wp_ll_plan *plan, int32_t first)
{
    const int fit_lanes = WP_LL_TOPK_IS_USUAL && WP_LL_USUAL_TOPK <= WP_WARP_SIZE;
    return first == 0 || (!fit_lanes && first < plan->num_topk);
}

/* Most ranks of a node whose areas are parameters of launches, which are nearer than a table in
 * memory. */
enum { WP_LL_NEAR_RANKS = 8 };

struct wp_low_latency {
    struct wp_exchange exchange; /* numbers the launches, and is what reports name */
    struct wp_ll_plan plan;
    struct wp_ll_network network;
    struct wp_placement placement;
    uint64_t area_offset; /* in every heap, zero at first */
    struct wp_ll_offsets offsets;
    struct wp_ll_near near;
    char *near_areas[WP_LL_NEAR_RANKS]; /* of the first ranks */
    char *const *areas;                 /* these, where the program knows them; else NULL */
    /* These are of this rank: */
    int32_t num_local_experts;
    int32_t num_receiver_warps; /* the last warps of a block, which only receive heads */
    int32_t num_receivers;      /* the first blocks, which only receive; 0: all blocks do both */
    char *area;
    struct wp_ll_share share_of_sources; /* of the rows that come for a block, among its warps */
    struct wp_ll_block *blocks;          /* [num_blocks] */
    struct wp_ll_choice *choices;        /* [num_blocks][block_tokens][num_topk] */
    int32_t *answering; /* [buffers][max_tokens][num_topk] ranks that answer choices; -1: none */
    /* The same: between nodes the slot of the answer; else, if answers stay, its row; -1: none. */
    int32_t *answer_slots;
    int32_t *counters;        /* [num_blocks][wp_ll_num_counters] */
    int32_t *ranks_of_tokens; /* [num_blocks][max_tokens][wp_ll_rank_words] */
    int32_t *expert_bases;    /* [num_blocks][num_ranks][max_local_experts] */
    char *sums;               /* [num_blocks][num_warps][wp_ll_sum_bytes] on their way */
    int32_t *received_buffer; /* [1] of the result that was received last */
    /* [buffers][num_ranks][max_tokens][num_topk], by expert. */
    struct wp_ll_packed_choice *packed_choices;
    /* In packets: */
    int32_t *num_rows;    /* [buffers][num_ranks] that have come from a source */
    int32_t *row_targets; /* [buffers][num_ranks][max_tokens] whether a token has gone to a rank */
    int32_t *rows_taken;  /* [num_ranks] credit (wp_ll_note_received), by wp_add_relaxed */
    struct wp_ll_masks masks;
    int64_t *waited_ns; /* [num_ranks] or NULL: the launch adds its waits for each rank */
    /* By expert, zero between launches (ll_expert_signals.h): */
    uint32_t *parts_left;      /* [max_local_experts] of rows that come, negated */
    uint32_t *num_blocks_told; /* [1] that have packed what they pack */
};
