/* SPDX-License-Identifier: MIT */
/* barrier: ends when every rank has started it. */
#include "programs/coll/barrier.h"

WP_PROGRAM(barrier, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    wp_fence_launches(warp); /* it tells of puts, and of what others have stored to heaps */
    wp_operation_send(&op);
    return wp_operation_end(&op, wp_operation_meet(&op));
}
