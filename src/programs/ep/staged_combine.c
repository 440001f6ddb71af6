/* SPDX-License-Identifier: MIT */
/*
 * staged_combine: combine of a weft_ep with a staging block: where some rank needs them, in rounds.
 * It is a program of its own so that the other has nothing of it.
 */
#include "programs/ep/staged_combine.h"

#include "programs/ep/own_sums.h"

/* The owner tells whoever stages which rows it wants. */
WP_FN void ask_for_rows(const struct wp_round *round, const struct wp_combine_args *args)
{
    struct wp_warp *warp = round->op->warp;
    for (int32_t i = wp_launch_warp_idx(warp); i < wp_round_num_tokens(round);
         i += wp_num_launch_warps(warp)) {
        const int32_t token = wp_round_first_token(round) + i;
        wp_round_use_slots(round, token, wp_find_sources(warp, args, token), WP_WORDS_WRITTEN);
    }
}

/* When it has returned OK, the rows are in the slots. */
WP_FN enum wp_status fetch_rows(const struct wp_round *round, const struct wp_combine_args *args)
{
    ask_for_rows(round, args);
    if (wp_round_meet(round, 0) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    wp_round_copy_slots(round, WP_ARRAYS_TO_SLOTS);
    return wp_round_meet(round, 1);
}

/* Sums the round's tokens, with the number of the next part. */
WP_FN void combine_round(const struct wp_round *round, const struct wp_combine_args *args)
{
    const struct wp_operation *op = round->op;
    struct wp_warp *warp = op->warp;
    const struct wp_operation part_op = wp_round_part(round, 2);
    const struct wp_share share =
        wp_share_rows(wp_num_launch_warps(warp), wp_round_num_tokens(round),
                      wp_units_taken(op->exchange, part_op.sequence));
    for (int32_t unit = wp_first_unit(warp); unit < share.num_units;) {
        struct wp_part part = wp_unit_part(&share, unit);
        const int32_t next = wp_take_unit(warp, &share);
        part.token += wp_round_first_token(round);
        const int32_t num_routes = wp_find_sources(warp, args, part.token);
        wp_round_use_slots(round, part.token, num_routes, WP_WORDS_AS_THEY_ARE);
        wp_sum_part(op, args, &share, part, num_routes);
        unit = wp_taken_unit(warp, next);
    }
}

/* Words of the next round are written beside the sums of this one, since they have been cleared
 * before the meeting that the sums come after; slots after the next meeting. The last meeting is
 * the finish. */
WP_FN enum wp_status combine_in_rounds(struct wp_round *round, const struct wp_combine_args *args)
{
    for (;; round->idx++) {
        if (wp_round_is_staged(round) && fetch_rows(round, args) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        combine_round(round, args);
        if (!wp_round_is_staged(round))
            return wp_operation_finish(round->op, WP_BLOCKS_AS_TOLD);
        if (wp_round_is_last(round))
            return wp_round_meet(round, 2);
    }
}

WP_PROGRAM(staged_combine, warp, args)
{
    const struct wp_combine_args *combine = &args->combine;
    const struct wp_operation op = wp_operation_begin(warp, &combine->exchange, &combine->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    const enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    wp_admit_next(warp); /* all ranks have started */
    struct wp_round round = wp_first_round(&op, &args->rounds, &combine->routing);
    return combine_in_rounds(&round, combine);
}
