/* SPDX-License-Identifier: MIT */
/* Credits are behind loads, and behind stores only by a fence. */
#include "planted.h"

/* A credit that tells of what has been written. */
JOB_PROGRAM(planted_credit, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->rank == 0) {
        job_write_slot(args->other->slots[0], args->sequence);
        if (args->form == FORM_CORRECTED)
            wp_fence_launches(warp);
        wp_credit(warp, 1, &args->other->signals[0], args->sequence);
        return WP_STATUS_OK;
    }
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[0], args->sequence);
    return WP_STATUS_OK;
}

WP_FN enum wp_status fill_room(struct wp_warp *warp, const struct job_args *args)
{
    if (job_wait(warp, args, &args->own->signals[1], args->sequence - 1) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_write_slot(args->other->slots[0], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], args->sequence);
    return WP_STATUS_OK;
}

/* A slot that the reader says it needs no more, before it has read it. */
JOB_PROGRAM(planted_room, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->rank == 0)
        return fill_room(warp, args);
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    if (args->form == FORM_PLANTED)
        wp_credit(warp, 0, &args->other->signals[1], args->sequence);
    job_check_slot(args, args->own->slots[0], args->sequence);
    if (args->form == FORM_CORRECTED)
        wp_credit(warp, 0, &args->other->signals[1], args->sequence);
    return WP_STATUS_OK;
}

/* A word that is cleared, of which the other rank is told before anybody can see that. */
JOB_PROGRAM(planted_clear, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->rank == 0) {
        if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        wp_signal(warp, 1, &args->other->signals[1], 1);
        return WP_STATUS_OK;
    }
    wp_clear(&args->own->signals[1]);
    if (args->form == FORM_CORRECTED)
        wp_fence_launches(warp);
    wp_credit(warp, 0, &args->other->signals[0], args->sequence);
    return job_wait(warp, args, &args->own->signals[1], 1);
}
