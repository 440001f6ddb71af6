/* SPDX-License-Identifier: MIT */
/*
 * combine: the owner of a token pulls its rows from the ranks that had it and sums them in
 * ascending rank order. The routes are the ones that dispatch wrote along.
 */
#include "programs/combine.h"

#include "programs/share.h"
#include "programs/targets.h"

struct row_sum {
    int array; /* of the messages: whose rows are summed */
    weft_dtype dtype;
    uint64_t row_bytes;
    const char *const *biases; /* [num_biases] */
    int32_t num_biases;
    char *out;
};

/* Where the token's rows are. Returns how many. */
WEFT_FN int32_t find_sources(struct weft_warp *warp, const struct weft_combine_args *args,
                             int32_t token)
{
    return weft_find_targets(warp, &args->routing, token, WEFT_ROUTES_ASCENDING, NULL);
}

/* Sums the rows of the sources that have been found. */
WEFT_FN void sum_rows(const struct weft_operation *op, int32_t token, int32_t num_routes,
                      const struct row_sum *sum, struct weft_span span)
{
    struct weft_warp *warp = op->warp;
    const uint64_t own_offset = (uint64_t)token * sum->row_bytes + span.begin;
    const struct weft_target *targets = weft_warp_targets(warp);
    const void **srcs = weft_warp_pointers(warp);
    const void **dst = srcs + WEFT_WARP_POINTERS - 1;
    if (weft_lane_idx(warp) == 0)
        *dst = sum->out + own_offset;
    for (int32_t i = weft_lane_idx(warp); i < sum->num_biases; i += WEFT_WARP_SIZE)
        srcs[i] = sum->biases[i] + own_offset;
    for (int32_t j = weft_lane_idx(warp); j < num_routes; j += WEFT_WARP_SIZE) {
        const char *row = weft_target_row(op, targets[j], sum->array, sum->row_bytes);
        srcs[sum->num_biases + j] = row == NULL ? NULL : row + span.begin;
    }
    weft_warp_sync(warp);
    const struct weft_reduction reduction = {sum->dtype, WEFT_REDUCTION_SUM_FROM_ZERO};
    weft_row_reduce(warp, dst, 1, srcs, sum->num_biases + num_routes, reduction,
                    (int64_t)(span.bytes / weft_dtype_bytes(sum->dtype)));
}

/* The token's sources have been found. */
WEFT_FN void combine_part(const struct weft_operation *op, const struct weft_combine_args *args,
                          const struct weft_share *share, struct weft_part part, int32_t num_routes)
{
    const struct row_sum payload = {
        WEFT_ARRAY_PLANE, args->dtype,      args->message.call.row_bytes[0],
        args->biases,     args->num_biases, args->out,
    };
    const struct row_sum weights = {WEFT_ARRAY_TOPK_WEIGHTS,
                                    WEFT_FP32,
                                    (uint64_t)args->routing.num_topk * sizeof(float),
                                    args->biases,
                                    0,
                                    (char *)args->out_topk_weights};
    const struct weft_span span = weft_part_span(share, part.part, payload.row_bytes);
    if (span.bytes > 0)
        sum_rows(op, part.token, num_routes, &payload, span);
    if (args->out_topk_weights != NULL && part.part == 0) {
        const struct weft_span all = {0, weights.row_bytes};
        weft_warp_sync(op->warp); /* the pointers before have been used */
        sum_rows(op, part.token, num_routes, &weights, all);
    }
}

WEFT_PROGRAM(combine, warp, args)
{
    const struct weft_operation op = weft_operation_begin(warp, &args->exchange, &args->message);
    if (op.sequence == WEFT_SEQUENCE_FAILED)
        return WEFT_STATUS_FAILED;
    weft_operation_tell(&op);
    /* What needs no other rank is done while the messages are under way. */
    const struct weft_share share =
        weft_share_rows(weft_num_launch_warps(warp), args->routing.num_tokens,
                        weft_units_taken(&args->exchange, op.sequence));
    const int32_t first = weft_first_unit(warp);
    int32_t num_routes = 0;
    if (first < share.num_units)
        num_routes = find_sources(warp, args, weft_unit_part(&share, first).token);
    const enum weft_status status = weft_operation_meet(&op);
    if (status != WEFT_STATUS_OK)
        return weft_operation_end(&op, status);
    weft_admit_next(warp); /* all ranks have started */
    for (int32_t unit = first; unit < share.num_units;) {
        const struct weft_part part = weft_unit_part(&share, unit);
        const int32_t next = weft_take_unit(warp, &share);
        if (unit != first)
            num_routes = find_sources(warp, args, part.token);
        combine_part(&op, args, &share, part, num_routes);
        unit = weft_taken_unit(warp, next);
    }
    return weft_operation_finish(&op, WEFT_BLOCKS_AS_TOLD);
}
