/* SPDX-License-Identifier: MIT */
/* What low latency's ranks have of memory: the area in every heap, and what is a rank's own. low_latency.h
 * says how they use it. */
#pragma once

#include "programs/exchange.h"
#include "programs/low_latency_masks.h"
#include "programs/nodes.h"
#include "programs/routing.h"
#include "programs/share.h"

/* Whether some ranks are on other nodes. Programs in which it counts know that when they are
 * compiled. */
#ifndef WP_LL_HAS_NODES
#define WP_LL_HAS_NODES(plan) ((plan)->has_nodes)
#endif

enum wp_ll_mail {
    WP_LL_ROWS,
    WP_LL_ANSWERS,
    WP_LL_NUM_MAILS,
    /* Rows on their way to the partner who relays them (low_latency_relay.h), in whose words of the network nothing
     * else is told then. */
    WP_LL_RELAYS = WP_LL_NUM_MAILS,
    WP_LL_STOPPED = WP_LL_ROWS, /* of WP_LL_RETURNED: its steps (low_latency_unmask.c) */
    WP_LL_CLEAN = WP_LL_ANSWERS
};

enum wp_ll_phase { WP_LL_SEND = 1, WP_LL_RECEIVE = 2, WP_LL_BOTH = 3 };

/* Whether a result is needed no more when it has been answered. */
enum wp_ll_use { WP_LL_RESULT_ENDS, WP_LL_RESULT_STAYS };

/* A choice of a token: a rank, and one of its experts. */
struct wp_ll_choice {
    int32_t rank; /* -1: nowhere */
    int32_t local_expert;
    int32_t row;   /* there; -1: a choice before is at the same rank */
    int32_t order; /* by expert: selections of the expert before */
};

/* What a block has sent to a rank: rows [first, first + num_rows) of its source there. */
struct wp_ll_range {
    int32_t first;
    int32_t num_rows;
};

/* In place of num_rows: they have not come, nor will; those before `first` have been counted. */
#define WP_LL_ROWS_LACK (-1)

/* What a block has done, by numbers of the last one; zero at first. */
struct wp_ll_numbers {
    uint64_t rows_sent;
    uint64_t rows_received;
    uint64_t rows_answered; /* the last result that has been answered for the last time */
    uint64_t rows_ended;    /* the same, and this rank has received its answers */
    uint64_t answers_sent;
    uint64_t answers_received;
    uint64_t epoch; /* in which it has begun anew (low_latency_unmask.c) */
};

/* Of a block: [begin, end). */
struct wp_ll_tokens {
    int32_t begin;
    int32_t end;
};

struct wp_ll_half {
    struct wp_ll_tokens tokens; /* of this rank, in the result of this half */
    enum wp_ll_use use;         /* whether the answers of this half end a result, */
    uint64_t answered;          /* and which */
};

/* What a block remembers from launch to launch. */
struct wp_ll_block {
    struct wp_ll_numbers numbers;
    struct wp_ll_half halves[WP_NUM_HALVES];
};

/* A row in its slot: elements, scales, then whence it comes and which experts it is for. */
struct wp_ll_slot {
    uint64_t scales_offset;
    uint64_t token_offset; /* int32_t: its index at the source */
    uint64_t
        answer_offset; /* int32_t: the slot at the source for its answer, or for its first one */
    uint64_t experts_offset; /* int32_t [num_topk], -1 where the choice is not here */
    uint64_t weights_offset; /* float [num_topk] */
    uint64_t
        order_offset; /* int32_t [num_topk]: how many of the source's rows the expert has before */
    uint64_t bytes;
};

/* Where answers lie, in slots: one for each choice of a token. Tokens have places that are their
 * block's own, whatever the number of tokens, since a block waits for its own room alone. With masks each rank has its own, since
 * one that was masked may still write. With nodes each block has its own, where those of a rank lie one
 * behind the other: who sends them is told; the ranks share them, or with masks have a stride each. */
struct wp_ll_answer_slots {
    int32_t per_half;
    int32_t rank_stride;                 /* 0: ranks share them */
    int32_t place_stride, choice_stride; /* without nodes */
    int32_t block_stride;                /* with nodes */
};

/* What a block sends to a partner in one put, and how many blocks of how many ranks send to one (low_latency_messages.h):
 * heads, by the last block only; ranges, of the ranks of a node each; and rows, in slots with more behind them. */
struct wp_ll_message {
    int32_t num_nodes;
    int32_t node_sources; /* ranks of a node that have the same partner, at most */
    int32_t num_sources;  /* of all; 0: rows go straight to where they are wanted */
    int32_t row_ranks;    /* of a node that a row goes to, at most */
    int32_t
        num_brought; /* with masks: sources that have slots of their own for what partners bring (low_latency_detours.h) */
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

struct wp_ll_plan { /* the same on all ranks */
    int32_t max_tokens;
    int32_t num_topk;
    int32_t num_halves;
    int32_t num_blocks;        /* of every launch */
    int32_t block_tokens;      /* that a block has at most */
    int32_t max_local_experts; /* of any rank */
    int32_t is_by_expert;      /* rows are packed by expert as they are taken; else they stay */
    int32_t answers_are_rows;  /* of each expert; else their sums, */
    int32_t answers_stay;      /* which ranks of the node read in the slots of the rows */
    int32_t has_nodes;         /* several */
    struct wp_ll_answer_slots answer_slots;
    int32_t capacity;    /* rows that an expert has room for, by expert */
    enum wp_reuse reuse; /* of what is sent */
    int64_t hidden;
    /* Of an element of dtype, and of one that is sent: GPUs shift in a cycle, and divide in a hundred. */
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
};

/* How a rank reaches those of other nodes; nothing of it is used where there are none. */
struct wp_ll_network {
    int32_t num_remote;         /* ranks of other nodes */
    const int32_t *ranks;       /* [num_ranks] these first */
    const int32_t *idx_of_rank; /* [num_ranks] in `ranks` */
    int32_t range_bits;         /* of either part of a range in a word */
    int32_t staged_rows;        /* slots of each block for rows that it sends, of which */
    int32_t staged_rank_rows;   /* each remote rank has so many; 0: they share them */
    int32_t staged_answers;     /* the same for answers, to each of so many ranks: */
    /* num_remote, or, of sums, those whose rows this rank may have to relay. */
    int32_t num_answered;
    /* Memory of the network, and where it is on every rank. At first words, then: */
    char *memory;
    uint64_t place;
    uint64_t heads_offset, rows_offset, messages_offset, answers_offset;
    /* [WP_LL_NUM_MAILS][halves][num_ranks][num_blocks] words of what has arrived, before that which comes next */
    uint64_t *taken;
    /* With masks: [WP_LL_NUM_MAILS][num_ranks][num_blocks] epochs of which the block has told */
    uint64_t *told_epochs;
    /* Where partners relay: */
    struct wp_nodes nodes;
    const int32_t *node_of_rank; /* [num_ranks] */
    int32_t *
        relayed_rows; /* [max_tokens][num_nodes] which of its block's rows for a node a token is; -1: none */
    /* And with masks: [halves][num_ranks][num_blocks] which rows have come, straight or not */
    struct wp_ll_range *ranges;
};

/* Where parts of an area begin: found once, by the host. */
struct wp_ll_offsets {
    uint64_t ranges, heads, rows, answers, messages, brought, summands;
};

struct wp_low_latency {
    struct wp_exchange exchange; /* numbers the launches, and is what reports name */
    struct wp_ll_plan plan;
    struct wp_ll_network network;
    struct wp_placement placement;
    uint64_t area_offset; /* in every heap, zero at first */
    struct wp_ll_offsets offsets;
    /* Of this rank: */
    int32_t num_local_experts;
    char *area;
    struct wp_share share_of_sources; /* of as many rows as a block has of each, among its warps */
    struct wp_ll_block *blocks;       /* [num_blocks] */
    struct wp_ll_choice *choices;     /* [num_blocks][max_tokens][num_topk] */
    int32_t *answering; /* [halves][max_tokens][num_topk] who answers in this slot; -1: nobody */
    int32_t *
        answer_slots; /* the same: with nodes where the answer comes to; of one that stays, which row
                              of this rank it is; -1: there is none */
    int32_t *counters;      /* [num_blocks][wp_ll_num_counters] */
    int32_t *expert_bases;  /* [num_blocks][num_ranks][max_local_experts] */
    char *sums;             /* [num_blocks][num_warps][wp_ll_sum_bytes] on their way */
    int32_t *received_half; /* [1] of the result that was received last */
    int32_t *packed_rows;   /* [halves][num_ranks][max_tokens][num_topk] by expert; -1: none */
    struct wp_ll_masks masks;
    /* [num_ranks] or NULL, of a launch: to which its first block adds how long it has waited for what each
     * rank sends. */
    int64_t *waited_ns;
};

/* ------------------------------------------------------------------ the area in each heap */

WP_FN uint64_t wp_ll_align(uint64_t bytes)
{
    enum { ALIGNMENT = 128 };
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The last three only with masks: that a rank comes back, in two steps (low_latency_unmask.c), how often it has said
 * that it waits, in one word for all its blocks (low_latency_masks.h), and that a partner has relayed rows
 * (low_latency_detours.h). */
enum wp_ll_words {
    WP_LL_ARRIVED,
    WP_LL_ROOM,
    WP_LL_RETURNED,
    WP_LL_WAITS,
    WP_LL_BROUGHT,
    WP_LL_NUM_WORDS
};

WP_FN uint64_t wp_ll_words_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_align((uint64_t)WP_LL_NUM_WORDS * WP_LL_NUM_MAILS * (uint64_t)num_ranks *
                       (uint64_t)plan->num_blocks * sizeof(uint64_t));
}

WP_FN uint64_t wp_ll_ranges_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)num_ranks *
                       (uint64_t)plan->num_blocks * sizeof(struct wp_ll_range));
}

/* As much as any machine needs, since the host's has allocated it. */
WP_FN uint64_t wp_ll_head_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align(((uint64_t)plan->max_local_experts + 2) * sizeof(uint64_t));
}

WP_FN uint64_t wp_ll_heads_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return plan->is_by_expert
               ? (uint64_t)plan->num_halves * (uint64_t)num_ranks * wp_ll_head_bytes(plan)
               : 0;
}

WP_FN uint64_t wp_ll_rows_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)num_ranks *
                       (uint64_t)plan->max_tokens * plan->slot.bytes);
}

WP_FN uint64_t wp_ll_answers_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)plan->answer_slots.per_half *
                       plan->answer_bytes);
}

/* Whether a token's sum is one of sums of nodes. */
WP_FN int wp_ll_has_node_sums(const struct wp_ll_plan *plan)
{
    return WP_LL_HAS_NODES(plan) && plan->message.num_sources > 0 && !plan->answers_are_rows;
}

/* Whether rows that partners relay can also go straight (low_latency_detours.h). */
WP_FN int wp_ll_has_detours(const struct wp_ll_plan *plan)
{
    return WP_LL_HAS_NODES(plan) && plan->message.num_brought > 0;
}

/* Whether partners make the sums of their nodes (low_latency_node_sums.h); else owners do. */
WP_FN int wp_ll_partners_sum(const struct wp_ll_plan *plan)
{
    return wp_ll_has_node_sums(plan) && !wp_ll_has_detours(plan);
}

/* Slots of a half for the answers to rows that this rank has relayed: of each row one behind the other, in the order of
 * the ranks. */
WP_FN int32_t wp_ll_num_summands(const struct wp_ll_plan *plan)
{
    return wp_ll_partners_sum(plan) ? plan->message.num_sources * plan->num_blocks *
                                          plan->block_tokens * plan->message.row_ranks
                                    : 0;
}

WP_FN uint64_t wp_ll_summands_bytes(const struct wp_ll_plan *plan)
{
    return (uint64_t)plan->num_halves * (uint64_t)wp_ll_num_summands(plan) * plan->answer_bytes;
}

/* Of how many nodes an owner makes sums, of a token, at most. */
WP_FN uint64_t wp_ll_num_own_sums(const struct wp_ll_plan *plan)
{
    const int32_t num_nodes = wp_ll_has_detours(plan) ? plan->message.num_nodes : 1;
    if (!wp_ll_has_node_sums(plan))
        return 0;
    return (uint64_t)(num_nodes < plan->num_topk ? num_nodes : plan->num_topk);
}

/* Of a warp: a row of dtype that becomes logarithms, and behind it answers. */
WP_FN uint64_t wp_ll_sum_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align((uint64_t)plan->hidden << plan->element_bytes_log2) +
           wp_ll_num_own_sums(plan) * wp_ll_align(plan->answer_bytes);
}

/* Slots for rows that partners bring. */
WP_FN uint64_t wp_ll_brought_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align((uint64_t)plan->num_halves * (uint64_t)plan->message.num_brought *
                       (uint64_t)plan->max_tokens * plan->slot.bytes);
}

/* Of each source whose rows this rank may have to relay, and each of its blocks. */
WP_FN uint64_t wp_ll_messages_bytes(const struct wp_ll_plan *plan)
{
    return (uint64_t)plan->num_halves * (uint64_t)plan->message.num_sources *
           (uint64_t)plan->num_blocks * plan->message.bytes;
}

WP_FN uint64_t wp_ll_area_bytes(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return wp_ll_words_bytes(plan, num_ranks) + wp_ll_ranges_bytes(plan, num_ranks) +
           wp_ll_heads_bytes(plan, num_ranks) + wp_ll_rows_bytes(plan, num_ranks) +
           wp_ll_answers_bytes(plan) + wp_ll_messages_bytes(plan) + wp_ll_brought_bytes(plan) +
           wp_ll_summands_bytes(plan);
}

WP_FN uint64_t wp_ll_half(const struct wp_ll_plan *plan, uint64_t number)
{
    return number & (uint64_t)(plan->num_halves - 1); /* of one or two */
}

/* Bytes of an answer's first elements. */
WP_FN uint64_t wp_ll_answer_bytes(const struct wp_ll_plan *plan, int64_t num_elements)
{
    return plan->answer_dtype == WEFT_LOG_10BIT
               ? wp_log_row_bytes(num_elements)
               : (uint64_t)num_elements * wp_dtype_bytes(plan->answer_dtype);
}

WP_FN struct wp_ll_offsets wp_ll_offsets_of(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    struct wp_ll_offsets offsets;
    offsets.ranges = wp_ll_words_bytes(plan, num_ranks);
    offsets.heads = offsets.ranges + wp_ll_ranges_bytes(plan, num_ranks);
    offsets.rows = offsets.heads + wp_ll_heads_bytes(plan, num_ranks);
    offsets.answers = offsets.rows + wp_ll_rows_bytes(plan, num_ranks);
    offsets.messages = offsets.answers + wp_ll_answers_bytes(plan);
    offsets.brought = offsets.messages + wp_ll_messages_bytes(plan);
    offsets.summands = offsets.brought + wp_ll_brought_bytes(plan);
    return offsets;
}

/* The area of `owner`. The own one is at hand, the others' addresses are a load away. */
WP_FN char *wp_ll_area(const struct wp_low_latency *ll, int32_t owner)
{
    return owner == ll->exchange.rank ? ll->area : ll->exchange.bases[owner] + ll->area_offset;
}

/* In the area of `owner`: the word of a block of another rank. */
WP_FN uint64_t *wp_ll_word(const struct wp_low_latency *ll, int32_t owner, enum wp_ll_words words,
                           enum wp_ll_mail mail, int32_t rank, int32_t block)
{
    const int64_t num_ranks = ll->exchange.num_ranks;
    const int64_t idx =
        ((words * (int64_t)WP_LL_NUM_MAILS + mail) * num_ranks + rank) * ll->plan.num_blocks +
        block;
    return (uint64_t *)(void *)wp_ll_area(ll, owner) + idx;
}

WP_FN struct wp_ll_range *wp_ll_range_of(const struct wp_low_latency *ll, int32_t owner,
                                         uint64_t number, int32_t source, int32_t block)
{
    char *ranges = wp_ll_area(ll, owner) + ll->offsets.ranges;
    const uint64_t row =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->exchange.num_ranks + (uint64_t)source;
    return (struct wp_ll_range *)(void *)ranges + row * (uint64_t)ll->plan.num_blocks + block;
}

/* How many selections of each of the owner's experts a source has: a tagged row. */
WP_FN char *wp_ll_head(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                       int32_t source)
{
    const uint64_t idx =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->exchange.num_ranks + (uint64_t)source;
    return wp_ll_area(ll, owner) + ll->offsets.heads + idx * wp_ll_head_bytes(&ll->plan);
}

/* In every area: the slot of a row from `source`. */
WP_FN uint64_t wp_ll_row_offset(const struct wp_low_latency *ll, uint64_t number, int32_t source,
                                int32_t row)
{
    const uint64_t idx =
        (wp_ll_half(&ll->plan, number) * (uint64_t)ll->exchange.num_ranks + (uint64_t)source) *
            (uint64_t)ll->plan.max_tokens +
        (uint64_t)row;
    return ll->offsets.rows + idx * ll->plan.slot.bytes;
}

WP_FN char *wp_ll_row(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                      int32_t source, int32_t row)
{
    return wp_ll_area(ll, owner) + wp_ll_row_offset(ll, number, source, row);
}

/* With detours: the same for a row that partners bring, of the i-th source that has such slots. */
WP_FN char *wp_ll_brought_row(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                              int32_t i, int32_t row)
{
    const uint64_t idx =
        (wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.message.num_brought + (uint64_t)i) *
            (uint64_t)ll->plan.max_tokens +
        (uint64_t)row;
    return wp_ll_area(ll, owner) + ll->offsets.brought + idx * ll->plan.slot.bytes;
}

/* Without nodes: the slot of a choice, by the rank that answers it. */
WP_FN int32_t wp_ll_answer_slot(const struct wp_ll_plan *plan, int32_t answering, int32_t place,
                                int32_t choice)
{
    const struct wp_ll_answer_slots *slots = &plan->answer_slots;
    return answering * slots->rank_stride + place * slots->place_stride +
           choice * slots->choice_stride;
}

/* In every area: a slot for an answer. */
WP_FN uint64_t wp_ll_answer_offset(const struct wp_low_latency *ll, uint64_t number, int32_t slot)
{
    const uint64_t idx =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.answer_slots.per_half + (uint64_t)slot;
    return ll->offsets.answers + idx * ll->plan.answer_bytes;
}

WP_FN char *wp_ll_answer(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                         int32_t slot)
{
    return wp_ll_area(ll, owner) + wp_ll_answer_offset(ll, number, slot);
}

/* An answer to a row that `owner` has relayed. */
WP_FN char *wp_ll_summand(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                          int32_t slot)
{
    const uint64_t idx =
        wp_ll_half(&ll->plan, number) * (uint64_t)wp_ll_num_summands(&ll->plan) + (uint64_t)slot;
    return wp_ll_area(ll, owner) + ll->offsets.summands + idx * ll->plan.answer_bytes;
}

/* ------------------------------------------------------------------ memory of this rank */

/* What a block counts: for each rank rows, twice, and selections of its experts; with nodes also
 * answers, twice, for each node the rows that are relayed there, and for each rank, with detours, whether they are. */
WP_FN int32_t wp_ll_num_counters(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    const int32_t num_experts = plan->is_by_expert ? plan->max_local_experts : 0;
    const int32_t num_of_nodes = WP_LL_HAS_NODES(plan) ? 2 + (wp_ll_has_detours(plan) ? 1 : 0) : 0;
    return num_ranks * (2 + num_experts + num_of_nodes) +
           (WP_LL_HAS_NODES(plan) ? plan->message.num_nodes : 0);
}

/* Who answers token's choices of a result: [num_topk]. */
WP_FN int32_t *wp_ll_answering(const struct wp_low_latency *ll, uint64_t number, int32_t token)
{
    const uint64_t row =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.max_tokens + (uint64_t)token;
    return ll->answering + row * (uint64_t)ll->plan.num_topk;
}

/* With nodes where the answers to a token's choices come to, else where they stay: [num_topk]. */
WP_FN int32_t *wp_ll_answer_slots(const struct wp_low_latency *ll, uint64_t number, int32_t token)
{
    const uint64_t row =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->plan.max_tokens + (uint64_t)token;
    return ll->answer_slots + row * (uint64_t)ll->plan.num_topk;
}

/* Which of the rows that its block has for each node a token is: [num_nodes]. */
WP_FN int32_t *wp_ll_relayed_rows(const struct wp_low_latency *ll, int32_t token)
{
    return ll->network.relayed_rows + (int64_t)token * ll->plan.message.num_nodes;
}

/* Where the row of a source has been packed, by choice: [num_topk]. */
WP_FN int32_t *wp_ll_packed(const struct wp_low_latency *ll, uint64_t number, int32_t source,
                            int32_t row)
{
    const uint64_t rank_row =
        wp_ll_half(&ll->plan, number) * (uint64_t)ll->exchange.num_ranks + (uint64_t)source;
    return ll->packed_rows +
           (rank_row * (uint64_t)ll->plan.max_tokens + (uint64_t)row) * (uint64_t)ll->plan.num_topk;
}
