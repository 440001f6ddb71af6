/* SPDX-License-Identifier: MIT */
/* gate_balance: moves the biases of experts towards the mean load, and clears the counts. By one
 * block, each warp of which finds the mean by itself. */
#include "programs/gate/gate_balance.h"

/* Warp-wide. Counts have up to 32 bits, so their halves are summed apart. */
WP_FN int64_t sum_counts(struct wp_warp *warp, const struct wp_gate_balance_args *args)
{
    uint32_t low = 0, high = 0;
    for (int32_t e = wp_lane_idx(warp); e < args->num_experts; e += WP_WARP_SIZE) {
        low += (uint32_t)args->num_tokens_per_expert[e] & 0xffffu;
        high += (uint32_t)args->num_tokens_per_expert[e] >> 16;
    }
    return ((int64_t)wp_sum_u32(warp, high) << 16) + wp_sum_u32(warp, low);
}

WP_PROGRAM(gate_balance, warp, args)
{
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    wp_admit_next(warp); /* it waits for nobody */
    const int64_t sum = sum_counts(warp, args);
    wp_block_sync(warp); /* all have read the counts */
    for (int32_t e = thread; e < args->num_experts; e += num_threads) {
        const int64_t load = (int64_t)(uint32_t)args->num_tokens_per_expert[e] * args->num_experts;
        if (load != sum)
            args->bias[e] += load < sum ? args->step : -args->step;
        args->num_tokens_per_expert[e] = 0;
    }
    return WP_STATUS_OK;
}
