/* SPDX-License-Identifier: MIT */
/* Two warps with a barrier each, between their own data on both ranks. With one counter for both
 * barriers, the first to come on one rank meets the first to come on the other, whichever it is. */
#include "planted.h"

WP_PROGRAM(planted_barrier, warp, args)
{
    const int32_t role = wp_warp_idx(warp);
    const int32_t counter = args->form == FORM_PLANTED ? 0 : role;
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    job_write_slot(args->other->slots[role], args->sequence);
    const int32_t number = wp_add_relaxed(&args->state->counts[counter], 1) + 1;
    wp_signal(warp, 1 - args->rank, &args->other->signals[counter], (uint64_t)number);
    if (job_wait(warp, args, &args->own->signals[counter], (uint64_t)number) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[role], args->sequence);
    return WP_STATUS_OK;
}
