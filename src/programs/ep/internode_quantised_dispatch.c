/* SPDX-License-Identifier: MIT */
/* internode_quantised_dispatch: internode_dispatch with a plane that is quantised on its way,
 * before the network, by the same steps. */
#define WP_STEPS_ONLY

#include "programs/ep/internode_quantised_dispatch.h"

#include "programs/ep/internode_dispatch.c" /* NOLINT(bugprone-suspicious-include) */

WP_PROGRAM(internode_quantised_dispatch, warp, args)
{
    return dispatch_over_nodes(warp, &args->dispatch, WP_PLANES_OF_ANY_KIND);
}
