/* SPDX-License-Identifier: MIT */
/*
 * direct_push: every rank writes rows of its input to the places that the others have told it:
 * all-gather, all-to-all and broadcast. A row that goes to all is read once.
 */
#include "programs/direct_push.h"

/* Where this rank's row goes at `rank`; NULL where it is there already: in this rank's output, in
 * place. */
WEFT_FN const void *destination(struct weft_warp *warp, const struct weft_direct_push_args *args,
                                int32_t rank, struct weft_span span)
{
    if (rank != args->direct.area.exchange.rank)
        return weft_direct_output(warp, &args->direct, rank) + span.begin;
    const char *src = args->in + args->rows.sent[rank].begin;
    const char *dst = args->out + args->rows.received[rank].begin;
    return dst == src ? NULL : dst + span.begin;
}

WEFT_FN void push_span(struct weft_warp *warp, const struct weft_direct_push_args *args,
                       int32_t first_rank, int32_t num_dsts, struct weft_span span)
{
    const int32_t num_ranks = args->direct.area.exchange.num_ranks;
    const void **dsts = weft_warp_pointers(warp);
    weft_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t i = weft_lane_idx(warp); i < num_dsts; i += WEFT_WARP_SIZE)
        dsts[i] = destination(warp, args, (first_rank + i) % num_ranks, span);
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, num_dsts, args->in + args->rows.sent[first_rank].begin + span.begin,
                  span.bytes);
}

/* Each chunk goes to the ranks in turn, each rank beginning with the next one, to spread the load. */
WEFT_FN void push_unit(struct weft_warp *warp, const struct weft_direct_push_args *args,
                       const struct weft_share *share, struct weft_part part)
{
    const struct weft_exchange *exchange = &args->direct.area.exchange;
    const int32_t num_ranks = exchange->num_ranks;
    const int to_all = args->kind == WEFT_PUSH_ONE_ROW_TO_ALL;
    const int32_t chunk = to_all ? part.token : part.token / num_ranks;
    const int32_t first_rank = (exchange->rank + 1 + part.token) % num_ranks;
    const struct weft_span span = weft_direct_span(
        &args->direct, share, args->rows.sent[first_rank].bytes, (uint64_t)chunk, part.part);
    if (span.bytes > 0)
        push_span(warp, args, first_rank, to_all ? num_ranks : 1, span);
}

/* Tells `rank` about this rank's call: what goes there; or says what must come from there. */
WEFT_FN struct weft_call_header header_for(const struct weft_direct_push_args *args, int32_t rank,
                                           const struct weft_span *rows)
{
    struct weft_call_header header = args->direct.header;
    if (header.call.num_bytes == 0)
        header.call.num_bytes = rows[rank].bytes;
    header.output += args->rows.received[rank].begin;
    return header;
}

WEFT_FN enum weft_status meet(struct weft_warp *warp, const struct weft_direct_push_args *args,
                              const struct weft_packets *packets)
{
    const struct weft_header_duty duty = weft_header_duty(warp);
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step) {
        const struct weft_call_header header = header_for(args, rank, args->rows.sent);
        weft_header_send(warp, packets, rank, rank + 1, header);
        weft_header_send_places(warp, packets, rank, rank + 1, header);
    }
    for (int32_t rank = duty.first_rank; rank < packets->num_ranks; rank += duty.rank_step) {
        const struct weft_call_header expected = header_for(args, rank, args->rows.received);
        weft_direct_check(warp, packets, rank, &expected);
    }
    return weft_direct_met(warp, packets);
}

WEFT_PROGRAM(direct_push, warp, args)
{
    const struct weft_direct *direct = &args->direct;
    const struct weft_packets packets = weft_packets_begin(warp, &direct->area);
    if (packets.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    const enum weft_status status = meet(warp, args, &packets);
    if (status != WEFT_STATUS_OK)
        return weft_packets_end(warp, &direct->area, &packets, status);
    weft_admit_next(warp); /* all ranks have started */
    const int32_t num_rows = args->kind == WEFT_PUSH_ONE_ROW_TO_ALL ? 1 : packets.num_ranks;
    const struct weft_share share =
        weft_direct_share(warp, direct, &packets, args->longest_row_bytes, num_rows);
    for (int32_t unit = weft_first_unit(warp); unit < share.num_units;) {
        const int32_t next = weft_take_unit(warp, &share);
        push_unit(warp, args, &share, weft_unit_part(&share, unit));
        unit = weft_taken_unit(warp, next);
    }
    return weft_direct_finish(warp, direct, &packets);
}
