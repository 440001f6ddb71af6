/* SPDX-License-Identifier: MIT */
/* The expanded layout, of rows and choices that may be anything. */
#include "api_targets.h"

enum {
    MAX_ROW_BYTES = 64,
    MAX_EXPANDED_ROWS = 32,
    DST_OFFSET = 4 << 10, /* of the planes, each behind the other */
    DST_BYTES = MAX_EXPANDED_ROWS * MAX_ROW_BYTES,
    IDS_OFFSET = 32 << 10,
    CHOICES_OFFSET = 34 << 10,
    WEIGHTS_OFFSET = 36 << 10,
    ROW_WEIGHTS_OFFSET = 38 << 10,
    SRC_ROWS_OFFSET = 40 << 10
};

static void fill_expand(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ep_expand_args *args = &a->expand.known;
    FUZZ_FILL_SIZE(a, expand, rng);
    args->num_planes = 1 + (int32_t)rng_below(rng, WEFT_MAX_PLANES);
    args->planes = a->planes;
    args->capacity = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    args->expanded_capacity = 1 + (int32_t)rng_below(rng, MAX_EXPANDED_ROWS);
    for (int32_t plane = 0; plane < args->num_planes; plane++)
        a->planes[plane] = (weft_plane){.size = sizeof(weft_plane),
                                        .src = a->arena_memory + rng_below(rng, 16),
                                        .dst = a->arena_memory + DST_OFFSET + DST_BYTES * plane,
                                        .row_bytes = 1 + rng_below(rng, MAX_ROW_BYTES),
                                        .src_stride_bytes = rng_below(rng, 2) == 0 ? 0 : 80};
    args->index_type = WEFT_INT64;
    args->recv_topk_idx = a->arena_memory + IDS_OFFSET;
    args->choice_rows = (int32_t *)(void *)(a->arena_memory + CHOICES_OFFSET);
    args->recv_topk_weights = (const float *)(const void *)(a->arena_memory + WEIGHTS_OFFSET);
    args->row_weights = (float *)(void *)(a->arena_memory + ROW_WEIGHTS_OFFSET);
    args->src_rows = (int32_t *)(void *)(a->arena_memory + SRC_ROWS_OFFSET);
    args->gaps = (weft_ep_gaps)rng_below(rng, 2);
    args->num_blocks = (int32_t)rng_below(rng, FUZZ_BLOCKS + 1);
}

static void fill_reduce(struct fuzz_arguments *a, struct rng *rng)
{
    weft_ep_reduce_args *args = &a->reduce.known;
    FUZZ_FILL_SIZE(a, reduce, rng);
    args->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    args->out_dtype = rng_below(rng, 2) == 0 ? WEFT_DTYPE_NONE : WEFT_FP32;
    args->hidden = 1 + (int64_t)rng_below(rng, MAX_ROW_BYTES / 4);
    args->capacity = 1 + (int32_t)rng_below(rng, FUZZ_MAX_TOKENS);
    args->expanded_capacity = 1 + (int32_t)rng_below(rng, MAX_EXPANDED_ROWS);
    args->rows = a->arena_memory;
    args->choice_rows = (const int32_t *)(const void *)(a->arena_memory + CHOICES_OFFSET);
    args->out = a->arena_memory + DST_OFFSET;
    args->row_weights = (const float *)(const void *)(a->arena_memory + ROW_WEIGHTS_OFFSET);
    args->topk_weights = (float *)(void *)(a->arena_memory + WEIGHTS_OFFSET);
    args->num_blocks = (int32_t)rng_below(rng, FUZZ_BLOCKS + 1);
}

FUZZ_TARGET(ep_expand, fill_expand, (a->handle, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(handle, weft_ep_expand_args, expand),
            FUZZ_FIELD(expand, num_planes, -1, WEFT_MAX_PLANES + 1, INT32_MAX, INT32_MIN),
            FUZZ_POINTERS("planes", expand.known.planes, FUZZ_NULL),
            FUZZ_FIELD(expand, capacity, -1, INT32_MIN),
            FUZZ_FIELD(expand, expanded_capacity, -1, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "planes[0].row_bytes", planes[0].row_bytes, 0, -1,
                         (int64_t)1 << 31, INT64_MIN),
            FUZZ_POINTERS("planes[0].src", planes[0].src, FUZZ_NULL),
            FUZZ_POINTERS("planes[0].dst", planes[0].dst, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "planes[0]", planes[0].quantisation.dtype, WEFT_INT8, -1,
                         INT32_MAX),
            FUZZ_NUMBERS(FUZZ_INT32, "planes[0]", planes[0].quantisation.group_elements, 1, -1),
            FUZZ_FIELD(expand, index_type, -1, WEFT_DTYPE_NONE, 3, INT32_MIN),
            FUZZ_POINTERS("choice_rows", expand.known.choice_rows, FUZZ_NULL),
            FUZZ_PAIR("recv_topk_weights", expand.known.recv_topk_weights, FUZZ_NULL),
            FUZZ_PAIR("row_weights", expand.known.row_weights, FUZZ_NULL),
            FUZZ_FIELD(expand, gaps, -1, 2, INT32_MAX),
            FUZZ_FIELD(expand, num_blocks, -1, FUZZ_BLOCKS + 1, INT32_MAX, INT32_MIN))
FUZZ_TARGET(ep_reduce, fill_reduce, (a->handle, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(handle, weft_ep_reduce_args, reduce),
            FUZZ_FIELD(reduce, dtype, WEFT_INT64, WEFT_FP64, INT32_MAX, INT32_MIN),
            FUZZ_FIELD(reduce, out_dtype, WEFT_INT32, -1, INT32_MAX),
            FUZZ_FIELD(reduce, hidden, 0, -1, INT64_MIN, INT64_MAX),
            FUZZ_FIELD(reduce, capacity, -1, INT32_MIN),
            FUZZ_FIELD(reduce, expanded_capacity, -1, INT32_MIN),
            FUZZ_POINTERS("rows", reduce.known.rows, FUZZ_NULL),
            FUZZ_POINTERS("choice_rows", reduce.known.choice_rows, FUZZ_NULL),
            FUZZ_POINTERS("out", reduce.known.out, FUZZ_NULL),
            FUZZ_PAIR("row_weights", reduce.known.row_weights, FUZZ_NULL),
            FUZZ_PAIR("topk_weights", reduce.known.topk_weights, FUZZ_NULL),
            FUZZ_FIELD(reduce, reserved, 1, -1),
            FUZZ_FIELD(reduce, num_blocks, -1, FUZZ_BLOCKS + 1, INT32_MAX, INT32_MIN))
