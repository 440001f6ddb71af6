/* SPDX-License-Identifier: MIT */
/* A signal that nobody waits for. */
#include "planted.h"

WP_PROGRAM(planted_unawaited, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        wp_signal(warp, 1 - args->rank, &args->other->signals[1], args->sequence);
    return job_wait(warp, args, &args->own->signals[0], args->sequence);
}
