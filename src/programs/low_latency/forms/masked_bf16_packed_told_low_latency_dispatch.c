/* SPDX-License-Identifier: MIT */
/* masked_bf16_packed_told_low_latency_dispatch: bf16_packed_told_low_latency_dispatch where ranks may be masked, by the same steps. */
#define WP_LL_HAS_MASKS(masks) 1

#include "programs/low_latency/told_hints.h"

#include "programs/low_latency/told_low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_masked_bf16_packed_told_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(masked_bf16_packed_told_low_latency_dispatch, warp, args)
{
    struct wp_low_latency_dispatch_args usual = args->dispatch;
    wp_ll_fix_rows(&usual.ll, &args->dispatch.ll, WP_LL_BF16, WP_LL_BY_EXPERT);
    wp_ll_fix_told_parts(&usual.ll.plan);
    return dispatch(warp, &usual);
}
