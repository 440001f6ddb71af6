/* SPDX-License-Identifier: MIT */
/*
 * quantised_dispatch: dispatch with a plane that is quantised on its way, by the steps of
 * staged_dispatch, whether anything is staged or not. It is a program of its own so that no other
 * has the code for that.
 */
#define WP_STEPS_ONLY

#include "programs/ep/quantised_dispatch.h"

#include "programs/ep/staged_dispatch.c" /* NOLINT(bugprone-suspicious-include) */

WP_PROGRAM(quantised_dispatch, warp, args)
{
    return dispatch_staged(warp, &args->dispatch, WP_PLANES_OF_ANY_KIND);
}
