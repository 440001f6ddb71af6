/* SPDX-License-Identifier: MIT */
/* masked_bf16_packet_low_latency_combine: bf16_packet_low_latency_combine where ranks may be masked, by the same steps. */
#define WP_LL_HAS_MASKS(masks)       1
#define WP_LL_ANSWERS_ARE_LOGS(plan) 0
#define WP_PACKETS_ARE_SHORT

#include "programs/low_latency/hints.h"

#include "programs/low_latency/packet_low_latency_combine.c" /* NOLINT(bugprone-suspicious-include) */
#include "programs/low_latency/usual.h"

struct wp_masked_bf16_packet_low_latency_combine_args {
    struct wp_low_latency_combine_args combine;
};

WP_PROGRAM(masked_bf16_packet_low_latency_combine, warp, args)
{
    struct wp_low_latency_combine_args usual = args->combine;
    wp_ll_fix_answers(&usual.ll, &args->combine.ll, WP_LL_SUMS_BY_RANK);
    wp_ll_fix_answer_parts(&usual.ll.plan);
    return combine(warp, &usual);
}
