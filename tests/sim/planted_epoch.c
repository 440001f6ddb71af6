/* SPDX-License-Identifier: MIT */
/* A signal of the same value in every operation: from the second on, the wait is over at once. */
#include "planted.h"

WP_PROGRAM(planted_epoch, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    const uint64_t value = args->form == FORM_PLANTED ? 1 : args->sequence;
    job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], value);
    if (job_wait(warp, args, &args->own->signals[0], value) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[args->sequence % 2], args->sequence);
    return WP_STATUS_OK;
}
