/* SPDX-License-Identifier: MIT */
/*
 * narrow_combine: combine of rows that travel in a narrower format: every rank's are in its staging
 * block in that, or in rounds come there so, by the steps of staged_combine. It is a program of its
 * own so that no other has the code for that.
 */
#define WP_STEPS_ONLY

#include "programs/ep/narrow_combine.h"

#include "programs/ep/staged_combine.c" /* NOLINT(bugprone-suspicious-include) */

WP_PROGRAM(narrow_combine, warp, args)
{
    return combine_staged(warp, &args->staged, WP_ROWS_NARROWED);
}
