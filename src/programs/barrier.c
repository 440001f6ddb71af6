/* SPDX-License-Identifier: MIT */
/* barrier: ends when every rank has started it. */
#include "programs/barrier.h"

WEFT_PROGRAM(barrier, warp, args)
{
    const struct weft_operation op = weft_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_fence_launches(warp); /* it tells of puts, and of what others have stored to heaps */
    weft_operation_tell(&op);
    return weft_operation_end(&op, weft_operation_meet(&op));
}
