/* SPDX-License-Identifier: MIT */
/*
 * internode_collective: a collective over several nodes, which are a ring. The ranks of a node
 * start and finish together. Between, a warp for each channel of a rail sends chunks of streams
 * (streams.h) to the next node, which passes them on. What stays in the node, all warps copy. On
 * one node of many ranks there is nothing else.
 *
 * A round: every node's stream goes so many nodes far, as that of all-gather does, in which every
 * node delivers it, of all-to-all, gather and scatter, whose streams for each distance have a round
 * of their own, and of reduce-scatter and reduce, to which each node adds its sum. Chunks are in
 * blocks of G = W - 1, where W is wp_ring_window. In its step n a warp sends chunk n % G of what
 * began n / G % hops nodes before; if that is another node, it has come as chunk n - G from the
 * previous one, else that one ends here.
 *
 * A chain: a sum begins at node 0, each node adds its own, and the last of D nodes sends it round
 * to all others. Chunks go twice through the ring: with A = W / 2 - 1, node d in its step n adds to
 * chunk n - A d, then hands on chunk n - A (D + d). A broadcast is the second half, from the root's
 * node on. An all-reduce over two nodes is a round: each sends the other its sum, which takes one
 * hop.
 *
 * Why nobody waits for ever. In step n of a round a warp waits for what the previous node sent in
 * its step n - G, and for the slot of the chunk W before in its ring, at the latest one of step n -
 * W, which the next node has taken in its step n - 1. In step n of a chain it waits for what the
 * previous node sent in its step n - A, in the same half or, at node 0, in the first; and for the
 * slot of a chunk of step n - W / 2 at the latest, which the next node has taken in its step n - 1.
 * Nodes in a step are in order where A is 0. So of all warps of a channel the one that is least far
 * waits for nobody, nor does it for what a node tells first in a broadcast. Channels go in
 * ascending order, and chunks of earlier operations have been taken, or will be, since they wait
 * for nothing of this one.
 *
 * Why calls that differ are found by somebody. The first rail of a node compares the first chunk
 * that comes with what it has called itself, and before that sends no more chunks than there is
 * room for in any case; only node 0 of a chain may send more, and the next node takes them or
 * compares. Somebody has sent one before it waits: all, but for nodes of a chain, of which node 0
 * has.
 */
#include "programs/coll/internode_collective.h"

#include "programs/coll/node_tree.h"

/* ------------------------------------------------------------------ chunks */

WP_FN struct wp_carrier carrier_of(const struct wp_operation *op,
                                   const struct wp_internode_collective_args *args, int32_t channel)
{
    const struct wp_rings *rings = &args->rings;
    const struct wp_nodes *nodes = &rings->nodes;
    struct wp_carrier carrier = {op,
                                 args,
                                 channel,
                                 wp_ring_of(rings, wp_node_after(nodes, 1), channel),
                                 wp_ring_of(rings, wp_node_before(nodes, 1), channel),
                                 0,
                                 0,
                                 0,
                                 0};
    carrier.first_sent = *wp_ring_counter(&carrier.next, rings->num_sent, op->sequence);
    carrier.first_received = *wp_ring_counter(&carrier.prev, rings->num_received, op->sequence);
    carrier.num_sent = carrier.first_sent;
    carrier.num_received = carrier.first_received;
    return carrier;
}

/* For the next operation. */
WP_FN void note_chunks(const struct wp_carrier *carrier)
{
    const struct wp_rings *rings = &carrier->args->rings;
    const uint64_t next = carrier->op->sequence + 1;
    if (wp_lane_idx(carrier->op->warp) != 0)
        return;
    *wp_ring_counter(&carrier->next, rings->num_sent, next) = carrier->num_sent;
    *wp_ring_counter(&carrier->prev, rings->num_received, next) = carrier->num_received;
}

/* A chunk of a stream, and which ways it takes here. */
struct step {
    struct wp_stream stream;
    uint64_t chunk;
    int comes;        /* from the previous node */
    int goes;         /* to the next one */
    int is_added_to;  /* the sum of this node's inputs */
    int is_delivered; /* to outputs of this node */
};

WP_FN struct wp_relay relay_of(const struct wp_carrier *carrier, const struct wp_ring *ring)
{
    const struct wp_relay relay = {*ring, carrier->op, 0, 0, 0};
    return relay;
}

/* The slot of the chunk that comes next, once it has come; NULL if it does not. */
WP_FN const char *receive(const struct wp_carrier *carrier)
{
    const struct wp_relay relay = relay_of(carrier, &carrier->prev);
    if (wp_ring_receive(carrier->op, &carrier->prev, carrier->num_received) != WP_STATUS_OK)
        return NULL;
    const char *slot = wp_ring_in_slot(&carrier->prev, carrier->num_received);
    return wp_relay_check(&relay, slot) == WP_STATUS_OK ? slot : NULL;
}

/* Between two nodes this node has sent its sum before it takes the other's. */
WP_FN const char *sent_sum(const struct wp_carrier *carrier, const struct step *step)
{
    const struct wp_internode_collective_args *args = carrier->args;
    if (args->collective != WEFT_ALL_REDUCE || args->rings.nodes.num_nodes != 2 || !step->comes)
        return NULL;
    return wp_ring_out_slot(&carrier->next,
                            carrier->first_sent + carrier->num_received - carrier->first_received);
}

WP_CALLED_FN enum wp_status take_step(struct wp_carrier *carrier, const struct step *step)
{
    const struct wp_rings *rings = &carrier->args->rings;
    struct wp_passage passage = {
        step->stream,
        wp_stream_chunk(rings, &step->stream, carrier->channel, step->chunk),
        NULL,
        sent_sum(carrier, step),
        NULL,
        wp_no_targets(),
        step->is_added_to,
        step->is_delivered,
        step->is_delivered};
    if (step->comes && (passage.in = receive(carrier)) == NULL)
        return WP_STATUS_FAILED;
    const struct wp_relay relay = relay_of(carrier, &carrier->next);
    if (step->goes) {
        char *slot = wp_relay_reserve(&relay, carrier->num_sent);
        if (slot == NULL)
            return WP_STATUS_FAILED;
        passage.out = wp_target_of_slot(slot);
    }
    wp_move_chunk(carrier, &passage);
    if (step->goes)
        wp_ring_send(carrier->op->warp, &carrier->next, carrier->num_sent++,
                     WP_CHUNK_HEADER_BYTES + passage.chunk.bytes);
    if (step->comes)
        wp_ring_consume(carrier->op->warp, &carrier->prev, carrier->num_received++);
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ rounds */

/* The stream that began so many nodes before, and goes `hops` nodes far. */
WP_FN struct wp_stream stream_before(const struct wp_carrier *carrier, uint64_t before,
                                     uint64_t hops)
{
    const struct wp_nodes *nodes = &carrier->args->rings.nodes;
    const int32_t from = wp_node_before(nodes, (int32_t)before);
    return wp_stream_of(carrier->args, from, (from + (int32_t)hops) % nodes->num_nodes);
}

WP_FN int has_chunk(const struct wp_carrier *carrier, const struct wp_stream *stream,
                    uint64_t chunk, uint64_t hops)
{
    return chunk < wp_stream_chunks(&carrier->args->rings, stream, carrier->channel, hops);
}

/* The most chunks that any stream of the round has. */
WP_FN uint64_t most_chunks(const struct wp_carrier *carrier, uint64_t hops)
{
    const struct wp_rings *rings = &carrier->args->rings;
    uint64_t most = 0;
    for (int32_t before = 0; before < rings->nodes.num_nodes; before++) {
        const struct wp_stream stream = stream_before(carrier, (uint64_t)before, hops);
        const uint64_t num = wp_stream_chunks(rings, &stream, carrier->channel, 0);
        most = num > most ? num : most;
    }
    return most;
}

/* Chunk `chunk` of the stream that began `before` nodes before: as it comes, if it began elsewhere,
 * and goes, if it does not end here. */
WP_FN enum wp_status pass(struct wp_carrier *carrier, uint64_t before, uint64_t hops,
                          uint64_t chunk)
{
    struct step step = {stream_before(carrier, before, hops), chunk, 0, 0,
                        wp_is_reduction(carrier->args),       0};
    step.comes = before > 0 && has_chunk(carrier, &step.stream, chunk, before - 1);
    step.goes = before < hops && has_chunk(carrier, &step.stream, chunk, before);
    step.is_delivered =
        step.comes && (before == hops || carrier->args->collective == WEFT_ALL_GATHER);
    return step.comes || step.goes ? take_step(carrier, &step) : WP_STATUS_OK;
}

WP_FN enum wp_status carry_round(struct wp_carrier *carrier, uint64_t hops)
{
    const uint64_t block = (uint64_t)wp_ring_window(&carrier->args->rings) - 1;
    const uint64_t num_blocks = (most_chunks(carrier, hops) + block - 1) / block;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t n = 0; n < num_blocks * hops * block + block && status == WP_STATUS_OK; n++) {
        const uint64_t before = n / block % hops;
        const uint64_t chunk = n / block / hops * block + n % block;
        status = pass(carrier, before, hops, chunk);
        if (before == 0 && chunk >= block && status == WP_STATUS_OK)
            status = pass(carrier, hops, hops, chunk - block);
    }
    return status;
}

WP_FN enum wp_status carry_rounds(struct wp_carrier *carrier)
{
    const uint64_t most_hops = (uint64_t)carrier->args->rings.nodes.num_nodes - 1;
    enum wp_status status = WP_STATUS_OK;
    uint64_t hops = wp_is_for_one_node(carrier->args) ? 1 : most_hops;
    for (; hops <= most_hops && status == WP_STATUS_OK; hops++)
        status = carry_round(carrier, hops);
    return status;
}

/* ------------------------------------------------------------------ chains */

/* Chunk k, to which this node adds its sum. */
WP_FN enum wp_status add_to_chain(struct wp_carrier *carrier, const struct wp_stream *stream,
                                  uint64_t k)
{
    const struct wp_nodes *nodes = &carrier->args->rings.nodes;
    const struct step step = {*stream, k, nodes->node > 0,
                              1,       1, nodes->node == nodes->num_nodes - 1};
    return take_step(carrier, &step);
}

/* Chunk k, which node `first` has. */
WP_FN enum wp_status hand_on(struct wp_carrier *carrier, const struct wp_stream *stream,
                             int32_t first, uint64_t k)
{
    const struct wp_nodes *nodes = &carrier->args->rings.nodes;
    const int32_t hops = (nodes->node - first + nodes->num_nodes) % nodes->num_nodes;
    const int comes = hops > 0, goes = hops < nodes->num_nodes - 1;
    const struct step step = {*stream, k, comes, goes, 0, comes};
    return take_step(carrier, &step);
}

WP_FN enum wp_status carry_sum(struct wp_carrier *carrier)
{
    const struct wp_rings *rings = &carrier->args->rings;
    const int32_t last = rings->nodes.num_nodes - 1;
    const struct wp_stream stream = wp_stream_of(carrier->args, 0, last);
    const uint64_t num_chunks = wp_stream_chunks(rings, &stream, carrier->channel, 0);
    const uint64_t skew =
        (uint64_t)wp_ring_window(rings) / 2 - 1; /* of a node after the one before */
    const uint64_t lag = skew * (uint64_t)rings->nodes.num_nodes;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t k = 0; k < num_chunks + lag && status == WP_STATUS_OK; k++) {
        if (k < num_chunks)
            status = add_to_chain(carrier, &stream, k);
        if (k >= lag && rings->nodes.node != last && status == WP_STATUS_OK)
            status = hand_on(carrier, &stream, last, k - lag);
    }
    return status;
}

/* An empty chunk, in which the next node reads what this one has called. */
enum word_of_call { TELL, HEAR };
WP_FN enum wp_status pass_word(struct wp_carrier *carrier, enum word_of_call word)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const int32_t other =
        (args->root_node + 1) % args->rings.nodes.num_nodes; /* which has no rows */
    const struct step step = {
        wp_stream_of(args, other, args->root_node), 0, word == HEAR, word == TELL, 0, 0};
    return take_step(carrier, &step);
}

/* On the first rail the root begins with its rows, the others with a word. Who only waited for rows
 * might wait for one who waits too, for another root. */
WP_FN enum wp_status pass_words_before(struct wp_carrier *carrier)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const struct wp_nodes *nodes = &args->rings.nodes;
    if (nodes->node == args->root_node)
        return WP_STATUS_OK;
    const enum wp_status status = pass_word(carrier, TELL);
    return status != WP_STATUS_OK || wp_node_before(nodes, 1) == args->root_node
               ? status
               : pass_word(carrier, HEAR);
}

/* Before the root's chunk k: it hears the node before it when it has sent all, or what there is
 * room for whatever the next node does, which may be another root. */
WP_FN int receives_before(const struct wp_carrier *carrier, uint64_t k, uint64_t num_chunks)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const uint64_t window = (uint64_t)wp_ring_window(&args->rings);
    return args->rings.nodes.node == args->root_node &&
           k == (num_chunks < window ? num_chunks : window);
}

WP_FN enum wp_status carry_broadcast(struct wp_carrier *carrier)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const struct wp_nodes *nodes = &args->rings.nodes;
    const struct wp_stream stream = wp_stream_of(args, args->root_node, nodes->node);
    const uint64_t num_chunks = wp_stream_chunks(&args->rings, &stream, carrier->channel, 0);
    const int has_words = nodes->local_idx == 0 && carrier->channel == 0;
    enum wp_status status = has_words ? pass_words_before(carrier) : WP_STATUS_OK;
    for (uint64_t k = 0; k <= num_chunks && status == WP_STATUS_OK; k++) {
        if (has_words && receives_before(carrier, k, num_chunks))
            status = pass_word(carrier, HEAR);
        if (k < num_chunks && status == WP_STATUS_OK)
            status = hand_on(carrier, &stream, args->root_node, k);
    }
    return status;
}

/* ------------------------------------------------------------------ trees */

/* A broadcast's root waits for nobody along the tree if there is room for all that it sends,
 * whatever the others do. */
WP_FN int waits_for_nobody(const struct wp_carrier *carrier, const struct wp_rings *rings)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const int32_t node = rings->nodes.node;
    const struct wp_stream stream = wp_stream_of(args, args->root_node, node);
    return args->collective == WEFT_BROADCAST && node == args->root_node &&
           wp_stream_chunks(rings, &stream, carrier->channel, 0) <= (uint64_t)wp_ring_window(rings);
}

/* The call goes around all the same, in an empty chunk from the first rail to that of the next
 * node, before anybody waits along the tree: so calls that go by trees and by rings find each
 * other, and such with other roots. Who does not wait there sends its rows before it hears the node
 * before it. */
WP_FN enum wp_status carry_by_tree(struct wp_carrier *carrier, struct wp_tree_walk *walk)
{
    struct wp_stream none = wp_stream_of(carrier->args, 0, 0);
    none.num_rows = 0;
    const struct step tell = {none, 0, 0, 1, 0, 0}, hear = {none, 0, 1, 0, 0, 0};
    const int is_first = carrier->args->rings.nodes.local_idx == 0 && carrier->channel == 0;
    enum { TELLS, FIRST, SECOND, NUM_STAGES };
    const int walks_at = waits_for_nobody(carrier, &carrier->args->tree.rings) ? FIRST : SECOND;
    enum wp_status status = WP_STATUS_OK;
    for (int stage = TELLS; stage < NUM_STAGES && status == WP_STATUS_OK; stage++) {
        if (stage == walks_at)
            status = wp_tree_carry(walk);
        else if (is_first)
            status = take_step(carrier, stage == TELLS ? &tell : &hear);
    }
    return status;
}

/* ------------------------------------------------------------------ one node */

/* There is nobody to send to: rails make the sums, and what is not summed all warps copy. */
WP_FN enum wp_status sum_within(struct wp_carrier *carrier)
{
    const struct wp_rings *rings = &carrier->args->rings;
    const struct step step = {wp_stream_of(carrier->args, 0, 0), 0, 0, 0, 1, 1};
    const uint64_t num_chunks = wp_stream_chunks(rings, &step.stream, carrier->channel, 0);
    for (struct step at = step; at.chunk < num_chunks; at.chunk++)
        (void)take_step(carrier, &at);
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ a channel */

WP_FN enum wp_status carry(const struct wp_operation *op,
                           const struct wp_internode_collective_args *args, int32_t channel)
{
    struct wp_carrier carrier = carrier_of(op, args, channel);
    struct wp_tree_walk walk = wp_tree_walk_of(&carrier);
    const int32_t num_nodes = args->rings.nodes.num_nodes;
    enum wp_status status;
    if (args->rings.nodes.local_idx >= args->rings.nodes.num_rails)
        status = WP_STATUS_OK; /* no rail in this operation, but its counters go on */
    else if (num_nodes == 1)
        status = wp_is_reduction(args) ? sum_within(&carrier) : WP_STATUS_OK;
    else if (args->tree.num_levels > 0)
        status = carry_by_tree(&carrier, &walk);
    else if (args->collective == WEFT_BROADCAST)
        status = carry_broadcast(&carrier);
    else if (args->collective == WEFT_ALL_REDUCE && num_nodes > 2)
        status = carry_sum(&carrier);
    else
        status = carry_rounds(&carrier);
    note_chunks(&carrier);
    wp_tree_note(&walk);
    return status;
}

/* ------------------------------------------------------------------ within the node */

/* The rows that this rank copies. All-gather: its row. All-to-all: its rows for the node. Broadcast
 * from this node: a part of the root's row. Gather to this node: its row. Scatter from this node:
 * the root's row for it. */
struct own_rows {
    int32_t num_rows;
    int32_t source; /* index in the node */
    struct wp_span part;
};

WP_FN struct own_rows own_rows_of(const struct wp_operation *op,
                                  const struct wp_internode_collective_args *args)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    struct own_rows rows = {1, nodes->local_idx, wp_row_part(args, 0, 1)};
    const int is_from_root = args->collective == WEFT_BROADCAST || args->collective == WEFT_SCATTER;
    if (args->collective == WEFT_ALL_TO_ALL)
        rows.num_rows = nodes->num_local;
    if (is_from_root)
        rows.source = wp_root_idx(op, args);
    if (is_from_root || args->collective == WEFT_GATHER)
        rows.num_rows = nodes->node == args->root_node ? 1 : 0;
    if (args->collective == WEFT_BROADCAST)
        rows.part = wp_row_part(args, nodes->local_idx, nodes->num_local);
    if (wp_is_reduction(args))
        rows.num_rows = 0;
    return rows;
}

/* Where the row begins in the input that it is copied from. */
WP_FN uint64_t sent_row_of(const struct wp_operation *op,
                           const struct wp_internode_collective_args *args, int32_t row)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    if (args->collective == WEFT_ALL_TO_ALL)
        return args->row_bytes * (uint64_t)wp_node_rank(nodes, nodes->node, row);
    return args->collective == WEFT_SCATTER ? args->row_bytes * (uint64_t)op->exchange->rank : 0;
}

/* Whose outputs it goes to. */
WP_FN struct wp_targets copied_to(const struct wp_operation *op,
                                  const struct wp_internode_collective_args *args, int32_t row)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    struct wp_targets outputs = wp_no_targets();
    outputs.num = nodes->num_local;
    if (args->collective == WEFT_ALL_TO_ALL || args->collective == WEFT_GATHER ||
        args->collective == WEFT_SCATTER)
        outputs.num = 1;
    if (args->collective == WEFT_ALL_TO_ALL)
        outputs.first = row;
    if (args->collective == WEFT_GATHER)
        outputs.first = wp_root_idx(op, args);
    if (args->collective == WEFT_SCATTER)
        outputs.first = nodes->local_idx;
    return outputs;
}

WP_FN void copy_own(const struct wp_operation *op, const struct wp_internode_collective_args *args,
                    const struct own_rows *rows, int32_t row, struct wp_span span)
{
    const uint64_t offset = rows->part.begin + span.begin;
    const uint64_t own_row = args->row_bytes * (uint64_t)op->exchange->rank;
    const char *src = wp_rail_input(op, rows->source, sent_row_of(op, args, row) + offset);
    struct wp_targets outputs = copied_to(op, args, row);
    outputs.offset = offset;
    if (args->collective != WEFT_BROADCAST && args->collective != WEFT_SCATTER)
        outputs.offset += own_row;
    outputs.left_out = src; /* in place */
    wp_copy_to_targets(op, &outputs, src, span.bytes, WP_READ_LATER);
}

/* Warps take chunks as they get free, those of channels last. */
WP_FN void copy_within(const struct wp_operation *op,
                       const struct wp_internode_collective_args *args)
{
    const struct own_rows rows = own_rows_of(op, args);
    const int32_t num_chunks =
        (int32_t)((rows.part.bytes + args->chunk_bytes - 1) / args->chunk_bytes);
    const struct wp_share share = wp_share_parts(0, 1, rows.num_rows * num_chunks,
                                                 wp_units_taken(op->exchange, op->sequence));
    int32_t unit = wp_taken_unit(op->warp, wp_take_unit(op->warp, &share));
    while (unit < share.num_units) {
        const struct wp_span span = wp_span_of_row(
            rows.part.bytes, (uint64_t)(unit % num_chunks) * args->chunk_bytes, args->chunk_bytes);
        copy_own(op, args, &rows, unit / num_chunks, span);
        unit = wp_taken_unit(op->warp, wp_take_unit(op->warp, &share));
    }
}

/* ------------------------------------------------------------------ the program */

WP_PROGRAM(internode_collective, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    const struct wp_rings *rings = &args->rings;
    for (int32_t channel = wp_launch_warp_idx(warp);
         channel < rings->num_channels && status == WP_STATUS_OK;
         channel += wp_num_launch_warps(warp))
        status = carry(&op, args, channel);
    if (status == WP_STATUS_OK)
        copy_within(&op, args);
    return wp_relay_finish(&op, status);
}
