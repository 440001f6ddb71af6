/* SPDX-License-Identifier: MIT */
/* fp8_packed_packet_low_latency_dispatch: packet_low_latency_dispatch of bf16, as FP8 with float scales, by expert, by the same steps. */
#define WP_PACKETS_ARE_QUANTISED
#include "programs/low_latency/packet_hints.h"

#include "programs/low_latency/packet_low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_fp8_packed_packet_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(fp8_packed_packet_low_latency_dispatch, warp, args)
{
    struct wp_low_latency_dispatch_args usual = args->dispatch;
    wp_ll_fix_rows(&usual.ll, &args->dispatch.ll, WP_LL_FP8, WP_LL_BY_EXPERT);
    wp_ll_fix_row_parts(&usual.ll.plan, WP_LL_FP8);
    return dispatch(warp, &usual);
}
