/* SPDX-License-Identifier: MIT */
/*
 * dispatch: a warp reads a token's row once and writes it to all ranks of the token's routes,
 * straight into the final rows, at the places that the ranks named when they started.
 */
#include "programs/ep/dispatch.h"

#include "programs/ep/own_tokens.h"

WP_PROGRAM(dispatch, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_operation_send(&op);
    const struct wp_own_tokens own =
        wp_own_tokens(&op, args, wp_num_launch_warps(warp), NULL, WP_PLANES_AS_THEY_ARE);
    const int32_t first = wp_first_unit(warp);
    const int32_t num_targets = wp_own_prepare(&own, first);
    const enum wp_status status = wp_operation_meet(&op);
    if (status != WP_STATUS_OK)
        return wp_operation_end(&op, status);
    wp_admit_next(warp); /* all ranks have started */
    wp_own_deliver(&own, first, num_targets);
    wp_complete_outputs(&op, &args->routing, args->recv_topk_idx);
    return wp_operation_finish(&op, WP_BLOCKS_AS_TOLD);
}
