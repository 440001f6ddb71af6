/* SPDX-License-Identifier: MIT */
/*
 * Low latency between nodes through partners: a row that ranks of another node need crosses the network once. A block
 * sends one message to the partner of its rank in each other node: the rows for that node, each with the experts of
 * all its ranks and, for each choice, where it goes there; the ranges of rows that these ranks get, and the heads. The
 * same block of the partner relays the message when it receives: it writes what the source would write if it were a
 * rank of this node, and signals in its name. So ranks of a node learn of all rows in the same words. They answer straight
 * to the source, or the partner sums their answers (low_latency/relay.h).
 *
 * Nobody waits for more than without partners:
 *
 *     room to relay      is there. A block relays number n after it has sent its own rows of number n, for which it has
 *                        awaited the room of all ranks of the node, and room is of all that a number brings.
 *     room for messages  is there when the partner needs result n - num_halves no more; it has relayed it before. It is
 *                        told in the word that is of rows where these are put.
 *     what is relayed    needs the source's launch that sends, which waits for room alone, that is for earlier numbers;
 *                        and the partner's launch that receives. So a partner relays before it waits for anything that
 *                        others relay.
 *
 * Who waits for rows that are relayed waits for the partner, who waits for the source: so a wait that fails names him who
 * is late.
 */
#pragma once

#include "programs/low_latency/combine.h"
#include "programs/low_latency/send.h"

/* ================== messages */

/* Messages of rows that low latency's partners relay, where they have come to: dispatch passes the rows on
 * (low_latency/relay.h), combine finds in them to whom the sums of answers go (low_latency/relay.h). */

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

/* The i-th rank from which this one may get messages, by the nodes before its own; WP_NO_RANK: there is none. */
WP_FN int32_t wp_ll_source_of_messages(const struct wp_low_latency *ll, int32_t i)
{
    const struct wp_nodes *nodes = &ll->network.nodes;
    const int32_t hops = i / ll->plan.message.node_sources;
    const int32_t turn = i - hops * ll->plan.message.node_sources;
    const int32_t node = wp_node_before(nodes, hops + 1);
    const int32_t local_idx = nodes->local_idx + turn * nodes->num_local;
    return local_idx < nodes->sizes[node] ? wp_node_rank(nodes, node, local_idx) : WP_NO_RANK;
}

/* In every area: message i of a block. */
WP_FN uint64_t wp_ll_message_offset(const struct wp_low_latency *ll, uint64_t number, int32_t i,
                                    int32_t block)
{
    const struct wp_ll_plan *plan = &ll->plan;
    const uint64_t idx =
        (wp_ll_half(plan, number) * (uint64_t)plan->message.num_sources + (uint64_t)i) *
            (uint64_t)plan->num_blocks +
        (uint64_t)block;
    return ll->offsets.messages + idx * plan->message.bytes;
}

struct wp_ll_relayer {
    const struct wp_ll_run *run;
    uint64_t number; /* of the messages */
};

/* A message that has come. */
struct wp_ll_relayed_message {
    int32_t source;
    char *at;
    int32_t num_rows;
};

/* The i-th, which has none if there is no such source. */
WP_FN struct wp_ll_relayed_message wp_ll_relayed_message(const struct wp_ll_relayer *relayer,
                                                         int32_t i)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    const int32_t block = wp_block_idx(relayer->run->op.warp);
    struct wp_ll_relayed_message message = {wp_ll_source_of_messages(ll, i), NULL, 0};
    if (message.source == WP_NO_RANK)
        return message;
    message.at = ll->area + wp_ll_message_offset(ll, relayer->number, i, block);
    message.num_rows = wp_ll_remote_range(ll, relayer->number, message.source, block).num_rows;
    return message;
}

/* A part of a row of a message. */
struct wp_ll_relayed_row {
    int32_t source;
    int32_t message; /* which */
    int32_t idx;     /* in it */
    char *at;
    int32_t part;
};

/* The rows of all messages to a block, which its warps share: where one of them is. */
struct wp_ll_relayed_rows {
    struct wp_ll_relayed_row row;
    struct wp_ll_relayed_message message;
    int32_t num_parts; /* of the message's rows */
    int32_t next;      /* of the warp's turns, from the message's first part on */
};

WP_FN struct wp_ll_relayed_rows wp_ll_relayed_rows_of(struct wp_warp *warp)
{
    const struct wp_ll_relayed_rows before_all = {
        {WP_NO_RANK, -1, 0, NULL, 0}, {WP_NO_RANK, NULL, 0}, 0, wp_warp_idx(warp)};
    return before_all;
}

/* To the warp's next part of a row; 0: it has had all of its. */
WP_FN int wp_ll_next_relayed(const struct wp_ll_relayer *relayer, struct wp_ll_relayed_rows *rows)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_share *share = &ll->share_of_sources;
    while (rows->next >= rows->num_parts) {
        rows->next -= rows->num_parts;
        rows->row.message++;
        if (rows->row.message == ll->plan.message.num_sources)
            return 0;
        rows->message = wp_ll_relayed_message(relayer, rows->row.message);
        rows->num_parts = rows->message.num_rows << share->parts_log2;
    }
    const struct wp_part part = wp_ll_unit_part(share, rows->next);
    rows->row.source = rows->message.source;
    rows->row.idx = part.token;
    rows->row.at = wp_ll_message_row(ll, rows->message.at, part.token);
    rows->row.part = part.part;
    rows->next += wp_num_warps(relayer->run->op.warp);
    return 1;
}

/* Of the answers to a row of message i: the slot of that of the rank that has `place` ranks of the row before it. */
WP_FN int32_t wp_ll_summand_slot(const struct wp_ll_relayer *relayer, int32_t i, int32_t row,
                                 int32_t place)
{
    const struct wp_ll_plan *plan = &relayer->run->ll->plan;
    const int32_t block_idx = i * plan->num_blocks + wp_block_idx(relayer->run->op.warp);
    return (block_idx * plan->block_tokens + row) * plan->message.row_ranks + place;
}

/* How many ranks a row goes to that come before `rank`. */
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

/* Which of its partner's messages those of this rank to a node are: as wp_ll_source_of_messages. */
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

/* The slot of the token in the message for the node of choice k; NULL if that of a choice before is in it. */
WP_FN char *wp_ll_relayed_slot(const struct wp_ll_sender *sender, int32_t token, int32_t k)
{
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_choice *choices = wp_ll_choices_of(sender, token);
    const int32_t row = wp_ll_relayed_rows(ll, token)[ll->network.node_of_rank[choices[k].rank]];
    if (!wp_ll_is_first_in_message(sender, choices, k))
        return NULL;
    return wp_ll_message_row(ll, wp_ll_staged_for(sender, choices[k].rank), row);
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

/* By all warps, when the block has written its messages. */
WP_FN void wp_ll_put_messages(const struct wp_ll_sender *sender)
{
    struct wp_warp *warp = sender->run->op.warp;
    const struct wp_low_latency *ll = &sender->args->ll;
    const struct wp_ll_message *message = &ll->plan.message;
    const int32_t own = ll->exchange.rank, block = wp_block_idx(warp);
    const uint64_t begin = block == ll->plan.num_blocks - 1 ? 0 : message->ranges_offset;
    for (int32_t hops = 1 + wp_warp_idx(warp); hops < message->num_nodes;
         hops += wp_num_warps(warp)) {
        const int32_t node = wp_node_after(&ll->network.nodes, hops);
        const struct wp_ll_range rows = {0, sender->counters.relayed[node]};
        const int32_t partner = wp_ll_partner(ll, own, node);
        const struct wp_ll_put put = {
            partner,
            wp_ll_staged_message(ll, sender->number, block, node) + begin,
            wp_ll_message_offset(ll, sender->number, wp_ll_message_idx(ll, node), block) + begin,
            message->rows_offset - begin + (uint64_t)rows.num_rows * message->row_bytes,
            wp_ll_network_arrived(ll, WP_LL_ROWS, sender->number, own, block),
            wp_ll_range_word(ll, rows),
            WP_ACCESS_AT_ONCE};
        wp_ll_post(warp, ll, &put);
    }
}

/* ------------------------------------------------------------------ relay */

/* The slot of a row at one of its ranks. */
WP_FN char *wp_ll_relayed_row_at(const struct wp_ll_relayer *relayer, int32_t source,
                                 const struct wp_ll_target *target)
{
    return wp_ll_row(relayer->run->ll, target->rank, relayer->number, source, target->row);
}

/* Elements and scales of a row, or a part of them, to all its ranks. */
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
                wp_ll_relayed_row_at(relayer, source, &targets[k]) + span.begin;
    }
    wp_warp_sync(warp);
    wp_row_copy(warp, wp_warp_pointers(warp), num_dsts, row + span.begin, span.bytes);
}

/* Where the rank that a row goes to answers it. */
WP_FN int32_t wp_ll_answer_to_relayed(const struct wp_ll_relayer *relayer,
                                      const struct wp_ll_relayed_row *row,
                                      const struct wp_ll_target *target)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    return wp_ll_has_node_sums(&ll->plan)
               ? wp_ll_summand_slot(relayer, row->message, row->idx,
                                    wp_ll_targets_before(ll, row->at, target->rank))
               : target->answer;
}

/* What goes with a row: to the rank of choice j, about choice k. */
WP_FN void wp_ll_relay_choice(const struct wp_ll_relayer *relayer,
                              const struct wp_ll_relayed_row *row, int32_t j, int32_t k)
{
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_slot *at = &ll->plan.slot;
    const struct wp_ll_target *target = &wp_ll_targets(ll, row->at)[j];
    const int is_there = wp_ll_targets(ll, row->at)[k].rank == target->rank;
    if (target->row < 0)
        return;
    char *slot = wp_ll_relayed_row_at(relayer, row->source, target);
    ((int32_t *)(void *)(slot + at->experts_offset))[k] =
        is_there ? ((const int32_t *)(void *)(row->at + at->experts_offset))[k] : -1;
    ((float *)(void *)(slot + at->weights_offset))[k] =
        is_there ? ((const float *)(void *)(row->at + at->weights_offset))[k] : 0.0f;
    if (ll->plan.is_by_expert)
        ((int32_t *)(void *)(slot + at->order_offset))[k] =
            ((const int32_t *)(void *)(row->at + at->order_offset))[k];
    if (k == 0) {
        *(int32_t *)(void *)(slot + at->token_offset) =
            *(const int32_t *)(void *)(row->at + at->token_offset);
        *(int32_t *)(void *)(slot + at->answer_offset) =
            wp_ll_answer_to_relayed(relayer, row, target);
    }
}

WP_FN void wp_ll_relay_part(const struct wp_ll_relayer *relayer,
                            const struct wp_ll_relayed_row *row)
{
    struct wp_warp *warp = relayer->run->op.warp;
    const struct wp_low_latency *ll = relayer->run->ll;
    const struct wp_ll_plan *plan = &ll->plan;
    const int32_t num_topk = plan->num_topk;
    const uint64_t bytes =
        plan->scales_bytes > 0 ? plan->slot.scales_offset + plan->scales_bytes : plan->row_bytes;
    const struct wp_ll_span span =
        wp_ll_part_span(&ll->share_of_sources, row->part, (uint32_t)bytes);
    if (span.bytes > 0)
        wp_ll_relay_elements(relayer, row->source, row->at, span);
    if (!wp_ll_is_last_part(&ll->share_of_sources, row->part))
        return;
    for (int32_t i = wp_lane_idx(warp); i < num_topk * num_topk; i += WP_WARP_SIZE)
        wp_ll_relay_choice(relayer, row, i / num_topk, i % num_topk);
}

/* By all warps: the rows of all messages to this block. */
WP_FN void wp_ll_relay_rows(const struct wp_ll_relayer *relayer)
{
    struct wp_ll_relayed_rows rows = wp_ll_relayed_rows_of(relayer->run->op.warp);
    while (wp_ll_next_relayed(relayer, &rows))
        wp_ll_relay_part(relayer, &rows.row);
}

/* By all warps: which rows each rank of this node gets, and by the last block the heads. */
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

/* By the first warp, when the block has written: tells the ranks of this node that the sources' rows have come. */
WP_FN void wp_ll_tell_relayed(const struct wp_ll_relayer *relayer)
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

/* By all warps: waits for the messages to this block, and relays them. */
WP_FN enum wp_status wp_ll_relay(const struct wp_ll_run *run, uint64_t number)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_relayer relayer = {run, number};
    enum wp_status status = wp_ll_await_block(run, WP_LL_ARRIVED, WP_LL_RELAYS, number);
    if (status == WP_STATUS_OK) {
        wp_warp_sync(warp); /* each lane has waited for some sources */
        wp_ll_relay_ranges(&relayer);
        wp_ll_relay_rows(&relayer);
    }
    status = wp_block_status(warp, status);
    if (status == WP_STATUS_OK && wp_warp_idx(warp) == 0)
        wp_ll_tell_relayed(&relayer);
    return status;
}

/* ================== the way back */

/*
 * Low latency between nodes through partners, the way back: of a token, the sum of what a node's ranks answer crosses the
 * network once. They write their answers into slots at the partner that has relayed the row (the row tells which), and
 * signal him as they do all ranks of the node. He sums those of each row in the order of the ranks, rounds the sum as an
 * answer, and puts the sums of a block to the source, where its slots for them lie one behind the other.
 *
 * Nobody waits for more than without partners:
 *
 *     room for answers at the partner  is told when he has received the answers of that number, of all that the ranks of
 *                                      his node have sent to him; they await it before they send.
 *     room at the source               he has awaited before he sent his own answers of that number.
 *     what is summed                   needs the launches that send of the node's ranks, which wait for room alone, and
 *                                      the partner's that receives: he sums before he waits for what others sum.
 *
 * The messages that dispatch has brought tell him what he sums, and lie there until the result has ended.
 */

/* Warp-wide: waits until this block of the ranks of this node has sent its answers. */
WP_FN enum wp_status wp_ll_await_node(const struct wp_ll_summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_nodes *nodes = &summer->run->ll->network.nodes;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t first = 0; first < nodes->num_local; first += WP_WARP_SIZE) {
        const int32_t i = first + wp_lane_idx(warp);
        const int32_t rank = i < nodes->num_local && status == WP_STATUS_OK
                                 ? wp_node_rank(nodes, nodes->node, i)
                                 : WP_NO_RANK;
        if (wp_ll_await_told(summer->run, WP_LL_ARRIVED, WP_LL_ANSWERS, rank, summer->number) !=
            WP_STATUS_OK)
            status = WP_STATUS_FAILED;
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* Lists the answers to a row of message i, from byte `begin` on; returns how many there are. */
WP_FN int32_t wp_ll_find_summands(const struct wp_ll_summer *summer,
                                  const struct wp_ll_relayer *relayer, int32_t i, int32_t row,
                                  int32_t num_summands, uint64_t begin)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency *ll = summer->run->ll;
    wp_warp_sync(
        warp); /* the pointers before have been used; and each lane has waited for some ranks */
    for (int32_t place = wp_lane_idx(warp); place < num_summands; place += WP_WARP_SIZE)
        wp_warp_pointers(warp)[place] = wp_ll_summand(ll, ll->exchange.rank, summer->number,
                                                      wp_ll_summand_slot(relayer, i, row, place)) +
                                        begin;
    wp_warp_sync(warp);
    return num_summands;
}

/* A part of the sum of a row, to where it is staged. */
WP_FN void wp_ll_sum_summands(const struct wp_ll_summer *summer,
                              const struct wp_ll_relayer *relayer,
                              const struct wp_ll_relayed_row *row)
{
    const struct wp_low_latency *ll = summer->run->ll;
    const struct wp_ll_span span = wp_ll_span(&ll->plan, &ll->share_of_sources, row->part);
    const struct wp_ll_elements elements = wp_ll_elements_of(&ll->plan, span);
    const uint64_t begin = wp_ll_answer_bytes(&ll->plan, elements.first);
    const int32_t num_ranks = wp_ll_targets_before(ll, row->at, INT32_MAX);
    if (span.bytes == 0)
        return;
    const int32_t num_srcs =
        wp_ll_find_summands(summer, relayer, row->message, row->idx, num_ranks, begin);
    char *staged =
        ll->network.memory + wp_ll_staged_answer(ll, summer->number, row->message,
                                                 wp_block_idx(summer->run->op.warp), row->idx);
    wp_ll_sum_to_answer(summer->run, staged + begin, wp_warp_pointers(summer->run->op.warp),
                        num_srcs, elements.num);
}

/* By all warps: the sums for all messages to this block. */
WP_FN void wp_ll_sum_messages(const struct wp_ll_summer *summer,
                              const struct wp_ll_relayer *relayer)
{
    struct wp_ll_relayed_rows rows = wp_ll_relayed_rows_of(summer->run->op.warp);
    while (wp_ll_next_relayed(relayer, &rows))
        wp_ll_sum_summands(summer, relayer, &rows.row);
}

/* By all warps, when the block has written its sums. */
WP_FN void wp_ll_put_sums(const struct wp_ll_summer *summer, const struct wp_ll_relayer *relayer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_low_latency *ll = summer->run->ll;
    const int32_t block = wp_block_idx(warp);
    for (int32_t i = wp_warp_idx(warp); i < ll->plan.message.num_sources; i += wp_num_warps(warp)) {
        const struct wp_ll_relayed_message message = wp_ll_relayed_message(relayer, i);
        if (message.source == WP_NO_RANK)
            continue;
        const char *first_row = wp_ll_message_row(ll, message.at, 0);
        const int32_t first =
            message.num_rows > 0
                ? *(const int32_t *)(const void *)(first_row + ll->plan.slot.answer_offset)
                : 0;
        const struct wp_ll_put put = {
            message.source,
            wp_ll_staged_answer(ll, summer->number, i, block, 0),
            wp_ll_answer_offset(ll, summer->number, first),
            (uint64_t)message.num_rows * ll->plan.answer_bytes,
            wp_ll_network_arrived(ll, WP_LL_ANSWERS, summer->number, ll->exchange.rank, block),
            WP_LL_ANSWERED,
            WP_ACCESS_AT_ONCE};
        wp_ll_post(warp, ll, &put);
    }
}

/* By all warps: waits for the answers of this node's ranks to the rows that this rank has relayed, and sends their
 * sums. */
WP_FN enum wp_status wp_ll_relay_sums(const struct wp_ll_summer *summer)
{
    struct wp_warp *warp = summer->run->op.warp;
    const struct wp_ll_relayer relayer = {summer->run, summer->result};
    enum wp_status status = wp_ll_await_node(summer);
    if (status == WP_STATUS_OK)
        wp_ll_sum_messages(summer, &relayer);
    status = wp_block_status(warp, status);
    if (status == WP_STATUS_OK)
        wp_ll_put_sums(summer, &relayer);
    return status;
}
