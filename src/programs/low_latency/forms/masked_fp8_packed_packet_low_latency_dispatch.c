/* SPDX-License-Identifier: MIT */
/* masked_fp8_packed_packet_low_latency_dispatch: fp8_packed_packet_low_latency_dispatch where ranks may be masked, by the same steps. */
#define WP_LL_HAS_MASKS(masks) 1

#define WP_PACKETS_ARE_QUANTISED
#include "programs/low_latency/packet_hints.h"

#include "programs/low_latency/packet_low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_masked_fp8_packed_packet_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(masked_fp8_packed_packet_low_latency_dispatch, warp, args)
{
    struct wp_low_latency_dispatch_args usual = args->dispatch;
    wp_ll_fix_rows(&usual.ll, &args->dispatch.ll, WP_LL_FP8, WP_LL_BY_EXPERT);
    wp_ll_fix_row_parts(&usual.ll.plan, WP_LL_FP8);
    return dispatch(warp, &usual);
}
