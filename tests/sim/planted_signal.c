/* SPDX-License-Identifier: MIT */
/* A signal that is sent before the data that it tells of. */
#include "planted.h"

WP_PROGRAM(planted_signal, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->form == FORM_CORRECTED)
        job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[args->sequence % 2], args->sequence);
    return WP_STATUS_OK;
}
