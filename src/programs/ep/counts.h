/* SPDX-License-Identifier: MIT */
/* The counts of notify, where they lie at other ranks: what it shares with internode_notify. */
#pragma once

#include "programs/ep/blocks.h"
#include "programs/ep/notify.h"

/* At `owner`, what `source` has counted for it. */
WP_FN int32_t *wp_counts_of(const struct wp_notify_args *args, uint64_t sequence, int32_t owner,
                            int32_t source)
{
    const uint64_t buffer =
        wp_parity(sequence) * (uint64_t)args->exchange.num_ranks + (uint64_t)source;
    return (int32_t *)(void *)(args->exchange.bases[owner] + args->counts_offset) +
           buffer * (uint64_t)args->counts_stride;
}

/* Adds up one column of what the first num_sources sources have for this rank. */
WP_FN int32_t wp_counts_sum(const struct wp_notify_args *args, uint64_t sequence,
                            int32_t num_sources, int32_t column)
{
    int32_t sum = 0;
    for (int32_t source = 0; source < num_sources; source++)
        sum += wp_counts_of(args, sequence, args->exchange.rank, source)[column];
    return sum;
}

WP_FN int32_t wp_num_local_experts(const struct wp_placement *placement, int32_t rank)
{
    return placement->rank_offsets[rank + 1] - placement->rank_offsets[rank];
}

/* Warp-wide: this rank's selections of the experts of a rank, in the order of their local ids. */
WP_FN void wp_copy_selections(struct wp_warp *warp, const struct wp_notify_args *args, int32_t rank,
                              int32_t *selections)
{
    const struct wp_placement *placement = &args->placement;
    const int32_t *entries = placement->rank_entries + placement->rank_offsets[rank];
    for (int32_t i = wp_lane_idx(warp); i < wp_num_local_experts(placement, rank);
         i += WP_WARP_SIZE)
        selections[i] = args->routing.entry_selections[entries[i]];
}

/* Warp-wide: gives `owner` what this rank has counted for it. */
WP_FN void wp_counts_send(struct wp_warp *warp, const struct wp_notify_args *args,
                          uint64_t sequence, int32_t owner)
{
    const struct wp_routing *routing = &args->routing;
    int32_t *counts = wp_counts_of(args, sequence, owner, routing->rank);
    for (int32_t i = wp_lane_idx(warp); i < routing->num_ranks; i += WP_WARP_SIZE)
        counts[i] = routing->send_rows[i];
    if (wp_lane_idx(warp) == 0)
        counts[routing->num_ranks] = args->tag;
    wp_copy_selections(warp, args, owner, counts + wp_notify_first_selection(routing->num_ranks));
}

/* One lane: the rows at `rank`, and those that come from it. All loads are under way together. */
WP_FN void wp_receive_rows(const struct wp_notify_args *args, uint64_t sequence, int32_t rank)
{
    const struct wp_routing *routing = &args->routing;
    int32_t num_rows = 0, base = 0, own_end = 0, own_rows = 0;
    for (int32_t source = 0; source < routing->num_ranks; source++) {
        const int32_t *counts = wp_counts_of(args, sequence, routing->rank, source);
        const int32_t rows_here = counts[routing->rank];
        base = source == routing->rank ? num_rows : base;
        num_rows += counts[rank];
        own_end += source <= rank ? rows_here : 0;
        own_rows = source == rank ? rows_here : own_rows;
    }
    routing->rank_base[rank] = base;
    routing->all_recv_rows[rank] = num_rows;
    routing->recv_rank_rows[rank] = own_rows;
    routing->recv_rank_ends[rank] = own_end;
    routing->tags[rank] = wp_counts_of(args, sequence, routing->rank, rank)[routing->num_ranks];
    if (rank == routing->rank)
        *routing->recv_rows = num_rows;
}

/* One lane: the rows of a local expert. */
WP_FN void wp_receive_selections(const struct wp_notify_args *args, uint64_t sequence,
                                 int32_t expert)
{
    const struct wp_routing *routing = &args->routing;
    const int32_t num_selections = wp_counts_sum(
        args, sequence, routing->num_ranks, wp_notify_first_selection(routing->num_ranks) + expert);
    args->expansion.num_selections[expert] = num_selections;
    routing->recv_expert_rows[expert] = wp_align(num_selections, args->expert_alignment);
}

/* By every warp of the block: what all sources have counted for this rank. */
WP_FN void wp_counts_receive(struct wp_warp *warp, const struct wp_notify_args *args,
                             uint64_t sequence)
{
    const struct wp_routing *routing = &args->routing;
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    const int32_t num_experts = wp_num_local_experts(&args->placement, routing->rank);
    for (int32_t rank = thread; rank < routing->num_ranks; rank += num_threads)
        wp_receive_rows(args, sequence, rank);
    for (int32_t expert = thread; expert < num_experts; expert += num_threads)
        wp_receive_selections(args, sequence, expert);
    if (thread == 0) {
        *routing->dropped_rows = 0;
        *args->expansion.dropped_rows = 0;
    }
    wp_block_sync(warp); /* the blocks' rows are there */
    if (wp_warp_idx(warp) == 0)
        wp_place_blocks(warp, &args->expansion, routing->recv_expert_rows);
}
