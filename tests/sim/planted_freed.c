/* SPDX-License-Identifier: MIT */
/* A write into heap memory that its owner has freed. */
#include "planted.h"

WP_PROGRAM(planted_freed, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    struct job_area *area = args->form == FORM_PLANTED ? args->freed_by_other : args->other;
    job_write_slot(area->slots[0], args->sequence);
    return WP_STATUS_OK;
}
