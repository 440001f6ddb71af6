/* SPDX-License-Identifier: MIT */
/*
 * direct_reduce: each rank reads a part of the inputs of all ranks and reduces it: all-reduce in one shot,
 * where the part is everything, and reduce-scatter. In two shots each rank also writes its part of the
 * result to the outputs of all; a part of any array is touched by one rank alone, so that inputs may be
 * outputs.
 */
#include "programs/direct_reduce.h"

WEFT_FN void reduce_span(struct weft_warp *warp, const struct weft_direct_reduce_args *args,
                         struct weft_span span)
{
    const struct weft_exchange *exchange = &args->direct.area.exchange;
    const int32_t num_ranks = exchange->num_ranks;
    const int32_t num_dsts = args->out != NULL ? 1 : num_ranks;
    const uint64_t offset = args->part_offset + span.begin;
    const void **srcs = weft_warp_pointers(warp);
    const void **dsts = srcs + num_ranks;
    weft_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t rank = weft_lane_idx(warp); rank < num_ranks; rank += WEFT_WARP_SIZE) {
        srcs[rank] = weft_direct_input(warp, &args->direct, rank) + offset;
        if (args->out == NULL) /* each begins with the next rank, to spread the load */
            dsts[(rank + num_ranks - exchange->rank) % num_ranks] =
                weft_direct_output(warp, &args->direct, rank) + offset;
        else if (rank == 0)
            dsts[0] = args->out + span.begin;
    }
    weft_warp_sync(warp);
    weft_row_reduce(warp, dsts, num_dsts, srcs, num_ranks, args->reduction,
                    (int64_t)(span.bytes / weft_dtype_bytes(args->reduction.dtype)));
}

WEFT_PROGRAM(direct_reduce, warp, args)
{
    const struct weft_direct *direct = &args->direct;
    const struct weft_packets packets = weft_packets_begin(warp, &direct->area);
    if (packets.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    const struct weft_header_duty duty = weft_header_duty(warp);
    weft_headers_send(warp, &packets, duty, direct->header);
    if (duty.first_rank == 0)
        weft_header_send_places(warp, &packets, 0, packets.num_ranks, direct->header);
    for (int32_t rank = duty.first_rank; rank < packets.num_ranks; rank += duty.rank_step)
        weft_direct_check(warp, &packets, rank, &direct->header);
    const enum weft_status status = weft_direct_met(warp, &packets);
    if (status != WEFT_STATUS_OK)
        return weft_packets_end(warp, &direct->area, &packets, status);
    weft_admit_next(warp); /* all ranks have started */
    const struct weft_share share = weft_direct_share(warp, direct, &packets, args->part_bytes, 1);
    for (int32_t unit = weft_first_unit(warp); unit < share.num_units;) {
        const int32_t next = weft_take_unit(warp, &share);
        const struct weft_part part = weft_unit_part(&share, unit);
        const struct weft_span span =
            weft_direct_span(direct, &share, args->part_bytes, (uint64_t)part.token, part.part);
        if (span.bytes > 0)
            reduce_span(warp, args, span);
        unit = weft_taken_unit(warp, next);
    }
    return weft_direct_finish(warp, direct, &packets);
}
