/* SPDX-License-Identifier: MIT */
/* choose_replicas: which replica serves each choice of an expert. */
#include "programs/ep/choose_replicas.h"

#include "programs/block.h"

WP_FN int32_t find_replica(const struct wp_choose_replicas_args *args, int64_t choice)
{
    const int64_t expert = wp_expert_id(args->topk_idx, args->index_type, choice);
    const int64_t granule = (args->rank + choice / args->num_topk) % WEFT_BALANCE_GRANULES;
    if (expert < 0 || expert >= args->num_experts)
        return -1;
    return args->granules[expert * WEFT_BALANCE_GRANULES + granule];
}

WP_PROGRAM(choose_replicas, warp, args)
{
    const int64_t num_choices = (int64_t)args->num_tokens * args->num_topk;
    const int64_t step = (int64_t)wp_num_launch_warps(warp) * WP_WARP_SIZE;
    wp_admit_next(warp); /* it waits for nobody */
    for (int64_t i = (int64_t)wp_launch_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
         i < num_choices; i += step) {
        const int32_t replica = find_replica(args, i);
        if (args->index_type == WEFT_INT64)
            ((int64_t *)args->replica_idx)[i] = replica;
        else
            ((int32_t *)args->replica_idx)[i] = replica;
    }
    return WP_STATUS_OK;
}
