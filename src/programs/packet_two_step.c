/* SPDX-License-Identifier: MIT */
/*
 * packet_two_step: an all-reduce of which each rank makes a part. Step 1: every rank sends each other
 * the part of its row that is the other's, in packets; the owner reduces. Step 2: the owner sends the
 * result to all. A warp has the same share of every part, and a lane the same packets of the share, so
 * that step 2 needs no sync: a lane sends what it has reduced itself, and overwrites, in place, what it
 * has sent itself.
 */
#include "programs/packet_two_step.h"

/* The part of a rank, and this warp's share of it, from the row's first byte on. */
WEFT_FN struct weft_span warp_share_of_part(struct weft_warp *warp,
                                            const struct weft_packet_two_step_args *args,
                                            int32_t rank)
{
    const struct weft_span part =
        weft_span_of_row(args->row_bytes, (uint64_t)rank * args->part_bytes, args->part_bytes);
    const struct weft_span share = weft_warp_share(warp, args->part_bytes);
    struct weft_span span = weft_span_of_row(part.bytes, share.begin, share.bytes);
    span.begin += part.begin;
    return span;
}

/* Where `rank` sends this warp's share of the parts of a step. */
WEFT_FN uint64_t share_slot(struct weft_warp *warp, const struct weft_packet_two_step_args *args,
                            int32_t rank, int32_t step)
{
    const uint64_t offset = weft_warp_share(warp, args->part_bytes).begin / WEFT_PACKET_BYTES;
    return weft_region_slot(&args->area, rank) +
           (uint64_t)step * weft_region_slots(&args->area) / 2 + offset;
}

/* This warp's share of the part of the i-th rank after this one. */
WEFT_FN struct weft_packet_row load_part(struct weft_warp *warp,
                                         const struct weft_packet_two_step_args *args, int32_t i)
{
    const int32_t rank = weft_rank_after(&args->area.exchange, i);
    const struct weft_span span = warp_share_of_part(warp, args, rank);
    return weft_packets_load(warp, args->in + span.begin, span.bytes);
}

WEFT_FN void send_parts(struct weft_warp *warp, const struct weft_packet_two_step_args *args,
                        const struct weft_packets *packets, struct weft_packet_row row)
{
    for (int32_t i = 1; i < packets->num_ranks; i++) {
        const int32_t rank = weft_rank_after(&args->area.exchange, i);
        const struct weft_packet_targets one = {rank, rank + 1,
                                                share_slot(warp, args, packets->rank, 0)};
        if (row.bytes > 0)
            weft_packets_send(warp, packets, one, &row);
        if (i + 1 < packets->num_ranks)
            row = load_part(warp, args, i + 1);
    }
}

WEFT_FN enum weft_status reduce_part(struct weft_warp *warp,
                                     const struct weft_packet_two_step_args *args,
                                     const struct weft_packets *packets)
{
    const struct weft_span span = warp_share_of_part(warp, args, packets->rank);
    if (span.bytes == 0)
        return WEFT_STATUS_OK;
    const struct weft_packet_sources from = {share_slot(warp, args, 0, 0),
                                             weft_region_slots(&args->area), args->in + span.begin};
    const struct weft_packet_targets all = {0, packets->num_ranks,
                                            share_slot(warp, args, packets->rank, 1)};
    const enum weft_status status =
        weft_packets_reduce(warp, packets, &from, args->out + span.begin, args->reduction,
                            span.bytes / weft_dtype_bytes(args->reduction.dtype));
    if (status == WEFT_STATUS_OK) {
        weft_admit_next(warp); /* a packet of every rank has come */
        const struct weft_packet_row row =
            weft_packets_load(warp, args->out + span.begin, span.bytes);
        weft_packets_send(warp, packets, all, &row);
    }
    return status;
}

WEFT_FN enum weft_status receive_parts(struct weft_warp *warp,
                                       const struct weft_packet_two_step_args *args,
                                       const struct weft_packets *packets)
{
    enum weft_status status = WEFT_STATUS_OK;
    for (int32_t i = 1; i < packets->num_ranks && status == WEFT_STATUS_OK; i++) {
        const int32_t rank = weft_rank_after(&args->area.exchange, i);
        const struct weft_span span = warp_share_of_part(warp, args, rank);
        if (span.bytes > 0)
            status = weft_packets_receive(warp, packets, rank, share_slot(warp, args, rank, 1),
                                          args->out + span.begin, span.bytes);
    }
    return status;
}

WEFT_PROGRAM(packet_two_step, warp, args)
{
    const struct weft_packet_row row = load_part(warp, args, 1);
    const struct weft_packets packets = weft_packets_begin(warp, &args->area);
    if (packets.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    send_parts(warp, args, &packets, row);
    const struct weft_header_duty duty = weft_header_duty_of_first_block(warp);
    weft_headers_send(warp, &packets, duty, args->header);
    enum weft_status status = weft_headers_check(warp, &packets, duty, &args->header);
    if (status == WEFT_STATUS_OK)
        status = reduce_part(warp, args, &packets);
    if (status == WEFT_STATUS_OK)
        status = receive_parts(warp, args, &packets);
    return weft_packets_end(warp, &args->area, &packets, status);
}
