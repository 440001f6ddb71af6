/* SPDX-License-Identifier: MIT */
/*
 * packet_exchange: every rank sends every other a row, in packets, and puts those that come to
 * their places: all-gather, all-to-all, broadcast, gather and scatter. The warps are dealt out to
 * the ranks in turn, and those of one rank share its rows, so that packets of several ranks are
 * awaited at the same time.
 */
#include "programs/coll/packet_exchange.h"

/* How many warps share the rows of a rank, and which of them this one is. */
struct warp_group {
    int32_t first_rank; /* this warp's; further ones are rank_step apart */
    int32_t rank_step;
    int32_t idx;
    int32_t num_warps;
};

WP_FN struct warp_group group_of_warp(struct wp_warp *warp, int32_t num_ranks)
{
    const int32_t num_warps = wp_num_launch_warps(warp);
    const int32_t idx = wp_launch_warp_idx(warp);
    if (num_warps < num_ranks) {
        const struct warp_group alone = {idx, num_warps, 0, 1};
        return alone;
    }
    /* Warps beyond a multiple of num_ranks would get no share: their rank is past the end. */
    const int32_t group_warps = num_warps / num_ranks;
    const struct warp_group group = {idx < group_warps * num_ranks ? idx % num_ranks : num_ranks,
                                     num_ranks, idx / num_ranks, group_warps};
    return group;
}

WP_FN void send_row(struct wp_warp *warp, const struct wp_packet_exchange_args *args,
                    const struct wp_packets *packets, int32_t rank, struct warp_group group)
{
    const struct wp_span row = args->rows.sent[rank];
    const struct wp_span span = wp_share_row(row.bytes, group.idx, group.num_warps);
    const uint64_t slot = wp_region_slot(&args->area, packets->rank) + span.begin / WP_PACKET_BYTES;
    const struct wp_packet_targets one = {rank, rank + 1, slot, WP_PACKETS_TO_OTHERS, 0};
    if (span.bytes == 0) /* there may be no `in` */
        return;
    const char *src = args->in + row.begin + span.begin;
    if (rank != packets->rank) {
        const struct wp_packet_row loaded = wp_packets_load(warp, src, span.bytes);
        wp_packets_send(warp, packets, one, &loaded);
        return;
    }
    char *dst = args->out + args->rows.received[rank].begin + span.begin;
    const void **dsts = wp_warp_pointers(warp);
    if (wp_lane_idx(warp) == 0)
        dsts[0] = dst;
    wp_warp_sync(warp);
    if (dst != src)
        wp_row_copy(warp, dsts, 1, src, span.bytes);
}

WP_FN enum wp_status receive_row(struct wp_warp *warp, const struct wp_packet_exchange_args *args,
                                 const struct wp_packets *packets, int32_t rank,
                                 struct warp_group group)
{
    const struct wp_span row = args->rows.received[rank];
    const struct wp_span span = wp_share_row(row.bytes, group.idx, group.num_warps);
    if (span.bytes == 0 || rank == packets->rank)
        return WP_STATUS_OK;
    return wp_packets_receive(warp, packets, rank,
                              wp_region_slot(&args->area, rank) + span.begin / WP_PACKET_BYTES,
                              args->out + row.begin + span.begin, span.bytes, NULL);
}

/* With a root also ranks between which nothing goes tell each other the row's bytes. */
WP_FN struct wp_call_header header_for(const struct wp_packet_exchange_args *args,
                                       uint64_t num_bytes)
{
    struct wp_call_header header = args->header;
    if (header.call.num_bytes == 0)
        header.call.num_bytes = num_bytes;
    return header;
}

WP_FN void send_headers(struct wp_warp *warp, const struct wp_packet_exchange_args *args,
                        const struct wp_packets *packets)
{
    const struct wp_header_duty duty = wp_header_duty_of_first_block(warp);
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step) {
        const struct wp_call_header header = header_for(args, args->rows.sent[rank].bytes);
        if (rank != packets->rank)
            wp_header_send(warp, packets, rank, rank + 1, header);
    }
}

WP_FN enum wp_status check_headers(struct wp_warp *warp, const struct wp_packet_exchange_args *args,
                                   const struct wp_packets *packets)
{
    const struct wp_header_duty duty = wp_header_duty_of_first_block(warp);
    enum wp_status status = WP_STATUS_OK;
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks && status == WP_STATUS_OK;
         rank += duty.rank_step) {
        const struct wp_call_header expected = header_for(args, args->rows.received[rank].bytes);
        if (rank != packets->rank)
            status = wp_header_check(warp, packets, rank, &expected);
    }
    return status;
}

WP_PROGRAM(packet_exchange, warp, args)
{
    const struct warp_group group = group_of_warp(warp, args->area.exchange.num_ranks);
    const struct wp_packets packets = wp_packets_begin(warp, &args->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    for (int32_t rank = group.first_rank; rank < packets.num_ranks; rank += group.rank_step)
        send_row(warp, args, &packets, rank, group);
    send_headers(warp, args, &packets);
    enum wp_status status = check_headers(warp, args, &packets);
    for (int32_t rank = group.first_rank; rank < packets.num_ranks && status == WP_STATUS_OK;
         rank += group.rank_step)
        status = receive_row(warp, args, &packets, rank, group);
    return wp_packets_end(warp, &args->area, &packets, status);
}
