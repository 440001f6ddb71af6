/* SPDX-License-Identifier: MIT */
/*
 * staged_dispatch: dispatch of a weft_ep with a staging block: where some rank needs them, in
 * rounds. It is a program of its own so that the other has nothing of it. quantised_dispatch takes
 * the same steps.
 */
#include "programs/ep/staged_dispatch.h"

#include "programs/ep/own_tokens.h"

/* The round's tokens, of which some go to slots. */
WP_FN void deliver_round(const struct wp_round *round, const struct wp_dispatch_args *args,
                         enum wp_own_planes planes)
{
    const struct wp_operation *op = round->op;
    struct wp_warp *warp = op->warp;
    const struct wp_operation part_op = wp_round_part(round, 0);
    const int32_t num_warps = wp_num_launch_warps(warp);
    struct wp_own_tokens own = wp_own_tokens(op, args, num_warps, NULL, planes);
    own.share = wp_share_rows(num_warps, wp_round_num_tokens(round),
                              wp_units_taken(op->exchange, part_op.sequence));
    for (int32_t unit = wp_first_unit(warp); unit < own.share.num_units;) {
        struct wp_part part = wp_unit_part(&own.share, unit);
        const int32_t next = wp_take_unit(warp, &own.share);
        part.token += wp_round_first_token(round);
        const int32_t num_targets = wp_own_targets(&own, part.token);
        wp_round_use_slots(round, part.token, num_targets,
                           part.part == 0 ? WP_WORDS_WRITTEN : WP_WORDS_AS_THEY_ARE);
        wp_own_deliver_part(&own, part, num_targets);
        unit = wp_taken_unit(warp, next);
    }
}

/* The rows that have come last are copied when no rank is awaited any more. */
WP_FN enum wp_status deliver_in_rounds(struct wp_round *round, const struct wp_dispatch_args *args,
                                       enum wp_own_planes planes)
{
    for (;; round->idx++) {
        deliver_round(round, args, planes);
        if (!wp_round_is_staged(round))
            return wp_operation_finish(round->op, WP_BLOCKS_AS_TOLD);
        if (wp_round_meet(round, 0) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        wp_round_copy_slots(round, WP_SLOTS_TO_ARRAYS);
        if (wp_round_is_last(round))
            return WP_STATUS_OK;
        if (wp_round_meet(round, 1) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
    }
}

WP_FN enum wp_status dispatch_staged(struct wp_warp *warp,
                                     const struct wp_staged_dispatch_args *args,
                                     enum wp_own_planes planes)
{
    const struct wp_dispatch_args *dispatch = &args->dispatch;
    const struct wp_operation op =
        wp_operation_begin(warp, &dispatch->exchange, &dispatch->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    const struct wp_own_tokens own =
        wp_own_tokens(&op, dispatch, wp_num_launch_warps(warp), NULL, planes);
    (void)wp_own_prepare(&own, wp_first_unit(warp));
    const enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    wp_admit_next(warp); /* all ranks have started */
    wp_complete_outputs(&op, &dispatch->routing, dispatch->recv_topk_idx);
    struct wp_round round = wp_first_round(&op, &args->rounds, &dispatch->routing);
    return deliver_in_rounds(&round, dispatch, planes);
}

#ifndef WP_STEPS_ONLY
WP_PROGRAM(staged_dispatch, warp, args)
{
    return dispatch_staged(warp, args, WP_PLANES_AS_THEY_ARE);
}
#endif
