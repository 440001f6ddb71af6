/* SPDX-License-Identifier: MIT */
/* told_low_latency_dispatch: low_latency_dispatch of many tokens, in packets. */
#include "programs/low_latency/routes_many.h"

struct wp_told_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(told_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
#endif
