/* SPDX-License-Identifier: MIT */
/*
 * dispatch: a warp reads a token's row once and writes it to all ranks of the token's routes,
 * straight into the final rows, at the places that the ranks named when they started.
 */
#include "programs/dispatch.h"

#include "programs/own_tokens.h"

WEFT_PROGRAM(dispatch, warp, args)
{
    const struct weft_operation op = weft_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_operation_tell(&op);
    const struct weft_own_tokens own =
        weft_own_tokens(&op, args, weft_num_launch_warps(warp), NULL);
    const int32_t first = weft_first_unit(warp);
    const int32_t num_targets = weft_own_prepare(&own, first);
    const enum weft_status status = weft_operation_meet(&op);
    if (status != WEFT_STATUS_OK)
        return weft_operation_end(&op, status);
    weft_admit_next(warp); /* all ranks have started */
    weft_own_deliver(&own, first, num_targets);
    weft_complete_outputs(&op, &args->routing);
    return weft_operation_finish(&op, WEFT_BLOCKS_AS_TOLD);
}
