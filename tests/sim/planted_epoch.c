/* SPDX-License-Identifier: MIT */
/* A signal of the same value in every operation: from the second on, the wait is over at once. */
#include "planted.h"

WEFT_PROGRAM(planted_epoch, warp, args)
{
    if (weft_lane_idx(warp) != 0)
        return WEFT_STATUS_OK;
    const uint64_t value = args->form == FORM_PLANTED ? 1 : args->sequence;
    job_write_slot(args->other->slots[args->sequence % 2], args->sequence);
    weft_signal(warp, 1 - args->rank, &args->other->signals[0], value);
    if (job_wait(warp, args, &args->own->signals[0], value) != WEFT_STATUS_OK)
        return WEFT_STATUS_FAILED;
    job_check_slot(args, args->own->slots[args->sequence % 2], args->sequence);
    return WEFT_STATUS_OK;
}
