/* SPDX-License-Identifier: MIT */
/* Tickets taken one by one, as if no other lane could take one in between. */
#include "planted.h"

WEFT_PROGRAM(planted_tickets, warp, args)
{
    (void)warp;
    int32_t *counter = &args->state->counts[0];
    const int32_t first = weft_add_relaxed(counter, args->form == FORM_PLANTED ? 1 : 2);
    const int32_t second = args->form == FORM_PLANTED ? weft_add_relaxed(counter, 1) : first + 1;
    if (second != first + 1)
        weft_add_relaxed(&args->state->num_wrong, 1);
    return WEFT_STATUS_OK;
}
