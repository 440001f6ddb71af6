/* SPDX-License-Identifier: MIT */
/* packet_low_latency_dispatch: low_latency_dispatch of few tokens, in packets. */
#include "programs/low_latency/routes_few.h"

struct wp_packet_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

#ifndef WP_LL_STEPS_ONLY
WP_PROGRAM(packet_low_latency_dispatch, warp, args)
{
    return dispatch(warp, &args->dispatch);
}
#endif
