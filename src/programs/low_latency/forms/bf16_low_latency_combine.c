/* SPDX-License-Identifier: MIT */
/* bf16_low_latency_combine: low_latency_combine of bf16, in the usual form by rank, by the same steps. */
#define WP_LL_HAS_MASKS(masks) 0

#include "programs/low_latency/hints.h"

#include "programs/low_latency/low_latency_combine.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_bf16_low_latency_combine_args {
    struct wp_low_latency_combine_args combine;
};

WP_PROGRAM(bf16_low_latency_combine, warp, args)
{
    struct wp_low_latency_combine_args usual = args->combine;
    wp_ll_fix_answers(&usual.ll, &args->combine.ll, WP_LL_SUMS_BY_RANK);
    return combine(warp, &usual);
}
