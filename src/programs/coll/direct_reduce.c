/* SPDX-License-Identifier: MIT */
/*
 * direct_reduce: each rank reads a part of the inputs of all ranks and reduces it: all-reduce in
 * one shot, where the part is everything, reduce-scatter, and reduce, where the part of all ranks
 * but the root is nothing. In two shots each rank also writes its part of the result to the outputs
 * of all, or of the root; a part of any array is touched by one rank alone, so that inputs may be
 * outputs.
 */
#include "programs/coll/direct_reduce.h"

WP_FN void reduce_span(struct wp_warp *warp, const struct wp_direct_reduce_args *args,
                       struct wp_span span)
{
    const struct wp_exchange *exchange = &args->direct.area.exchange;
    const int32_t num_ranks = exchange->num_ranks;
    const int to_all = args->out == NULL && args->root == WP_NO_RANK;
    const int32_t num_dsts = to_all ? num_ranks : 1;
    const uint64_t offset = args->part_offset + span.begin;
    const void **srcs = wp_warp_pointers(warp);
    const void **dsts = srcs + num_ranks;
    wp_warp_sync(warp); /* the previous pointers have been used */
    for (int32_t rank = wp_lane_idx(warp); rank < num_ranks; rank += WP_WARP_SIZE) {
        srcs[rank] = wp_direct_input(warp, &args->direct, rank) + offset;
        if (to_all) /* each begins with the next rank, to spread the load */
            dsts[(rank + num_ranks - exchange->rank) % num_ranks] =
                wp_direct_output(warp, &args->direct, rank) + offset;
        else if (rank == 0)
            dsts[0] = args->out != NULL
                          ? args->out + span.begin
                          : wp_direct_output(warp, &args->direct, args->root) + offset;
    }
    wp_warp_sync(warp);
    wp_row_reduce(warp, dsts, num_dsts, srcs, num_ranks, args->reduction,
                  (int64_t)(span.bytes / wp_dtype_bytes(args->reduction.dtype)));
}

WP_PROGRAM(direct_reduce, warp, args)
{
    const struct wp_direct *direct = &args->direct;
    const struct wp_packets packets = wp_packets_begin(warp, &direct->area);
    if (packets.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const enum wp_status status = wp_direct_meet(warp, direct, &packets);
    if (status != WP_STATUS_OK)
        return wp_packets_end(warp, &direct->area, &packets, status);
    wp_admit_next(warp); /* all ranks have started */
    const struct wp_share share = wp_direct_share(warp, direct, &packets, args->part_bytes, 1);
    for (int32_t unit = wp_first_unit(warp); unit < share.num_units;) {
        const int32_t next = wp_take_unit(warp, &share);
        const struct wp_part part = wp_unit_part(&share, unit);
        const struct wp_span span =
            wp_direct_span(direct, &share, args->part_bytes, (uint64_t)part.token, part.part);
        if (span.bytes > 0)
            reduce_span(warp, args, span);
        unit = wp_taken_unit(warp, next);
    }
    return wp_direct_finish(warp, direct, &packets);
}
