/* SPDX-License-Identifier: MIT */
/*
 * Between nodes through partners: a row that ranks of another node need crosses the network once.
 * In each other node a rank has a partner. A block sends its partner one message: the rows for that
 * node, each with the experts of all the node's ranks and, for each choice, its slot there; the
 * range of rows of each rank; and the heads. The same block of the partner relays the message when
 * it receives. It writes what the source would write if the source were a rank of this node, and
 * signals in the source's name. The ranks answer straight to the source, or the partner sums their
 * answers (ll_relay_sums.h).
 *
 * No rank waits for more than without partners:
 *
 *     credit to relay      A block relays number n after it has sent its own rows n. For these it
 *                          has waited for the credit of all ranks of the node, which covers all
 *                          rows n.
 *     credit for messages  comes when the partner no longer needs result n - num_buffers, which it
 *                          has relayed by then. It shares the word of credit for rows.
 *     the rows             need the send phase of the source, which waits for credit alone, and the
 *                          receive phase of the partner. A partner relays before it waits for
 *                          anything that others relay.
 *
 * A rank that waits for relayed rows waits for the partner, and the partner for the source. So a
 * wait that fails names the rank that is late.
 */
#pragma once

#include "programs/low_latency/ll_nodes.h"
#include "programs/low_latency/ll_send.h"
#include "programs/low_latency/ll_waits.h"

/* ================== messages */

/* Messages of rows at the partner that relays them. Dispatch passes the rows on. Combine finds in
 * them where the sums of answers go. */

WP_FN int32_t *wp_ll_message_head(const struct wp_low_latency *ll, char *message, int32_t local_idx)
{
    return (int32_t *)(void *)message + (int64_t)local_idx * ll->plan.max_local_experts;
}

WP_FN struct wp_ll_range *wp_ll_message_range(const struct wp_low_latency *ll, char *message,
                                              int32_t local_idx)
{
    return (struct wp_ll_range *)(void *)(message + ll->plan.message.ranges_offset) + local_idx;
}

WP_FN char *wp_ll_message_row(const struct wp_low_latency *ll, char *message, int32_t row)
{
    return message + ll->plan.message.rows_offset + (uint64_t)row * ll->plan.message.row_bytes;
}

WP_FN struct wp_ll_target *wp_ll_targets(const struct wp_low_latency *ll, char *row)
{
    return (struct wp_ll_target *)(void *)(row + ll->plan.slot.bytes);
}

/* The i-th rank that may send this rank messages, in the order of the nodes before its own.
 * WP_NO_RANK: there is none. */
WP_FN int32_t wp_ll_source_of_messages(const struct wp_low_latency *ll, int32_t i)
{
    const struct wp_nodes *nodes = &ll->network.nodes;
    const int32_t hops = i / ll->plan.message.node_sources;
    const int32_t turn = i - hops * ll->plan.message.node_sources;
    const int32_t node = wp_node_before(nodes, hops + 1);
    const int32_t local_idx = nodes->local_idx + turn * nodes->num_local;
    return local_idx < nodes->sizes[node] ? wp_node_rank(nodes, node, local_idx) : WP_NO_RANK;
}

/* The offset, in any area, of message i of a block. */
WP_FN uint64_t wp_ll_message_offset(const struct wp_low_latency *ll, uint64_t number, int32_t i,
                                    int32_t block)
{
    const struct wp_ll_message *message = &ll->plan.message;
    return ll->offsets.messages +
           wp_ll_staged_idx(ll, number, (uint64_t)message->num_sources, i, block) * message->bytes;
}

struct wp_ll_relayer {
    const struct wp_ll_run *run;
    uint64_t number;  /* of the messages */
    uint64_t answers; /* on the way back: their number */
};

/* Message idx, which has come. */
struct wp_ll_relayed_message {
    int32_t idx;
    int32_t source; /* or WP_NO_RANK */
    char *at;
    int32_t num_rows;
};

WP_FN struct wp_ll_relayed_message wp_ll_relayed_message(const struct wp_ll_relayer *relayer,
                                                         int32_t idx)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    const int32_t block = wp_block_idx(relayer->run->op.warp);
    struct wp_ll_relayed_message message = {idx, wp_ll_source_of_messages(ll, idx), NULL, 0};
    if (message.source == WP_NO_RANK)
        return message;
    message.at = ll->area + wp_ll_message_offset(ll, relayer->number, idx, block);
    message.num_rows = wp_ll_remote_range(ll, relayer->number, message.source, block).num_rows;
    return message;
}

/* The warps of a block share the parts of the rows of all messages. `unit` counts from the first
 * part of this message on, and goes to a later message if this one has no more. Returns 0 at the
 * end. */
WP_FN int wp_ll_has_relayed(const struct wp_ll_relayer *relayer,
                            struct wp_ll_relayed_message *message, int32_t *unit)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    int32_t num_units = message->num_rows << ll->share_of_sources.parts_log2;
    while (*unit >= num_units) {
        *unit -= num_units;
        if (message->idx + 1 == ll->plan.message.num_sources)
            return 0;
        *message = wp_ll_relayed_message(relayer, message->idx + 1);
        num_units = message->num_rows << ll->share_of_sources.parts_log2;
    }
    return 1;
}

/* The slot for an answer to a row of a message. `place` ranks of the row come before the one that
 * answers. */
WP_FN int32_t wp_ll_summand_slot(const struct wp_ll_relayer *relayer, int32_t message, int32_t row,
                                 int32_t place)
{
    const struct wp_ll_plan *plan = &relayer->run->ll->plan;
    const int32_t block_idx = message * plan->num_blocks + wp_block_idx(relayer->run->op.warp);
    return (block_idx * plan->block_tokens + row) * plan->message.row_ranks + place;
}

/* The number of ranks before `rank` that a row goes to. */
WP_FN int32_t wp_ll_targets_before(const struct wp_low_latency *ll, char *row, int32_t rank)
{
    const struct wp_ll_target *targets = wp_ll_targets(ll, row);
    int32_t num_before = 0;
    for (int32_t k = 0; k < ll->plan.num_topk; k++)
        num_before += targets[k].row >= 0 && targets[k].rank < rank;
    return num_before;
}

/* ================== the way there */

/* ------------------------------------------------------------------ send */

/* The node whose message has the row of a choice at `rank`, behind all ranks; or the rank, if the
 * row goes straight. Choices of the same destination share a slot. */
WP_FN int32_t wp_ll_destination(const struct wp_low_latency *ll, int32_t rank)
{
    return rank >= 0 && wp_ll_is_relayed(ll, rank)
               ? ll->exchange.num_ranks + ll->network.node_of_rank[rank]
               : rank;
}

/* Whether choice k is the first one of its destination. */
WP_FN int wp_ll_is_first_there(const struct wp_low_latency *ll, const struct wp_ll_choice *choices,
                               int32_t k)
{
    const int32_t destination = wp_ll_destination(ll, choices[k].rank);
    for (int32_t before = 0; before < k; before++)
        if (wp_ll_destination(ll, choices[before].rank) == destination)
            return 0;
    return 1;
}

/* One warp calls this. It counts the block's rows for each other node. */
WP_FN void wp_ll_number_relayed(const struct wp_ll_sender *sender, int32_t token)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    const int32_t num_ranks = ll->exchange.num_ranks;
    int32_t *rows = wp_ll_relayed_rows(ll, token), *counters = sender->counters.relayed;
    for (int32_t node = wp_lane_idx(warp); node < ll->plan.message.num_nodes;
         node += WP_WARP_SIZE) {
        int is_wanted = 0;
        for (int32_t k = 0; k < ll->plan.num_topk; k++)
            is_wanted |= wp_ll_destination(ll, choices[k].rank) == num_ranks + node;
        rows[node] = is_wanted ? counters[node]++ : -1;
    }
}

/* The number of nodes from this one to another. */
WP_FN int32_t wp_ll_hops_to(const struct wp_nodes *nodes, int32_t node)
{
    return node > nodes->node ? node - nodes->node : node - nodes->node + nodes->num_nodes;
}

/* The offset of a block's message for the partner in another node. */
WP_FN uint64_t wp_ll_staged_message(const struct wp_low_latency *ll, uint64_t number, int32_t block,
                                    int32_t node)
{
    const uint64_t idx = wp_ll_staged_idx(ll, number, 1, 0, block);
    const uint64_t num_others = (uint64_t)ll->plan.message.num_nodes - 1;
    return ll->network.messages_offset +
           (idx * num_others + (uint64_t)wp_ll_hops_to(&ll->network.nodes, node) - 1) *
               ll->plan.message.bytes;
}

/* The index of this rank's messages among those of its partner in a node; the inverse of
 * wp_ll_source_of_messages. */
WP_FN int32_t wp_ll_message_idx(const struct wp_low_latency *ll, int32_t node)
{
    const struct wp_nodes *nodes = &ll->network.nodes;
    return (wp_ll_hops_to(nodes, node) - 1) * ll->plan.message.node_sources +
           nodes->local_idx / nodes->sizes[node];
}

/* The block's message for the node of `rank`. */
WP_FN char *wp_ll_staged_for(const struct wp_ll_sender *sender, int32_t rank)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    return ll->network.memory + wp_ll_staged_message(ll, sender->number,
                                                     wp_block_idx(sender->run->op.warp),
                                                     ll->network.node_of_rank[rank]);
}

/* The slot of the token in the message for the node of choice k. NULL: an earlier choice has put
 * the row there. */
WP_FN char *wp_ll_relayed_slot(const struct wp_ll_sender *sender, int32_t token, int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    const int32_t row = wp_ll_relayed_rows(ll, token)[ll->network.node_of_rank[choices[k].rank]];
    if (!wp_ll_is_first_there(ll, choices, k))
        return NULL;
    return wp_ll_message_row(ll, wp_ll_staged_for(sender, choices[k].rank), row);
}

/* Puts into slot j of a token where the row of choice k goes, if `is_there`. */
WP_FN void wp_ll_send_target(const struct wp_ll_sender *sender, int32_t token, char *slot,
                             int32_t j, int32_t k, int is_there)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    const int32_t *answers = wp_ll_answer_slots(ll, sender->number, token);
    const struct wp_ll_target nowhere = {-1, -1, -1};
    const struct wp_ll_target target = {choices[k].rank, choices[k].row,
                                        choices[k].row >= 0 ? answers[k] : -1};
    if (wp_ll_is_relayed(ll, choices[j].rank))
        wp_ll_targets(ll, slot)[k] = is_there ? target : nowhere;
}

/* Warp-wide. */
WP_FN void wp_ll_stage_head(const struct wp_ll_sender *sender, int32_t rank, const int32_t *counts)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    int32_t *head =
        wp_ll_message_head(ll, wp_ll_staged_for(sender, rank), ll->network.nodes.local_idxs[rank]);
    for (int32_t i = wp_lane_idx(warp); i < ll->plan.max_local_experts; i += WP_WARP_SIZE)
        head[i] = counts[i];
}

/* All warps call this. It puts the ranges of the block's rows into its messages. */
WP_FN void wp_ll_stage_ranges(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    for (int32_t i = wp_ll_thread_idx(warp); i < ll->network.num_remote;
         i += wp_ll_num_threads(warp)) {
        const int32_t rank = ll->network.ranks[i];
        *wp_ll_message_range(ll, wp_ll_staged_for(sender, rank),
                             ll->network.nodes.local_idxs[rank]) = wp_ll_sent_range(sender, rank);
    }
}

/* All warps call this when the block has written its messages. */
WP_FN void wp_ll_put_messages(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_message *message = &ll->plan.message;
    const int32_t block = wp_block_idx(warp);
    const uint64_t begin = block == ll->plan.num_blocks - 1 ? 0 : message->ranges_offset;
    const int32_t *num_rows = sender->counters.relayed;
    for (int32_t hops = 1 + wp_warp_idx(warp); hops < message->num_nodes;
         hops += wp_num_warps(warp)) {
        const int32_t node = wp_node_after(&ll->network.nodes, hops);
        const struct wp_ll_range rows = {0, num_rows[node]};
        const int32_t partner = wp_ll_partner(ll, ll->exchange.rank, node);
        const struct wp_ll_put put = {
            partner, wp_ll_staged_message(ll, sender->number, block, node) + begin,
            wp_ll_message_offset(ll, sender->number, wp_ll_message_idx(ll, node), block) + begin,
            message->rows_offset - begin + (uint64_t)rows.num_rows * message->row_bytes,
            wp_ll_range_word(ll, rows)};
        wp_ll_put_payload(warp, ll, WP_LL_ROWS, sender->number, &put);
    }
}

/* ------------------------------------------------------------------ relay */

/* Copies a part of the elements and scales of a row to all its ranks. */
WP_FN void wp_ll_relay_elements(const struct wp_ll_relayer *relayer, int32_t source, char *row,
                                struct wp_ll_span span)
{
    struct wp_warp *warp = relayer->run->op.warp;
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_target *targets = wp_ll_targets(ll, row);
    const int32_t num_topk = ll->plan.num_topk;
    int32_t num_dsts = 0;
    wp_warp_sync(warp); /* the pointers before have been used */
    for (int32_t i = 0; i < num_topk; i += WP_WARP_SIZE) {
        const int32_t k = i + wp_lane_idx(warp);
        const int is_target = k < num_topk && targets[k].row >= 0;
        const int32_t place = wp_ll_list(warp, &num_dsts, is_target);
        if (is_target)
            wp_warp_pointers(warp)[place] =
                wp_ll_row(ll, targets[k].rank, relayer->number, source, targets[k].row) +
                span.begin;
    }
    wp_warp_sync(warp);
    wp_row_copy(warp, wp_warp_pointers(warp), num_dsts, row + span.begin, span.bytes);
}

/* Writes what goes with a row, about choice k, to the rank of choice j. */
WP_FN void wp_ll_relay_choice(const struct wp_ll_relayer *relayer,
                              const struct wp_ll_relayed_message *message, int32_t idx, int32_t j,
                              int32_t k)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    char *row = wp_ll_message_row(ll, message->at, idx);
    const struct wp_ll_target *targets = wp_ll_targets(ll, row), *target = &targets[j];
    const int is_there = targets[k].rank == target->rank;
    if (target->row < 0)
        return;
    char *slot = wp_ll_row(ll, target->rank, relayer->number, message->source, target->row);
    wp_ll_slot_words(slot, at->experts_offset)[k] =
        is_there ? wp_ll_slot_words(row, at->experts_offset)[k] : -1;
    ((float *)wp_ll_slot_words(slot, at->weights_offset))[k] =
        is_there ? ((float *)wp_ll_slot_words(row, at->weights_offset))[k] : 0.0f;
    if (ll->plan.is_by_expert)
        wp_ll_slot_words(slot, at->order_offset)[k] = wp_ll_slot_words(row, at->order_offset)[k];
    if (k > 0)
        return;
    *wp_ll_slot_words(slot, at->token_offset) = *wp_ll_slot_words(row, at->token_offset);
    *wp_ll_slot_words(slot, at->answer_offset) =
        wp_ll_has_node_sums(&ll->plan)
            ? wp_ll_summand_slot(relayer, message->idx, idx,
                                 wp_ll_targets_before(ll, row, target->rank))
            : target->answer;
}

/* A part of a row of a message. */
WP_FN void wp_ll_relay_part(const struct wp_ll_relayer *relayer,
                            const struct wp_ll_relayed_message *message, struct wp_part part)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    const int32_t num_topk = plan->num_topk;
    const uint64_t bytes =
        plan->scales_bytes > 0 ? plan->slot.scales_offset + plan->scales_bytes : plan->row_bytes;
    const struct wp_ll_span span =
        wp_ll_part_span(&ll->share_of_sources, part.part, (uint32_t)bytes);
    if (span.bytes > 0)
        wp_ll_relay_elements(relayer, message->source,
                             wp_ll_message_row(ll, message->at, part.token), span);
    if (!wp_ll_is_last_part(&ll->share_of_sources, part.part))
        return;
    for (int32_t i = wp_lane_idx(relayer->run->op.warp); i < num_topk * num_topk; i += WP_WARP_SIZE)
        wp_ll_relay_choice(relayer, message, part.token, i / num_topk, i % num_topk);
}

/* All warps call this. It writes the ranges for each rank of this node; the last block also sends
 * heads. */
WP_FN void wp_ll_relay_ranges(const struct wp_ll_relayer *relayer)
{
    struct wp_warp *warp = relayer->run->op.warp;
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_nodes *nodes = &ll->network.nodes;
    const int32_t block = wp_block_idx(warp), num_local = nodes->num_local;
    const int has_heads = ll->plan.is_by_expert && block == ll->plan.num_blocks - 1;
    for (int32_t i = wp_warp_idx(warp); i < ll->plan.message.num_sources * num_local;
         i += wp_num_warps(warp)) {
        const struct wp_ll_relayed_message message = wp_ll_relayed_message(relayer, i / num_local);
        const int32_t local_idx = i % num_local;
        const int32_t rank = wp_node_rank(nodes, nodes->node, local_idx);
        if (message.source == WP_NO_RANK)
            continue;
        if (wp_lane_idx(warp) == 0)
            *wp_ll_range_of(ll, rank, relayer->number, message.source, block) =
                *wp_ll_message_range(ll, message.at, local_idx);
        if (has_heads)
            wp_tagged_send(warp, rank, wp_ll_head(ll, rank, relayer->number, message.source),
                           wp_ll_message_head(ll, message.at, local_idx),
                           ll->plan.max_local_experts, relayer->number);
    }
}

/* The first warp calls this when the block has written. It signals in the name of the sources. */
WP_FN void wp_ll_send_relayed(const struct wp_ll_relayer *relayer)
{
    struct wp_warp *warp = relayer->run->op.warp;
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_nodes *nodes = &ll->network.nodes;
    const int32_t block = wp_block_idx(warp), num_local = nodes->num_local;
    for (int32_t i = wp_lane_idx(warp); i < ll->plan.message.num_sources * num_local;
         i += WP_WARP_SIZE) {
        const int32_t source = wp_ll_source_of_messages(ll, i / num_local);
        const int32_t rank = wp_node_rank(nodes, nodes->node, i % num_local);
        if (source != WP_NO_RANK)
            wp_signal(warp, rank, wp_ll_word(ll, rank, WP_LL_ARRIVED, WP_LL_ROWS, source, block),
                      relayer->number);
    }
}

/* All warps call this before they receive, since other ranks wait for it. It waits for the messages
 * to this block, and relays them. */
WP_FN enum wp_status wp_ll_relay(const struct wp_ll_run *run, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_relayer relayer = {run, number, 0};
    struct wp_ll_relayed_message message = {-1, WP_NO_RANK, NULL, 0};
    int32_t unit = wp_warp_idx(warp);
    if (!WP_LL_HAS_RELAYS(&run->ll->plan))
        return WP_STATUS_OK;
    enum wp_status status = wp_ll_await_block(run, WP_LL_ARRIVED, WP_LL_RELAYS, number);
    if (status == WP_STATUS_OK) {
        wp_warp_sync(warp); /* each lane has waited for some sources */
        wp_ll_relay_ranges(&relayer);
        for (; wp_ll_has_relayed(&relayer, &message, &unit); unit += wp_num_warps(warp))
            wp_ll_relay_part(&relayer, &message, wp_ll_unit_part(&run->ll->share_of_sources, unit));
    }
    status = wp_block_status(warp, status);
    if (status == WP_STATUS_OK && wp_warp_idx(warp) == 0)
        wp_ll_send_relayed(&relayer);
    return status;
}
