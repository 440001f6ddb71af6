/* SPDX-License-Identifier: MIT */
/*
 * send_receive: the sends and receives of a group. Only the ranks between which they go take part, so nobody meets
 * anybody: what is sent goes through fifos (fifo.h), one for each channel of each pair of ranks and direction. A
 * transfer is cut into chunks as long as a slot holds, which the channels take in turn; each has one at least of the
 * first channel's, so that the receiver finds out what was sent.
 *
 * Why nobody waits for ever, in whichever order a group was made: every channel of every peer and direction has a warp
 * of its own, so all of them progress. The i-th step that a channel's warp sends is the i-th that the receiver's warp
 * takes. It waits for room, which the receiver makes by steps before, and that waits for nothing but the step. So if both
 * ends' groups have begun, the pair's transfers end, whatever others do.
 */
#include "programs/send_receive.h"

/* A list of one channel. */
struct line {
    const struct wp_send_receive_args *args;
    const struct wp_operation *op;
    struct wp_fifo fifo;
    enum wp_direction direction;
};

/* Bytes of one transfer, which one step moves. */
struct chunk {
    const struct wp_transfer *transfer;
    uint64_t number; /* of the step */
    struct wp_span span;
};

WP_FN uint64_t payload_bytes(const struct wp_send_receive_args *args)
{
    return args->fifos.slot_bytes - WP_TRANSFER_HEADER_BYTES;
}

WP_FN uint64_t transfer_bytes(const struct wp_transfer *transfer)
{
    return wp_call_part(transfer->word, 0, WP_TRANSFER_DTYPE_BIT);
}

/* ------------------------------------------------------------------ what was sent */

/* As ranks tell what they call. */
WP_FN struct wp_call_head head_of(uint64_t word)
{
    const struct wp_call_head head = {(uint64_t)WP_OPERATION_SEND << WP_CALL_OPERATION_BIT |
                                          word >> WP_TRANSFER_DTYPE_BIT << WP_CALL_DTYPE_BIT,
                                      wp_call_part(word, 0, WP_TRANSFER_DTYPE_BIT)};
    return head;
}

/* Warp-wide: whether the step is of what this rank receives. */
WP_FN enum wp_status check_sent(const struct line *line, const struct chunk *chunk)
{
    const char *slot = wp_fifo_in_slot(&line->fifo, chunk->number);
    const uint64_t seen = *(const uint64_t *)(const void *)slot;
    if (seen == chunk->transfer->word)
        return WP_STATUS_OK;
    const struct wp_wait_site site = wp_operation_site(line->op, WP_PHASE_START, line->fifo.peer);
    const struct wp_call_head ours = head_of(chunk->transfer->word), theirs = head_of(seen);
    return wp_call_head_fail(line->op->warp, site, &ours, &theirs);
}

/* ------------------------------------------------------------------ a step */

/* Warp-wide: waits until the step can be done. */
WP_FN enum wp_status await_peer(const struct line *line, uint64_t number)
{
    struct wp_warp *warp = line->op->warp;
    enum wp_status status = WP_STATUS_OK;
    if (line->direction == WP_DIRECTION_SELF)
        return WP_STATUS_OK;
    if (wp_lane_idx(warp) == 0)
        status = line->direction == WP_DIRECTION_SEND ? wp_fifo_reserve(&line->fifo, number)
                                                      : wp_fifo_receive(&line->fifo, number);
    wp_warp_sync(warp);
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* Warp-wide: the step is done. */
WP_FN void tell_peer(const struct line *line, uint64_t number)
{
    struct wp_warp *warp = line->op->warp;
    wp_row_sync(warp);
    if (wp_lane_idx(warp) != 0)
        return;
    if (line->direction == WP_DIRECTION_SEND)
        wp_fifo_post(&line->fifo, number);
    if (line->direction == WP_DIRECTION_RECEIVE)
        wp_fifo_consume(&line->fifo, number);
}

/* Where the step's bytes come from, and where they go: by one lane. */
WP_FN const char *source_of(const struct line *line, const struct chunk *chunk)
{
    return line->direction == WP_DIRECTION_RECEIVE
               ? wp_fifo_in_slot(&line->fifo, chunk->number) + WP_TRANSFER_HEADER_BYTES
               : chunk->transfer->memory + chunk->span.begin;
}

WP_FN char *target_of(const struct line *line, const struct chunk *chunk)
{
    if (line->direction == WP_DIRECTION_RECEIVE)
        return chunk->transfer->memory + chunk->span.begin;
    if (line->direction == WP_DIRECTION_SELF)
        return chunk->transfer[1].memory + chunk->span.begin;
    char *slot = wp_fifo_out_slot(&line->fifo, chunk->number);
    *(uint64_t *)(void *)slot = chunk->transfer->word;
    return slot + WP_TRANSFER_HEADER_BYTES;
}

WP_FN enum wp_status do_step(const struct line *line, const struct chunk *chunk)
{
    struct wp_warp *warp = line->op->warp;
    const void **dsts = wp_warp_pointers(warp);
    enum wp_status status = await_peer(line, chunk->number);
    if (status == WP_STATUS_OK && line->direction == WP_DIRECTION_RECEIVE)
        status = check_sent(line, chunk);
    if (status != WP_STATUS_OK)
        return status;
    if (wp_lane_idx(warp) == 0)
        dsts[0] = target_of(line, chunk);
    wp_warp_sync(warp);
    if (chunk->span.bytes > 0)
        wp_row_copy(warp, dsts, 1, source_of(line, chunk), chunk->span.bytes);
    tell_peer(line, chunk->number); /* after a sync, so that the pointer can be written again */
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ a line */

/* The numbers of this group's first step, and of the next one's. */
WP_FN uint64_t first_number(const struct line *line)
{
    if (line->direction == WP_DIRECTION_SELF)
        return 0;
    return line->direction == WP_DIRECTION_SEND ? wp_fifo_out_number(&line->fifo, 0)
                                                : wp_fifo_in_number(&line->fifo, 0);
}

WP_FN void advance(const struct line *line, uint64_t num_steps)
{
    if (line->direction == WP_DIRECTION_SEND)
        wp_fifo_advance_out(&line->fifo, num_steps);
    if (line->direction == WP_DIRECTION_RECEIVE)
        wp_fifo_advance_in(&line->fifo, num_steps);
}

/* The channel's chunks of a transfer; *number is the next step's. */
WP_FN enum wp_status transfer(const struct line *line, const struct wp_transfer *transfer,
                              uint64_t *number)
{
    const uint64_t bytes = transfer_bytes(transfer), payload = payload_bytes(line->args);
    const uint64_t num_chunks = bytes == 0 ? 1 : (bytes + payload - 1) / payload;
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t i = (uint64_t)line->fifo.channel; i < num_chunks && status == WP_STATUS_OK;
         i += (uint64_t)line->args->num_channels) {
        const struct chunk chunk = {transfer, *number, wp_span_of_row(bytes, i * payload, payload)};
        status = do_step(line, &chunk);
        *number += 1;
    }
    return status;
}

WP_FN enum wp_status run(const struct line *line, const struct wp_transfer_list *list)
{
    const int32_t step = line->direction == WP_DIRECTION_SELF ? 2 : 1;
    const uint64_t first = first_number(line);
    uint64_t number = first;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = 0; i < list->num && status == WP_STATUS_OK; i += step)
        status = transfer(line, &line->args->transfers[list->first + i], &number);
    wp_warp_sync(line->op->warp); /* all lanes have read the first number */
    if (wp_lane_idx(line->op->warp) == 0)
        advance(line, number - first);
    return status;
}

WP_PROGRAM(send_receive, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, NULL);
    const int32_t idx = wp_launch_warp_idx(warp);
    enum wp_status status = WP_STATUS_OK;
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    if (idx < args->num_lists * args->num_channels) {
        const struct wp_transfer_list *list = &args->lists[idx / args->num_channels];
        const struct line line = {args,
                                  &op,
                                  {&args->fifos, &op, idx % args->num_channels, list->peer,
                                   list->peer, args->exchange.rank},
                                  (enum wp_direction)list->direction};
        status = run(&line, list);
    }
    return wp_operation_end(&op, status);
}
