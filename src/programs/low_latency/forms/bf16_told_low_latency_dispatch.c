/* SPDX-License-Identifier: MIT */
/* bf16_told_low_latency_dispatch: told_low_latency_dispatch of bf16, as it is, by the same steps. */
#include "programs/low_latency/told_hints.h"

#include "programs/low_latency/told_low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_bf16_told_low_latency_dispatch_args {
    struct wp_low_latency_dispatch_args dispatch;
};

WP_PROGRAM(bf16_told_low_latency_dispatch, warp, args)
{
    struct wp_low_latency_dispatch_args usual = args->dispatch;
    wp_ll_fix_rows(&usual.ll, &args->dispatch.ll, WP_LL_BF16, WP_LL_BY_RANK);
    wp_ll_fix_told_parts(&usual.ll.plan);
    return dispatch(warp, &usual);
}
