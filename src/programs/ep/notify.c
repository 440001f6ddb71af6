/* SPDX-License-Identifier: MIT */
/*
 * notify: every rank tells every other how many rows it will send to each rank, and how often it
 * chose each expert of the addressee. Prefix sums over the source ranks then give every route its
 * final row. One block.
 */
#include "programs/ep/notify.h"

#include "programs/ep/counts.h"

/* The block signals at once that its warps have sent. It waits for the others when it has compared
 * the calls. */
WP_FN enum wp_status exchange_counts(const struct wp_operation *op,
                                     const struct wp_notify_args *args)
{
    struct wp_warp *warp = op->warp;
    wp_operation_send(op);
    for (int32_t rank = wp_warp_idx(warp); rank < args->exchange.num_ranks;
         rank += wp_num_warps(warp))
        wp_counts_send(warp, args, op->sequence, rank);
    wp_block_sync(warp);
    if (wp_warp_idx(warp) == 0)
        wp_operation_signal(op);
    enum wp_status status = wp_operation_meet(op);
    if (status != WP_STATUS_OK)
        return status;
    wp_admit_next(warp); /* all ranks have started */
    if (wp_warp_idx(warp) == 0)
        status = wp_operation_await(op, WP_BLOCKS_AS_HERE);
    return wp_block_status(warp, status);
}

WP_PROGRAM(notify, warp, args)
{
    const struct wp_operation op = wp_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const enum wp_status status = exchange_counts(&op, args);
    if (status == WP_STATUS_OK)
        wp_counts_receive(warp, args, op.sequence);
    return wp_operation_end(&op, status);
}
