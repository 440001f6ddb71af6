/* SPDX-License-Identifier: MIT */
/* barrier: ends when every rank has started it. */
#include "programs/barrier.h"

WEFT_PROGRAM(barrier, warp, args)
{
    const uint64_t sequence = weft_exchange_begin(warp, &args->exchange);
    if (sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_fence_launches(warp); /* it tells of puts, and of what others have stored to heaps */
    weft_exchange_tell(warp, &args->exchange, sequence, &args->message);
    const enum weft_status status =
        weft_exchange_meet(warp, &args->exchange, sequence, &args->message);
    return weft_exchange_end(warp, &args->exchange, sequence, status);
}
