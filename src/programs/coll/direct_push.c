/* SPDX-License-Identifier: MIT */
/*
 * direct_push: every rank writes rows of its input to the places that the others have told it:
 * all-gather, all-to-all, broadcast, gather and scatter. A row that goes to all is read once.
 */
#include "programs/coll/direct_push.h"

/* Where this rank's row goes at `rank`; NULL where it is there already: in this rank's output, in
 * place. */
WP_FN const void *destination(struct wp_warp *warp, const struct wp_direct_push_args *args,
                              int32_t rank, struct wp_span span)
{
    if (rank != args->direct.area.exchange.rank)
        return wp_direct_output(warp, &args->direct, rank) + span.begin;
    const char *src = args->in + args->rows.sent[rank].begin;
    const char *dst = args->out + args->rows.received[rank].begin;
    return dst == src ? NULL : dst + span.begin;
}

WP_FN void push_span(struct wp_warp *warp, const struct wp_direct_push_args *args,
                     int32_t first_rank, int32_t num_dsts, struct wp_span span)
{
    const int32_t num_ranks = args->direct.area.exchange.num_ranks;
    const void **dsts = wp_warp_pointers(warp);
    wp_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_dsts; i += WP_WARP_SIZE)
        dsts[i] = destination(warp, args, (first_rank + i) % num_ranks, span);
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, num_dsts, args->in + args->rows.sent[first_rank].begin + span.begin,
                span.bytes);
}

/* Each chunk goes to the ranks in turn, each rank beginning with the next one, to spread the
 * load. */
WP_FN void push_unit(struct wp_warp *warp, const struct wp_direct_push_args *args,
                     const struct wp_share *share, struct wp_part part)
{
    const struct wp_exchange *exchange = &args->direct.area.exchange;
    const int32_t num_ranks = exchange->num_ranks;
    const int to_all = args->kind == WP_PUSH_ONE_ROW_TO_ALL;
    const int32_t chunk = args->kind == WP_PUSH_A_ROW_EACH ? part.token / num_ranks : part.token;
    const int32_t first_rank = args->kind == WP_PUSH_ONE_ROW_TO_ROOT
                                   ? args->root
                                   : (exchange->rank + 1 + part.token) % num_ranks;
    const struct wp_span span = wp_direct_span(
        &args->direct, share, args->rows.sent[first_rank].bytes, (uint64_t)chunk, part.part);
    if (span.bytes > 0)
        push_span(warp, args, first_rank, to_all ? num_ranks : 1, span);
}

/* Tells `rank` about this rank's call: what goes there; or says what must come from there. */
WP_FN struct wp_call_header header_for(const struct wp_direct_push_args *args, int32_t rank,
                                       const struct wp_span *rows)
{
    struct wp_call_header header = args->direct.header;
    if (header.call.num_bytes == 0)
        header.call.num_bytes = rows[rank].bytes;
    header.output += args->rows.received[rank].begin;
    return header;
}

WP_FN enum wp_status meet(struct wp_warp *warp, const struct wp_direct_push_args *args,
                          const struct wp_packets *packets)
{
    const struct wp_header_duty duty = wp_header_duty(warp);
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step) {
        const struct wp_call_header header = header_for(args, rank, args->rows.sent);
        wp_header_send(warp, packets, rank, rank + 1, header);
        wp_header_send_places(warp, packets, rank, rank + 1, header);
    }
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step) {
        const struct wp_call_header expected = header_for(args, rank, args->rows.received);
        wp_direct_check(warp, packets, rank, &expected);
    }
    return wp_direct_met(warp, packets);
}

WP_PROGRAM(direct_push, warp, args)
{
    const struct wp_direct *direct = &args->direct;
    const struct wp_packets packets = wp_packets_begin(warp, &direct->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const enum wp_status status = meet(warp, args, &packets);
    if (status != WP_STATUS_OK)
        return wp_packets_end(warp, &direct->area, &packets, status);
    wp_admit_next(warp); /* all ranks have started */
    const int32_t num_rows = args->kind == WP_PUSH_A_ROW_EACH ? packets.num_ranks : 1;
    const struct wp_share share =
        wp_direct_share(warp, direct, &packets, args->longest_row_bytes, num_rows);
    for (int32_t unit = wp_first_unit(warp); unit < share.num_units;) {
        const int32_t next = wp_take_unit(warp, &share);
        push_unit(warp, args, &share, wp_unit_part(&share, unit));
        unit = wp_taken_unit(warp, next);
    }
    return wp_direct_finish(warp, direct, &packets);
}
