/* SPDX-License-Identifier: MIT */
/* low_latency_release: ends the oldest result without an answer, or after one that let it stay. Or
 * leaves: where answers stay, a rank must not take its slots away while others read them. */
#include "programs/low_latency/ll_nodes.h"

#include "programs/low_latency/ll_protocol.h"
#include "programs/low_latency/ll_waits.h"

WP_FN enum wp_status release(struct wp_ll_run *run)
{
    struct wp_ll_numbers *numbers = &run->numbers;
    const uint64_t result = numbers->rows_answered + 1;
    const struct wp_ll_credit credit = {result, 0};
    if (result > numbers->rows_received || numbers->answers_sent != numbers->answers_received)
        return wp_ll_fail(run, numbers->rows_received, result);
    if (!wp_ll_has_packets(&run->ll->plan)) /* the next launch tells of packets */
        wp_ll_give_credit(run, credit);
    numbers->rows_answered = result;
    numbers->rows_ended = result;
    return WP_STATUS_OK;
}

/* This rank never receives what others have sent and it has not received. So nobody waits in vain.
 * Ranks of other nodes read nothing here. */
WP_FN enum wp_status leave(const struct wp_ll_run *run)
{
    struct wp_warp *warp = run->op.warp;
    const struct wp_ll_credit nothing = {0, WP_LL_NEEDS_NOTHING};
    enum wp_status status = WP_STATUS_OK;
    if (wp_ll_is_leader_warp(warp)) {
        wp_ll_give_node_credit(run, nothing);
        status = wp_ll_await_ranks(run, WP_LL_RANKS_OF_NODE, WP_LL_CREDIT, WP_LL_ANSWERS,
                                   run->numbers.answers_sent);
    }
    return status;
}

WP_PROGRAM(low_latency_release, warp, args)
{
    struct wp_ll_run run = wp_ll_begin(warp, &args->ll);
    if (run.op.sequence == WP_SEQUENCE_FAILED)
        return WP_STATUS_FAILED;
    const enum wp_status status = args->what == WP_LL_LEAVES ? leave(&run) : release(&run);
    return wp_ll_end(&run, wp_block_status(warp, status));
}
