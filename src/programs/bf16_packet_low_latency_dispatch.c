/* SPDX-License-Identifier: MIT */
/* bf16_packet_low_latency_dispatch: packet_low_latency_dispatch of bf16, as it is, by the same steps. */
#define WP_LL_HAS_MASKS(masks) 0
#define WP_LL_RANKS_ARE_NEAR   1
#define WP_PLACEMENT_IS_EVEN   1
#define WP_PACKETS_ARE_SHORT
#define WP_ROWS_ARE_MADE_NEAR

#include "programs/low_latency_hints.h"

#include "programs/low_latency_usual.h"
#include "programs/packet_low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */

struct wp_bf16_packet_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(bf16_packet_low_latency_dispatch, warp, args)
{
    struct wp_low_latency_dispatch_args usual = args->dispatch;
    wp_ll_fix_rows(&usual.ll, &args->dispatch.ll, WP_LL_BF16, WP_LL_BY_RANK);
    wp_ll_fix_row_parts(&usual.ll.plan, WP_LL_BF16);
    return dispatch(warp, &usual);
}
