/* SPDX-License-Identifier: MIT */
/*
 * packet_reduce: every rank sends every other a row in packets, and reduces the rows that come with
 * its own. With the same row for all this is an all-reduce in one shot; with a row of its own for
 * each, a reduce-scatter; with rows for the root alone, a reduce. A warp has the same share of
 * every row.
 */
#include "programs/coll/packet_reduce.h"

/* This warp's share of the row for the i-th rank after this one. */
WP_FN struct wp_packet_row load_row(struct wp_warp *warp, const struct wp_packet_reduce_args *args,
                                    struct wp_span span, int32_t i)
{
    const uint64_t rank = (uint64_t)wp_rank_after(&args->area.exchange, i);
    return wp_packets_load(warp, args->in + rank * args->in_stride_bytes + span.begin, span.bytes);
}

/* Whom the row for the i-th rank after this one goes to. */
WP_FN struct wp_packet_targets targets_of(const struct wp_packet_reduce_args *args,
                                          const struct wp_packets *packets, struct wp_span span,
                                          int32_t i)
{
    const int same_for_all = args->in_stride_bytes == 0 && args->root == WP_NO_RANK;
    const int32_t rank =
        args->root != WP_NO_RANK ? args->root : wp_rank_after(&args->area.exchange, i);
    const struct wp_packet_targets to = {
        same_for_all ? 0 : rank, same_for_all ? packets->num_ranks : rank + 1,
        wp_region_slot(&args->area, packets->rank) + span.begin / WP_PACKET_BYTES,
        WP_PACKETS_TO_OTHERS, 0};
    return to;
}

/* One call for all, since each is much code, which GPUs fetch anew in every launch. */
WP_FN void send_rows(struct wp_warp *warp, const struct wp_packet_reduce_args *args,
                     const struct wp_packets *packets, struct wp_span span,
                     struct wp_packet_row row)
{
    const int32_t num_rows = args->in_stride_bytes == 0 ? 1 : packets->num_ranks - 1;
    for (int32_t i = 1; i <= num_rows; i++) {
        wp_packets_send(warp, packets, targets_of(args, packets, span, i), &row);
        if (i < num_rows)
            row = load_row(warp, args, span, i + 1);
    }
}

WP_PROGRAM(packet_reduce, warp, args)
{
    const struct wp_span span = wp_warp_share(warp, args->row_bytes);
    const struct wp_packet_row row = load_row(warp, args, span, 1);
    const struct wp_packets packets = wp_packets_begin(warp, &args->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    if (span.bytes > 0)
        send_rows(warp, args, &packets, span, row);
    const struct wp_header_duty duty = wp_header_duty_of_first_block(warp);
    wp_headers_send(warp, &packets, duty, args->header);
    enum wp_status status = wp_headers_check(warp, &packets, duty, &args->header);
    const int gets_result = args->root == WP_NO_RANK || args->root == packets.rank;
    if (status == WP_STATUS_OK && span.bytes > 0 && gets_result) {
        const struct wp_packet_sources from = {
            wp_region_slot(&args->area, 0) + span.begin / WP_PACKET_BYTES,
            wp_region_slots(&args->area),
            args->in + (uint64_t)packets.rank * args->in_stride_bytes + span.begin};
        status = wp_packets_reduce(warp, &packets, &from, args->out + span.begin, args->reduction,
                                   span.bytes / wp_dtype_bytes(args->reduction.dtype));
        if (status == WP_STATUS_OK) /* a packet of every rank has come */
            wp_admit_next(warp);
    }
    return wp_packets_end(warp, &args->area, &packets, status);
}
