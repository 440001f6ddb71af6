/* SPDX-License-Identifier: MIT */
/* low_latency_release: ends the oldest result without an answer, or after one that let it stay. */
#include "programs/low_latency_release.h"

WP_PROGRAM(low_latency_release, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    struct wp_ll_block *block = &run.block;
    const uint64_t result = block->rows_answered + 1;
    if (result > block->rows_received || block->answers_sent != block->answers_received)
        return wp_ll_end(&run, wp_ll_fail(&run, block->rows_received, result));
    wp_ll_tell_all(&run, WP_LL_ROOM, WP_LL_ROWS, result);
    block->rows_answered = result;
    block->rows_ended = result;
    return wp_ll_end(&run, WP_STATUS_OK);
}
