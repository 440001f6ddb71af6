/* SPDX-License-Identifier: MIT */
/* Tickets taken one by one, as if no other lane could take one in between. */
#include "planted.h"

WP_PROGRAM(planted_tickets, warp, args)
{
    (void)warp;
    int32_t *counter = &args->state->counts[0];
    const int32_t first = wp_add_relaxed(counter, args->form == FORM_PLANTED ? 1 : 2);
    const int32_t second = args->form == FORM_PLANTED ? wp_add_relaxed(counter, 1) : first + 1;
    if (second != first + 1)
        wp_add_relaxed(&args->state->num_wrong, 1);
    return WP_STATUS_OK;
}
