/* SPDX-License-Identifier: MIT */
/*
 * internode_collective: a collective over several nodes. The ranks of a node start and finish together. Between, a warp
 * for each channel of a rail sends what streams.h says, chunk by chunk, and takes what comes to its node's outputs:
 * sums are made of this node's inputs before they are sent, and of all nodes' sums, in ascending order of the nodes,
 * when they have come. What stays in the node, all warps copy.
 *
 * Why nobody waits for ever: in step k a warp sends its chunk k to every node, then takes chunk k - num_slots + 1 of
 * every node. To send it waits until chunk k - num_slots has been taken there, in step k - 1; to take, until the chunk has been
 * sent, in step k at the latest. So of all warps of a channel on one rail's partners, one in the least step waits for nobody.
 * Chunks of earlier operations have been taken, or will be, since they wait for nothing of this one.
 */
#include "programs/internode_collective.h"

#include "programs/streams.h"

/* One channel of a rail. */
struct carrier {
    const struct wp_operation *op;
    const struct wp_internode_collective_args *args;
    int32_t channel;
};

/* Nodes that are served together: the i-th after the own one, for i in [first, first + num). */
struct group {
    int32_t first, num;
};

/* ------------------------------------------------------------------ places */

WP_FN char *input_of(const struct wp_operation *op, int32_t member, uint64_t offset)
{
    return wp_operation_array(op, wp_member(op->exchange, member), WP_ARRAY_INPUT) + offset;
}

WP_FN char *output_of(const struct wp_operation *op, int32_t member, uint64_t offset)
{
    return wp_operation_array(op, wp_member(op->exchange, member), WP_ARRAY_OUTPUT) + offset;
}

WP_FN struct wp_relay relay_of(const struct carrier *carrier, int32_t hops)
{
    const struct wp_rings *rings = &carrier->args->rings;
    const struct wp_relay relay = {
        wp_ring_of(rings, wp_node_after(&rings->nodes, hops), carrier->channel), carrier->op, 0, 0,
        0};
    return relay;
}

WP_FN uint64_t out_number(const struct carrier *carrier, const struct wp_ring *ring, uint64_t k)
{
    return *wp_ring_counter(ring, carrier->args->rings.num_sent, carrier->op->sequence) + k;
}

WP_FN uint64_t in_number(const struct carrier *carrier, const struct wp_ring *ring, uint64_t k)
{
    return *wp_ring_counter(ring, carrier->args->rings.num_received, carrier->op->sequence) + k;
}

WP_FN char *out_slot(const struct carrier *carrier, int32_t hops, uint64_t k)
{
    const struct wp_relay relay = relay_of(carrier, hops);
    return wp_ring_out_slot(&relay.ring, out_number(carrier, &relay.ring, k));
}

WP_FN const char *in_slot(const struct carrier *carrier, int32_t hops, uint64_t k)
{
    const struct wp_relay relay = relay_of(carrier, hops);
    return wp_ring_in_slot(&relay.ring, in_number(carrier, &relay.ring, k));
}

WP_FN struct wp_stream stream_out(const struct carrier *carrier, int32_t hops)
{
    const struct wp_nodes *nodes = &carrier->args->rings.nodes;
    return wp_stream_of(carrier->args, nodes->node, wp_node_after(nodes, hops));
}

WP_FN struct wp_stream stream_in(const struct carrier *carrier, int32_t hops)
{
    const struct wp_nodes *nodes = &carrier->args->rings.nodes;
    return wp_stream_of(carrier->args, wp_node_after(nodes, hops), nodes->node);
}

/* ------------------------------------------------------------------ sums */

WP_FN int64_t num_elements(const struct wp_internode_collective_args *args, uint64_t bytes)
{
    return (int64_t)(bytes / wp_dtype_bytes(args->reduction.dtype));
}

/* The node's inputs from an offset on, one after the other in ascending order, at the warp's first pointers. */
WP_FN void point_at_inputs(const struct wp_operation *op, uint64_t offset)
{
    const void **srcs = wp_warp_pointers(op->warp);
    for (int32_t i = wp_lane_idx(op->warp); i < op->exchange->num_members; i += WP_WARP_SIZE)
        srcs[i] = input_of(op, i, offset);
}

/* What a node sends of an average is a sum. The dsts are behind the inputs' pointers. */
WP_FN void sum_inputs(const struct wp_operation *op,
                      const struct wp_internode_collective_args *args, int32_t num_dsts,
                      uint64_t bytes)
{
    const void **srcs = wp_warp_pointers(op->warp);
    const int32_t num_srcs = op->exchange->num_members;
    struct wp_reduction reduction = args->reduction;
    if (reduction.op == WP_REDUCTION_AVG)
        reduction.op = WP_REDUCTION_SUM;
    reduction.num_averaged = 0;
    wp_warp_sync(op->warp);
    wp_row_reduce_compact(op->warp, srcs + num_srcs, num_dsts, srcs, num_srcs, reduction,
                          num_elements(args, bytes));
}

/* ------------------------------------------------------------------ sending */

/* The index in the node of whose input a piece comes from, where that is one rank's. */
WP_FN int32_t source_idx(const struct wp_internode_collective_args *args,
                         const struct wp_stream *stream, uint64_t row, int32_t root)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    if (args->collective == WEFT_BROADCAST || args->collective == WEFT_SCATTER)
        return root;
    return wp_served_idx(nodes, args->collective == WEFT_ALL_TO_ALL
                                    ? row / (uint64_t)nodes->sizes[stream->to]
                                    : row);
}

/* Which of the rows of an input it is. */
WP_FN uint64_t source_row(const struct wp_internode_collective_args *args,
                          const struct wp_stream *stream, uint64_t row)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    if (args->collective == WEFT_REDUCE_SCATTER || args->collective == WEFT_SCATTER)
        return (uint64_t)wp_node_rank(nodes, stream->to, wp_served_idx(nodes, row));
    if (args->collective == WEFT_ALL_TO_ALL)
        return (uint64_t)wp_node_rank(nodes, stream->to,
                                      (int32_t)(row % (uint64_t)nodes->sizes[stream->to]));
    return 0;
}

/* The index of the root among the members; 0 if it is in another node. */
WP_FN int32_t root_idx(const struct wp_operation *op,
                       const struct wp_internode_collective_args *args)
{
    int32_t idx = 0;
    for (int32_t i = 0; i < op->exchange->num_members; i++)
        idx = wp_member(op->exchange, i) == args->root ? i : idx;
    return idx;
}

/* Warp-wide: writes a piece to the slots of the group. */
WP_FN void fill(const struct carrier *carrier, struct group group, uint64_t k,
                const struct wp_stream *stream, struct wp_piece piece)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const struct wp_operation *op = carrier->op;
    const uint64_t offset = source_row(args, stream, piece.row) * args->row_bytes + piece.offset;
    const int32_t num_srcs = wp_is_reduction(args) ? op->exchange->num_members : 0;
    const void **dsts = wp_warp_pointers(op->warp) + num_srcs;
    wp_warp_sync(op->warp); /* the previous pointers have been used */
    for (int32_t i = wp_lane_idx(op->warp); i < group.num; i += WP_WARP_SIZE)
        dsts[i] = out_slot(carrier, group.first + i, k) + piece.wire_offset;
    if (wp_is_reduction(args)) {
        point_at_inputs(op, offset);
        sum_inputs(op, args, group.num, piece.bytes);
        return;
    }
    const char *src = input_of(op, source_idx(args, stream, piece.row, root_idx(op, args)), offset);
    wp_warp_sync(op->warp);
    wp_row_stage(op->warp, dsts, group.num, src, piece.bytes);
}

WP_FN enum wp_status send_chunk(const struct carrier *carrier, struct group group, uint64_t k)
{
    const struct wp_stream stream = stream_out(carrier, group.first);
    const struct wp_span chunk =
        wp_stream_chunk(&carrier->args->rings, &stream, carrier->channel, k);
    for (int32_t i = group.first; i < group.first + group.num; i++) {
        const struct wp_relay relay = relay_of(carrier, i);
        if (wp_relay_reserve(&relay, out_number(carrier, &relay.ring, k)) == NULL)
            return WP_STATUS_FAILED;
    }
    for (uint64_t begin = chunk.begin; begin < chunk.begin + chunk.bytes;) {
        const struct wp_piece piece = wp_stream_piece(&stream, chunk, begin);
        fill(carrier, group, k, &stream, piece);
        begin += piece.bytes;
    }
    for (int32_t i = group.first; i < group.first + group.num; i++) {
        const struct wp_relay relay = relay_of(carrier, i);
        wp_ring_send(carrier->op->warp, &relay.ring, out_number(carrier, &relay.ring, k),
                     WP_CHUNK_HEADER_BYTES + chunk.bytes);
    }
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ taking */

/* Where the sum of this node's inputs is that belongs to what has come: an all-reduce has sent it. The warp's previous
 * pointers have been used. */
WP_FN const char *own_sum(const struct carrier *carrier, uint64_t k, struct wp_piece piece)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const struct wp_operation *op = carrier->op;
    const struct wp_nodes *nodes = &args->rings.nodes;
    if (args->collective == WEFT_ALL_REDUCE) {
        wp_warp_sync(op->warp); /* the lanes read what others have written, and sent */
        return out_slot(carrier, 1, k) + piece.wire_offset;
    }
    char *sum = args->own_sums + (uint64_t)carrier->channel * args->rings.slot_bytes;
    const uint64_t row =
        args->collective == WEFT_REDUCE
            ? 0
            : (uint64_t)wp_node_rank(nodes, nodes->node, wp_served_idx(nodes, piece.row));
    wp_row_sync(op->warp); /* the sum before has been read */
    point_at_inputs(op, row * args->row_bytes + piece.offset);
    if (wp_lane_idx(op->warp) == 0)
        wp_warp_pointers(op->warp)[op->exchange->num_members] = sum;
    sum_inputs(op, args, 1, piece.bytes);
    wp_row_sync(op->warp); /* the sum is read again */
    return sum;
}

/* The outputs that a piece goes to: one rank's, or all ranks' of the node. */
struct outputs {
    int32_t first, num;
    uint64_t offset;
};

WP_FN struct outputs outputs_of(const struct wp_operation *op,
                                const struct wp_internode_collective_args *args,
                                const struct wp_stream *stream, struct wp_piece piece)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    struct outputs outputs = {0, nodes->num_local, piece.offset};
    uint64_t served = piece.row;
    if (args->collective == WEFT_REDUCE_SCATTER || args->collective == WEFT_SCATTER) {
        outputs.first = wp_served_idx(nodes, served);
        outputs.num = 1;
    }
    if (args->collective == WEFT_REDUCE || args->collective == WEFT_GATHER) {
        outputs.first = root_idx(op, args);
        outputs.num = 1;
    }
    if (args->collective == WEFT_ALL_TO_ALL) {
        outputs.first = (int32_t)(piece.row % (uint64_t)nodes->num_local);
        outputs.num = 1;
        served = piece.row / (uint64_t)nodes->num_local;
    }
    if (args->collective == WEFT_ALL_TO_ALL || args->collective == WEFT_ALL_GATHER ||
        args->collective == WEFT_GATHER)
        outputs.offset += args->row_bytes *
                          (uint64_t)wp_node_rank(nodes, stream->from, wp_served_idx(nodes, served));
    return outputs;
}

WP_FN void point_at_outputs(const struct wp_operation *op, struct outputs outputs,
                            const void **dsts)
{
    for (int32_t i = wp_lane_idx(op->warp); i < outputs.num; i += WP_WARP_SIZE)
        dsts[i] = output_of(op, outputs.first + i, outputs.offset);
}

/* Warp-wide: adds the sums of all nodes. */
WP_FN void sum_nodes(const struct carrier *carrier, uint64_t k, struct outputs outputs,
                     struct wp_piece piece)
{
    struct wp_warp *warp = carrier->op->warp;
    const struct wp_nodes *nodes = &carrier->args->rings.nodes;
    const char *own = own_sum(carrier, k, piece);
    const void **srcs = wp_warp_pointers(warp);
    for (int32_t node = wp_lane_idx(warp); node < nodes->num_nodes; node += WP_WARP_SIZE) {
        const int32_t hops = (node - nodes->node + nodes->num_nodes) % nodes->num_nodes;
        srcs[node] = hops == 0 ? own : in_slot(carrier, hops, k) + piece.wire_offset;
    }
    point_at_outputs(carrier->op, outputs, srcs + nodes->num_nodes);
    wp_warp_sync(warp);
    wp_row_reduce_compact(warp, srcs + nodes->num_nodes, outputs.num, srcs, nodes->num_nodes,
                          carrier->args->reduction, num_elements(carrier->args, piece.bytes));
}

/* Warp-wide: brings a piece to the node's outputs. */
WP_FN void deliver(const struct carrier *carrier, struct group group, uint64_t k,
                   const struct wp_stream *stream, struct wp_piece piece)
{
    struct wp_warp *warp = carrier->op->warp;
    const struct outputs outputs = outputs_of(carrier->op, carrier->args, stream, piece);
    if (wp_is_reduction(carrier->args)) {
        sum_nodes(carrier, k, outputs, piece);
        return;
    }
    const void **dsts = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* the previous pointers have been used */
    point_at_outputs(carrier->op, outputs, dsts);
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, outputs.num, in_slot(carrier, group.first, k) + piece.wire_offset,
                piece.bytes);
}

WP_FN enum wp_status take_chunk(const struct carrier *carrier, struct group group, uint64_t k)
{
    const struct wp_stream stream = stream_in(carrier, group.first);
    const struct wp_span chunk =
        wp_stream_chunk(&carrier->args->rings, &stream, carrier->channel, k);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = group.first; i < group.first + group.num && status == WP_STATUS_OK; i++) {
        const struct wp_relay relay = relay_of(carrier, i);
        const uint64_t number = in_number(carrier, &relay.ring, k);
        status = wp_ring_receive(carrier->op, &relay.ring, number);
        if (status == WP_STATUS_OK)
            status = wp_relay_check(&relay, wp_ring_in_slot(&relay.ring, number));
    }
    if (status != WP_STATUS_OK)
        return status;
    for (uint64_t begin = chunk.begin; begin < chunk.begin + chunk.bytes;) {
        const struct wp_piece piece = wp_stream_piece(&stream, chunk, begin);
        deliver(carrier, group, k, &stream, piece);
        begin += piece.bytes;
    }
    for (int32_t i = group.first; i < group.first + group.num; i++) {
        const struct wp_relay relay = relay_of(carrier, i);
        wp_ring_consume(carrier->op->warp, &relay.ring, in_number(carrier, &relay.ring, k));
    }
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ a channel */

WP_FN uint64_t chunks_out(const struct carrier *carrier, int32_t hops)
{
    const struct wp_stream stream = stream_out(carrier, hops);
    return wp_stream_chunks(&carrier->args->rings, &stream, carrier->channel);
}

WP_FN uint64_t chunks_in(const struct carrier *carrier, int32_t hops)
{
    const struct wp_stream stream = stream_in(carrier, hops);
    return wp_stream_chunks(&carrier->args->rings, &stream, carrier->channel);
}

/* The most chunks of any stream; tells the rings how many they carry. */
WP_FN uint64_t begin_streams(const struct carrier *carrier)
{
    uint64_t most = 0;
    for (int32_t hops = 1; hops < carrier->args->rings.nodes.num_nodes; hops++) {
        const struct wp_relay relay = relay_of(carrier, hops);
        const uint64_t num_out = chunks_out(carrier, hops), num_in = chunks_in(carrier, hops);
        if (wp_lane_idx(carrier->op->warp) == 0)
            wp_ring_advance(&relay.ring, carrier->op->sequence, (int64_t)num_out, (int64_t)num_in);
        most = num_out > most ? num_out : most;
        most = num_in > most ? num_in : most;
    }
    return most;
}

WP_FN enum wp_status send_chunks(const struct carrier *carrier, uint64_t k)
{
    const int32_t num_others = carrier->args->rings.nodes.num_nodes - 1;
    struct group group = {1, wp_is_same_for_all(carrier->args) ? num_others : 1};
    enum wp_status status = WP_STATUS_OK;
    for (; group.first <= num_others && status == WP_STATUS_OK; group.first += group.num)
        if (k < chunks_out(carrier, group.first))
            status = send_chunk(carrier, group, k);
    return status;
}

WP_FN enum wp_status take_chunks(const struct carrier *carrier, uint64_t k)
{
    const int32_t num_others = carrier->args->rings.nodes.num_nodes - 1;
    struct group group = {1, wp_is_reduction(carrier->args) ? num_others : 1};
    enum wp_status status = WP_STATUS_OK;
    for (; group.first <= num_others && status == WP_STATUS_OK; group.first += group.num)
        if (k < chunks_in(carrier, group.first))
            status = take_chunk(carrier, group, k);
    return status;
}

WP_FN enum wp_status carry(const struct wp_operation *op,
                           const struct wp_internode_collective_args *args, int32_t channel)
{
    const struct carrier carrier = {op, args, channel};
    const uint64_t num_chunks = begin_streams(&carrier);
    const uint64_t lag = (uint64_t)args->rings.num_slots - 1;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t k = 0; k < num_chunks + lag && status == WP_STATUS_OK; k++) {
        if (k < num_chunks)
            status = send_chunks(&carrier, k);
        if (k >= lag && status == WP_STATUS_OK)
            status = take_chunks(&carrier, k - lag);
    }
    return status;
}

/* ------------------------------------------------------------------ within the node */

/* What this rank copies: of an all-gather its row, of an all-to-all its rows for the node, of a broadcast from this node a part
 * of the root's row; of a gather to this node its row, of a scatter from it the root's row for it. */
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
        rows.source = root_idx(op, args);
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
WP_FN struct outputs copied_to(const struct wp_operation *op,
                               const struct wp_internode_collective_args *args, int32_t row)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    struct outputs outputs = {0, nodes->num_local, 0};
    if (args->collective == WEFT_ALL_TO_ALL || args->collective == WEFT_GATHER ||
        args->collective == WEFT_SCATTER)
        outputs.num = 1;
    if (args->collective == WEFT_ALL_TO_ALL)
        outputs.first = row;
    if (args->collective == WEFT_GATHER)
        outputs.first = root_idx(op, args);
    if (args->collective == WEFT_SCATTER)
        outputs.first = nodes->local_idx;
    return outputs;
}

WP_FN void copy_own(const struct wp_operation *op, const struct wp_internode_collective_args *args,
                    const struct own_rows *rows, int32_t row, struct wp_span span)
{
    const uint64_t offset = rows->part.begin + span.begin;
    const uint64_t own_row = args->row_bytes * (uint64_t)op->exchange->rank;
    const char *src = input_of(op, rows->source, sent_row_of(op, args, row) + offset);
    struct outputs outputs = copied_to(op, args, row);
    outputs.offset = offset;
    if (args->collective != WEFT_BROADCAST && args->collective != WEFT_SCATTER)
        outputs.offset += own_row;
    const void **dsts = wp_warp_pointers(op->warp);
    wp_warp_sync(op->warp); /* the previous pointers have been used */
    for (int32_t i = wp_lane_idx(op->warp); i < outputs.num; i += WP_WARP_SIZE) {
        const char *dst = output_of(op, outputs.first + i, outputs.offset);
        dsts[i] = dst == src ? NULL : dst; /* in place */
    }
    wp_warp_sync(op->warp);
    wp_row_copy(op->warp, dsts, outputs.num, src, span.bytes);
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
    wp_operation_tell(&op);
    enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    const struct wp_rings *rings = &args->rings;
    const int32_t num_channels =
        rings->nodes.local_idx < rings->nodes.num_rails ? rings->num_channels : 0;
    for (int32_t channel = wp_launch_warp_idx(warp);
         channel < num_channels && status == WP_STATUS_OK; channel += wp_num_launch_warps(warp))
        status = carry(&op, args, channel);
    if (status == WP_STATUS_OK)
        copy_within(&op, args);
    return wp_relay_finish(&op, status);
}
