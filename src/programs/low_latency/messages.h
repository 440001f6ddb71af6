/* SPDX-License-Identifier: MIT */
/* Messages of rows that low latency's partners relay, where they have come to: dispatch passes the rows on
 * (low_latency/relay.h), combine finds in them to whom the sums of answers go (low_latency/node_sums.h). */
#pragma once

#include "programs/low_latency/low_latency.h"

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
