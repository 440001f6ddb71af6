/* SPDX-License-Identifier: MIT */
/*
 * The sums of a rank's own tokens: a token's owner pulls its rows from the ranks that had it and
 * sums them in the order of its routes, the ones that dispatch wrote along.
 */
#pragma once

#include "programs/ep/combine.h"
#include "programs/ep/targets.h"
#include "programs/share.h"

struct wp_row_sum {
    int array; /* of the messages: whose rows are summed */
    weft_dtype dtype;
    uint64_t row_bytes;
    const char *const *biases; /* [num_biases] */
    int32_t num_biases;
    char *out;
};

/* Where the token's rows are. Returns how many. */
WP_FN int32_t wp_find_sources(struct wp_warp *warp, const struct wp_combine_args *args,
                              int32_t token)
{
    return wp_find_targets(warp, &args->routing, token, WP_ROUTES_IN_ORDER, NULL);
}

/* Sums the rows of the sources that have been found. */
WP_FN void wp_sum_rows(const struct wp_operation *op, int32_t token, int32_t num_routes,
                       const struct wp_row_sum *sum, struct wp_span span)
{
    struct wp_warp *warp = op->warp;
    const struct wp_reduction reduction = {sum->dtype, WP_REDUCTION_SUM_FROM_ZERO, 0};
    const uint64_t own_offset = (uint64_t)token * sum->row_bytes + span.begin;
    const struct wp_target *targets = wp_warp_targets(warp);
    const void **srcs = wp_warp_pointers(warp);
    const void **dst = srcs + WP_WARP_POINTERS - 1;
    if (wp_lane_idx(warp) == 0)
        *dst = sum->out + own_offset;
    for (int32_t i = wp_lane_idx(warp); i < sum->num_biases; i += WP_WARP_SIZE)
        srcs[i] = sum->biases[i] + own_offset;
    for (int32_t j = wp_lane_idx(warp); j < num_routes; j += WP_WARP_SIZE) {
        const char *row = wp_target_row(op, targets[j], sum->array, sum->row_bytes);
        srcs[sum->num_biases + j] = row == NULL ? NULL : row + span.begin;
    }
    wp_warp_sync(warp);
    wp_row_reduce(warp, dst, 1, srcs, sum->num_biases + num_routes, reduction,
                  (int64_t)(span.bytes / wp_dtype_bytes(sum->dtype)));
}

/* The token's sources have been found. */
WP_FN void wp_sum_part(const struct wp_operation *op, const struct wp_combine_args *args,
                       const struct wp_share *share, struct wp_part part, int32_t num_routes)
{
    const struct wp_row_sum payload = {
        WP_ARRAY_PLANE, args->dtype,      args->message.call.row_bytes[0],
        args->biases,   args->num_biases, args->out,
    };
    const struct wp_row_sum weights = {
        WP_ARRAY_TOPK_WEIGHTS, WEFT_FP32, (uint64_t)args->routing.num_topk * sizeof(float),
        args->biases,          0,         (char *)args->out_topk_weights};
    const struct wp_span span = wp_part_span(share, part.part, payload.row_bytes);
    if (span.bytes > 0)
        wp_sum_rows(op, part.token, num_routes, &payload, span);
    if (args->out_topk_weights != NULL && part.part == 0) {
        const struct wp_span all = {0, weights.row_bytes};
        wp_warp_sync(op->warp); /* the pointers before have been used */
        wp_sum_rows(op, part.token, num_routes, &weights, all);
    }
}
