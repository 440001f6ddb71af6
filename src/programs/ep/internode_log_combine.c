/* SPDX-License-Identifier: MIT */
/* internode_log_combine: internode_combine of sums that cross the network as logarithms, by the
 * same steps. */
#define WP_STEPS_ONLY
#define WP_SUMS_ARE_LOGARITHMS 1

#include "programs/ep/internode_log_combine.h"

#include "programs/ep/internode_combine.c" /* NOLINT(bugprone-suspicious-include) */

WP_PROGRAM(internode_log_combine, warp, args)
{
    return combine_over_nodes(warp, &args->combine);
}
