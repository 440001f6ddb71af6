/* SPDX-License-Identifier: MIT */
/*
 * place_choices: gives each choice of the tokens that this rank has a row in the block of its
 * expert, in the order of the choices. Each warp takes one chunk of them. A first launch counts how
 * often each chunk chooses each expert, and its last block sums the chunks up; a second launch
 * counts again, from where the first one says.
 */
#include "programs/ep/place_choices.h"

#include "programs/ep/blocks.h"
#include "programs/ep/choices.h"
#include "programs/ep/chunks.h"

/* -1: none of this rank's. */
WP_FN int32_t expert_of(const struct wp_place_choices_args *args, int64_t choice)
{
    const int64_t expert = wp_expert_id(args->recv_topk_idx, args->index_type, choice);
    return expert >= 0 && expert < args->expansion.num_experts ? (int32_t)expert : -1;
}

/* A table that layout got may announce fewer choices of an expert than there are. */
WP_FN int32_t end_of_block(const struct wp_place_choices_args *args, int32_t expert)
{
    return args->expansion.firsts[expert] + args->recv_expert_rows[expert];
}

WP_FN void place_choice(const struct wp_place_choices_args *args, int64_t choice, int32_t expert,
                        int32_t row)
{
    const int is_there =
        expert >= 0 && row < args->expanded_capacity && row < end_of_block(args, expert);
    args->choice_rows[choice] = is_there ? row : -1;
}

/* A choice for each lane. counts[expert] are those before in the chunk, and where the chunk
 * begins. */
WP_FN void take_choices(struct wp_warp *warp, const struct wp_place_choices_args *args,
                        int64_t choice, int64_t end, int32_t *counts)
{
    const int32_t expert = choice < end ? expert_of(args, choice) : -1;
    const int32_t num_below = wp_same_below(warp, (uint32_t)expert);
    const int32_t num_before = expert < 0 ? 0 : counts[expert];
    wp_warp_sync(warp); /* all have read the counts */
    if (expert >= 0)
        wp_add_relaxed(&counts[expert], 1);
    if (args->placing == WP_PLACE_CHOICES && choice < end)
        place_choice(args, choice, expert, num_before + num_below);
    wp_warp_sync(warp); /* all have added */
}

WP_FN void take_chunk(struct wp_warp *warp, const struct wp_place_choices_args *args, int32_t chunk)
{
    const int32_t num_experts = args->expansion.num_experts;
    const int32_t num_rows = wp_rows_there(args->recv_rows, args->capacity);
    const int64_t num_choices = (int64_t)num_rows * args->num_topk;
    const int64_t chunk_choices = (num_choices + args->num_chunks - 1) / args->num_chunks;
    const int64_t begin = chunk * chunk_choices;
    const int64_t end = begin + chunk_choices < num_choices ? begin + chunk_choices : num_choices;
    int32_t *counts = args->expansion.chunk_firsts + (int64_t)chunk * num_experts;
    if (args->placing == WP_COUNT_CHOICES) {
        for (int32_t expert = wp_lane_idx(warp); expert < num_experts; expert += WP_WARP_SIZE)
            counts[expert] = 0;
        wp_warp_sync(warp);
    }
    for (int64_t first = begin; first < end; first += WP_WARP_SIZE)
        take_choices(warp, args, first + wp_lane_idx(warp), end, counts);
}

/* By all warps of a block: what notify tells of rows that it knows. */
WP_FN void make_blocks(struct wp_warp *warp, const struct wp_place_choices_args *args)
{
    const struct wp_expansion *expansion = &args->expansion;
    const int32_t num_experts = expansion->num_experts;
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    for (int32_t expert = thread; expert < num_experts;
         expert += wp_num_warps(warp) * WP_WARP_SIZE) {
        int32_t num_choices = 0;
        for (int32_t chunk = 0; chunk < args->num_chunks; chunk++)
            num_choices += expansion->chunk_firsts[(int64_t)chunk * num_experts + expert];
        expansion->num_selections[expert] = num_choices;
        args->recv_expert_rows[expert] = wp_align(num_choices, args->expert_alignment);
    }
    wp_block_sync(warp); /* the blocks' rows are there */
    if (wp_warp_idx(warp) == 0) {
        wp_place_blocks(warp, expansion, args->recv_expert_rows);
        if (wp_lane_idx(warp) == 0)
            *expansion->dropped_rows = 0;
    }
    wp_block_sync(warp); /* the blocks have places */
}

/* By all warps of a block. */
WP_FN void sum_chunks(struct wp_warp *warp, const struct wp_place_choices_args *args)
{
    const struct wp_expansion *expansion = &args->expansion;
    for (int32_t expert = wp_warp_idx(warp); expert < expansion->num_experts;
         expert += wp_num_warps(warp)) {
        const int32_t num_choices =
            wp_prefix_chunks(warp, expansion->chunk_firsts, args->num_chunks,
                             expansion->num_experts, expert, expansion->firsts[expert]);
        const int32_t num_rows = args->recv_expert_rows[expert];
        if (wp_lane_idx(warp) == 0)
            expansion->num_placed[expert] = num_choices < num_rows ? num_choices : num_rows;
    }
}

/* Warp-wide: choices whose rows lie beyond the capacity. */
WP_FN void count_dropped(struct wp_warp *warp, const struct wp_place_choices_args *args)
{
    const struct wp_expansion *expansion = &args->expansion;
    const int32_t capacity = args->expanded_capacity;
    uint32_t num_dropped = 0;
    for (int32_t expert = wp_lane_idx(warp); expert < expansion->num_experts;
         expert += WP_WARP_SIZE) {
        const int32_t first = expansion->firsts[expert];
        const int32_t end = first + expansion->num_placed[expert];
        const int32_t beyond = end - (first > capacity ? first : capacity);
        num_dropped += beyond > 0 ? (uint32_t)beyond : 0;
    }
    num_dropped = wp_sum_u32(warp, num_dropped);
    if (wp_lane_idx(warp) == 0 && num_dropped > *expansion->dropped_rows)
        *expansion->dropped_rows = num_dropped;
}

WP_PROGRAM(place_choices, warp, args)
{
    wp_admit_next(warp); /* it waits for nobody */
    for (int32_t chunk = wp_launch_warp_idx(warp); chunk < args->num_chunks;
         chunk += wp_num_launch_warps(warp))
        take_chunk(warp, args, chunk);
    if (args->placing == WP_COUNT_CHOICES && wp_is_last_block(warp, args->num_blocks_done)) {
        if (args->recv_rows == NULL)
            make_blocks(warp, args);
        sum_chunks(warp, args);
        wp_block_sync(warp); /* what is placed is there */
        if (wp_warp_idx(warp) == 0)
            count_dropped(warp, args);
    }
    return WP_STATUS_OK;
}
