/* SPDX-License-Identifier: MIT */
/* The memory of low latency: the area in every heap, memory of a rank's own, and memory of a
 * block. */
#pragma once

#include "programs/low_latency/ll_plan.h"

/* ------------------------------------------------------------------ the area in each heap */

WP_FN uint64_t wp_ll_align(uint64_t bytes)
{
    enum { ALIGNMENT = 128 };
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The kinds of words. The last two are used with masks only: a rank comes back, in two steps
 * (low_latency_unmask.c); and how often it has announced a wait, in one word for all its blocks. */
enum wp_ll_words { WP_LL_ARRIVED, WP_LL_CREDIT, WP_LL_RETURNED, WP_LL_WAITS, WP_LL_NUM_WORDS };

/* The bytes of a tagged row, a multiple of 16: as many as any machine needs, since the host
 * allocates it. */
WP_FN uint64_t wp_ll_tagged_bytes(int32_t num_words)
{
    return ((uint64_t)num_words + 3) / 2 * 2 * sizeof(uint64_t);
}

/* Whether rows and answers go in packets. */
WP_FN int wp_ll_has_packets(const struct wp_ll_plan *plan)
{
    return plan->row_parts.num > 0;
}

/* Work items of a dispatch in packets, as they are received: one count for each rank, then one item
 * for each part of each token and rank. Of few tokens they are sent so, too. */
WP_FN int32_t wp_ll_num_taken_units(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return (1 + plan->max_tokens * plan->taken_parts.num_units) * num_ranks;
}

/* Work items of many tokens, in the order of sending: for each rank, the counts and the metadata of
 * each token. Then each part of each token, to all ranks at once. */
WP_FN int32_t wp_ll_num_told_units(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return (1 + plan->max_tokens) * num_ranks;
}

/* Work items of a combine: the parts of answers to each rank. */
WP_FN int32_t wp_ll_num_answer_units(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return plan->max_tokens * plan->answer_parts.num * num_ranks;
}

/* The words of a count of 16 bits for each expert of a rank, two in a word; by expert only. */
WP_FN int32_t wp_ll_num_pairs(const struct wp_ll_plan *plan)
{
    return plan->is_by_expert ? (plan->max_local_experts + 1) / 2 : 0;
}

WP_FN uint32_t wp_ll_pair_count(const uint32_t *counts, int32_t expert)
{
    return counts[expert / 2] >> 16 * (expert % 2) & UINT16_MAX;
}

/* Lanes call this, and may add to the same word. */
WP_FN void wp_ll_add_to_pair(uint32_t *counts, int32_t expert, uint32_t num)
{
    wp_add_relaxed((int32_t *)&counts[expert / 2], (int32_t)(num << 16 * (expert % 2)));
}

/* Few tokens: behind the counts, for each choice, two in a word: its expert at the target, and
 * above it how many of the source's choices before it are for that expert; or that its expert is
 * elsewhere. */
enum { WP_LL_CHOSEN_EXPERT_BITS = 8, WP_LL_CHOSEN_NOT_HERE = UINT16_MAX };
#define WP_LL_CHOSEN_NONE UINT32_MAX /* two of them */

WP_FN int32_t wp_ll_num_chosen_words(const struct wp_ll_plan *plan)
{
    return wp_ll_num_pairs(plan) + (plan->max_tokens * plan->num_topk + 1) / 2;
}

/* A place is 16 bits: the local expert in the low 12, rank + 1 above; 0 is none. */
enum { WP_LL_PLACE_EXPERT_BITS = 12 };

/* The metadata of a token for a target: the index of its row there; for each choice the expert
 * there, by expert with the number of the source's choices before it for that expert in the high
 * 16 bits, or that the expert is elsewhere; then the weights. */
#define WP_LL_TOLD_NOT_HERE UINT32_MAX

WP_FN int32_t wp_ll_num_told_words(const struct wp_ll_plan *plan)
{
    return 1 + 2 * plan->num_topk;
}

/* The words of a head: a source's number of choices for each expert of the target, in packets two
 * in a word; of few tokens, behind that, the expert of each choice. */
WP_FN int32_t wp_ll_num_head_words(const struct wp_ll_plan *plan)
{
    if (!wp_ll_has_packets(plan))
        return plan->max_local_experts;
    return plan->is_told ? wp_ll_num_pairs(plan) : wp_ll_num_chosen_words(plan);
}

/* Whether a token's sum is made of one sum for each node. */
WP_FN int wp_ll_has_node_sums(const struct wp_ll_plan *plan)
{
    return WP_LL_HAS_RELAYS(plan) && !plan->answers_are_rows;
}

/* Slots of a buffer for answers to the rows that this rank has relayed: those of a row lie one
 * behind the other, in the order of the ranks. */
WP_FN int32_t wp_ll_num_summands(const struct wp_ll_plan *plan)
{
    return wp_ll_has_node_sums(plan) ? plan->message.num_sources * plan->num_blocks *
                                           plan->block_tokens * plan->message.row_ranks
                                     : 0;
}

/* Memory of a warp, with sums of nodes: the sum of this node. */
WP_FN uint64_t wp_ll_sum_bytes(const struct wp_ll_plan *plan)
{
    return wp_ll_align(plan->answer_bytes);
}

WP_FN struct wp_ll_offsets wp_ll_offsets_of(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    const uint64_t buffers = (uint64_t)plan->num_buffers, blocks = (uint64_t)plan->num_blocks;
    const uint64_t ranks = (uint64_t)num_ranks, rows = ranks * (uint64_t)plan->max_tokens;
    const uint64_t num_ranges = ranks * blocks;
    const uint64_t num_messages = (uint64_t)plan->message.num_sources * blocks;
    const int has_packets = wp_ll_has_packets(plan);
    struct wp_ll_offsets offsets;
    uint64_t at =
        wp_ll_align((uint64_t)WP_LL_NUM_WORDS * WP_LL_NUM_PAYLOADS * num_ranges * sizeof(uint64_t));
    offsets.head_bytes = wp_ll_align(wp_ll_tagged_bytes(wp_ll_num_head_words(plan)));
    offsets.row_packets_buffer = has_packets ? rows * plan->slot.bytes : 0;
    offsets.answer_packets_buffer = has_packets ? wp_ll_align(rows * plan->answer_bytes) : 0;
#define WP_LL_PLACE(name, num, bytes)                                                              \
    offsets.name = at;                                                                             \
    at += wp_ll_align(buffers * (num) * (bytes));
    WP_LL_REGIONS(WP_LL_PLACE)
#undef WP_LL_PLACE
    offsets.end = at;
    return offsets;
}

/* The index of a slot and the bytes of a slot fit into 32 bits, the width in which GPUs
 * multiply. */
WP_FN uint32_t wp_ll_buffer(const struct wp_ll_plan *plan, uint64_t number)
{
    return (uint32_t)number & (uint32_t)(plan->num_buffers - 1); /* of one or two */
}

WP_FN uint32_t wp_ll_rank_of_buffer(const struct wp_low_latency *ll, uint64_t number, int32_t rank)
{
    return wp_ll_buffer(&ll->plan, number) * (uint32_t)ll->exchange.num_ranks + (uint32_t)rank;
}

/* In a table of both buffers: the entry of a rank's row, or of a token of this rank for a rank.
 * Number 0: in the packets of one buffer. */
WP_FN uint32_t wp_ll_token_idx(const struct wp_low_latency *ll, uint64_t number, int32_t rank,
                               int32_t token)
{
    return wp_ll_rank_of_buffer(ll, number, rank) * (uint32_t)ll->plan.max_tokens + (uint32_t)token;
}

WP_FN uint64_t wp_ll_slot_offset(uint32_t idx, uint64_t slot_bytes)
{
    return (uint64_t)idx * (uint32_t)slot_bytes;
}

/* The bytes of the first elements of an answer. */
WP_FN uint64_t wp_ll_answer_bytes(const struct wp_ll_plan *plan, int64_t num_elements)
{
    return (uint64_t)num_elements * wp_dtype_bytes(plan->answer_dtype);
}

/* Dispatch in packets knows that the areas of all ranks are parameters. Combine does not use this:
 * it was slower (2026-11-27). */
#ifndef WP_LL_RANKS_ARE_NEAR
#define WP_LL_RANKS_ARE_NEAR 0
#endif

/* The area of `owner`. The addresses of other ranks' areas may be a load away. */
WP_FN char *wp_ll_area(const struct wp_low_latency *ll, int32_t owner)
{
    if (WP_LL_RANKS_ARE_NEAR || (ll->areas != NULL && owner < WP_LL_NEAR_RANKS))
        return ll->areas[owner];
    return owner == ll->exchange.rank ? ll->area : ll->exchange.bases[owner] + ll->area_offset;
}

/* Returns 1 if a rank is on another node, so that its area is not mapped. In programs of one node
 * this loads nothing. */
WP_FN int wp_ll_is_remote(const struct wp_low_latency *ll, int32_t rank)
{
    return WP_LL_HAS_NODES(&ll->plan) && ll->exchange.bases[rank] == NULL;
}

/* Whether answers to `source` stay in this rank's slots, where `source` reads them. */
WP_FN int wp_ll_stays(const struct wp_low_latency *ll, int32_t source)
{
    return ll->plan.answers_stay && !wp_ll_is_remote(ll, source);
}

/* In the area of `owner`: the word of a block of another rank. */
WP_FN uint64_t *wp_ll_word(const struct wp_low_latency *ll, int32_t owner, enum wp_ll_words words,
                           enum wp_ll_payload payload, int32_t rank, int32_t block)
{
    const int32_t idx =
        (((int32_t)words * WP_LL_NUM_PAYLOADS + (int32_t)payload) * ll->exchange.num_ranks + rank) *
            ll->plan.num_blocks +
        block;
    return (uint64_t *)(void *)wp_ll_area(ll, owner) + idx;
}

/* A word of this rank, and its least value when a block of a rank has signalled a number. */
struct wp_ll_awaited {
    const uint64_t *word; /* NULL: none is awaited */
    uint64_t at_least;
};

WP_FN struct wp_ll_range *wp_ll_range_of(const struct wp_low_latency *ll, int32_t owner,
                                         uint64_t number, int32_t source, int32_t block)
{
    char *ranges = wp_ll_area(ll, owner) + ll->offsets.ranges;
    const uint32_t idx =
        wp_ll_rank_of_buffer(ll, number, source) * (uint32_t)ll->plan.num_blocks + (uint32_t)block;
    return (struct wp_ll_range *)(void *)ranges + idx;
}

/* The head of a source, a tagged row. */
WP_FN char *wp_ll_head(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                       int32_t source)
{
    return wp_ll_area(ll, owner) + ll->offsets.heads +
           wp_ll_slot_offset(wp_ll_rank_of_buffer(ll, number, source), ll->offsets.head_bytes);
}

/* The metadata of a source's token, a tagged row. */
WP_FN char *wp_ll_told(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                       int32_t source, int32_t token)
{
    return wp_ll_area(ll, owner) + ll->offsets.told +
           wp_ll_slot_offset(wp_ll_token_idx(ll, number, source, token),
                             wp_ll_tagged_bytes(wp_ll_num_told_words(&ll->plan)));
}

/* The offset, in any area, of the slot of a row from `source`. */
WP_FN uint64_t wp_ll_row_offset(const struct wp_low_latency *ll, uint64_t number, int32_t source,
                                int32_t row)
{
    return ll->offsets.rows +
           wp_ll_slot_offset(wp_ll_token_idx(ll, number, source, row), ll->plan.slot.bytes);
}

WP_FN char *wp_ll_row(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                      int32_t source, int32_t row)
{
    return wp_ll_area(ll, owner) + wp_ll_row_offset(ll, number, source, row);
}

/* The words of a slot at an offset (struct wp_ll_slot). */
WP_FN int32_t *wp_ll_slot_words(const char *slot, uint64_t offset)
{
    return (int32_t *)(uintptr_t)(slot + offset);
}

/* On one node: the slot for the answer to a choice of the i-th token of a block, by the rank that
 * answers. */
WP_FN int32_t wp_ll_answer_slot(const struct wp_ll_plan *plan, int32_t answering, int32_t block,
                                int32_t i, int32_t choice)
{
    const struct wp_ll_answer_slots *slots = &plan->answer_slots;
    return answering * slots->rank_stride + (block * plan->block_tokens + i) * slots->place_stride +
           choice * slots->choice_stride;
}

/* The offset, in any area, of a slot for an answer. */
WP_FN uint64_t wp_ll_answer_offset(const struct wp_low_latency *ll, uint64_t number, int32_t slot)
{
    const uint32_t idx =
        wp_ll_buffer(&ll->plan, number) * (uint32_t)ll->plan.answer_slots.per_buffer +
        (uint32_t)slot;
    return ll->offsets.answers + wp_ll_slot_offset(idx, ll->plan.answer_bytes);
}

WP_FN char *wp_ll_answer(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                         int32_t slot)
{
    return wp_ll_area(ll, owner) + wp_ll_answer_offset(ll, number, slot);
}

/* The slot for an answer to a row that `owner` has relayed. */
WP_FN char *wp_ll_summand(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                          int32_t slot)
{
    const uint32_t idx =
        wp_ll_buffer(&ll->plan, number) * (uint32_t)wp_ll_num_summands(&ll->plan) + (uint32_t)slot;
    return wp_ll_area(ll, owner) + ll->offsets.summands +
           wp_ll_slot_offset(idx, ll->plan.answer_bytes);
}

/* The weights of a source's token, of the answers `number`: a tagged row, float [num_topk]. */
WP_FN char *wp_ll_late_weights(const struct wp_low_latency *ll, int32_t owner, uint64_t number,
                               int32_t source, int32_t token)
{
    return wp_ll_area(ll, owner) + ll->offsets.late_weights +
           wp_ll_slot_offset(wp_ll_token_idx(ll, number, source, token),
                             wp_ll_tagged_bytes(ll->plan.num_topk));
}

/* ------------------------------------------------------------------ memory of this rank */

/* The entry of a token's first choice in a table [buffers][max_tokens][num_topk]. */
WP_FN uint32_t wp_ll_choice_idx(const struct wp_low_latency *ll, uint64_t number, int32_t token)
{
    const uint32_t row =
        wp_ll_buffer(&ll->plan, number) * (uint32_t)ll->plan.max_tokens + (uint32_t)token;
    return row * (uint32_t)ll->plan.num_topk;
}

/* [num_topk] The ranks that answer a token's choices. */
WP_FN int32_t *wp_ll_answering(const struct wp_low_latency *ll, uint64_t number, int32_t token)
{
    return ll->answering + wp_ll_choice_idx(ll, number, token);
}

/* [num_topk] Between nodes the slots for the answers to a token's choices, else the rows that they
 * answer. */
WP_FN int32_t *wp_ll_answer_slots(const struct wp_low_latency *ll, uint64_t number, int32_t token)
{
    return ll->answer_slots + wp_ll_choice_idx(ll, number, token);
}

/* [num_nodes] The index of a token among its block's rows for each node. */
WP_FN int32_t *wp_ll_relayed_rows(const struct wp_low_latency *ll, int32_t token)
{
    return ll->network.relayed_rows + (int64_t)token * ll->plan.message.num_nodes;
}

/* [num_topk] The packed choices of a source's row; in packets, of its token. */
WP_FN struct wp_ll_packed_choice *wp_ll_packed_choices(const struct wp_low_latency *ll,
                                                       uint64_t number, int32_t source, int32_t row)
{
    return ll->packed_choices +
           (uint64_t)wp_ll_token_idx(ll, number, source, row) * (uint32_t)ll->plan.num_topk;
}

/* ================== memory of a block */

/* ------------------------------------------------------------------ with signals */

/* Counters of a block: two of rows for each rank, and one of choices for each of its experts.
 * Between nodes also two of answers for each rank, and one of relayed rows for each node. */
WP_FN int32_t wp_ll_num_counters(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    const int32_t num_experts = plan->is_by_expert ? plan->max_local_experts : 0;
    const int32_t num_of_nodes = WP_LL_HAS_NODES(plan) ? 2 : 0;
    return num_ranks * (2 + num_experts + num_of_nodes) +
           (WP_LL_HAS_NODES(plan) ? plan->message.num_nodes : 0);
}

/* The words of a bit for each rank. */
WP_FN int32_t wp_ll_rank_words(int32_t num_ranks)
{
    return (num_ranks + 31) / 32;
}

WP_FN struct wp_ll_near wp_ll_near_of(const struct wp_ll_plan *plan,
                                      const struct wp_ll_masks *masks, int32_t num_ranks)
{
    const uint64_t missing_bytes =
        wp_ll_has_masks(masks) ? (uint64_t)num_ranks * sizeof(int32_t) : 0;
    const uint64_t counters_bytes = (uint64_t)wp_ll_num_counters(plan, num_ranks) * sizeof(int32_t);
    struct wp_ll_near near;
    near.counters = (uint32_t)wp_ll_align(missing_bytes);
    near.choices = near.counters + (uint32_t)wp_ll_align(counters_bytes);
    near.ranks_of_tokens = near.choices + (uint32_t)plan->block_tokens * (uint32_t)plan->num_topk *
                                              (uint32_t)sizeof(struct wp_ll_choice);
    near.end = near.ranks_of_tokens + (uint32_t)plan->max_tokens *
                                          (uint32_t)wp_ll_rank_words(num_ranks) *
                                          (uint32_t)sizeof(int32_t);
    return near;
}

/* Whether the memory of a block reaches to `end`, behind the words of wp_block_max. Variants know
 * that it does. */
#ifndef WP_LL_IS_NEAR
#define WP_LL_IS_NEAR 0
#endif
WP_FN int wp_ll_is_near(uint64_t end)
{
    return WP_LL_IS_NEAR || WP_BLOCK_WORDS_BYTES + end <= WP_BLOCK_SHARED_BYTES;
}
