/* SPDX-License-Identifier: MIT */
/*
 * notify: every rank tells every other how many rows it will send to each rank, and how often it
 * chose each expert of the addressee. Prefix sums over the source ranks then give every route its
 * final row. One block.
 */
#include "programs/notify.h"

#include "programs/counts.h"

/* What the block's warps have sent is signalled at once, and awaited when the calls have been compared. */
WEFT_FN enum weft_status exchange_counts(const struct weft_operation *op,
                                         const struct weft_notify_args *args)
{
    struct weft_warp *warp = op->warp;
    weft_operation_tell(op);
    for (int32_t rank = weft_warp_idx(warp); rank < args->exchange.num_ranks;
         rank += weft_num_warps(warp))
        weft_counts_send(warp, args, op->sequence, rank);
    weft_block_sync(warp);
    if (weft_warp_idx(warp) == 0)
        weft_operation_signal(op);
    enum weft_status status = weft_operation_meet(op);
    if (status != WEFT_STATUS_OK)
        return status;
    weft_admit_next(warp); /* all ranks have started */
    weft_block_sync(warp);
    if (weft_warp_idx(warp) == 0)
        status = weft_operation_await(op, WEFT_BLOCKS_AS_HERE);
    return (enum weft_status)weft_block_max(warp, (uint32_t)status);
}

WEFT_PROGRAM(notify, warp, args)
{
    const struct weft_operation op = weft_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    const enum weft_status status = exchange_counts(&op, args);
    if (status == WEFT_STATUS_OK)
        weft_counts_receive(warp, args, op.sequence);
    return weft_operation_end(&op, status);
}
