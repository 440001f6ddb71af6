/* SPDX-License-Identifier: MIT */
/*
 * multicast: reduce-scatter, all-gather and all-reduce through a multicast object (multicast.h), in
 * stages:
 *
 *   scatter  each rank copies a chunk of each part to its slots up       all-reduce, reduce-scatter
 *   spread   the head takes its chunk, the sum of all slots up or its    all
 *            own input, to the slots down of all, or to its output
 *   gather   each rank copies its slots down to its output               all-reduce, all-gather
 *
 * In one step a block does each stage for another chunk, `lag` chunks behind that of the stage
 * before. It begins with all waits of the step, which are for what others do in steps before: so
 * whoever is in the earliest step waits for nobody, and there is no circle. Where there is no
 * gather, ranks finish together: else one could free its slots up while a head still reads them. A
 * gather tells that it has.
 */
#include "programs/coll/multicast.h"

/* A channel, as a warp of it sees it. */
struct channel {
    const struct wp_multicast_args *args;
    struct wp_operation op;
    uint64_t first[WP_NUM_QUEUES]; /* the number of its first chunk */
    int32_t num_chunks;
    int32_t spread_lag,
        gather_lag; /* by how many steps a chunk comes later to these than to the first stage */
    int32_t num_steps;
};

/* Few chunks need not be far apart. */
WP_FN int32_t lag_of(const struct wp_multicast_args *args, int32_t num_chunks)
{
    const int32_t most = args->queues.num_slots / 2;
    return num_chunks < most ? num_chunks : most;
}

WP_FN struct channel channel_of(struct wp_warp *warp, const struct wp_multicast_args *args,
                                const struct wp_packets *packets)
{
    const int32_t idx = wp_block_idx(warp);
    const uint64_t num_channels = (uint64_t)wp_num_blocks(warp);
    const uint64_t *before = args->num_chunks_before + (int64_t)idx * WP_NUM_QUEUES;
    const int32_t num_chunks =
        (int32_t)((args->num_chunks + num_channels - 1 - (uint64_t)idx) / num_channels);
    const int32_t lag = lag_of(args, num_chunks);
    const struct channel channel = {args,
                                    wp_packets_operation(warp, &args->area, packets),
                                    {before[WP_QUEUE_UP], before[WP_QUEUE_DOWN]},
                                    num_chunks,
                                    lag * args->uses_up,
                                    lag * (args->uses_up + 1),
                                    num_chunks + lag * (args->uses_up + args->uses_down)};
    return channel;
}

WP_FN int has_chunk(const struct channel *channel, int32_t chunk)
{
    return chunk >= 0 && chunk < channel->num_chunks;
}

WP_FN uint64_t queue_of(const struct channel *channel, int32_t head, enum wp_multicast_queue queue)
{
    return wp_multicast_queue_idx(channel->args->object.num_ranks, wp_block_idx(channel->op.warp),
                                  head, queue);
}

WP_FN uint64_t word_of(const struct channel *channel, int32_t head, enum wp_multicast_queue queue)
{
    return wp_multicast_word_offset(channel->args->object.num_ranks,
                                    queue_of(channel, head, queue));
}

/* How many chunks the queue has had with this one. */
WP_FN uint64_t number_of(const struct channel *channel, enum wp_multicast_queue queue,
                         int32_t chunk)
{
    return channel->first[queue] + (uint64_t)chunk + 1;
}

/* ------------------------------------------------------------------ waits */

/* Warp-wide: all heads have put the chunk into their queues down. */
WP_FN enum wp_status await_heads(const struct channel *channel, int32_t chunk)
{
    const struct wp_multicast_args *args = channel->args;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t head = wp_lane_idx(channel->op.warp);
         head < args->object.num_ranks && status == WP_STATUS_OK; head += WP_WARP_SIZE) {
        const struct wp_wait_site site = wp_operation_site(&channel->op, WP_PHASE_DATA, head);
        status = wp_multicast_await(channel->op.warp, &args->object,
                                    word_of(channel, head, WP_QUEUE_DOWN),
                                    number_of(channel, WP_QUEUE_DOWN, chunk), &site);
    }
    return (enum wp_status)wp_max_u32(channel->op.warp, (uint32_t)status);
}

/* Warp-wide: all ranks have put the chunk into this head's queue up. */
WP_FN enum wp_status await_ranks(const struct channel *channel, int32_t chunk)
{
    const struct wp_multicast_args *args = channel->args;
    const struct wp_wait_site site = wp_operation_site(&channel->op, WP_PHASE_DATA, WP_NO_RANK);
    return wp_multicast_await_all(channel->op.warp, &args->object,
                                  word_of(channel, args->object.rank, WP_QUEUE_UP),
                                  number_of(channel, WP_QUEUE_UP, chunk), &site);
}

WP_FN enum wp_status await_step(const struct channel *channel, int32_t step)
{
    const int32_t spread = step - channel->spread_lag, gather = step - channel->gather_lag;
    enum wp_status status = WP_STATUS_OK;
    if (channel->args->uses_up && has_chunk(channel, spread))
        status = await_ranks(channel, spread);
    if (channel->args->uses_down && has_chunk(channel, gather) && status == WP_STATUS_OK)
        status = await_heads(channel, gather);
    return status;
}

/* ------------------------------------------------------------------ rows */

/* The share of a chunk's row that a warp moves. */
struct chunk_share {
    int32_t head;
    int32_t chunk;
    struct wp_span span; /* of the part */
    uint64_t offset;     /* in the slot */
};

WP_FN struct chunk_share share_of(const struct channel *channel, int32_t head, int32_t chunk)
{
    struct wp_warp *warp = channel->op.warp;
    const uint64_t slot_bytes = channel->args->queues.slot_bytes;
    const uint64_t idx = (uint64_t)chunk * (uint64_t)wp_num_blocks(warp) +
                         (uint64_t)wp_block_idx(warp); /* of all channels' */
    const struct wp_span whole =
        wp_span_of_row(channel->args->parts[head].bytes, idx * slot_bytes, slot_bytes);
    const struct wp_span own = wp_share_row(whole.bytes, wp_warp_idx(warp), wp_num_warps(warp));
    const struct chunk_share share = {head, chunk, {whole.begin + own.begin, own.bytes}, own.begin};
    return share;
}

/* In a slot of this rank, or of all. */
WP_FN struct wp_multicast_end slot_end(const struct channel *channel,
                                       const struct chunk_share *share,
                                       enum wp_multicast_queue queue, int is_of_all)
{
    const struct wp_multicast *object = &channel->args->object;
    const uint64_t offset =
        wp_multicast_slot_offset(&channel->args->queues, object->num_ranks,
                                 queue_of(channel, share->head, queue),
                                 channel->first[queue] + (uint64_t)share->chunk) +
        share->offset;
    const struct wp_multicast_end end = {is_of_all ? NULL : wp_multicast_own_row(object, offset),
                                         offset};
    return end;
}

/* In an array of the call: one with all parts, or with the own one alone. */
WP_FN struct wp_multicast_end array_end(const struct channel *channel,
                                        const struct chunk_share *share, const char *array,
                                        int has_all_parts)
{
    const uint64_t part = has_all_parts ? channel->args->parts[share->head].begin : 0;
    const struct wp_multicast_end end = {(char *)(uintptr_t)array + part + share->span.begin, 0};
    return end;
}

/* Row operations of one step: those of scatter, head by head, then the spread, then those of
 * gather. All of them are one call, since each is much code. */
WP_FN void move_rows(const struct channel *channel, int32_t step)
{
    const struct wp_multicast_args *args = channel->args;
    const int32_t num_heads = args->object.num_ranks;
    for (int32_t i = 0; i <= 2 * num_heads; i++) {
        const int is_scatter = i < num_heads, is_spread = i == num_heads;
        const int32_t lag = is_scatter ? 0 : is_spread ? channel->spread_lag : channel->gather_lag;
        const int32_t head = is_scatter ? i : is_spread ? args->object.rank : i - num_heads - 1;
        const int is_used = is_scatter ? args->uses_up : is_spread || args->uses_down;
        if (!is_used || !has_chunk(channel, step - lag))
            continue;
        const struct chunk_share share = share_of(channel, head, step - lag);
        const struct wp_multicast_end to =
            is_scatter                     ? slot_end(channel, &share, WP_QUEUE_UP, 0)
            : is_spread && args->uses_down ? slot_end(channel, &share, WP_QUEUE_DOWN, 1)
                                           : array_end(channel, &share, args->out, args->uses_down);
        const struct wp_multicast_end from =
            is_spread && args->uses_up ? slot_end(channel, &share, WP_QUEUE_UP, 1)
            : is_scatter || is_spread  ? array_end(channel, &share, args->in, args->uses_up)
                                       : slot_end(channel, &share, WP_QUEUE_DOWN, 0);
        if (share.span.bytes > 0)
            wp_multicast_move(channel->op.warp, &args->object, &to, &from, args->reduction,
                              share.span.bytes);
    }
}

/* ------------------------------------------------------------------ words */

/* Warp-wide: what the step has put in. */
WP_FN void tell_step(const struct channel *channel, int32_t step)
{
    const struct wp_multicast_args *args = channel->args;
    struct wp_warp *warp = channel->op.warp;
    const int32_t spread = step - channel->spread_lag;
    for (int32_t head = wp_lane_idx(warp); head < args->object.num_ranks; head += WP_WARP_SIZE) {
        if (args->uses_up && has_chunk(channel, step))
            wp_multicast_tell(warp, &args->object, head, word_of(channel, head, WP_QUEUE_UP),
                              number_of(channel, WP_QUEUE_UP, step));
    }
    if (args->uses_down && has_chunk(channel, spread))
        wp_multicast_post(warp, &args->object, word_of(channel, args->object.rank, WP_QUEUE_DOWN),
                          number_of(channel, WP_QUEUE_DOWN, spread));
}

/* ------------------------------------------------------------------ the program */

/* Called with what the warp has found in headers, which all warps must have found right before they
 * go on. The first step waits for nobody. */
WP_FN enum wp_status run_steps(const struct channel *channel, enum wp_status status)
{
    struct wp_warp *warp = channel->op.warp;
    for (int32_t step = 0; step < channel->num_steps; step++) {
        if (wp_warp_idx(warp) == 0 && status == WP_STATUS_OK)
            status = await_step(channel, step);
        status = wp_block_status(warp, status);
        if (status != WP_STATUS_OK)
            return status;
        if (step == 0)
            wp_admit_next(warp); /* all ranks have started */
        move_rows(channel, step);
        wp_block_sync(warp); /* ends the rows */
        if (wp_warp_idx(warp) == 0)
            tell_step(channel, step);
    }
    return status;
}

/* Once for the block, whose warps have met in a step since they read the numbers. */
WP_FN void advance(const struct channel *channel)
{
    struct wp_warp *warp = channel->op.warp;
    uint64_t *before =
        channel->args->num_chunks_before + (int64_t)wp_block_idx(warp) * WP_NUM_QUEUES;
    if (wp_warp_idx(warp) != 0 || wp_lane_idx(warp) != 0 || channel->num_chunks == 0)
        return;
    if (channel->args->uses_up)
        before[WP_QUEUE_UP] = channel->first[WP_QUEUE_UP] + (uint64_t)channel->num_chunks;
    if (channel->args->uses_down)
        before[WP_QUEUE_DOWN] = channel->first[WP_QUEUE_DOWN] + (uint64_t)channel->num_chunks;
}

WP_PROGRAM(multicast, warp, args)
{
    const struct wp_packets packets = wp_packets_begin(warp, &args->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const struct channel channel = channel_of(warp, args, &packets);
    const struct wp_header_duty duty = wp_header_duty(warp);
    wp_headers_send(warp, &packets, duty, args->header);
    const enum wp_status status =
        run_steps(&channel, wp_headers_check(warp, &packets, duty, &args->header));
    if (status != WP_STATUS_OK)
        return wp_packets_end(warp, &args->area, &packets, status);
    advance(&channel);
    return args->uses_down || channel.num_chunks == 0
               ? wp_packets_end(warp, &args->area, &packets, status)
               : wp_operation_finish(&channel.op, WP_BLOCKS_AS_HERE);
}
