/* SPDX-License-Identifier: MIT */
/*
 * combine: the owner of a token pulls its rows from the ranks that had it and sums them in
 * ascending rank order. The routes are the ones that dispatch wrote along.
 */
#include "programs/combine.h"

#include "programs/share.h"

enum { MAX_BIASES = 2 };

struct row_sum {
    int array; /* of the messages: whose rows are summed */
    weft_dtype dtype;
    uint64_t row_bytes;
    const char *biases[MAX_BIASES]; /* [num_biases] */
    int32_t num_biases;
    char *out;
};

/* The token's row at the rank of `route`, or null if the rank has no such row. */
WEFT_FN const char *source_row(const struct weft_combine_args *args, const struct row_sum *sum,
                               int32_t token, struct weft_route route)
{
    const int32_t row = weft_route_row(&args->routing, token, route);
    if (row >= weft_exchange_message(&args->exchange, route.rank)->capacity)
        return NULL;
    return weft_exchange_array(&args->exchange, route.rank, sum->array) +
           (uint64_t)row * sum->row_bytes;
}

WEFT_FN void sum_rows(struct weft_warp *warp, const struct weft_combine_args *args, int32_t token,
                      const struct row_sum *sum, struct weft_span span)
{
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    const int32_t num_routes = weft_num_routes(&args->routing, routes);
    const uint64_t own_offset = (uint64_t)token * sum->row_bytes + span.begin;
    const void **srcs = weft_warp_pointers(warp);
    const void **dst = srcs + WEFT_WARP_POINTERS - 1;
    weft_warp_sync(warp); /* the previous row's pointers have been used */
    if (weft_lane_idx(warp) == 0)
        *dst = sum->out + own_offset;
    for (int32_t i = weft_lane_idx(warp); i < sum->num_biases && i < MAX_BIASES;
         i += WEFT_WARP_SIZE)
        srcs[i] = sum->biases[i] + own_offset;
    for (int32_t j = weft_lane_idx(warp); j < num_routes; j += WEFT_WARP_SIZE) {
        const char *row = source_row(args, sum, token, routes[j]);
        srcs[sum->num_biases + j] = row == NULL ? NULL : row + span.begin;
    }
    weft_warp_sync(warp);
    const struct weft_reduction reduction = {sum->dtype, WEFT_REDUCTION_SUM_FROM_ZERO};
    weft_row_reduce(warp, dst, 1, srcs, sum->num_biases + num_routes, reduction,
                    (int64_t)(span.bytes / weft_dtype_bytes(sum->dtype)));
}

WEFT_FN void combine_part(struct weft_warp *warp, const struct weft_combine_args *args,
                          const struct weft_share *share, struct weft_part part)
{
    const struct row_sum payload = {WEFT_ARRAY_PLANE,
                                    args->dtype,
                                    args->message.call[WEFT_CALL_ROW_BYTES],
                                    {args->biases[0], args->biases[1]},
                                    args->num_biases,
                                    args->out};
    const struct row_sum weights = {WEFT_ARRAY_TOPK_WEIGHTS,
                                    WEFT_FP32,
                                    (uint64_t)args->routing.num_topk * sizeof(float),
                                    {NULL, NULL},
                                    0,
                                    (char *)args->out_topk_weights};
    const struct weft_span span = weft_part_span(share, part.part, payload.row_bytes);
    if (span.bytes > 0)
        sum_rows(warp, args, part.token, &payload, span);
    if (args->out_topk_weights != NULL && part.part == 0) {
        const struct weft_span all = {0, weights.row_bytes};
        sum_rows(warp, args, part.token, &weights, all);
    }
}

WEFT_PROGRAM(combine, warp, args)
{
    const enum weft_status status = weft_exchange_start(warp, &args->exchange, &args->message);
    if (status != WEFT_STATUS_OK)
        return status;
    const struct weft_share share =
        weft_share_rows(warp, args->routing.num_tokens, &args->exchange.state->num_units_taken);
    for (int32_t unit = weft_first_unit(warp); unit < share.num_units;) {
        const int32_t next = weft_take_unit(warp, &share);
        combine_part(warp, args, &share, weft_unit_part(&share, unit));
        unit = weft_taken_unit(warp, next);
    }
    return weft_exchange_finish(warp, &args->exchange);
}
