/* SPDX-License-Identifier: MIT */
/* Where experts are: a pure function of what all ranks know, so every rank can tell where any token
 * goes. */
#pragma once

#include "programs/reciprocal.h"

struct wp_placement { /* where the experts are; entry: one replica of one expert */
    int32_t num_experts;
    int32_t num_ranks;
    /* Rank r has the experts [num_experts*r/R, num_experts*(r+1)/R), and num_experts * R times the
     * larger of them is at most 2^31: the tables say the same, but are far. */
    int32_t is_even;
    uint32_t experts_reciprocal, ranks_reciprocal; /* if so */
    const int32_t *expert_offsets; /* [num_experts + 1] entries of expert e: [e] .. [e + 1] */
    const int32_t *entry_ranks;    /* [num_entries] */
    const int32_t *entry_local;    /* [num_entries] local expert id at that rank */
    const int32_t *rank_offsets;   /* [num_ranks + 1] into rank_entries */
    const int32_t *rank_entries;   /* [num_entries] entries of rank r by local id */
};

WP_FN int64_t wp_expert_id(const void *topk_idx, weft_dtype index_type, int64_t i)
{
    return index_type == WEFT_INT64 ? ((const int64_t *)topk_idx)[i]
                                    : (int64_t)((const int32_t *)topk_idx)[i];
}

/* The same, on its way from here on: no expert, if it is none. A negative one of 32 bits becomes a
 * large one, since to find its sign would be to wait for it. */
WP_FN int64_t wp_expert_id_now(const void *topk_idx, weft_dtype index_type, int32_t i)
{
    return index_type == WEFT_INT64
               ? (int64_t)wp_load_now((const uint64_t *)topk_idx + i)
               : (int64_t)(uint64_t)wp_load_now_u32((const uint32_t *)topk_idx + i);
}

/* The placement entry that serves `expert` for a token, or -1 if there is no such expert. A pure
 * function of the arguments, so every rank can tell where any token goes. */
WP_FN int32_t wp_placement_entry(const struct wp_placement *placement, int64_t expert,
                                 int32_t source_rank, int32_t token)
{
    if (expert < 0 || expert >= placement->num_experts)
        return -1;
    const int32_t begin = placement->expert_offsets[expert];
    const int32_t num_replicas = placement->expert_offsets[expert + 1] - begin;
    if (num_replicas == 1)
        return begin;
    return begin + (int32_t)(((int64_t)source_rank + token) % num_replicas);
}

/* Where an expert is. */
struct wp_place_of_expert {
    int32_t rank; /* -1: nowhere */
    int32_t local_expert;
};

/* The same as a place. Called: it is long, and mostly not needed. */
WP_CALLED_FN struct wp_place_of_expert wp_place_by_tables(struct wp_placement placement,
                                                          int64_t expert, int32_t source_rank,
                                                          int32_t token)
{
    struct wp_place_of_expert place = {-1, -1};
    const int32_t entry = wp_placement_entry(&placement, expert, source_rank, token);
    if (entry >= 0) {
        place.rank = placement.entry_ranks[entry];
        place.local_expert = placement.entry_local[entry];
    }
    return place;
}

/* Some programs know that experts lie evenly. */
#ifndef WP_PLACEMENT_IS_EVEN
#define WP_PLACEMENT_IS_EVEN 0
#endif
WP_FN int wp_placement_is_even(const struct wp_placement *placement)
{
    return WP_PLACEMENT_IS_EVEN || placement->is_even;
}

/* By arithmetic where that does. */
WP_FN struct wp_place_of_expert wp_place_expert(const struct wp_placement *placement,
                                                int64_t expert, int32_t source_rank, int32_t token)
{
    if (!wp_placement_is_even(placement))
        return wp_place_by_tables(*placement, expert, source_rank, token);
    const int is_one = (uint64_t)expert < (uint64_t)placement->num_experts;
    const uint32_t num_experts = (uint32_t)placement->num_experts, e = (uint32_t)expert;
    const uint32_t rank =
        wp_divide((e + 1) * (uint32_t)placement->num_ranks - 1, placement->experts_reciprocal);
    const uint32_t first = wp_divide(num_experts * rank, placement->ranks_reciprocal);
    const struct wp_place_of_expert place = {is_one ? (int32_t)rank : -1,
                                             is_one ? (int32_t)(e - first) : -1};
    return place;
}

/* Those of a rank. Whether an expert is one of them takes less than where it is. */
struct wp_experts_of_rank {
    int32_t rank;
    uint32_t first, num; /* of an even placement */
};

WP_FN struct wp_experts_of_rank wp_experts_of(const struct wp_placement *placement, int32_t rank)
{
    const uint32_t num_experts = (uint32_t)placement->num_experts, r = (uint32_t)rank;
    const uint32_t first = wp_divide(num_experts * r, placement->ranks_reciprocal);
    const uint32_t end = wp_divide(num_experts * (r + 1), placement->ranks_reciprocal);
    const struct wp_experts_of_rank experts = {rank, first, end - first};
    return experts;
}

/* Which of them serves `expert` for a token, as the rank counts them; -1: none. */
WP_FN int32_t wp_expert_among(const struct wp_placement *placement,
                              struct wp_experts_of_rank experts, int64_t expert,
                              int32_t source_rank, int32_t token)
{
    if (!wp_placement_is_even(placement)) {
        const struct wp_place_of_expert place =
            wp_place_by_tables(*placement, expert, source_rank, token);
        return place.rank == experts.rank ? place.local_expert : -1;
    }
    const uint64_t idx = (uint64_t)expert - experts.first; /* huge, if it is before */
    return idx < experts.num ? (int32_t)idx : -1;
}
