/* SPDX-License-Identifier: MIT */
/*
 * send_receive: the sends and receives of a group, or of a collective that consists of them. Only
 * the ranks between which they go take part: what is sent goes in steps through slots that the
 * receiver grants (grants.h), for each channel of each pair of ranks and direction. A transfer is
 * cut into chunks as long as a slot holds, which the channels take in turn; each has one at least
 * of the first channel's, so that the receiver finds out what was sent.
 *
 * Why nobody waits for ever, in whichever order a group was made: every channel of every peer and
 * direction has a warp of its own, so all of them progress. The i-th step that a channel's warp
 * sends is the i-th that the receiver's warp takes. It waits for a grant, which the receiver's warp
 * gives as it begins, and for room, which that makes by steps before, and waits for nothing but the
 * step. So if both ends' groups have begun, the pair's transfers end, whatever others do.
 *
 * A collective may have fewer warps than lines, of which each does some in order. The lists of all
 * ranks are in the same order: pair i is what goes to the i-th rank after, and what comes from the
 * i-th before. Of the pairs that are not done the first one's ends, at two ranks, have done all
 * lines before it; so that pair ends.
 */
#include "programs/coll/send_receive.h"

/* One channel of a list. */
struct course {
    const struct wp_send_receive_args *args;
    struct wp_line line;
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
    return args->grants.slot_bytes - WP_TRANSFER_HEADER_BYTES;
}

WP_FN uint64_t transfer_bytes(const struct wp_transfer *transfer)
{
    return wp_call_part(transfer->word, 0, WP_TRANSFER_OPERATION_BIT);
}

WP_FN const struct wp_transfer_list *list_of(const struct wp_send_receive_args *args, int32_t i)
{
    return (args->table_of_lists != NULL ? args->table_of_lists : args->lists) + i;
}

WP_FN const struct wp_transfer *transfer_of(const struct wp_send_receive_args *args, int32_t i)
{
    return (args->table_of_transfers != NULL ? args->table_of_transfers : args->transfers) + i;
}

/* ------------------------------------------------------------------ what was sent */

/* As ranks tell what they call. */
WP_FN struct wp_call_head head_of(uint64_t word)
{
    const uint64_t is_of_collective =
        wp_call_part(word, WP_TRANSFER_OPERATION_BIT, WP_TRANSFER_DTYPE_BIT);
    const uint64_t operation = is_of_collective ? WP_OPERATION_ALL_TO_ALL_V : WP_OPERATION_SEND;
    const struct wp_call_head head = {operation << WP_CALL_OPERATION_BIT |
                                          word >> WP_TRANSFER_DTYPE_BIT << WP_CALL_DTYPE_BIT,
                                      wp_call_part(word, 0, WP_TRANSFER_OPERATION_BIT)};
    return head;
}

/* Warp-wide: whether the step is of what this rank receives. */
WP_FN enum wp_status check_sent(const struct course *course, const struct chunk *chunk)
{
    const struct wp_line *line = &course->line;
    const char *slot = wp_line_in_slot(line, chunk->number);
    const uint64_t seen = *(const uint64_t *)(const void *)slot;
    if (seen == chunk->transfer->word)
        return WP_STATUS_OK;
    const struct wp_wait_site site = wp_operation_site(line->op, WP_PHASE_START, line->peer);
    const struct wp_call_head ours = head_of(chunk->transfer->word), theirs = head_of(seen);
    return wp_call_head_fail(line->op->warp, site, &ours, &theirs);
}

/* ------------------------------------------------------------------ a step */

/* Warp-wide: how a wait of one lane ended. */
WP_FN enum wp_status of_all_lanes(struct wp_warp *warp, enum wp_status status)
{
    wp_warp_sync(warp);
    return (enum wp_status)wp_max_u32(warp, (uint32_t)status);
}

/* Warp-wide: waits until the step can be done. */
WP_FN enum wp_status await_peer(const struct course *course, uint64_t number)
{
    struct wp_warp *warp = course->line.op->warp;
    enum wp_status status = WP_STATUS_OK;
    if (wp_lane_idx(warp) == 0 && course->direction != WP_DIRECTION_SELF)
        status = course->direction == WP_DIRECTION_SEND ? wp_line_reserve(&course->line, number)
                                                        : wp_line_receive(&course->line, number);
    return of_all_lanes(warp, status);
}

/* Warp-wide: the step is done. */
WP_FN void send_to_peer(const struct course *course, const struct chunk *chunk)
{
    if (course->direction == WP_DIRECTION_SEND)
        wp_line_post(&course->line, chunk->number, WP_TRANSFER_HEADER_BYTES + chunk->span.bytes);
    if (course->direction == WP_DIRECTION_RECEIVE)
        wp_line_consume(&course->line, chunk->number);
}

/* Where the step's bytes come from, and where they go: by one lane. */
WP_FN const char *source_of(const struct course *course, const struct chunk *chunk)
{
    return course->direction == WP_DIRECTION_RECEIVE
               ? wp_line_in_slot(&course->line, chunk->number) + WP_TRANSFER_HEADER_BYTES
               : chunk->transfer->memory + chunk->span.begin;
}

WP_FN char *target_of(const struct course *course, const struct chunk *chunk)
{
    if (course->direction == WP_DIRECTION_RECEIVE)
        return chunk->transfer->memory + chunk->span.begin;
    if (course->direction == WP_DIRECTION_SELF)
        return chunk->transfer[1].memory + chunk->span.begin;
    char *slot = wp_line_out_slot(&course->line, chunk->number);
    uint64_t *header = (uint64_t *)(void *)slot;
    header[0] = chunk->transfer->word;
    header[1] = 0; /* a network reads it all */
    return slot + WP_TRANSFER_HEADER_BYTES;
}

WP_FN enum wp_status do_step(const struct course *course, const struct chunk *chunk)
{
    struct wp_warp *warp = course->line.op->warp;
    const void **dsts = wp_warp_pointers(warp);
    enum wp_status status = await_peer(course, chunk->number);
    if (status == WP_STATUS_OK && course->direction == WP_DIRECTION_RECEIVE)
        status = check_sent(course, chunk);
    if (status != WP_STATUS_OK)
        return status;
    if (wp_lane_idx(warp) == 0)
        dsts[0] = target_of(course, chunk);
    wp_warp_sync(warp);
    if (chunk->span.bytes > 0)
        wp_row_copy(warp, dsts, 1, source_of(course, chunk), chunk->span.bytes);
    send_to_peer(course,
                 chunk); /* the next step begins with a sync: the pointer can be written again */
    return WP_STATUS_OK;
}

/* ------------------------------------------------------------------ a transfer */

WP_FN uint64_t num_chunks(const struct course *course, const struct wp_transfer *transfer)
{
    const uint64_t bytes = transfer_bytes(transfer), payload = payload_bytes(course->args);
    return bytes == 0 ? 1 : (bytes + payload - 1) / payload;
}

/* The channel's chunks of a transfer; *number is the next step's. */
WP_FN enum wp_status do_transfer(const struct course *course, const struct wp_transfer *transfer,
                                 uint64_t *number)
{
    const uint64_t bytes = transfer_bytes(transfer), payload = payload_bytes(course->args);
    const uint64_t end = num_chunks(course, transfer);
    enum wp_status status = WP_STATUS_OK;
    for (uint64_t i = (uint64_t)course->line.channel; i < end && status == WP_STATUS_OK;
         i += (uint64_t)course->args->grants.num_channels) {
        const struct chunk chunk = {transfer, *number, wp_span_of_row(bytes, i * payload, payload)};
        status = do_step(course, &chunk);
        *number += 1;
    }
    return status;
}

/* ------------------------------------------------------------------ a list */

/* Which of its transfers have chunks of their own: of pairs, the sends. */
WP_FN int32_t stride_of(const struct course *course)
{
    return course->direction == WP_DIRECTION_SELF ? 2 : 1;
}

WP_FN uint64_t count_steps(const struct course *course, const struct wp_transfer_list *list)
{
    const uint64_t channel = (uint64_t)course->line.channel;
    const uint64_t num_channels = (uint64_t)course->args->grants.num_channels;
    uint64_t num_steps = 0;
    for (int32_t i = 0; i < list->num; i++) {
        const struct wp_transfer *transfer = transfer_of(course->args, list->first + i);
        num_steps += (num_chunks(course, transfer) + num_channels - 1 - channel) / num_channels;
    }
    return num_steps;
}

/* This rank's count of the line's steps, by the operations before; to itself there is none. */
WP_FN uint64_t *step_counter(const struct course *course)
{
    const struct wp_grants *grants = course->line.grants;
    const uint64_t pair = wp_line_pair(&course->line, course->line.peer);
    if (course->direction == WP_DIRECTION_SELF)
        return NULL;
    return (course->direction == WP_DIRECTION_SEND ? grants->num_posted : grants->num_consumed) +
           pair;
}

/* Warp-wide: when all steps have been sent to another node. */
WP_FN enum wp_status await_taken(const struct course *course, uint64_t number)
{
    struct wp_warp *warp = course->line.op->warp;
    enum wp_status status = WP_STATUS_OK;
    if (course->direction != WP_DIRECTION_SEND || !wp_line_is_remote(&course->line))
        return WP_STATUS_OK;
    if (wp_lane_idx(warp) == 0)
        status = wp_line_await_consumed(&course->line, number);
    return of_all_lanes(warp, status);
}

WP_FN enum wp_status run(const struct course *course, const struct wp_transfer_list *list)
{
    struct wp_warp *warp = course->line.op->warp;
    uint64_t *counter = step_counter(course);
    uint64_t number = counter == NULL ? 0 : *counter;
    enum wp_status status = WP_STATUS_OK;
    if (course->direction == WP_DIRECTION_RECEIVE) {
        const uint64_t num_steps = count_steps(course, list);
        if (num_steps > 0)
            wp_line_grant(&course->line, number, num_steps);
    }
    for (int32_t i = 0; i < list->num && status == WP_STATUS_OK; i += stride_of(course))
        status = do_transfer(course, transfer_of(course->args, list->first + i), &number);
    if (status == WP_STATUS_OK)
        status = await_taken(course, number);
    wp_warp_sync(warp); /* all lanes have read the counter */
    if (wp_lane_idx(warp) == 0 && counter != NULL)
        *counter = number;
    return status;
}

WP_FN enum wp_status run_line(const struct wp_operation *op,
                              const struct wp_send_receive_args *args, int32_t i)
{
    const struct wp_grants *grants = &args->grants;
    const struct wp_transfer_list *list = list_of(args, i / grants->num_channels);
    const int32_t channel = i % grants->num_channels;
    const uint64_t set = (uint64_t)list->set * (uint64_t)grants->num_channels + (uint64_t)channel;
    const uint64_t num_slots = (uint64_t)args->num_slots;
    const struct course course = {args,
                                  {grants, op, channel, list->peer, set * num_slots, num_slots},
                                  (enum wp_direction)list->direction};
    return run(&course, list);
}

/* ------------------------------------------------------------------ collectives */

/* An empty chunk for the next node, and that of the previous one, as other collectives over nodes
 * begin with. */
WP_FN enum wp_status pass_word(const struct wp_operation *op, const struct wp_rings *rings)
{
    const struct wp_relay to = {wp_ring_of(rings, wp_node_after(&rings->nodes, 1), 0), op, 0, 0, 0};
    const struct wp_relay from = {wp_ring_of(rings, wp_node_before(&rings->nodes, 1), 0), op, 0, 0,
                                  0};
    const uint64_t sent = *wp_ring_counter(&to.ring, rings->num_sent, op->sequence);
    const uint64_t received = *wp_ring_counter(&from.ring, rings->num_received, op->sequence);
    if (wp_relay_reserve(&to, sent) == NULL)
        return WP_STATUS_FAILED;
    wp_ring_send(op->warp, &to.ring, sent, WP_CHUNK_HEADER_BYTES);
    if (wp_ring_receive(op, &from.ring, received) != WP_STATUS_OK ||
        wp_relay_check(&from, wp_ring_in_slot(&from.ring, received)) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    wp_ring_consume(op->warp, &from.ring, received);
    if (wp_lane_idx(op->warp) == 0) {
        *wp_ring_counter(&to.ring, rings->num_sent, op->sequence + 1) = sent + 1;
        *wp_ring_counter(&from.ring, rings->num_received, op->sequence + 1) = received + 1;
    }
    return WP_STATUS_OK;
}

/* By one warp: the rings' counters go on, and the first rails find calls that differ. */
WP_FN enum wp_status meet_nodes(const struct wp_operation *op, const struct wp_rings *rings)
{
    wp_rings_pass(op->warp, rings, op->sequence);
    wp_warp_sync(op->warp); /* some of the counters are written again */
    return rings->nodes.num_nodes > 1 && rings->nodes.local_idx == 0 ? pass_word(op, rings)
                                                                     : WP_STATUS_OK;
}

/* ------------------------------------------------------------------ the program */

WP_FN const struct wp_message *message_of(const struct wp_send_receive_args *args)
{
    return args->operation == WP_TRANSFERS_OF_A_COLLECTIVE ? &args->message : NULL;
}

WP_PROGRAM(send_receive, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, message_of(args));
    const int32_t num_lines = args->num_lists * args->grants.num_channels;
    enum wp_status status = WP_STATUS_OK;
    int32_t line = wp_launch_warp_idx(warp);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    if (args->operation == WP_TRANSFERS_OF_A_COLLECTIVE) {
        wp_operation_send(&op);
        status = wp_operation_meet(&op);
        if (line == 0 && status == WP_STATUS_OK) {
            wp_rings_pass(warp, &args->tree, op.sequence);
            status = meet_nodes(&op, &args->rings);
        }
    }
    for (; line < num_lines && wp_launch_warp_idx(warp) < args->num_warps && status == WP_STATUS_OK;
         line += args->num_warps)
        status = run_line(&op, args, line);
    return wp_operation_end(&op, status);
}
