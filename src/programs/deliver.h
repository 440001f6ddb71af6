/* SPDX-License-Identifier: MIT */
/*
 * What ranks that are mapped get of one token: copies of its row in their outputs, and which of its
 * choices are experts of theirs. The warp has found the targets (targets.h).
 */
#ifndef WEFT_PROGRAMS_DELIVER_H
#define WEFT_PROGRAMS_DELIVER_H

#include "programs/share.h"
#include "programs/targets.h"

struct weft_delivery { /* the same for all tokens */
    const struct weft_operation *op;
    const struct weft_call *call; /* of whom the tokens come from */
    const struct weft_placement *placement;
    int32_t num_topk;
};

struct weft_token { /* whose rank `source` has it as token `idx` */
    int32_t source;
    int32_t idx;
    weft_dtype index_type;
    const void *topk_idx; /* [num_topk] */
    const float *topk_weights;
};

/* Token idx of arrays [num_tokens][num_topk]. */
WEFT_FN struct weft_token weft_token_of(int32_t source, int32_t idx,
                                        const struct weft_delivery *delivery, const void *topk_idx,
                                        const float *topk_weights)
{
    const int is_int64 = (weft_call_options(delivery->call) & WEFT_OPTION_INT64) != 0;
    const int64_t first = (int64_t)idx * delivery->num_topk;
    const struct weft_token token = {source, idx, is_int64 ? WEFT_INT64 : WEFT_INT32,
                                     (const char *)topk_idx + first * (is_int64 ? 8 : 4),
                                     topk_weights + first};
    return token;
}

/* Part `span` of the row, which begins at src, of a plane. */
WEFT_FN void weft_deliver_row(const struct weft_delivery *delivery, int32_t plane, const char *src,
                              struct weft_span span, int32_t num_targets)
{
    struct weft_warp *warp = delivery->op->warp;
    const struct weft_target *targets = weft_warp_targets(warp);
    const void **dsts = weft_warp_pointers(warp);
    if (plane > 0)
        weft_warp_sync(warp); /* those of the plane before have been used */
    for (int32_t i = weft_lane_idx(warp); i < num_targets; i += WEFT_WARP_SIZE) {
        char *row = weft_target_row(delivery->op, targets[i], WEFT_ARRAY_PLANE + plane,
                                    delivery->call->row_bytes[plane]);
        dsts[i] = row == NULL ? NULL : row + span.begin;
    }
    weft_warp_sync(warp);
    weft_row_copy(warp, dsts, num_targets, src + span.begin, span.bytes);
}

WEFT_FN uint64_t weft_expert_id_bytes(uint32_t options)
{
    return options & WEFT_OPTION_INT64 ? sizeof(int64_t) : sizeof(int32_t);
}

WEFT_FN void weft_store_expert_id(uint32_t options, char *ids, int64_t i, int32_t local_expert)
{
    if (options & WEFT_OPTION_INT64)
        ((int64_t *)(void *)ids)[i] = local_expert;
    else
        ((int32_t *)(void *)ids)[i] = local_expert;
}

/* Tells the target's rank whether the token's choice k is an expert of its own, and which. */
WEFT_FN void weft_deliver_choice(const struct weft_delivery *delivery,
                                 const struct weft_token *token, struct weft_target target,
                                 int32_t k)
{
    const struct weft_operation *op = delivery->op;
    const struct weft_placement *placement = delivery->placement;
    const uint32_t options = weft_call_options(delivery->call);
    const uint64_t num_topk = (uint64_t)delivery->num_topk;
    char *ids =
        weft_target_row(op, target, WEFT_ARRAY_TOPK_IDX, num_topk * weft_expert_id_bytes(options));
    if (ids == NULL)
        return;
    const int32_t entry =
        weft_placement_entry(placement, weft_expert_id(token->topk_idx, token->index_type, k),
                             token->source, token->idx);
    const int is_there = entry >= 0 && placement->entry_ranks[entry] == target.rank;
    weft_store_expert_id(options, ids, k, is_there ? placement->entry_local[entry] : -1);
    if (options & WEFT_OPTION_TOPK_WEIGHTS) {
        char *weights =
            weft_target_row(op, target, WEFT_ARRAY_TOPK_WEIGHTS, num_topk * sizeof(float));
        ((float *)(void *)weights)[k] = is_there ? token->topk_weights[k] : 0.0f;
    }
}

/* All but the rows: choices, and where the token is from. */
WEFT_FN void weft_deliver_topk(const struct weft_delivery *delivery, const struct weft_token *token,
                               int32_t num_targets)
{
    struct weft_warp *warp = delivery->op->warp;
    const struct weft_target *targets = weft_warp_targets(warp);
    const int32_t num_topk = delivery->num_topk;
    weft_warp_sync(warp); /* the targets are there */
    if (weft_call_options(delivery->call) & WEFT_OPTION_TOPK_IDX) {
        for (int32_t i = weft_lane_idx(warp); i < num_targets * num_topk; i += WEFT_WARP_SIZE)
            weft_deliver_choice(delivery, token, targets[i / num_topk], i % num_topk);
    }
    for (int32_t i = weft_lane_idx(warp); i < num_targets; i += WEFT_WARP_SIZE) {
        char *src_token =
            weft_target_row(delivery->op, targets[i], WEFT_ARRAY_SRC_TOKEN, sizeof(int32_t));
        if (src_token != NULL)
            *(int32_t *)(void *)src_token = token->idx;
    }
}

/* Own outputs that no rank writes: expert ids after the last row, and the count of drops. */
WEFT_FN void weft_complete_outputs(const struct weft_operation *op,
                                   const struct weft_routing *routing)
{
    struct weft_warp *warp = op->warp;
    const struct weft_exchange *exchange = op->exchange;
    const struct weft_message *message = op->message;
    const int64_t num_rows = *routing->recv_rows;
    const int64_t capacity = message->capacity;
    const uint32_t options = weft_call_options(&message->call);
    const int64_t lane = (int64_t)weft_launch_warp_idx(warp) * WEFT_WARP_SIZE + weft_lane_idx(warp);
    if (lane == 0 && num_rows - capacity > *routing->dropped_rows)
        *routing->dropped_rows = num_rows - capacity;
    if (!(options & WEFT_OPTION_TOPK_IDX))
        return;
    char *ids = exchange->bases[exchange->rank] + message->array_offsets[WEFT_ARRAY_TOPK_IDX];
    for (int64_t i = num_rows * routing->num_topk + lane; i < capacity * routing->num_topk;
         i += (int64_t)weft_num_launch_warps(warp) * WEFT_WARP_SIZE)
        weft_store_expert_id(options, ids, i, -1);
}

#endif
