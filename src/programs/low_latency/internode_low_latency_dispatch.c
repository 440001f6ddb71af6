/* SPDX-License-Identifier: MIT */
/* internode_low_latency_dispatch: low_latency_dispatch where some ranks are on other nodes, by the same steps.
 * It is a program of its own so that the other, which has no time, has nothing of it. */
#define WP_LL_HAS_NODES(plan) 1
#define WP_LL_STEPS_ONLY

#include "programs/low_latency/low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */

struct wp_internode_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(internode_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
