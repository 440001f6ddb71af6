/* SPDX-License-Identifier: MIT */
/* Tagged rows: sent over one that may still be read; and taken for a signal of what the sender's
 * launch did. */
#include "planted.h"

enum { NUM_WORDS = 3 };

/* Warp-wide: exchanges a row with the other rank, and checks it. */
WP_FN enum wp_status exchange_rows(struct wp_warp *warp, const struct job_args *args,
                                   uint64_t parity)
{
    const uint32_t sent[NUM_WORDS] = {(uint32_t)args->sequence, (uint32_t)args->rank, 7};
    const struct wp_wait_site site = {WP_PHASE_START, 1 - args->rank, args->sequence, 0, 0};
    uint32_t *taken = (uint32_t *)wp_block_shared(warp);
    wp_tagged_send(warp, 1 - args->rank, &args->other->slots[0][2 * parity], sent, NUM_WORDS,
                   args->sequence);
    if (wp_tagged_take(warp, &args->own->slots[0][2 * parity], taken, NUM_WORDS, &site) !=
        WP_STATUS_OK)
        return WP_STATUS_FAILED;
    wp_warp_sync(warp);
    if (taken[0] != sent[0] || taken[1] != 1u - sent[1] || taken[2] != sent[2])
        wp_add_relaxed(&args->state->num_wrong, 1);
    return WP_STATUS_OK;
}

/* One row for all operations instead of two in turn: the other rank may start the next one before
 * this rank has read what it said of this one. */
JOB_PROGRAM(planted_row_reuse, warp, args)
{
    return exchange_rows(warp, args, args->form == FORM_PLANTED ? 0 : args->sequence % 2);
}

/* A row tells of launches before the one that sends it, not of what that has written. */
JOB_PROGRAM(planted_row_news, warp, args)
{
    const uint64_t last = args->form == FORM_PLANTED ? args->sequence : args->sequence - 1;
    if (wp_lane_idx(warp) == 0 && args->form == FORM_PLANTED)
        args->other->slots[1][args->sequence % 2] = args->sequence;
    if (exchange_rows(warp, args, args->sequence % 2) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    if (wp_lane_idx(warp) == 0 && args->form == FORM_CORRECTED)
        args->other->slots[1][args->sequence % 2] = args->sequence;
    if (wp_lane_idx(warp) == 0 && args->own->slots[1][last % 2] != last)
        wp_add_relaxed(&args->state->num_wrong, 1);
    return WP_STATUS_OK;
}
