/* SPDX-License-Identifier: MIT */
/* A read of heap memory that nobody has written since it was allocated. */
#include "planted.h"

WP_PROGRAM(planted_unwritten, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    if (args->form == FORM_CORRECTED)
        job_write_slot(args->unwritten->slots[0], args->sequence);
    args->state->seen[0][0] = (int32_t)args->unwritten->slots[0][0];
    return WP_STATUS_OK;
}
