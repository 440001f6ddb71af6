/* SPDX-License-Identifier: MIT */
/*
 * combine: the owner of a token pulls its rows from the ranks that had it and sums them in
 * ascending rank order. The routes are the ones that dispatch wrote along.
 */
#include "programs/combine.h"

/* Array `array` of the rank of `route` at the token's row, or null if the rank has no such row. */
WEFT_FN const char *source_row(const struct weft_combine_args *args, int32_t token,
                               struct weft_route route, int array, uint64_t row_bytes)
{
    const int32_t row = weft_route_row(&args->routing, token, route);
    if (row >= weft_exchange_message(&args->exchange, route.rank)->capacity)
        return NULL;
    return weft_exchange_array(&args->exchange, route.rank, array) + (uint64_t)row * row_bytes;
}

struct row_sum {
    int array; /* of the messages: whose rows are summed */
    weft_dtype dtype;
    int64_t num_elements;
    uint64_t row_bytes;
    const char *biases[2]; /* [num_biases] */
    int32_t num_biases;
    char *out;
};

WEFT_FN void sum_rows(struct weft_warp *warp, const struct weft_combine_args *args, int32_t token,
                      const struct row_sum *sum)
{
    const struct weft_route *routes = weft_token_routes(&args->routing, token);
    const uint64_t own_offset = (uint64_t)token * sum->row_bytes;
    const void **srcs = weft_warp_pointers(warp);
    weft_warp_sync(warp); /* the previous row's pointers have been used */
    for (int32_t i = weft_lane_idx(warp); i < sum->num_biases; i += WEFT_WARP_SIZE)
        srcs[i] = sum->biases[i] + own_offset;
    const int32_t num_routes = weft_num_routes(&args->routing, routes);
    for (int32_t j = weft_lane_idx(warp); j < num_routes; j += WEFT_WARP_SIZE)
        srcs[sum->num_biases + j] = source_row(args, token, routes[j], sum->array, sum->row_bytes);
    weft_warp_sync(warp);
    weft_row_sum(warp, sum->out + own_offset, srcs, sum->num_biases + num_routes, sum->dtype,
                 sum->num_elements);
}

WEFT_PROGRAM(combine, warp, args)
{
    const enum weft_status status = weft_exchange_start(warp, &args->exchange, &args->message);
    if (status != WEFT_STATUS_OK)
        return status;
    const struct row_sum payload = {WEFT_ARRAY_PLANE,
                                    args->dtype,
                                    args->hidden,
                                    args->message.call[WEFT_CALL_ROW_BYTES],
                                    {args->biases[0], args->biases[1]},
                                    args->num_biases,
                                    args->out};
    const struct row_sum weights = {WEFT_ARRAY_TOPK_WEIGHTS,
                                    WEFT_FP32,
                                    args->routing.num_topk,
                                    (uint64_t)args->routing.num_topk * sizeof(float),
                                    {NULL, NULL},
                                    0,
                                    (char *)args->out_topk_weights};
    const int32_t num_global_warps = weft_num_blocks(warp) * weft_num_warps(warp);
    const int32_t first = weft_block_idx(warp) * weft_num_warps(warp) + weft_warp_idx(warp);
    for (int32_t token = first; token < args->routing.num_tokens; token += num_global_warps) {
        sum_rows(warp, args, token, &payload);
        if (args->out_topk_weights != NULL)
            sum_rows(warp, args, token, &weights);
    }
    return weft_exchange_finish(warp, &args->exchange);
}
