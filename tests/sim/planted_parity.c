/* SPDX-License-Identifier: MIT */
/* Buffers used in turn, by a parity that each handle counts for itself although handles share the
 * buffers: two handles in a row use the same one, which the other rank may still be reading. */
#include "planted.h"

WP_PROGRAM(planted_parity, warp, args)
{
    if (wp_lane_idx(warp) != 0)
        return WP_STATUS_OK;
    const uint64_t handles_parity = (uint64_t)args->state->counts[args->handle]++ % 2;
    const uint64_t parity = args->form == FORM_PLANTED ? handles_parity : args->sequence % 2;
    job_write_slot(args->other->slots[parity], args->sequence);
    wp_signal(warp, 1 - args->rank, &args->other->signals[0], args->sequence);
    if (job_wait(warp, args, &args->own->signals[0], args->sequence) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    job_check_slot(args, args->own->slots[parity], args->sequence);
    return WP_STATUS_OK;
}
