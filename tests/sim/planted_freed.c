/* SPDX-License-Identifier: MIT */
/* A write into heap memory that its owner has freed. */
#include "planted.h"

WEFT_PROGRAM(planted_freed, warp, args)
{
    if (weft_lane_idx(warp) != 0)
        return WEFT_STATUS_OK;
    struct job_area *area = args->form == FORM_PLANTED ? args->freed_by_other : args->other;
    job_write_slot(area->slots[0], args->sequence);
    return WEFT_STATUS_OK;
}
