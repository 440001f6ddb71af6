/* SPDX-License-Identifier: MIT */
/* bf16_low_latency_dispatch: low_latency_dispatch of bf16, in the usual form by rank, by the same steps. */
#define WP_LL_HAS_MASKS(masks) 0

#include "programs/low_latency/hints.h"

#include "programs/low_latency/low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_bf16_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(bf16_low_latency_dispatch, warp, args)
{
    struct wp_low_latency_dispatch_args usual = args->dispatch;
    wp_ll_fix_rows(&usual.ll, &args->dispatch.ll, WP_LL_BF16, WP_LL_BY_RANK);
    return dispatch(warp, &usual);
}
