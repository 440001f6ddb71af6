/* SPDX-License-Identifier: MIT */
/* A lane that knows from another, by a ballot, that a signal has come. A ballot orders nothing, so its
 * own wait for less than that value may still see the older signal, before the second slot's data. */
#include "planted.h"

enum { FIRST_SLOT_IS_WRITTEN = 1, BOTH_SLOTS_ARE_WRITTEN = 2 };

WP_FN void write_both(struct wp_warp *warp, const struct job_args *args)
{
    job_write_slot(args->other->slots[0], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], FIRST_SLOT_IS_WRITTEN);
    job_write_slot(args->other->slots[1], args->sequence);
    wp_signal(warp, 1, &args->other->signals[0], BOTH_SLOTS_ARE_WRITTEN);
}

WP_PROGRAM(planted_stale, warp, args)
{
    const int is_first_lane = wp_lane_idx(warp) == 0;
    if (args->rank == 0) {
        if (is_first_lane)
            write_both(warp, args);
        return WP_STATUS_OK;
    }
    enum wp_status status = WP_STATUS_OK;
    if (is_first_lane)
        status = job_wait(warp, args, &args->own->signals[0], BOTH_SLOTS_ARE_WRITTEN);
    if (wp_ballot(warp, status != WP_STATUS_OK) != 0)
        return WP_STATUS_FAILED;
    if (is_first_lane)
        return WP_STATUS_OK;
    status = job_wait(warp, args, &args->own->signals[0],
                      args->form == FORM_PLANTED ? FIRST_SLOT_IS_WRITTEN : BOTH_SLOTS_ARE_WRITTEN);
    if (status == WP_STATUS_OK)
        job_check_slot(args, args->own->slots[1], args->sequence);
    return status;
}

/* Two signals, of which the second is known from another word: then the wait for the first must see
 * it too. Without that word perhaps nobody sees it. */
WP_PROGRAM(planted_known, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->rank == 0) {
        write_both(warp, args);
        if (args->form == FORM_CORRECTED)
            wp_signal(warp, 1, &args->other->signals[1], args->sequence);
        return WP_STATUS_OK;
    }
    if (args->form == FORM_CORRECTED &&
        job_wait(warp, args, &args->own->signals[1], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    return job_wait(warp, args, &args->own->signals[0], FIRST_SLOT_IS_WRITTEN);
}
