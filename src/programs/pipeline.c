/* SPDX-License-Identifier: MIT */
/*
 * pipeline: collectives whose rows go from rank to rank piece by piece, each rank doing its step on a piece while the
 * others do theirs on others: rings, relays, and two shots by pushes. What the steps are a table says (pipeline.h).
 *
 * Block b of every rank is channel b, and does every num_blocks-th piece: one warp waits for slots and for what is in
 * them, all warps move the rows, the same warp tells. Ranks start as in all direct operations (direct.h), so that
 * outputs of others are known, and finish so: what goes directly to those for which a step without tail is enough, is
 * there then.
 */
#include "programs/pipeline.h"

/* What a warp knows of its block's channel. */
struct pipe {
    const struct wp_pipeline_args *args;
    struct wp_operation op;
    uint64_t num_posted; /* steps so far to each receiver, by this operation */
    uint64_t num_consumed;
};

/* ------------------------------------------------------------------ peers */

WP_FN int32_t peer_of(const struct pipe *pipe, struct wp_peers peers, int32_t i)
{
    const int32_t num_ranks = pipe->op.exchange->num_ranks;
    const int32_t rank = peers.first + i;
    return rank < num_ranks ? rank : rank - num_ranks;
}

WP_FN struct wp_fifo fifo_of(const struct pipe *pipe, struct wp_peers peers, int32_t i)
{
    const struct wp_fifo fifo = {&pipe->args->fifos, &pipe->op, wp_block_idx(pipe->op.warp),
                                 peer_of(pipe, peers, i)};
    return fifo;
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
        return wp_direct_peer(pipe->op.warp, peer)->places[1] == WP_NO_OUTPUT;
    return (step->flags & WP_STEP_TO_SLOTS) != 0;
}

/* By the first warp: what the step needs before it can be done. */
WP_FN enum wp_status await_peers(const struct pipe *pipe, const struct wp_step *step)
{
    struct wp_warp *warp = pipe->op.warp;
    const struct wp_plan *plan = &pipe->args->plan;
    enum wp_status status = WP_STATUS_OK;
    const int32_t num_received = step->flags & WP_STEP_RECEIVE ? plan->senders.num : 0;
    const int32_t num_reserved = step->flags & WP_STEP_SEND ? plan->receivers.num : 0;
    for (int32_t i = wp_lane_idx(warp); i < num_received && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->senders, i);
        status = wp_fifo_receive(&fifo, wp_fifo_in_number(&fifo, pipe->num_consumed));
    }
    for (int32_t i = wp_lane_idx(warp); i < num_reserved && status == WP_STATUS_OK;
         i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->receivers, i);
        if (takes_slot(pipe, step, fifo.peer))
            status = wp_fifo_reserve(&fifo, wp_fifo_out_number(&fifo, pipe->num_posted));
    }
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* By the first warp: the step is done. */
WP_FN void tell_peers(const struct pipe *pipe, const struct wp_step *step)
{
    struct wp_warp *warp = pipe->op.warp;
    const struct wp_plan *plan = &pipe->args->plan;
    const int32_t num_sent = step->flags & WP_STEP_SEND ? plan->receivers.num : 0;
    const int32_t num_consumed = step->flags & WP_STEP_RECEIVE ? plan->senders.num : 0;
    for (int32_t i = wp_lane_idx(warp); i < num_sent; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->receivers, i);
        wp_fifo_post(&fifo, wp_fifo_out_number(&fifo, pipe->num_posted));
    }
    for (int32_t i = wp_lane_idx(warp); i < num_consumed; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->senders, i);
        wp_fifo_consume(&fifo, wp_fifo_in_number(&fifo, pipe->num_consumed));
    }
}

/* ------------------------------------------------------------------ rows */

/* What a warp moves of a row: bytes of the rows, which are `in_slot` behind the slot's first byte. */
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

/* The sources, in the order in which they are reduced; returns how many there are. */
WP_FN int32_t find_sources(const struct pipe *pipe, const struct wp_step *step,
                           const struct moved *moved, const void **srcs)
{
    const struct wp_pipeline_args *args = pipe->args;
    const struct wp_plan *plan = &args->plan;
    const int32_t num_ranks = pipe->op.exchange->num_ranks;
    const int32_t lane = wp_lane_idx(pipe->op.warp);
    const int32_t num_slots = step->flags & WP_STEP_FROM_SLOTS ? plan->senders.num : 0;
    const int32_t own = num_slots == 0 ? 0 : pipe->op.exchange->rank - plan->first_source;
    for (int32_t i = lane; i < num_slots; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->senders, i);
        const int32_t idx = fifo.peer - plan->first_source;
        srcs[idx < 0 ? idx + num_ranks : idx] =
            wp_fifo_in_slot(&fifo, wp_fifo_in_number(&fifo, pipe->num_consumed)) + moved->in_slot;
    }
    if (lane == 0 && step->flags & WP_STEP_FROM_IN)
        srcs[own < 0 ? own + num_ranks : own] = args->in + (moved->span.begin - args->in_begin);
    if (lane == 0 && step->flags & WP_STEP_FROM_OUT) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->senders, 0);
        srcs[0] = is_out_of_reach(pipe)
                      ? wp_fifo_in_slot(&fifo, wp_fifo_in_number(&fifo, pipe->num_consumed)) +
                            moved->in_slot
                      : args->out + (moved->span.begin - args->out_begin);
    }
    return num_slots + 1;
}

/* Where the piece goes at receiver i. */
WP_FN const void *target(const struct pipe *pipe, const struct wp_step *step,
                         const struct moved *moved, int32_t i)
{
    const struct wp_plan *plan = &pipe->args->plan;
    const struct wp_fifo fifo = fifo_of(pipe, plan->receivers, i);
    if (takes_slot(pipe, step, fifo.peer))
        return wp_fifo_out_slot(&fifo, wp_fifo_out_number(&fifo, pipe->num_posted)) +
               moved->in_slot;
    if (fifo.peer == plan->skipped)
        return NULL;
    return wp_direct_output(pipe->op.warp, &pipe->args->direct, fifo.peer) + moved->span.begin;
}

/* The targets of a row that goes to receivers [begin, end), others before this rank's own; returns how many there
 * are. */
WP_FN int32_t find_targets(const struct pipe *pipe, const struct wp_step *step,
                           const struct moved *moved, struct wp_peers range, const void **dsts)
{
    const struct wp_pipeline_args *args = pipe->args;
    const int32_t lane = wp_lane_idx(pipe->op.warp);
    for (int32_t i = lane; i < range.num; i += WP_WARP_SIZE)
        dsts[i] = target(pipe, step, moved, range.first + i);
    if (!(step->flags & WP_STEP_TO_OUT) &&
        !(step->flags & WP_STEP_FROM_OUT && is_out_of_reach(pipe)))
        return range.num;
    if (lane == 0) {
        const char *out = args->out + (moved->span.begin - args->out_begin);
        const char *in = args->in + (moved->span.begin - args->in_begin);
        /* What is only copied from there is there already, in place. */
        const int is_there =
            (step->flags & (WP_STEP_FROM_IN | WP_STEP_REDUCE)) == WP_STEP_FROM_IN && out == in;
        dsts[range.num] = is_there ? NULL : out;
    }
    return range.num + 1;
}

/* Called by every warp: its share of what the step moves. */
WP_FN void move(const struct pipe *pipe, const struct wp_step *step, uint64_t piece)
{
    struct wp_warp *warp = pipe->op.warp;
    const struct wp_plan *plan = &pipe->args->plan;
    const struct wp_reduction reduction = pipe->args->reduction;
    const int goes_out = (step->flags & (WP_STEP_TO_SLOTS | WP_STEP_TO_OUTS)) != 0;
    const int spreads = (step->flags & WP_STEP_SPREAD) != 0;
    const int32_t num_rows = spreads ? plan->receivers.num : 1;
    const void **srcs = wp_warp_pointers(warp);
    const void **dsts = srcs + pipe->op.exchange->num_ranks;
    for (int32_t row = 0; row < num_rows; row++) {
        const struct moved moved =
            share_of_piece(pipe, (step->part + row) % plan->num_parts, piece);
        struct wp_peers range = {0, goes_out ? plan->receivers.num : 0};
        if (spreads) {
            range.first = row;
            range.num = 1;
        }
        if (moved.span.bytes == 0)
            continue;
        wp_warp_sync(warp); /* the previous pointers have been used */
        const int32_t num_srcs = find_sources(pipe, step, &moved, srcs);
        const int32_t num_dsts = find_targets(pipe, step, &moved, range, dsts);
        wp_warp_sync(warp);
        if (step->flags & WP_STEP_REDUCE)
            wp_row_reduce(warp, dsts, num_dsts, srcs, num_srcs, reduction,
                          (int64_t)(moved.span.bytes / wp_dtype_bytes(reduction.dtype)));
        else if (num_dsts > 0)
            wp_row_copy(warp, dsts, num_dsts, srcs[0], moved.span.bytes);
    }
}

/* ------------------------------------------------------------------ steps */

WP_FN enum wp_status do_step(struct pipe *pipe, const struct wp_step *step, uint64_t piece)
{
    struct wp_warp *warp = pipe->op.warp;
    const int is_first = wp_warp_idx(warp) == 0;
    const enum wp_status own = is_first ? await_peers(pipe, step) : WP_STATUS_OK;
    /* What the first warp has acquired, the others have behind this. */
    const enum wp_status status = (enum wp_status)wp_block_max(warp, (uint32_t)own);
    if (status != WP_STATUS_OK)
        return status;
    move(pipe, step, piece);
    wp_block_sync(warp); /* the rows of all warps are complete */
    if (is_first)
        tell_peers(pipe, step);
    pipe->num_posted += (step->flags & WP_STEP_SEND) != 0;
    pipe->num_consumed += (step->flags & WP_STEP_RECEIVE) != 0;
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

WP_FN enum wp_status do_steps(struct pipe *pipe)
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

/* By the first warp, behind the last step: the numbers go on from here. Who sends and receives alike has a peer
 * in the same lane. */
WP_FN void advance(const struct pipe *pipe)
{
    struct wp_warp *warp = pipe->op.warp;
    const struct wp_plan *plan = &pipe->args->plan;
    for (int32_t i = wp_lane_idx(warp); i < plan->receivers.num; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->receivers, i);
        wp_fifo_advance_out(&fifo, pipe->num_posted);
    }
    for (int32_t i = wp_lane_idx(warp); i < plan->senders.num; i += WP_WARP_SIZE) {
        const struct wp_fifo fifo = fifo_of(pipe, plan->senders, i);
        wp_fifo_advance_in(&fifo, pipe->num_consumed);
    }
}

WP_PROGRAM(pipeline, warp, args)
{
    const struct wp_direct *direct = &args->direct;
    const struct wp_packets packets = wp_packets_begin(warp, &direct->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    enum wp_status status = wp_direct_meet(warp, direct, &packets);
    if (status != WP_STATUS_OK)
        return wp_packets_end(warp, &direct->area, &packets, status);
    wp_admit_next(warp); /* all ranks have started */
    struct pipe pipe = {args, wp_packets_operation(warp, &direct->area, &packets), 0, 0};
    status = do_steps(&pipe);
    if (status != WP_STATUS_OK)
        return wp_packets_end(warp, &direct->area, &packets, status);
    if (wp_warp_idx(warp) == 0)
        advance(&pipe);
    return wp_direct_finish(warp, direct, &packets);
}
