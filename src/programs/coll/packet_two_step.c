/* SPDX-License-Identifier: MIT */
/*
 * packet_two_step: an all-reduce of which each rank makes a part. Step 1: every rank sends each
 * other the part of its row that is the other's, in packets; the owner reduces. Step 2: the owner
 * sends the result to all. A warp has the same share of every part, and a lane the same packets of
 * the share, so that step 2 needs no sync: a lane sends what it has reduced itself, and overwrites,
 * in place, what it has sent itself.
 */
#include "programs/coll/packet_two_step.h"

/* The part of a rank, and this warp's share of it, from the row's first byte on. */
WP_FN struct wp_span warp_share_of_part(struct wp_warp *warp,
                                        const struct wp_packet_two_step_args *args, int32_t rank)
{
    const struct wp_span part =
        wp_span_of_row(args->row_bytes, (uint64_t)rank * args->part_bytes, args->part_bytes);
    const struct wp_span share = wp_warp_share(warp, args->part_bytes);
    struct wp_span span = wp_span_of_row(part.bytes, share.begin, share.bytes);
    span.begin += part.begin;
    return span;
}

/* Where `rank` sends this warp's share of the parts of a step. */
WP_FN uint64_t share_slot(struct wp_warp *warp, const struct wp_packet_two_step_args *args,
                          int32_t rank, int32_t step)
{
    const uint64_t offset = wp_warp_share(warp, args->part_bytes).begin / WP_PACKET_BYTES;
    return wp_region_slot(&args->area, rank) + (uint64_t)step * wp_region_slots(&args->area) / 2 +
           offset;
}

/* This warp's share of the part of the i-th rank after this one. */
WP_FN struct wp_packet_row load_part(struct wp_warp *warp,
                                     const struct wp_packet_two_step_args *args, int32_t i)
{
    const int32_t rank = wp_rank_after(&args->area.exchange, i);
    const struct wp_span span = warp_share_of_part(warp, args, rank);
    return wp_packets_load(warp, args->in + span.begin, span.bytes);
}

WP_FN void send_parts(struct wp_warp *warp, const struct wp_packet_two_step_args *args,
                      const struct wp_packets *packets, struct wp_packet_row row)
{
    for (int32_t i = 1; i < packets->num_ranks; i++) {
        const int32_t rank = wp_rank_after(&args->area.exchange, i);
        const struct wp_packet_targets one = {
            rank, rank + 1, share_slot(warp, args, packets->rank, 0), WP_PACKETS_TO_OTHERS, 0};
        if (row.bytes > 0)
            wp_packets_send(warp, packets, one, &row);
        if (i + 1 < packets->num_ranks)
            row = load_part(warp, args, i + 1);
    }
}

WP_FN enum wp_status reduce_part(struct wp_warp *warp, const struct wp_packet_two_step_args *args,
                                 const struct wp_packets *packets)
{
    const struct wp_span span = warp_share_of_part(warp, args, packets->rank);
    if (span.bytes == 0)
        return WP_STATUS_OK;
    const struct wp_packet_sources from = {share_slot(warp, args, 0, 0),
                                           wp_region_slots(&args->area), args->in + span.begin};
    const struct wp_packet_targets all = {
        0, packets->num_ranks, share_slot(warp, args, packets->rank, 1), WP_PACKETS_TO_OTHERS, 0};
    const enum wp_status status =
        wp_packets_reduce(warp, packets, &from, args->out + span.begin, args->reduction,
                          span.bytes / wp_dtype_bytes(args->reduction.dtype));
    if (status == WP_STATUS_OK) {
        wp_admit_next(warp); /* a packet of every rank has come */
        const struct wp_packet_row row = wp_packets_load(warp, args->out + span.begin, span.bytes);
        wp_packets_send(warp, packets, all, &row);
    }
    return status;
}

WP_FN enum wp_status receive_parts(struct wp_warp *warp, const struct wp_packet_two_step_args *args,
                                   const struct wp_packets *packets)
{
    enum wp_status status = WP_STATUS_OK;
    for (int32_t i = 1; i < packets->num_ranks && status == WP_STATUS_OK; i++) {
        const int32_t rank = wp_rank_after(&args->area.exchange, i);
        const struct wp_span span = warp_share_of_part(warp, args, rank);
        if (span.bytes > 0)
            status = wp_packets_receive(warp, packets, rank, share_slot(warp, args, rank, 1),
                                        args->out + span.begin, span.bytes, NULL);
    }
    return status;
}

WP_PROGRAM(packet_two_step, warp, args)
{
    const struct wp_packet_row row = load_part(warp, args, 1);
    const struct wp_packets packets = wp_packets_begin(warp, &args->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    send_parts(warp, args, &packets, row);
    const struct wp_header_duty duty = wp_header_duty_of_first_block(warp);
    wp_headers_send(warp, &packets, duty, args->header);
    enum wp_status status = wp_headers_check(warp, &packets, duty, &args->header);
    if (status == WP_STATUS_OK)
        status = reduce_part(warp, args, &packets);
    if (status == WP_STATUS_OK)
        status = receive_parts(warp, args, &packets);
    return wp_packets_end(warp, &args->area, &packets, status);
}
