/* SPDX-License-Identifier: MIT */
/* internode_low_latency_combine: low_latency_combine where some ranks are on other nodes, by the same steps.
 * It is a program of its own so that the other, which has no time, has nothing of it. */
#define WP_LL_HAS_NODES(plan) 1
#define WP_LL_STEPS_ONLY

#include "programs/low_latency/low_latency_combine.c" /* NOLINT(bugprone-suspicious-include) */

struct wp_internode_low_latency_combine_args {
    struct wp_low_latency_combine_args combine;
};

WP_PROGRAM(internode_low_latency_combine, warp, args)
{
    return combine(warp, &args->combine);
}
