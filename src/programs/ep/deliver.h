/* SPDX-License-Identifier: MIT */
/*
 * Delivers one token to the ranks that are mapped: copies of its row in their outputs, and which of
 * its choices are experts of theirs. The warp has found the targets (targets.h).
 */
#pragma once

#include "programs/ep/dispatch.h"
#include "programs/ep/targets.h"
#include "programs/share.h"

struct wp_delivery { /* the same for all tokens */
    const struct wp_operation *op;
    const struct wp_call *call; /* of whom the tokens come from */
    const struct wp_placement *placement;
    int32_t num_topk;
};

struct wp_token { /* whose rank `source` has it as token `idx` */
    int32_t source;
    int32_t idx;
    weft_dtype index_type;
    const void *topk_idx; /* [num_topk] */
    const float *topk_weights;
};

/* Token idx of arrays [num_tokens][num_topk]. */
WP_FN struct wp_token wp_token_of(int32_t source, int32_t idx, const struct wp_delivery *delivery,
                                  const void *topk_idx, const float *topk_weights)
{
    const int is_int64 = (wp_call_options(delivery->call) & WP_OPTION_INT64) != 0;
    const int64_t first = (int64_t)idx * delivery->num_topk;
    const struct wp_token token = {source, idx, is_int64 ? WEFT_INT64 : WEFT_INT32,
                                   (const char *)topk_idx + first * (is_int64 ? 8 : 4),
                                   topk_weights + first};
    return token;
}

/* Part `span` of the row, which begins at src, of a plane. */
WP_FN void wp_deliver_row(const struct wp_delivery *delivery, int32_t plane, const char *src,
                          struct wp_span span, int32_t num_targets)
{
    struct wp_warp *warp = delivery->op->warp;
    const struct wp_target *targets = wp_warp_targets(warp);
    const void **dsts = wp_warp_pointers(warp);
    if (plane > 0)
        wp_warp_sync(warp); /* those of the plane before have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_targets; i += WP_WARP_SIZE) {
        char *row = wp_target_row(delivery->op, targets[i], WP_ARRAY_PLANE + plane,
                                  delivery->call->row_bytes[plane]);
        dsts[i] = row == NULL ? NULL : row + span.begin;
    }
    wp_warp_sync(warp);
    wp_row_copy(warp, dsts, num_targets, src + span.begin, span.bytes);
}

/* The pointers of so many targets and of their scales fit the warp's. */
enum { WP_MOST_QUANTISED_AT_ONCE = WP_WARP_POINTERS / 2 };

/* Groups [span.begin, span.begin + span.bytes) of the row, which begins at src, of a plane that is
 * quantised, with their scales, to some of the targets. */
WP_FN void wp_deliver_quantised_to(const struct wp_delivery *delivery,
                                   const struct wp_quantised_plane *plane, const char *src,
                                   struct wp_span groups, const struct wp_target *targets,
                                   int32_t num_targets)
{
    struct wp_warp *warp = delivery->op->warp;
    const struct wp_quantisation how = plane->how;
    const int32_t scales_plane = wp_call_num_planes(delivery->call) - 1;
    const int64_t first = (int64_t)groups.begin * how.group_elements;
    const void **dsts = wp_warp_pointers(warp), **scales = dsts + WP_MOST_QUANTISED_AT_ONCE;
    wp_warp_sync(warp); /* those before have been used */
    for (int32_t i = wp_lane_idx(warp); i < num_targets; i += WP_WARP_SIZE) {
        char *row = wp_target_row(delivery->op, targets[i], WP_ARRAY_PLANE + plane->idx,
                                  delivery->call->row_bytes[plane->idx]);
        dsts[i] = row == NULL ? NULL : row + first; /* an element of theirs is a byte */
        scales[i] = wp_target_row(delivery->op, targets[i], WP_ARRAY_PLANE + scales_plane,
                                  delivery->call->row_bytes[scales_plane]);
    }
    wp_warp_sync(warp);
    const struct wp_quantised_rows to = {dsts, scales, wp_scale_offset(how, (int64_t)groups.begin),
                                         num_targets};
    wp_row_quantise(warp, to, src + (uint64_t)first * wp_dtype_bytes(how.src_dtype), how,
                    (int64_t)groups.bytes * how.group_elements);
}

/* To all targets. */
WP_FN void wp_deliver_quantised(const struct wp_delivery *delivery,
                                const struct wp_quantised_plane *plane, const char *src,
                                struct wp_span groups, int32_t num_targets)
{
    const struct wp_target *targets = wp_warp_targets(delivery->op->warp);
    for (int32_t first = 0; first < num_targets; first += WP_MOST_QUANTISED_AT_ONCE) {
        const int32_t rest = num_targets - first;
        wp_deliver_quantised_to(delivery, plane, src, groups, targets + first,
                                rest < WP_MOST_QUANTISED_AT_ONCE ? rest
                                                                 : WP_MOST_QUANTISED_AT_ONCE);
    }
}

WP_FN void wp_store_expert_id(uint32_t options, char *ids, int64_t i, int32_t local_expert)
{
    if (options & WP_OPTION_INT64)
        ((int64_t *)(void *)ids)[i] = local_expert;
    else
        ((int32_t *)(void *)ids)[i] = local_expert;
}

/* Tells the target's rank whether the token's choice k is an expert of its own, and which. */
WP_FN void wp_deliver_choice(const struct wp_delivery *delivery, const struct wp_token *token,
                             struct wp_target target, int32_t k)
{
    const struct wp_operation *op = delivery->op;
    const struct wp_placement *placement = delivery->placement;
    const uint32_t options = wp_call_options(delivery->call);
    const uint64_t num_topk = (uint64_t)delivery->num_topk;
    char *ids =
        wp_target_row(op, target, WP_ARRAY_TOPK_IDX, num_topk * wp_expert_id_bytes(options));
    if (ids == NULL)
        return;
    const int32_t entry = wp_placement_entry(
        placement, wp_expert_id(token->topk_idx, token->index_type, k), token->source, token->idx);
    const int is_there = entry >= 0 && placement->entry_ranks[entry] == target.rank;
    wp_store_expert_id(options, ids, k, is_there ? placement->entry_local[entry] : -1);
    if (options & WP_OPTION_TOPK_WEIGHTS) {
        char *weights = wp_target_row(op, target, WP_ARRAY_TOPK_WEIGHTS, num_topk * sizeof(float));
        ((float *)(void *)weights)[k] = is_there ? token->topk_weights[k] : 0.0f;
    }
}

/* All but the rows: choices, and where the token is from. */
WP_FN void wp_deliver_topk(const struct wp_delivery *delivery, const struct wp_token *token,
                           int32_t num_targets)
{
    struct wp_warp *warp = delivery->op->warp;
    const struct wp_target *targets = wp_warp_targets(warp);
    const int32_t num_topk = delivery->num_topk;
    wp_warp_sync(warp); /* the targets are there */
    if (wp_call_options(delivery->call) & WP_OPTION_TOPK_IDX) {
        for (int32_t i = wp_lane_idx(warp); i < num_targets * num_topk; i += WP_WARP_SIZE)
            wp_deliver_choice(delivery, token, targets[i / num_topk], i % num_topk);
    }
    for (int32_t i = wp_lane_idx(warp); i < num_targets; i += WP_WARP_SIZE) {
        char *src_token =
            wp_target_row(delivery->op, targets[i], WP_ARRAY_SRC_TOKEN, sizeof(int32_t));
        if (src_token != NULL)
            *(int32_t *)(void *)src_token = token->idx;
    }
}

/* Own outputs that no rank writes: expert ids after the last row, and the count of drops. */
WP_FN void wp_complete_outputs(const struct wp_operation *op, const struct wp_routing *routing,
                               char *ids)
{
    struct wp_warp *warp = op->warp;
    const struct wp_message *message = op->message;
    const int64_t num_rows = *routing->recv_rows;
    const int64_t capacity = message->capacity;
    const uint32_t options = wp_call_options(&message->call);
    const int64_t lane = (int64_t)wp_launch_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    if (lane == 0 && num_rows - capacity > *routing->dropped_rows)
        *routing->dropped_rows = num_rows - capacity;
    if (!(options & WP_OPTION_TOPK_IDX))
        return;
    for (int64_t i = num_rows * routing->num_topk + lane; i < capacity * routing->num_topk;
         i += (int64_t)wp_num_launch_warps(warp) * WP_WARP_SIZE)
        wp_store_expert_id(options, ids, i, -1);
}
