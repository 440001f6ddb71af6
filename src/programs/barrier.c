/* SPDX-License-Identifier: MIT */
/* barrier: ends when every rank has started it. */
#include "programs/barrier.h"

WEFT_PROGRAM(barrier, warp, args)
{
    const enum weft_status status = weft_exchange_start(warp, &args->exchange, &args->message);
    if (status != WEFT_STATUS_OK)
        return status;
    return weft_exchange_end(warp, &args->exchange);
}
