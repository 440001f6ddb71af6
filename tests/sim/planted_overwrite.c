/* SPDX-License-Identifier: MIT */
/* One slot for all operations, which rank 0 writes without waiting until rank 1 has read it. */
#include "planted.h"

WEFT_FN enum weft_status write_slot(struct weft_warp *warp, const struct job_args *args)
{
    job_write_slot(args->other->slots[0], args->sequence);
    weft_signal(warp, 1, &args->other->signals[0], args->sequence);
    if (args->form == FORM_PLANTED)
        return WEFT_STATUS_OK;
    return job_wait(warp, args, &args->own->signals[1], args->sequence);
}

WEFT_FN enum weft_status read_slot(struct weft_warp *warp, const struct job_args *args)
{
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WEFT_STATUS_OK)
        return WEFT_STATUS_FAILED;
    job_check_slot(args, args->own->slots[0], args->sequence);
    if (args->form == FORM_CORRECTED)
        weft_signal(warp, 0, &args->other->signals[1], args->sequence);
    return WEFT_STATUS_OK;
}

WEFT_PROGRAM(planted_overwrite, warp, args)
{
    if (weft_lane_idx(warp) != 0)
        return WEFT_STATUS_OK;
    return args->rank == 0 ? write_slot(warp, args) : read_slot(warp, args);
}
