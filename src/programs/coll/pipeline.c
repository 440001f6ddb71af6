/* SPDX-License-Identifier: MIT */
/*
 * pipeline: collectives whose rows go from rank to rank piece by piece, each rank doing its step on
 * a piece while the others do theirs on others: rings, relays, and two shots by pushes. What the
 * steps are a table says (pipeline.h).
 *
 * Block b of every rank is channel b, and does every num_blocks-th piece: one warp waits for slots
 * and for what is in them, all warps move the rows, the same warp tells. Ranks start as in all
 * direct operations (direct.h), so that outputs of others are known, and finish so: what goes
 * directly to those for which a step without tail is enough, is there then.
 */
#include "programs/coll/pipeline.h"

/* The channel of a block, as its warps see it. */
struct pipe {
    const struct wp_pipeline_args *args;
    struct wp_operation op;
};

/* ------------------------------------------------------------------ peers */

/* The i-th of these peers. */
WP_FN struct wp_fifo fifo_of(const struct pipe *pipe, struct wp_peers peers, int32_t i)
{
    const struct wp_peer *peer = &pipe->args->plan.peers[peers.first + i];
    const struct wp_fifo fifo = {&pipe->args->fifos, &pipe->op,    wp_block_idx(pipe->op.warp),
                                 peer->rank,         peer->in_idx, peer->out_idx};
    return fifo;
}

/* The output of a peer; NULL: nobody reaches it. */
WP_FN char *output_of(const struct pipe *pipe, int32_t peer)
{
    struct wp_warp *warp = pipe->op.warp;
    return wp_direct_peer(warp, peer)->places[1] == WP_NO_OUTPUT
               ? NULL
               : wp_direct_output(warp, &pipe->args->direct, peer);
}

/* Whether nobody reaches this rank's output. */
WP_FN int is_out_of_reach(const struct pipe *pipe)
{
    return pipe->args->direct.header.output == WP_NO_OUTPUT;
}

/* Whether a step goes to the peer's slot, not to its output. */
WP_FN int takes_slot(const struct pipe *pipe, const struct wp_step *step, int32_t peer)
{
    if (step->flags & WP_STEP_TO_OUTS)
        return output_of(pipe, peer) == NULL;
    return (step->flags & WP_STEP_TO_SLOTS) != 0;
}

/* By the first warp: what the step needs before it can be done. */
WP_FN enum wp_status await_peers(const struct pipe *pipe, const struct wp_step *step)
{
    struct wp_warp *warp = pipe->op.warp;
    enum wp_status status = WP_STATUS_OK;
    const int32_t num_received = step->flags & WP_STEP_RECEIVE ? step->senders.num : 0;
    const int32_t num_reserved = step->flags & WP_STEP_SEND ? step->receivers.num : 0;
    for (int32_t i = wp_lane_idx(warp); i < num_received && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, step->senders, i);
        status = wp_fifo_receive(&fifo, wp_fifo_in_number(&fifo, 0));
    }
    for (int32_t i = wp_lane_idx(warp); i < num_reserved && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, step->receivers, i);
        if (takes_slot(pipe, step, fifo.peer))
            status = wp_fifo_reserve(&fifo, wp_fifo_out_number(&fifo, 0));
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* By the first warp: the step is done, and the next ones have the next numbers. In all steps of a
 * plan that send to a peer, or receive from it, the peer is the same lane's, which alone counts
 * them. */
WP_FN void tell_peers(const struct pipe *pipe, const struct wp_step *step)
{
    struct wp_warp *warp = pipe->op.warp;
    const int32_t num_sent = step->flags & WP_STEP_SEND ? step->receivers.num : 0;
    const int32_t num_consumed = step->flags & WP_STEP_RECEIVE ? step->senders.num : 0;
    for (int32_t i = wp_lane_idx(warp); i < num_sent; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, step->receivers, i);
        wp_fifo_post(&fifo, wp_fifo_out_number(&fifo, 0));
        wp_fifo_advance_out(&fifo, 1);
    }
    for (int32_t i = wp_lane_idx(warp); i < num_consumed; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, step->senders, i);
        wp_fifo_consume(&fifo, wp_fifo_in_number(&fifo, 0));
        wp_fifo_advance_in(&fifo, 1);
    }
}

/* ------------------------------------------------------------------ rows */

/* The bytes of a row that a warp moves. They are `in_slot` behind the slot's first byte. */
struct moved {
    struct wp_span span;
    uint64_t in_slot;
};

/* This warp's share of a piece of a part. */
WP_FN struct moved share_of_piece(const struct pipe *pipe, int32_t part, uint64_t piece)
{
    enum { LEAST_BYTES = 512 };
    const struct wp_pipeline_args *args = pipe->args;
    const uint64_t num_warps = (uint64_t)wp_num_warps(pipe->op.warp);
    const struct wp_span whole =
        wp_span_of_row(args->num_bytes, (uint64_t)part * args->part_bytes, args->part_bytes);
    const struct wp_span chunk =
        wp_span_of_row(whole.bytes, piece * args->direct.chunk_bytes, args->direct.chunk_bytes);
    const uint64_t share =
        (chunk.bytes + num_warps * LEAST_BYTES - 1) / (num_warps * LEAST_BYTES) * LEAST_BYTES;
    struct moved moved = {
        wp_span_of_row(chunk.bytes, (uint64_t)wp_warp_idx(pipe->op.warp) * share, share), 0};
    moved.in_slot = moved.span.begin;
    moved.span.begin += whole.begin + chunk.begin;
    return moved;
}

/* The row that the i-th sender has sent. */
WP_FN const char *source(const struct pipe *pipe, const struct wp_step *step,
                         const struct moved *moved, int32_t i)
{
    const struct wp_fifo fifo = fifo_of(pipe, step->senders, i);
    return wp_fifo_in_slot(&fifo, wp_fifo_in_number(&fifo, 0)) + moved->in_slot;
}

/* The sources, in the order in which they are reduced; returns how many there are. */
WP_FN int32_t find_sources(const struct pipe *pipe, const struct wp_step *step,
                           const struct moved *moved, const void **srcs)
{
    const struct wp_pipeline_args *args = pipe->args;
    const int32_t lane = wp_lane_idx(pipe->op.warp);
    const int32_t num_slots = step->flags & WP_STEP_FROM_SLOTS ? step->senders.num : 0;
    for (int32_t i = lane; i < num_slots; i += WP_WARP_SIZE)
        srcs[(step->own_at + 1 + i) % (num_slots + 1)] = source(pipe, step, moved, i);
    if (lane == 0 && step->flags & WP_STEP_FROM_IN)
        srcs[num_slots == 0 ? 0 : step->own_at] = args->in + (moved->span.begin - args->in_begin);
    if (lane == 0 && step->flags & WP_STEP_FROM_OUT)
        srcs[0] = is_out_of_reach(pipe) ? source(pipe, step, moved, 0)
                                        : args->out + (moved->span.begin - args->out_begin);
    return num_slots + 1;
}

/* Where the piece goes at receiver i. */
WP_FN const void *target(const struct pipe *pipe, const struct wp_step *step,
                         const struct moved *moved, int32_t i)
{
    const struct wp_fifo fifo = fifo_of(pipe, step->receivers, i);
    if (takes_slot(pipe, step, fifo.peer))
        return wp_fifo_out_slot(&fifo, wp_fifo_out_number(&fifo, 0)) + moved->in_slot;
    return output_of(pipe, fifo.peer) + moved->span.begin;
}

/* The targets of a row that goes to receivers [begin, end), others before this rank's own; returns
 * how many there are. */
WP_FN int32_t find_targets(const struct pipe *pipe, const struct wp_step *step,
                           const struct moved *moved, int32_t begin, int32_t end, const void **dsts)
{
    const struct wp_pipeline_args *args = pipe->args;
    const int32_t lane = wp_lane_idx(pipe->op.warp), num = end - begin;
    for (int32_t i = lane; i < num; i += WP_WARP_SIZE)
        dsts[i] = target(pipe, step, moved, begin + i);
    if (!(step->flags & WP_STEP_TO_OUT) &&
        !(step->flags & WP_STEP_FROM_OUT && is_out_of_reach(pipe)))
        return num;
    if (lane == 0) {
        const char *out = args->out + (moved->span.begin - args->out_begin);
        const char *in = args->in + (moved->span.begin - args->in_begin);
        /* A row that is only copied from there is in place already. */
        const int is_there =
            (step->flags & (WP_STEP_FROM_IN | WP_STEP_REDUCE)) == WP_STEP_FROM_IN && out == in;
        dsts[num] = is_there ? NULL : out;
    }
    return num + 1;
}

/* Called by every warp: its share of what the step moves. */
WP_FN void move(const struct pipe *pipe, const struct wp_step *step, uint64_t piece)
{
    struct wp_warp *warp = pipe->op.warp;
    const int goes_out = (step->flags & (WP_STEP_TO_SLOTS | WP_STEP_TO_OUTS)) != 0;
    const int spreads = (step->flags & WP_STEP_SPREAD) != 0;
    const int32_t num_rows = spreads ? step->receivers.num : 1;
    const void **srcs = wp_warp_pointers(warp);
    const void **dsts = srcs + WP_MAX_PEERS;
    struct wp_reduction reduction = pipe->args->reduction;
    if (step->flags & WP_STEP_PARTIAL && reduction.op == WP_REDUCTION_AVG)
        reduction.op = WP_REDUCTION_SUM;
    for (int32_t row = 0; row < num_rows; row++) {
        const struct moved moved =
            share_of_piece(pipe, (step->part + row) % pipe->args->plan.num_parts, piece);
        const int32_t num_receivers = goes_out ? step->receivers.num : 0;
        const int32_t first = spreads ? row : 0, end = spreads ? row + 1 : num_receivers;
        if (moved.span.bytes == 0)
            continue;
        wp_warp_sync(warp); /* the previous pointers have been used */
        const int32_t num_srcs = find_sources(pipe, step, &moved, srcs);
        const int32_t num_dsts = find_targets(pipe, step, &moved, first, end, dsts);
        wp_warp_sync(warp);
        if (step->flags & WP_STEP_REDUCE)
            wp_row_reduce(warp, dsts, num_dsts, srcs, num_srcs, reduction,
                          (int64_t)(moved.span.bytes / wp_dtype_bytes(reduction.dtype)));
        else if (num_dsts > 0)
            wp_row_copy(warp, dsts, num_dsts, srcs[0], moved.span.bytes);
    }
}

/* ------------------------------------------------------------------ steps */

WP_FN enum wp_status do_step(const struct pipe *pipe, const struct wp_step *step, uint64_t piece)
{
    struct wp_warp *warp = pipe->op.warp;
    const int is_first = wp_warp_idx(warp) == 0;
    const enum wp_status own = is_first ? await_peers(pipe, step) : WP_STATUS_OK;
    /* Behind this, the other warps have all that the first warp has acquired. */
    const enum wp_status status = wp_block_status(warp, own);
    if (status != WP_STATUS_OK)
        return status;
    move(pipe, step, piece);
    wp_block_sync(warp); /* the rows of all warps are complete */
    if (is_first)
        tell_peers(pipe, step);
    return WP_STATUS_OK;
}

/* The channel's pieces of the longest part. */
WP_FN uint64_t num_pieces(const struct pipe *pipe)
{
    const struct wp_pipeline_args *args = pipe->args;
    const uint64_t num_blocks = (uint64_t)wp_num_blocks(pipe->op.warp);
    const uint64_t part_bytes =
        args->part_bytes < args->num_bytes ? args->part_bytes : args->num_bytes;
    const uint64_t num_chunks =
        (part_bytes + args->direct.chunk_bytes - 1) / args->direct.chunk_bytes;
    return (num_chunks + num_blocks - 1 - (uint64_t)wp_block_idx(pipe->op.warp)) / num_blocks;
}

WP_FN enum wp_status do_steps(const struct pipe *pipe)
{
    const struct wp_plan *plan = &pipe->args->plan;
    const uint64_t num_blocks = (uint64_t)wp_num_blocks(pipe->op.warp);
    const uint64_t block_idx = (uint64_t)wp_block_idx(pipe->op.warp);
    const uint64_t end = num_pieces(pipe);
    const uint64_t num_turns = end > 0 ? end + (uint64_t)plan->most_lag : 0;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t turn = 0; turn < num_turns; turn++) {
        for (int32_t i = 0; i < plan->num_steps && status == WP_STATUS_OK; i++) {
            const struct wp_step *step = &plan->steps[i];
            const uint64_t piece = turn - step->lag;
            if (turn >= step->lag && piece < end)
                status = do_step(pipe, step, piece * num_blocks + block_idx);
        }
        if (status != WP_STATUS_OK)
            break;
    }
    return status;
}

/* ------------------------------------------------------------------ the program */

WP_PROGRAM(pipeline, warp, args)
{
    const struct pipe pipe = {args, wp_operation_begin(warp, &args->direct.area.exchange, NULL)};
    if (pipe.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const struct wp_packets packets = wp_packets_of(&args->direct.area, pipe.op.sequence);
    enum wp_status status = wp_direct_meet(warp, &args->direct, &packets);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&pipe.op, status);
    wp_admit_next(warp); /* all ranks have started */
    status = do_steps(&pipe);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&pipe.op, status);
    return wp_operation_finish(&pipe.op, WP_BLOCKS_AS_HERE);
}
