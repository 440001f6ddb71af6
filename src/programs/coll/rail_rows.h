/* SPDX-License-Identifier: MIT */
/*
 * The way of a piece of a stream through the rail's own node. The rail reads it from inputs of the
 * node's ranks or from the slot that it has come in, adds the node's sum to sums of other nodes,
 * and writes the result to the slot that it goes on in and to outputs of the node's ranks. A warp's
 * pointers are sources, then destinations.
 */
#pragma once

#include "programs/coll/streams.h"

/* At a time. One of more sources is what those before them have made. */
enum { WP_RAIL_INPUTS = 32, WP_RAIL_TARGETS = 32 };

WP_STATIC_ASSERT(1 + WP_RAIL_INPUTS + WP_RAIL_TARGETS <= WP_WARP_POINTERS, "a warp has so many");

/* One channel of a rail. */
struct wp_carrier {
    const struct wp_operation *op;
    const struct wp_internode_collective_args *args;
    int32_t channel;
    struct wp_ring next, prev;       /* to the next node, from the previous one */
    uint64_t num_sent, num_received; /* chunks, since there are rings */
    uint64_t first_sent, first_received;
};

WP_FN char *wp_rail_input(const struct wp_operation *op, int32_t member, uint64_t offset)
{
    return wp_operation_array(op, wp_member(op->exchange, member), WP_ARRAY_INPUT) + offset;
}

WP_FN char *wp_rail_output(const struct wp_operation *op, int32_t member, uint64_t offset)
{
    return wp_operation_array(op, wp_member(op->exchange, member), WP_ARRAY_OUTPUT) + offset;
}

/* The index of the root among the members; 0 if it is in another node. */
WP_FN int32_t wp_root_idx(const struct wp_operation *op,
                          const struct wp_internode_collective_args *args)
{
    int32_t idx = 0;
    for (int32_t i = 0; i < op->exchange->num_members; i++)
        idx = wp_member(op->exchange, i) == args->root ? i : idx;
    return idx;
}

/* ------------------------------------------------------------------ where pieces are read */

/* The index in the node of whose input a piece comes from, where that is one rank's. */
WP_FN int32_t wp_source_idx(const struct wp_internode_collective_args *args,
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
WP_FN uint64_t wp_source_row(const struct wp_internode_collective_args *args,
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

WP_FN uint64_t wp_source_offset(const struct wp_internode_collective_args *args,
                                const struct wp_stream *stream, struct wp_piece piece)
{
    return wp_source_row(args, stream, piece.row) * args->row_bytes + piece.offset;
}

/* ------------------------------------------------------------------ where they are written */

/* Slots, then outputs of ranks of the node. */
enum { WP_RAIL_MOST_SLOTS = 3 };
struct wp_targets {
    char *slots[WP_RAIL_MOST_SLOTS];
    int32_t num_slots;
    int32_t first, num;
    uint64_t offset;
    const char *left_out; /* none of them: an output that is the input */
};

WP_FN struct wp_targets wp_no_targets(void)
{
    const struct wp_targets targets = {{NULL, NULL, NULL}, 0, 0, 0, 0, NULL};
    return targets;
}

WP_FN struct wp_targets wp_target_of_slot(char *slot)
{
    struct wp_targets targets = wp_no_targets();
    targets.slots[targets.num_slots++] = slot;
    return targets;
}

/* One rank's output, or all ranks' of the node. */
WP_FN struct wp_targets wp_outputs_of(const struct wp_operation *op,
                                      const struct wp_internode_collective_args *args,
                                      const struct wp_stream *stream, struct wp_piece piece)
{
    const struct wp_nodes *nodes = &args->rings.nodes;
    struct wp_targets outputs = wp_no_targets();
    uint64_t served = piece.row;
    outputs.num = nodes->num_local;
    outputs.offset = piece.offset;
    if (args->collective == WEFT_REDUCE_SCATTER || args->collective == WEFT_SCATTER) {
        outputs.first = wp_served_idx(nodes, served);
        outputs.num = 1;
    }
    if (args->collective == WEFT_REDUCE || args->collective == WEFT_GATHER) {
        outputs.first = wp_root_idx(op, args);
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

WP_FN int32_t wp_num_targets(const struct wp_targets *targets)
{
    return targets->num + targets->num_slots;
}

WP_FN const char *wp_target(const struct wp_operation *op, const struct wp_targets *targets,
                            int32_t i)
{
    const int32_t output = i - targets->num_slots;
    if (output < 0)
        return targets->slots[i];
    const char *at = wp_rail_output(op, targets->first + output, targets->offset);
    return at == targets->left_out ? NULL : at;
}

WP_FN const void **wp_target_pointers(struct wp_warp *warp)
{
    return wp_warp_pointers(warp) + 1 + WP_RAIL_INPUTS;
}

/* Points at targets from `first` on, as many as are written at a time; returns how many. The
 * previous pointers have been used. */
WP_FN int32_t wp_point_at_targets(const struct wp_operation *op, const struct wp_targets *targets,
                                  int32_t first)
{
    const void **dsts = wp_target_pointers(op->warp);
    const int32_t rest = wp_num_targets(targets) - first;
    const int32_t num = rest < WP_RAIL_TARGETS ? rest : (int32_t)WP_RAIL_TARGETS;
    for (int32_t i = wp_lane_idx(op->warp); i < num; i += WP_WARP_SIZE)
        dsts[i] = wp_target(op, targets, first + i);
    return num;
}

/* ------------------------------------------------------------------ copies */

/* Warp-wide. */
WP_FN void wp_copy_to_targets(const struct wp_operation *op, const struct wp_targets *targets,
                              const char *src, uint64_t bytes, enum wp_reuse reuse)
{
    for (int32_t first = 0; first < wp_num_targets(targets); first += WP_RAIL_TARGETS) {
        wp_warp_sync(op->warp); /* the previous pointers have been used */
        const int32_t num = wp_point_at_targets(op, targets, first);
        wp_warp_sync(op->warp);
        wp_row_copy_for(op->warp, reuse, wp_target_pointers(op->warp), num, src, bytes);
    }
}

/* ------------------------------------------------------------------ sums */

/* The terms of a sum, in order: at most a sum of other nodes, then inputs of the node's ranks, or
 * another sum, and one behind. */
struct wp_terms {
    const char *sum;
    const char *other;
    int32_t first, num; /* inputs */
    uint64_t offset;
    const char *behind;
};

/* An average is handed on as a sum. */
WP_FN struct wp_reduction wp_partial(const struct wp_internode_collective_args *args)
{
    struct wp_reduction reduction = args->reduction;
    if (reduction.op == WP_REDUCTION_AVG)
        reduction.op = WP_REDUCTION_SUM;
    reduction.num_averaged = 0;
    return reduction;
}

/* Returns how many there are. */
WP_FN int32_t wp_point_at_terms(const struct wp_operation *op, const struct wp_terms *terms)
{
    const void **srcs = wp_warp_pointers(op->warp);
    const int32_t has_sum = terms->sum != NULL, has_other = terms->other != NULL;
    const int32_t has_behind = terms->behind != NULL;
    for (int32_t i = wp_lane_idx(op->warp); i < terms->num; i += WP_WARP_SIZE)
        srcs[has_sum + i] = wp_rail_input(op, terms->first + i, terms->offset);
    if (wp_lane_idx(op->warp) == 0 && has_sum)
        srcs[0] = terms->sum;
    if (wp_lane_idx(op->warp) == 0 && has_other)
        srcs[has_sum] = terms->other;
    if (wp_lane_idx(op->warp) == 0 && has_behind)
        srcs[has_sum + has_other] = terms->behind; /* in place of inputs there is another sum */
    return has_sum + has_other + terms->num + has_behind;
}

/* Warp-wide. */
WP_FN void wp_reduce_to_targets(const struct wp_operation *op, const struct wp_targets *targets,
                                const struct wp_terms *terms, struct wp_reduction reduction,
                                uint64_t bytes)
{
    const int64_t num_elements = (int64_t)(bytes / wp_dtype_bytes(reduction.dtype));
    for (int32_t first = 0; first < wp_num_targets(targets); first += WP_RAIL_TARGETS) {
        wp_warp_sync(op->warp); /* the previous pointers have been used */
        const int32_t num_srcs = wp_point_at_terms(op, terms);
        const int32_t num_dsts = wp_point_at_targets(op, targets, first);
        wp_warp_sync(op->warp);
        wp_row_reduce_compact(op->warp, wp_target_pointers(op->warp), num_dsts,
                              wp_warp_pointers(op->warp), num_srcs, reduction, num_elements);
    }
}

/* Warp-wide: the sum of the node's inputs, in memory of the channel. */
WP_FN const char *wp_make_own_sum(const struct wp_carrier *carrier, uint64_t offset, uint64_t bytes)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const struct wp_operation *op = carrier->op;
    char *sum = args->own_sums + (uint64_t)carrier->channel * args->rings.slot_bytes;
    const struct wp_targets target = wp_target_of_slot(sum);
    struct wp_terms terms = {NULL, NULL, 0, 0, offset, NULL};
    const int32_t num_inputs = op->exchange->num_members;
    for (; terms.first < num_inputs; terms.first += WP_RAIL_INPUTS) {
        const int32_t rest = num_inputs - terms.first;
        terms.num = rest < WP_RAIL_INPUTS ? rest : (int32_t)WP_RAIL_INPUTS;
        wp_row_sync(op->warp); /* the sum before has been read, or made */
        wp_reduce_to_targets(op, &target, &terms, wp_partial(args), bytes);
        terms.sum = sum;
    }
    wp_row_sync(op->warp); /* the sum is read again */
    return sum;
}

/* ------------------------------------------------------------------ pieces */

/* The way of a chunk through this node. */
struct wp_passage {
    struct wp_stream stream;
    struct wp_span chunk;
    const char *in;        /* the slot that it has come in; NULL: it begins here */
    const char *own;       /* the slot that this node's sum is in already, or NULL */
    const char *behind;    /* the slot of another sum, which is added behind this node's, or NULL */
    struct wp_targets out; /* the slots that it goes on in */
    int is_added_to;       /* the sum of this node's inputs, */
    int is_complete;       /* the last one */
    int is_delivered;      /* to outputs of this node */
};

WP_FN struct wp_targets wp_targets_of(const struct wp_carrier *carrier,
                                      const struct wp_passage *passage, struct wp_piece piece)
{
    struct wp_targets targets = wp_no_targets();
    if (passage->is_delivered)
        targets = wp_outputs_of(carrier->op, carrier->args, &passage->stream, piece);
    for (int32_t i = 0; i < passage->out.num_slots; i++)
        targets.slots[targets.num_slots++] = passage->out.slots[i] + piece.wire_offset;
    return targets;
}

/* Warp-wide: adds this node's inputs to what has come. */
WP_FN void wp_add_piece(const struct wp_carrier *carrier, const struct wp_passage *passage,
                        const struct wp_targets *targets, struct wp_piece piece)
{
    const struct wp_operation *op = carrier->op;
    const uint64_t offset = wp_source_offset(carrier->args, &passage->stream, piece);
    struct wp_terms terms = {NULL, NULL, 0, op->exchange->num_members, offset, NULL};
    if (passage->in != NULL)
        terms.sum = passage->in + piece.wire_offset;
    if (passage->behind != NULL)
        terms.behind = passage->behind + piece.wire_offset;
    if (passage->own != NULL)
        terms.other = passage->own + piece.wire_offset;
    else if (passage->in != NULL || passage->behind != NULL || terms.num > WP_RAIL_INPUTS)
        terms.other = wp_make_own_sum(carrier, offset, piece.bytes);
    if (terms.other != NULL)
        terms.num = 0;
    wp_reduce_to_targets(
        op, targets, &terms,
        passage->is_complete ? carrier->args->reduction : wp_partial(carrier->args), piece.bytes);
}

WP_FN void wp_move_piece(const struct wp_carrier *carrier, const struct wp_passage *passage,
                         struct wp_piece piece)
{
    const struct wp_internode_collective_args *args = carrier->args;
    const struct wp_operation *op = carrier->op;
    const struct wp_targets targets = wp_targets_of(carrier, passage, piece);
    if (passage->is_added_to) {
        wp_add_piece(carrier, passage, &targets, piece);
        return;
    }
    const char *src = passage->in + piece.wire_offset;
    if (passage->in == NULL) {
        const int32_t idx = wp_source_idx(args, &passage->stream, piece.row, wp_root_idx(op, args));
        src = wp_rail_input(op, idx, wp_source_offset(args, &passage->stream, piece));
    }
    wp_copy_to_targets(op, &targets, src, piece.bytes,
                       passage->in == NULL ? WP_READ_SOON : WP_READ_LATER);
}

/* Warp-wide. */
WP_CALLED_FN void wp_move_chunk(const struct wp_carrier *carrier, const struct wp_passage *passage)
{
    const struct wp_span chunk = passage->chunk;
    for (uint64_t begin = chunk.begin; begin < chunk.begin + chunk.bytes;) {
        const struct wp_piece piece = wp_stream_piece(&passage->stream, chunk, begin);
        wp_move_piece(carrier, passage, piece);
        begin += piece.bytes;
    }
}
