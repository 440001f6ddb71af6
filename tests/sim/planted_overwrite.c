/* SPDX-License-Identifier: MIT */
/* One slot for all operations, which rank 0 writes without waiting until rank 1 has read it. */
#include "planted.h"

WP_FN enum wp_status write_slot(struct wp_warp *warp, const struct job_args *args)
{
    job_write_slot(args->other->slots[0], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        return WP_STATUS_OK;
    return job_wait(warp, args, &args->own->signals[1], args->sequence);
}

WP_FN enum wp_status read_slot(struct wp_warp *warp, const struct job_args *args)
{
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[0], args->sequence);
    if (args->form == FORM_CORRECTED)
        wp_signal(warp, 0, &args->other->signals[1], args->sequence);
    return WP_STATUS_OK;
}

WP_PROGRAM(planted_overwrite, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    return args->rank == 0 ? write_slot(warp, args) : read_slot(warp, args);
}
