/* SPDX-License-Identifier: MIT */
/*
 * expand_rows: copies each row that dispatch has delivered to the rows of its choices, which
 * place_choices has placed. A warp reads a row, or a part of it, once. The experts read its copies
 * soon: they stay in caches.
 */
#include "programs/ep/expand_rows.h"

WP_FN void copy_part(struct wp_warp *warp, const struct wp_expand_rows_args *args,
                     const struct wp_share *share, struct wp_part part)
{
    for (int32_t i = 0; i < args->num_planes; i++) {
        const struct wp_expanded_plane *plane = &args->planes[i];
        const struct wp_span span = wp_part_span(share, part.part, plane->row_bytes);
        if (span.bytes == 0)
            continue;
        const int32_t num_dsts = wp_choices_find(warp, &args->choices, part.token, plane->dst,
                                                 plane->row_bytes, span.begin);
        const char *src = plane->src + (uint64_t)part.token * plane->src_stride_bytes + span.begin;
        wp_row_copy_for(warp, WP_READ_SOON, wp_warp_pointers(warp), num_dsts, src, span.bytes);
    }
}

/* Writes what the top-k entries of a row tell of their expanded rows. */
WP_FN void note_choices(struct wp_warp *warp, const struct wp_expand_rows_args *args, int32_t row)
{
    const int32_t num_topk = args->choices.num_topk;
    for (int32_t k = wp_lane_idx(warp); k < num_topk; k += WP_WARP_SIZE) {
        const int32_t expanded = wp_choice_row(&args->choices, row, k);
        if (expanded < 0)
            continue;
        if (args->src_rows != NULL)
            args->src_rows[expanded] = row;
        if (args->row_weights != NULL)
            args->row_weights[expanded] = args->recv_topk_weights[(int64_t)row * num_topk + k];
    }
}

/* ------------------------------------------------------------------ rows of no choice */

struct gap {
    int32_t begin, end;
};

WP_FN struct gap gap_of(const struct wp_expand_rows_args *args, int32_t expert)
{
    const struct wp_expansion *expansion = &args->expansion;
    const int32_t first = expansion->firsts[expert], capacity = args->choices.expanded_capacity;
    const int32_t end = first + args->recv_expert_rows[expert];
    const struct gap gap = {first + expansion->num_placed[expert], end < capacity ? end : capacity};
    return gap;
}

WP_FN void note_gaps(struct wp_warp *warp, const struct wp_expand_rows_args *args)
{
    for (int32_t expert = wp_launch_warp_idx(warp); expert < args->expansion.num_experts;
         expert += wp_num_launch_warps(warp)) {
        const struct gap gap = gap_of(args, expert);
        for (int32_t row = gap.begin + wp_lane_idx(warp); row < gap.end; row += WP_WARP_SIZE) {
            if (args->src_rows != NULL)
                args->src_rows[row] = -1;
            if (args->row_weights != NULL)
                args->row_weights[row] = 0.0f;
        }
    }
}

/* Behind the last block. */
WP_FN void note_rest(struct wp_warp *warp, const struct wp_expand_rows_args *args)
{
    const int64_t lane = (int64_t)wp_launch_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int64_t num_lanes = (int64_t)wp_num_launch_warps(warp) * WP_WARP_SIZE;
    if (args->src_rows == NULL)
        return;
    for (int64_t row = *args->expansion.num_rows + lane; row < args->choices.expanded_capacity;
         row += num_lanes)
        args->src_rows[row] = -1;
}

WP_FN void zero_row(struct wp_warp *warp, const struct wp_expand_rows_args *args, int32_t row)
{
    const void **dst = wp_warp_pointers(warp), **src = dst + 1;
    for (int32_t i = 0; i < args->num_planes; i++) {
        const struct wp_expanded_plane *plane = &args->planes[i];
        wp_warp_sync(warp); /* the pointers before have been used */
        if (wp_lane_idx(warp) == 0) {
            *dst = plane->dst + (uint64_t)row * plane->row_bytes;
            *src = NULL;
        }
        wp_warp_sync(warp);
        wp_row_copy_each(warp, WP_READ_SOON, dst, src, 1, plane->row_bytes);
    }
}

/* Each warp takes some rows of each gap. */
WP_FN void zero_gaps(struct wp_warp *warp, const struct wp_expand_rows_args *args)
{
    for (int32_t expert = 0; expert < args->expansion.num_experts; expert++) {
        const struct gap gap = gap_of(args, expert);
        for (int32_t row = gap.begin + wp_launch_warp_idx(warp); row < gap.end;
             row += wp_num_launch_warps(warp))
            zero_row(warp, args, row);
    }
}

WP_PROGRAM(expand_rows, warp, args)
{
    const struct wp_share share = wp_choices_share(warp, &args->choices);
    wp_admit_next(warp); /* it waits for nobody */
    for (int32_t unit = wp_first_unit(warp); unit < share.num_units; unit += share.num_warps) {
        const struct wp_part part = wp_unit_part(&share, unit);
        copy_part(warp, args, &share, part);
        if (part.part == 0)
            note_choices(warp, args, part.token);
    }
    note_gaps(warp, args);
    note_rest(warp, args);
    if (args->gaps == WEFT_GAPS_ZEROED)
        zero_gaps(warp, args);
    return WP_STATUS_OK;
}
